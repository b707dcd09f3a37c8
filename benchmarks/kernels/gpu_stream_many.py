"""Several GPUs of one host: time of rounds and passes by their number; a matrix larger than one GPU, solved, checked.

python -m benchmarks.kernels.gpu_stream_many [scale] [large] [passes]
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.kernels.gpu_stream import GIB, Watch
from benchmarks.kernels.gpu_timing import Record
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cuda.pinned import host_matrix
from engine.devices.cuda.stripes.panels import CudaPanels
from engine.devices.cuda.stripes.streamer import CudaStreamer
from engine.devices.cuda.stripes.trace import Trace
from engine.model.backend import Arcs
from engine.model.dtypes import WORK_TYPES
from engine.model.tier import HostTier
from engine.model.tiling import Tiling, device_bytes, updates
from engine.planning.layouts import StreamingDevices, choose_layout
from engine.rows.dense import fill_weights
from engine.streaming import passes, schedule
from storage.errors import Cancelled
from storage.graph.graph import Graph, build_graph

THREADS = 64
#: Bytes a second each way at once, of one GPU and of all four together, and updates a second of one.
BUS, BUS_MOST, RATE = 5.0e10, 1.06e11, 1.65e13
#: What streams, rounds and libraries need of a GPU's memory, beside stripes.
BESIDE = 4 * GIB


def random_graph(n: int, degree: int = 4) -> Graph:
    """``degree`` random arcs out of every vertex, whole weights 1 ... 100 as floats."""
    rng = np.random.default_rng(n)
    tails, heads = np.repeat(np.arange(n), degree), rng.integers(0, n, degree * n)
    return build_graph(tails, heads, rng.integers(1, 101, degree * n).astype(np.float64), n=n, directed=True)[0]


def ingest(graph: Graph, matrix: Any) -> float:
    """Seconds of filling the matrix with the arcs' weights, by all threads."""
    kind, began, step = WORK_TYPES[matrix.dtype.name], time.perf_counter(), 256
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda i: fill_weights(graph, kind, i, matrix[i : i + step]), range(0, len(matrix), step)))
    return time.perf_counter() - began


def usable() -> int:
    """Bytes of a GPU's memory that may hold stripes."""
    import cupy

    return int(cupy.cuda.Device().mem_info[1]) - BESIDE


def layout(n: int, count: int, memory: int) -> Tiling:
    """What the planner would choose."""
    found = choose_layout(n, 4, StreamingDevices(count, memory, min(count * BUS, BUS_MOST), count * RATE))
    if found is None:
        raise ValueError(f"n = {n} does not fit {memory} bytes")
    return found


def stream(matrix: Any, streaming: Tiling, count: int, share: float, memory: int | None) -> Watch:
    """Run some of the rounds on ``count`` devices."""
    watch = Watch(share)
    devices = [CudaStreamer(i, memory=memory) for i in range(count)]
    with suppress(Cancelled):
        schedule.run(streaming, HostTier(matrix, streaming, threads=THREADS), devices, watch, nonnegative=True)
    return watch


def scale(record: Record, n: int = 131_072) -> None:
    """Time of a round on 1, 2 and 4 GPUs: streamed through 16 GiB of each, and with stripes resident."""
    import cupy

    most = cupy.cuda.runtime.getDeviceCount()
    with host_matrix((n, n), "float32", threads=THREADS) as space:
        matrix, graph = space.array, random_graph(n)
        record.add(what="host memory", n=n, gib=matrix.nbytes / GIB, touch_s=space.touched, lock_s=space.registered,
                   refused=space.refused, fill_s=ingest(graph, matrix))  # fmt: skip
        for name, memory in (("streamed", 16 * GIB), ("resident", usable())):
            base = 0.0
            for count in (1, 2, 4):
                if count > most:
                    continue
                found = layout(n, count, memory)
                if name == "streamed":
                    found = Tiling("host", found.height, 4096, found.slots, 0)
                share = {1: 0.1, 2: 0.16, 4: 0.25}[count]
                watch = stream(matrix, found, count, share, memory)
                rate = watch.rate()
                base = base or rate
                record.add(what=name, n=n, gpus=count, height=found.height, width=found.width, slots=found.slots,
                           resident=found.resident, device_bytes=device_bytes(found, n, 4),
                           round_s=n * n * found.width / rate, rate_T=rate * 1e-12, speedup=rate / base)  # fmt: skip
                record.write()


