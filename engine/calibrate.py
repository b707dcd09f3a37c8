"""Rates measured on this machine and on this graph, so that predictions rest on more than a table.

Products run at the same rate whatever the graph, so their rate is measured once a machine, type and number of
threads, and kept.  Searches depend on the graph's shape above all, so a few are tried on the graph itself.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import numpy as np

from engine.backends.base import Arcs
from engine.types import WorkType
from storage.graph import Graph

#: Edge of the product that is timed: 2^28 updates or more, a few hundredths of a second.
EDGE: Final = 1024
#: Below so many seconds of predicted work nothing is measured: any choice is quick.
WORTHWHILE: Final = 0.5
#: Seconds that trial searches may take, roughly.
TRIAL: Final = 0.1
#: Sources of the first trial for each thread; searches work on as many side by side.
SIDE_BY_SIDE: Final = 64


def relax_rate(kind: WorkType, threads: int) -> float:
    """Updates a second of min-plus products in ``kind`` on ``threads`` threads: kept from before, or measured now."""
    path = _folder() / f"rates-{_machine_key()}.json"
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):  # none yet, or unreadable: measured again
        known = json.loads(path.read_text())
    key = f"{kind.name}-{threads}"
    if key not in known:
        known[key] = _time_products(kind, threads)
        _keep(path, known)
    return known[key]


def _time_products(kind: WorkType, threads: int) -> float:
    from engine.backends.cpu import CpuBackend

    backend = CpuBackend(threads)
    try:
        a, c = np.ones((EDGE, EDGE), kind.dtype), np.full((EDGE, EDGE), 9, kind.dtype)
        times = []
        for _ in range(4):
            began = time.perf_counter()
            backend.relax(c, a, a, nonnegative=True)
            times.append(time.perf_counter() - began)
        return float(EDGE**3 / min(times[1:]))  # the first one compiles
    finally:
        backend.shutdown()


def search_seconds(graph: Graph, kind: WorkType, threads: int, *, unit: bool) -> float:
    """Seconds a source that searches take on ``graph`` when many are asked for, all threads together.

    The weights' size stands in for the weights, so that graphs with negative arcs can be tried before they have
    potentials.
    """
    from engine.backends.cpu import CpuBackend

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    order = np.roll(np.arange(graph.n), graph.n // 3)  # in the order of the rows, as the solve itself will ask
    backend = CpuBackend(threads)
    try:
        backend.search(arcs, order[:1], np.empty((1, graph.n), kind.dtype), unit=unit)  # compiles and prepares
        count = threads
        while True:
            count = min(count, graph.n)
            out = np.empty((count, graph.n), kind.dtype)
            began = time.perf_counter()
            backend.search(arcs, order[:count], out, unit=unit)
            took = time.perf_counter() - began
            if count == graph.n or took > TRIAL / 4 or out.nbytes > 2**26:
                return took / count
            count *= max(2, min(SIDE_BY_SIDE, int(TRIAL / 2 / max(took, 1e-6))))
    finally:
        backend.shutdown()


def _folder() -> Path:
    """Where measured rates are kept: ``APSP_CACHE_DIR``, or the user's cache folder."""
    named = os.environ.get("APSP_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "apsp"


def _machine_key() -> str:
    """Rates hold for one processor model and one version of the kernels."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    try:
        release = version("apsp")
    except PackageNotFoundError:
        release = "source"
    return "".join(c if c.isalnum() else "-" for c in f"{model}-{release}")


def _keep(path: Path, known: dict[str, float]) -> None:
    """Replace the file as a whole; a machine without a writable cache folder measures every time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(known, file)
        Path(file.name).replace(path)
    except OSError:
        return
