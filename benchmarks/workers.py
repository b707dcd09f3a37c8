"""Compares workers with one process: python -m benchmarks.workers cpu FOLDER, or gpu FOLDER [N ...].

``cpu`` times blocked Floyd-Warshall over 8 x 8 pivot blocks of 1,024 vertices, alternately on two workers with one
thread each, and in one process with two threads: processor seconds of all processes, and wall seconds.
``gpu`` times a worker for each GPU of this host, and one process that streams through all GPUs.  Both solve a small
matrix whole, and rows of the two results must be equal; of larger matrices (N vertices, by default 98,304) both run
half of the rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.common import RESULTS, facts
from engine.api.solve import Outcome, make_plan, solve_to_store
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from storage.errors import ApspError, Cancelled
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix

PORT = 28786
ADDRESS = f"tcp://127.0.0.1:{PORT}"
FW = "blocked-floyd-warshall"
TURNS = 5


class Record:
    """Collects rows, and writes them with facts about the machine."""

    def __init__(self, name: str) -> None:
        self._name, self._rows = name, list[dict[str, Any]]()

    def add(self, **row: Any) -> None:
        """Add one measurement, and print it at once."""
        self._rows.append(row)
        print(json.dumps(row), flush=True)

    def write(self) -> None:
        """Write ``NAME.json`` into the folder that APSP_RESULTS names, or into ``results``."""
        folder = Path(os.environ.get("APSP_RESULTS", RESULTS))
        about = {**facts(), "gpus": _gpus()} if self._name.endswith("gpu") else facts()
        about["commit"] = os.environ.get("APSP_COMMIT") or about["commit"]
        (folder / f"{self._name}.json").write_text(json.dumps({**about, "rows": self._rows}, indent=1) + "\n")


def _gpus() -> list[str]:
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()


@contextlib.contextmanager
def running(device: str, count: int, threads: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Context manager: run a Dask scheduler and workers as ``apsp worker`` starts them, and yield the workers."""
    from engine.distributed.worker_processes import WorkerProcesses, WorkersArgs

    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(PORT)]
    scheduler = subprocess.Popen([*words, "--no-dashboard"], stderr=subprocess.DEVNULL)
    devices = [f"cuda{i}" for i in range(count)] if device == "cuda" else ["cpu"]
    node = WorkerProcesses(WorkersArgs(ADDRESS, devices, count if device == "cpu" else None, threads))
    with tempfile.TemporaryDirectory() as folder:
        workers = [node._start(slot, folder) for slot in node.slots]
        try:
            until = time.monotonic() + 120
            while _present() < count:
                if time.monotonic() > until:
                    raise SystemExit("the workers do not come")
                time.sleep(0.5)
            yield workers
        finally:
            for process in (*workers, scheduler):
                process.terminate()
            for process in (*workers, scheduler):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()


def _present() -> int:
    small = build_graph([0], [1], [1], n=2, directed=True)[0]
    try:
        return make_plan(small, Options(executor="dask", scheduler=ADDRESS)).workers
    except ApspError:
        return 0


def random_graph(n: int, degree: int = 4, *, fractions: bool = False) -> Graph:
    """Return a graph with ``degree`` random arcs out of every vertex, and whole weights from 1 to 100.

    ``fractions`` makes the type of the weights float64.
    """
    rng = np.random.default_rng(n)
    tails, heads = np.repeat(np.arange(n), degree), rng.integers(0, n, degree * n)
    weights = rng.integers(1, 101, degree * n)
    return build_graph(tails, heads, weights.astype(np.float64) if fractions else weights, n=n, directed=True)[0]


class Slope(Monitor):
    """Records when updates were done, and stops the solve after a share of all updates."""

    def __init__(self, share: float) -> None:
        self.share, self.total, self.marks = share, 0, list[tuple[float, int]]()

    def begin(self, phase: str, total: int, unit: str) -> None:  # noqa: ARG002
        """Begin a phase; only the rounds (phase ``relax``) are recorded."""
        self.total = total if phase == "relax" else 0
        if self.total:
            self.marks = [(time.perf_counter(), 0)]

    def advance(self, amount: int) -> None:
        """Record the time, and the number of updates until now."""
        if self.total and amount:
            self.marks.append((time.perf_counter(), self.marks[-1][1] + amount))

    def cancelled(self) -> bool:
        """Return whether the wanted share of the updates is done."""
        return bool(self.total) and self.marks[-1][1] >= self.share * self.total

    def rate(self, first: float) -> float:
        """Return the updates a second after a share ``first`` of them was done."""
        late = [mark for mark in self.marks if mark[1] >= first * self.total]
        return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])


def processor_seconds(processes: Sequence[int]) -> float:
    """Return the processor seconds that these processes have used in all until now."""
    ticks = os.sysconf("SC_CLK_TCK")
    words = [Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split() for p in processes]
    return sum(int(w[11]) + int(w[12]) for w in words) / ticks


def solved(
    graph: Graph, options: Options, plan: Plan, path: Path, watched: Sequence[int]
) -> tuple[Outcome, float, float]:
    """Solve; return the outcome, wall seconds, and processor seconds of the processes ``watched``."""
    shutil.rmtree(path, ignore_errors=True)
    before, began = processor_seconds(watched), time.perf_counter()
    outcome = solve_to_store(graph, options, path, plan=plan)
    return outcome, time.perf_counter() - began, processor_seconds(watched) - before


