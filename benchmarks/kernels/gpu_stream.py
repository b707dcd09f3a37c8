"""Streaming from host memory against the same matrix in a GPU's memory; Xing's table; a picture of the overlap.

python -m benchmarks.kernels.gpu_stream [host] [xing] [trace]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.gpu_timing import Record, milliseconds, random_weights, results_folder
from benchmarks.kernels.timeline import draw
from engine.devices.cuda.context import modules
from engine.devices.cuda.floyd_warshall import Solver
from engine.devices.cuda.pinned import host_matrix
from engine.devices.cuda.stripes.streamer import CudaStreamer
from engine.devices.cuda.stripes.trace import Interval, Trace
from engine.model.progress import Monitor
from engine.model.tier import HostTier
from engine.model.tiling import Tiling, device_bytes, updates
from engine.planning.layouts import StreamingDevices, choose_layout
from engine.streaming import schedule
from storage.errors import Cancelled

GIB = 2**30
THREADS = 16


class Watch(Monitor):
    """Notes when how many updates were done; stops the run after ``share`` of them."""

    def __init__(self, share: float = 1.0) -> None:
        self.share, self.total, self.done = share, 0, 0
        self.notes: list[tuple[float, int]] = []

    def begin(self, phase: str, total: int, unit: str) -> None:  # noqa: ARG002
        """The clock starts."""
        self.total = total
        self.notes.append((time.perf_counter(), 0))

    def advance(self, amount: int) -> None:
        """A note."""
        self.done += amount
        if amount:
            self.notes.append((time.perf_counter(), self.done))

    def cancelled(self) -> bool:
        """Whether the share is done."""
        return self.share < 1 and self.done > self.share * self.total

    @property
    def seconds(self) -> float:
        """From the beginning to the last note."""
        return self.notes[-1][0] - self.notes[0][0]

    def rate(self, skip: float = 0.3) -> float:
        """Updates a second between ``skip`` of what was done and its end."""
        begin = next(i for i, (_, done) in enumerate(self.notes) if done >= skip * self.done)
        (t0, d0), (t1, d1) = self.notes[begin], self.notes[-1]
        return (d1 - d0) / (t1 - t0)


class Synchronous(CudaStreamer):
    """Batches in turn: load, relax, store, and nothing beside it (Xing, section 5.1)."""

    def lead(self, k: int, take: Any, *, first: bool) -> None:
        """Close the panel, then go on."""
        import cupy

        super().lead(k, take, first=first)
        cupy.cuda.runtime.deviceSynchronize()

    def relax(self, k: int, stripe: int, rows: Any) -> None:
        """One stripe, then the next."""
        super().relax(k, stripe, rows)
        self.drain(wait=True)


def stream(
    matrix: Any, streaming: Tiling, *, kind: type[CudaStreamer] = CudaStreamer, share: float = 1.0, **given: Any
) -> Watch:
    """Run the rounds, or the first of them."""
    watch = Watch(share)
    with suppress(Cancelled):
        devices = [kind(0, **given)]
        schedule.run(streaming, HostTier(matrix, streaming, threads=THREADS), devices, watch, nonnegative=True)
    return watch


def copy(target: Any, source: Any) -> None:
    """Between host and device, at once."""
    import cupy

    to_host = isinstance(target, np.ndarray)
    addresses = [x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr for x in (target, source)]
    kind = cupy.cuda.runtime.memcpyDeviceToHost if to_host else cupy.cuda.runtime.memcpyHostToDevice
    cupy.cuda.runtime.memcpy(*addresses, source.nbytes, kind)


def duplex(matrix: Any, size: int = 2 * GIB) -> float:
    """Bytes a second each way, both ways at once, in pieces of 256 MB as stripes are."""
    import cupy

    runtime, count = cupy.cuda.runtime, 8
    piece = size // count
    there = [cupy.empty(piece, "u1") for _ in range(2)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    address, best = matrix.ctypes.data, 0.0
    for _ in range(3):
        runtime.deviceSynchronize()
        began = time.perf_counter()
        for i in range(count):
            runtime.memcpyAsync(
                there[0].data.ptr, address + i * piece, piece, runtime.memcpyHostToDevice, streams[0].ptr
            )
            at = address + size + i * piece
            runtime.memcpyAsync(at, there[1].data.ptr, piece, runtime.memcpyDeviceToHost, streams[1].ptr)
        runtime.deviceSynchronize()
        best = max(best, size / (time.perf_counter() - began))
    return best


@contextmanager
def outside(n: int, dtype: str) -> Iterator[Any]:
    """A device matrix that the pool's limit does not see."""
    import cupy

    size = n * n * np.dtype(dtype).itemsize
    memory = cupy.cuda.Memory(size)
    yield cupy.ndarray((n, n), dtype, cupy.cuda.MemoryPointer(memory, 0))


def in_memory(d: Any, *, symmetric: bool = False) -> float:
    """Seconds of the solve in device memory."""
    import cupy

    solver = Solver(modules(), d.dtype, nonnegative=True)
    ms = milliseconds(lambda: solver.close(d, symmetric=symmetric), repeats=1)
    solver.release()
    cupy.get_default_memory_pool().free_all_blocks()
    return ms / 1e3


def equal(matrix: Any, d: Any) -> bool:
    """Whether host and device hold the same."""
    import cupy

    step = 2048
    return all(bool((cupy.asarray(matrix[i : i + step]) == d[i : i + step]).all()) for i in range(0, len(matrix), step))


def fill(matrix: Any, n: int, dtype: str, *, symmetric: bool = False) -> None:
    """Random weights, made on the device."""
    import cupy

    start = random_weights(n, dtype, symmetric=symmetric)
    copy(matrix, start)
    del start
    cupy.get_default_memory_pool().free_all_blocks()