def share_passes(record: Record, n: int = 65_536) -> None:
    """Whole passes on 1, 2 and 4 GPUs, equal bit for bit; and how long each GPU relaxed or closed panels.

    The times of GPUs begin when each has taken its memory, one after the other.
    """
    import cupy

    most, base, sums = cupy.cuda.runtime.getDeviceCount(), 0.0, set[float]()
    with host_matrix((n, n), "float32", threads=THREADS) as space:
        matrix, graph = space.array, random_graph(n)
        for count in (1, 2, 4):
            if count > most:
                continue
            found, trace, watch = Tiling("host", 1024, 2048, 4, passes=True), Trace(), Watch(1.0)
            ingest(graph, matrix)
            devices = [CudaPanels(i, memory=16 * GIB, trace=trace) for i in range(count)]
            passes.run(found, HostTier(matrix, found, threads=THREADS), devices, watch, nonnegative=True)
            busy, ends = [0.0] * count, [0.0] * count
            for interval in trace.intervals():
                if interval.kind in ("lower", "close"):  # sorted by their beginnings; lanes overlap
                    busy[interval.device] += max(0.0, interval.end - max(ends[interval.device], interval.begin))
                    ends[interval.device] = max(ends[interval.device], interval.end)
            sums.add(float(matrix[::97].sum(dtype=np.float64)))
            rate = n**3 / watch.seconds
            base = base or rate
            record.add(what="passes", n=n, gpus=count, height=found.height, width=found.width, slots=found.slots,
                       device_bytes=device_bytes(found, n, 4), seconds=watch.seconds, rate_T=rate * 1e-12,
                       speedup=rate / base, busy_s=busy, last_work_s=ends, equal=len(sums) == 1)  # fmt: skip
            record.write()


def large(record: Record, n: int = 200_000, samples: int = 1024) -> None:
    """A matrix that no GPU here can hold: solved, timed, and compared with searches from sampled sources."""
    import cupy

    graph, most = random_graph(n), cupy.cuda.runtime.getDeviceCount()
    with host_matrix((n, n), "float32", threads=THREADS) as space:
        matrix = space.array
        record.add(what="host memory", n=n, gib=matrix.nbytes / GIB, touch_s=space.touched, lock_s=space.registered,
                   s_per_gib=(space.touched + space.registered) * GIB / matrix.nbytes, refused=space.refused,
                   fill_s=ingest(graph, matrix))  # fmt: skip
        record.write()
        found = layout(n, most, usable())
        began = time.perf_counter()
        watch = stream(matrix, found, most, 1.0, None)
        wall = time.perf_counter() - began
        record.add(what="solved", n=n, gpus=most, height=found.height, width=found.width, slots=found.slots,
                   resident=found.resident, device_bytes=device_bytes(found, n, 4), seconds=watch.seconds,
                   with_start_and_end_s=wall, rate_T=updates(found, n) / watch.seconds * 1e-12)  # fmt: skip
        record.write()
        check(record, graph, matrix, samples)
        alone = layout(n, 1, usable())
        for name, one in (("one GPU", alone), ("one GPU, streamed", Tiling("host", 1024, 2048, 4, 0))):
            watch = stream(matrix, one, 1, 0.04, None)
            record.add(what=name, n=n, height=one.height, width=one.width, slots=one.slots, resident=one.resident,
                       device_bytes=device_bytes(one, n, 4), rate_T=watch.rate() * 1e-12)  # fmt: skip
            record.write()


def check(record: Record, graph: Graph, matrix: Any, samples: int) -> None:
    """Rows against independent searches on the processors; whole weights are exact in float32 here."""
    n = len(matrix)
    sources = np.sort(np.random.default_rng(7).choice(n, samples, replace=False))
    backend = CpuBackend()
    arcs, wrong, began = Arcs(graph.indptr, graph.heads, graph.weights), 0, time.perf_counter()
    for i in range(0, samples, 128):
        some = sources[i : i + 128]
        out = np.empty((len(some), n), np.float32)
        backend.search(arcs, some, out)
        wrong += int((out != matrix[some]).sum())
    backend.shutdown()
    record.add(what="checked", n=n, sources=samples, entries=samples * n, wrong=wrong,
               largest=float(np.max(matrix[sources], where=np.isfinite(matrix[sources]), initial=0)),
               seconds=time.perf_counter() - began)  # fmt: skip
    record.write()


def main(*parts: str) -> None:
    """Measure and record."""
    if not parts or "large" in parts:
        large(Record("gpu_stream_large"))
    if not parts or "scale" in parts:
        scale(Record("gpu_stream_scale"))
    if not parts or "passes" in parts:
        share_passes(Record("gpu_stream_passes"))


if __name__ == "__main__":
    main(*sys.argv[1:])