def on_cpu(record: Record, folder: Path, n: int = 8192, width: int = 1024) -> None:
    """Time one process and two workers in alternation."""
    graph, alone = random_graph(n, fractions=True), Options(algorithm=FW, threads=2, dtype="float32")
    spread = replace(alone, executor="dask", scheduler=ADDRESS, threads=None)
    with running("cpu", 2, 1) as workers:
        plans = {"one process": make_plan(graph, alone, out=folder / "a"), "workers": make_plan(graph, spread)}
        plans["workers"] = replace(plans["workers"], streaming=Tiling("host", width, width))
        ways = {"one process": (alone, [os.getpid()]), "workers": (spread, [os.getpid(), *(w.pid for w in workers)])}
        times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for turn in range(TURNS + 1):
            for name, (options, watched) in ways.items():
                outcome, wall, work = solved(graph, options, plans[name], folder / "d.zarr", watched)
                relax = outcome.seconds.get("relax", 0.0)
                if turn:  # the first turn is left out, because it compiles and imports
                    times[name].append((wall, work, relax))
                row = {"what": name, "turn": turn, "n": n, "width": width}
                record.add(**row, wall_s=wall, processor_s=work, phases=outcome.seconds)
                record.write()
    names = ("wall_s", "processor_s", "relax_s")
    middle = {
        name: {kind: statistics.median(t[k] for t in found) for k, kind in enumerate(names)}
        for name, found in times.items()
    }
    ratios: dict[str, list[float]] = {kind: [] for kind in names}
    for one, many in zip(times["one process"], times["workers"], strict=True):
        for k, kind in enumerate(names):
            ratios[kind].append(many[k] / one[k])
    record.add(what="medians", **middle, ratio_of_each_turn=ratios,
               ratio={kind: statistics.median(found) for kind, found in ratios.items()})  # fmt: skip
    record.write()


def on_gpus(record: Record, folder: Path, sizes: Sequence[int]) -> None:
    """Time a worker for each GPU, and one process that uses all GPUs."""
    import cupy

    count, cores = cupy.cuda.runtime.getDeviceCount(), len(os.sched_getaffinity(0))
    spread = Options(algorithm=FW, executor="dask", scheduler=ADDRESS, device="cuda")
    with running("cuda", count, max(1, cores // count)):
        _whole(record, folder, spread, count)
        rates = {n: _half(record, folder, spread, count, n) for n in sizes}
    for n, found in rates.items():
        _one_process(record, count, cores, n, found)


def _whole(record: Record, folder: Path, spread: Options, count: int, n: int = 16384) -> None:
    """Time a small matrix with the workers and with one process, and compare rows of the two results."""
    small = random_graph(n, fractions=True)
    plan = make_plan(small, spread, out=folder / "d.zarr")
    print(plan.device_reason, plan.reason, flush=True)
    for width in (1024, 2048):
        own = replace(plan, streaming=Tiling("host", width, width))
        outcome, wall, _ = solved(small, spread, own, folder / "d.zarr", [])
        record.add(what="workers, whole", n=n, gpus=count, width=width, wall_s=wall, phases=outcome.seconds)
    alone = Options(algorithm=FW, device="cuda")
    outcome, wall, _ = solved(small, alone, make_plan(small, alone, out=folder / "l.zarr"), folder / "l.zarr", [])
    record.add(what="one process, whole", n=n, wall_s=wall, phases=outcome.seconds)
    with open_matrix(folder / "d.zarr") as one, open_matrix(folder / "l.zarr") as other:
        rows = np.arange(0, n, 97)
        record.add(what="compared", rows=len(rows), differ=int((one.rows(rows) != other.rows(rows)).sum()))
    record.write()
    for name in ("d.zarr", "l.zarr"):
        shutil.rmtree(folder / name)


def _half(record: Record, folder: Path, spread: Options, count: int, n: int) -> dict[int, float]:
    """Return the updates a second of the workers by the width of the pivot block: as planned, and half as wide."""
    graph, path, rates = random_graph(n, fractions=True), folder / "d.zarr", dict[int, float]()
    plan = make_plan(graph, spread, out=path)
    chosen = plan.streaming.width if plan.streaming else 4096
    for width in (chosen // 2, chosen):
        watch = Slope(0.5)
        own = replace(plan, streaming=Tiling("host", width, width))
        with contextlib.suppress(Cancelled):
            solve_to_store(graph, spread, path, plan=own, monitor=watch, overwrite=True)
        rates[width] = watch.rate(0.15)
        record.add(what="workers, half of the rounds", n=n, gpus=count, width=width,
                   rate_T=rates[width] * 1e-12, chosen_width=chosen)  # fmt: skip
        record.write()
    for left in folder.iterdir():  # the files of solves that were stopped half-way
        shutil.rmtree(left)
    return rates


def _one_process(record: Record, count: int, cores: int, n: int, workers: dict[int, float]) -> None:
    """Record the updates a second of one process that streams through all GPUs."""
    from benchmarks.kernels.gpu_stream import Watch
    from benchmarks.kernels.gpu_stream_many import ingest, layout, stream, usable
    from engine.devices.cuda.pinned import host_matrix

    with host_matrix((n, n), "float32", threads=cores) as space:
        ingest(random_graph(n, fractions=True), space.array)
        local: Watch = stream(space.array, layout(n, count, usable()), count, 0.5, None)
    rate = local.rate()
    record.add(what="one process, half of the rounds", n=n, gpus=count, rate_T=rate * 1e-12,
               workers_of_it={width: found / rate for width, found in workers.items()})  # fmt: skip
    record.write()


def main() -> None:
    """Run the comparison that the command line names."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "cpu":
        on_cpu(Record("workers_cpu"), folder)
    else:
        on_gpus(Record("workers_gpu"), folder, [int(n) for n in sys.argv[3:]] or [98_304])


if __name__ == "__main__":
    main()