def host(record: Record, n: int = 65536, memory: int = 4 * GIB) -> None:
    """The targets: in memory, streamed within 4 GiB, at width 1,024, undirected, synchronous."""
    with host_matrix((n, n), "float32", threads=THREADS) as space, outside(n, "float32") as d:
        matrix, size = space.array, space.array.nbytes / GIB
        record.add(what="host memory", gib=size, touch_s=space.touched, lock_s=space.registered,
                   s_per_gib=(space.touched + space.registered) / size, refused=space.refused)  # fmt: skip
        bus = duplex(matrix)
        record.add(what="bus, both ways at once", bytes_per_s=bus)
        fill(matrix, n, "float32")
        copy(d, matrix)
        base = in_memory(d)
        record.add(what="in memory", n=n, seconds=base, rate_T=n**3 / base * 1e-12)
        record.write()
        chosen = choose_layout(n, 4, StreamingDevices(1, memory, bus, n**3 / base))
        assert chosen is not None
        streaming = Tiling("host", chosen.height, chosen.width, chosen.slots, 0)
        for name, layout, share in (
            ("streamed, nothing resident", streaming, 1.0),
            ("streamed, as chosen", chosen, 0.4),
            ("streamed, width 1,024", Tiling("host", 1024, 1024, 4, 0), 0.15),
        ):
            watch = stream(matrix, layout, share=share, memory=memory)
            whole = share == 1.0
            rate = updates(layout, n) / watch.seconds if whole else watch.rate()
            bound = layout.width / 4 * bus
            record.add(what=name, n=n, height=layout.height, width=layout.width, slots=layout.slots,
                       resident=layout.resident, device_bytes=device_bytes(layout, n, 4), whole=whole,
                       seconds=watch.seconds, rate_T=rate * 1e-12, of_in_memory=rate / (n**3 / base),
                       of_bus_bound=rate / bound, equal=equal(matrix, d) if whole else None)  # fmt: skip
            record.write()
            if whole:
                fill(matrix, n, "float32")
        batches = Tiling("host", 2048, 2048, 1, 0)
        watch = stream(matrix, batches, share=0.15, kind=Synchronous, memory=memory)
        record.add(what="synchronous batches", n=n, height=2048, width=2048, rate_T=watch.rate() * 1e-12,
                   of_in_memory=watch.rate() / (n**3 / base))  # fmt: skip
        record.write()
        fill(matrix, n, "float32", symmetric=True)
        copy(d, matrix)
        half = in_memory(d, symmetric=True)
        chosen = choose_layout(n, 4, StreamingDevices(1, memory, bus, n**3 / base), symmetric=True)
        assert chosen is not None
        layout = Tiling("host", chosen.height, chosen.width, chosen.slots, 0, True)
        began = time.perf_counter()
        watch = stream(matrix, layout, memory=memory)
        record.add(what="undirected, streamed", n=n, height=layout.height, width=layout.width, seconds=watch.seconds,
                   with_mirror_s=time.perf_counter() - began, in_memory_s=half, of_directed=watch.seconds / base,
                   equal=equal(matrix, d))  # fmt: skip
        record.write()


def xing(record: Record) -> None:
    """Synchronous batches, asynchronous streams, in memory: the shape of Xing's Table 2."""
    for n in (8192, 11264, 12288, 13312, 14336, 15360, 16384, 32768):  # from 11,264 to 15,360 Xing's own
        with host_matrix((n, n), "float32", threads=THREADS) as space, outside(n, "float32") as d:
            fill(space.array, n, "float32")
            copy(d, space.array)
            base = in_memory(d)
            batches = stream(space.array, Tiling("host", 1024, 2048, 1, 0), kind=Synchronous).seconds
            fill(space.array, n, "float32")
            streams = stream(space.array, Tiling("host", 512, 2048, 4, 0)).seconds
            record.add(n=n, synchronous_s=batches, asynchronous_s=streams, in_memory_s=base,
                       speedup=batches / streams, of_in_memory=base / streams, equal=equal(space.array, d))  # fmt: skip
            record.write()


def trace(n: int = 65536) -> None:
    """Three rounds in the steady state, drawn."""
    found = Trace()
    with host_matrix((n, n), "float32", threads=THREADS) as space:
        fill(space.array, n, "float32")
        layout = Tiling("host", 1024, 2048, 4, 0)
        stream(space.array, layout, share=0.14, trace=found)
    intervals = [i for i in found.intervals() if 1 <= i.k <= 3]
    write_trace("gpu_stream_timeline", intervals, f"n = {n:,}, float32, pivot width 2,048, stripes of 1,024 rows")


def write_trace(name: str, intervals: list[Interval], title: str) -> None:
    """As SVG and as JSON."""
    folder: Path = results_folder()
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[i.kind, i.device, i.k, i.stripe, i.lane, round(i.begin, 6), round(i.end, 6)] for i in intervals]
    head = ["kind", "device", "round", "stripe", "lane", "begin_s", "end_s"]
    (folder / f"{name}.json").write_text(json.dumps({"title": title, "columns": head, "rows": rows}) + "\n")
    (folder / f"{name}.svg").write_text(draw(intervals, title))


def main(*parts: str) -> None:
    """Measure and record."""
    if not parts or "host" in parts:
        host(Record("gpu_stream_host"))
    if not parts or "trace" in parts:
        trace()
    if not parts or "xing" in parts:
        xing(Record("gpu_stream_xing"))


if __name__ == "__main__":
    main(*sys.argv[1:])
