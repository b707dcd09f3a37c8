"""Streamed solves through the planner, from the graph to the sealed store: what was predicted, what it took and held.

python -m benchmarks.kernels.gpu_stream_solve FOLDER PART...    (each in a process of its own)
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks.kernels.gpu_store import random_graph
from benchmarks.kernels.gpu_timing import Record
from engine.api.solve import make_plan, solve_to_store
from engine.devices.cuda.pinned import HostMemory, host_matrix
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.system import resident_bytes
from engine.planning import cost_streaming_cuda
from storage.errors import Cancelled
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix

GIB = 2**30
FW = "blocked-floyd-warshall"
#: Of host memory that is filled: bytes of a row, and rows that are filled, and locked, at a time.
ROW_BYTES, PIECE_ROWS = 2**16, 2**12


class Watch(Monitor):
    """Notes when how many updates were done, and the most device memory; stops the rounds after ``limit`` seconds."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.limit, self.phase, self.device = limit, "", 0
        self.held: dict[str, int] = {}
        self.notes: list[tuple[float, int]] = []

    def begin(self, phase: str, total: int, unit: str) -> None:  # noqa: ARG002
        """A phase begins."""
        self.phase = phase
        self.held[phase] = resident_bytes()
        if phase == "relax":
            self.notes.append((time.perf_counter(), 0))

    def advance(self, amount: int) -> None:
        """A note."""
        import cupy

        self.device = max(self.device, cupy.get_default_memory_pool().total_bytes())
        if self.phase == "relax" and amount:
            self.notes.append((time.perf_counter(), self.notes[-1][1] + amount))

    def cancelled(self) -> bool:
        """Whether the time is up."""
        return self.phase == "relax" and time.perf_counter() - self.notes[0][0] > self.limit

    def rate(self, skip: int) -> float:
        """Updates a second from the first ``skip`` updates on."""
        begin = next(i for i, (_, done) in enumerate(self.notes) if done >= skip)
        (t0, d0), (t1, d1) = self.notes[begin], self.notes[-1]
        return (d1 - d0) / (t1 - t0)


def peak() -> int:
    """Most bytes of memory that this process has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def wrong(graph: Graph, out: Path, count: int = 64) -> int:
    """Entries that differ from independent searches from random sources."""
    sources = np.sort(np.random.default_rng(5).choice(graph.n, count, replace=False))
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), (graph.n, graph.n))
    with open_matrix(out) as found:
        return int((found.rows(sources) != dijkstra(arcs, indices=sources).astype(found.dtype)).sum())


def facts(plan: Plan) -> dict[str, Any]:
    """What was planned."""
    cut = plan.streaming
    return {
        "n": plan.shape[0], "tier": plan.tier, "predicted_s": plan.seconds, "memory": plan.memory,
        "device_memory": plan.device_memory, "predicted": {p.name: round(p.seconds, 3) for p in plan.phases},
        "cut": cut and f"height {cut.height}, width {cut.width}, slots {cut.slots}, resident {cut.resident}",
    }  # fmt: skip


def mirrored(arcs: Graph) -> Graph:
    """The same arcs both ways."""
    tails = np.repeat(np.arange(arcs.n), np.diff(arcs.indptr))
    return build_graph(tails, arcs.heads, arcs.weights, n=arcs.n, directed=False)[0]


def host(record: Record, folder: Path, n: int = 65536, memory: int = 4 * GIB) -> None:
    """A matrix four times what may be used of the device; then of an undirected graph."""
    arcs, out, size = random_graph(n), folder / "host.zarr", n * n * 4 / GIB
    options = Options(device="cuda", algorithm=FW, dtype="float32", device_memory=memory)
    for what, graph in (("host tier", arcs), ("host tier, undirected", mirrored(arcs))):
        watch, began = Watch(), time.perf_counter()
        plan = make_plan(graph, options, out=out)
        planned, began = time.perf_counter() - began, time.perf_counter()
        outcome = solve_to_store(graph, options, out, plan=plan, monitor=watch)
        took = time.perf_counter() - began
        ready = outcome.seconds.get("prepare", 0.0) + outcome.seconds["ingest"]
        record.add(what=what, **facts(plan), planning_s=planned, solved_s=took, of_predicted=took / plan.seconds,
                   phases=outcome.seconds, relax_T=n**3 / outcome.seconds["relax"] * 1e-12,
                   ready_s_per_gib=ready / size, most_device=watch.device, most_memory=peak(),
                   memory_at_begin=watch.held, wrong=wrong(graph, out))  # fmt: skip
        shutil.rmtree(out)


def store(record: Record, folder: Path, n: int = 49152, limit: float = 40.0) -> None:
    """A matrix four times what the host may hold, sixteen times what the device may; then gone on with in memory."""
    graph, out, watch = random_graph(n), folder / "store.zarr", Watch(limit)
    raw = raw_disk(folder)
    record.add(what="disk, read and written at once", bytes_per_s=raw)
    base = Options(device="cuda", algorithm=FW, dtype="float32", device_memory=4 * GIB)
    options = Options(device="cuda", algorithm=FW, dtype="float32", memory=n * n, device_memory=n * n // 4)
    plan = make_plan(graph, options, out=out)
    cut = plan.streaming
    assert cut is not None
    with suppress(Cancelled):
        solve_to_store(graph, options, out, plan=plan, monitor=watch)
    a_round = cut.width * n * n
    measured, predicted = a_round / watch.rate(a_round * 5 // 4), plan.seconds / cut.rounds(n)
    record.add(what="store tier, a part of the rounds", **facts(plan), round_s=measured, predicted_round_s=predicted,
               of_predicted=measured / predicted, of_disk_bound=n * n * 4 / raw / measured,
               rounds_done=watch.notes[-1][1] / a_round, most_device=watch.device, most_memory=peak())  # fmt: skip
    record.write()
    began = time.perf_counter()
    outcome = solve_to_store(graph, base, out, resume=True)
    record.add(what="gone on with", **facts(outcome.plan), seconds=time.perf_counter() - began,
               phases=outcome.seconds, wrong=wrong(graph, out))  # fmt: skip
    shutil.rmtree(out)


def undirected(record: Record, folder: Path, n: int = 32768) -> None:
    """A directed graph, an undirected one as it is planned, and that one by halves; an eighth of the matrix on the
    device."""
    arcs, out = random_graph(n), folder / "u.zarr"
    both, options = mirrored(arcs), Options(device="cuda", algorithm=FW, dtype="float32", device_memory=n * n // 2)
    halves = mock.patch.object(cost_streaming_cuda, "forms", return_value=(True,))
    for name, graph, forms in (
        ("directed", arcs, nullcontext()),
        ("undirected, as planned", both, nullcontext()),
        ("undirected, by halves", both, halves),
    ):
        with forms:
            plan = make_plan(graph, options, out=out)
            outcome = solve_to_store(graph, options, out, plan=plan)
        record.add(what=name, **facts(plan), symmetric=plan.streaming is not None and plan.streaming.symmetric,
                   phases=outcome.seconds, wrong=wrong(graph, out, 16))  # fmt: skip
        shutil.rmtree(out)


def fill(space: HostMemory, first: int, *, locks: bool) -> None:
    """Fill a piece of the memory with ones, and lock it where the memory was handed out unlocked."""
    space.array[first : first + PIECE_ROWS].fill(1)
    if locks:
        space.lock(first * ROW_BYTES, (first + PIECE_ROWS) * ROW_BYTES)


def ready(record: Record, folder: Path, gib: int = 12) -> None:  # noqa: ARG001
    """Host memory handed out, locked and filled: one after the other, and at once; new to the machine, and used before.

    What is measured first is held while the rest is, so that all of it is new.
    """
    threads = os.cpu_count() or 1
    with host_matrix((1, 1), "float32"):  # opens the device
        pass
    for memory in ("new to the machine", "used before"):
        with ExitStack() as held:
            for ahead in (True, False, True):
                began = time.perf_counter()
                shape = gib * GIB // ROW_BYTES, ROW_BYTES // 4
                space = held.enter_context(host_matrix(shape, "float32", threads=threads, ahead=ahead))
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(partial(fill, space, locks=ahead), range(0, shape[0], PIECE_ROWS)))
                took = time.perf_counter() - began
                record.add(what=f"host memory, {memory}", at_once=ahead, gib=gib, s_per_gib=took / gib,
                           touch_s=space.touched, lock_s=space.registered, refused=space.refused,
                           kept=bool((space.array[:: 2**10] == 1).all()))  # fmt: skip


def resident(record: Record, folder: Path, n: int = 49152) -> None:
    """A matrix that the device holds: what was predicted, and what it took."""
    graph, out, watch = random_graph(n), folder / "resident.zarr", Watch()
    options = Options(device="cuda", algorithm=FW, dtype="float32")
    plan = make_plan(graph, options, out=out)
    began = time.perf_counter()
    outcome = solve_to_store(graph, options, out, plan=plan, monitor=watch)
    took = time.perf_counter() - began
    record.add(what="device tier", **facts(plan), solved_s=took, of_predicted=took / plan.seconds,
               phases=outcome.seconds, most_device=watch.device, most_memory=peak(),
               wrong=wrong(graph, out))  # fmt: skip
    shutil.rmtree(out)


def raw_disk(folder: Path, size: int = 2 * GIB, piece: int = 2**22, threads: int = 4) -> float:
    """Bytes a second that the disk reads while it writes as many, past the page cache."""
    one, two = folder / "raw1", folder / "raw2"
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_DIRECT", 0)

    def pass_over(path: Path, call: Callable[..., int], share: int) -> None:
        handle, buffer = os.open(path, flags, 0o600), mmap.mmap(-1, piece)
        try:
            buffer[:] = os.urandom(4096) * (piece // 4096)
            for at in range(share * piece, size, threads * piece):
                call(handle, [buffer], at)
            os.fdatasync(handle)
        finally:
            os.close(handle)

    with ThreadPoolExecutor(2 * threads) as pool:
        list(pool.map(lambda share: pass_over(one, os.pwritev, share), range(threads)))
        began = time.perf_counter()
        jobs = [(one, os.preadv, s) for s in range(threads)] + [(two, os.pwritev, s) for s in range(threads)]
        list(pool.map(lambda job: pass_over(*job), jobs))
        took = time.perf_counter() - began
    one.unlink()
    two.unlink()
    return size / took


def main(folder: str, *parts: str) -> None:
    """Measure and record each part in a file of its own."""
    for part in parts:
        record = Record(f"gpu_stream_solve_{part}")
        parts_of = {"host": host, "store": store, "undirected": undirected, "resident": resident, "ready": ready}
        parts_of[part](record, Path(folder))
        record.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
