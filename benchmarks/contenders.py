"""Measures one contender of ``benchmarks.waits`` in this process: apsp, an older commit of it, or another library.

``python -P benchmarks/contenders.py NAME --threads T`` reads orders from standard input, one JSON object on each line,
and answers each with two lines of JSON: ``{"ready": seconds}`` when the graph has the contender's own form, then the
measurements.  For apsp nothing of ``benchmarks`` is imported, so ``PYTHONPATH`` decides which checkout is measured.
In 96d7eee modules have other names, which :class:`OldEngine` and :func:`ours` know.  *SciPy's door* is the module of
apsp that offers SciPy's functions.

The process is bound to T processors before anything is imported, because SciPy's door and some libraries use all
processors that they find.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

#: Seconds after which a measurement is not repeated.  Predicted seconds of all sources from which on a peer searches
#: only some sources.
ENOUGH: Final = 0.8
LONG: Final = 1.5
#: The names of the functions that prepare arcs for searches, whose results are kept; and the algorithms that search.
PREPARING: Final = ("_prepare", "_incoming", "_components", "_units")
SEARCHES: Final = ("dijkstra", "bfs", "johnson")
#: Seconds that the search of some sources should take.
SAMPLED: Final = 0.6


def bind(threads: int) -> None:
    """Bind this process to ``threads`` processors, and tell libraries to use as many threads."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(mine[:threads]))
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def load(path: str) -> Any:
    """Return the graph in a file of ``benchmarks.waits``, as an object of the checkout that is measured."""
    import numpy as np

    try:
        home = importlib.import_module("storage.graph.graph")
    except ImportError:  # in older commits the package storage has no folders
        home = importlib.import_module("storage.graph")
    with np.load(path) as found:
        n = len(found["indptr"]) - 1
        return home.Graph(
            found["indptr"],
            found["heads"],
            found["weights"],
            np.arange(n),
            directed=bool(found["directed"]),
            weighted=bool(found["weighted"]),
        )


def distances(rows: Any, unreachable: float) -> list[Any]:
    """Return rows as float64, +inf where there is no path."""
    import numpy as np

    return [np.where(row == unreachable, np.inf, row.astype(np.float64)) for row in rows]


class Engine:
    """Plans and solves into an array in memory, with the summary, with the engine of the checkout that is measured."""

    def __init__(self, threads: int) -> None:
        from engine.model.problem import Options

        self._options = Options(device="cpu", threads=threads)

    def measure(self, graph: Any) -> dict[str, Any]:
        """Return seconds of planning and solving, what was planned, the rows that planning kept, and the matrix."""
        import numpy as np

        from engine.api.solve import make_plan, solve
        from engine.graph.profile import GraphProfile
        from engine.model.dtypes import WORK_TYPES
        from engine.model.rows import ArraySink

        began = time.perf_counter()
        profile = GraphProfile(graph)
        with preparing_counted() as prepared:
            plan = make_plan(profile, self._options)
        planned = time.perf_counter()
        kept = 0 if profile.known is None else profile.known.count
        searches = plan.algorithm in SEARCHES
        kind = WORK_TYPES[plan.dtype]
        sink = ArraySink(plan.shape, np.dtype(kind.dtype))
        outcome = solve(profile, plan, self._options, sink)
        done = time.perf_counter()
        assert outcome.summary["vertices"] == graph.n
        told = _measured((began, planned, done), plan, kept, sink.array, kind.unreachable)
        return {**told, "prepared": sum(prepared) if searches else 0.0}


@contextlib.contextmanager
def preparing_counted() -> Iterator[list[float]]:
    """Collect the seconds of preparing arcs for searches while planning, which the solve does not repeat.

    Yields:
        A list, to which the seconds of each preparation are appended.
    """
    from engine.model import backend

    seconds, plain, inside = list[float](), backend.Arcs.form, [False]

    def form(arcs: Any, make: Any) -> Any:
        if inside[0] or make.__name__ not in PREPARING or make in arcs._forms:
            return plain(arcs, make)
        began, inside[0] = time.perf_counter(), True
        try:
            return plain(arcs, make)
        finally:
            inside[0] = False
            seconds.append(time.perf_counter() - began)

    with mock.patch.object(backend.Arcs, "form", form):
        yield seconds


class OldEngine:
    """Plans and solves as :class:`Engine` does, with the engine of commit 96d7eee."""

    def __init__(self, threads: int) -> None:
        self._options = importlib.import_module("engine.problem").Options(device="cpu", threads=threads)

    def measure(self, graph: Any) -> dict[str, Any]:
        """Return what :meth:`Engine.measure` returns."""
        solving, summary, types = (importlib.import_module(f"engine.{name}") for name in ("solve", "summary", "types"))
        began = time.perf_counter()
        plan = solving.make_plan(graph, self._options)
        planned = time.perf_counter()
        kind = types.WORK_TYPES[plan.dtype]
        sink = summary.ArraySink(plan.shape, kind.dtype)
        outcome = solving.solve(graph, plan, self._options, sink)
        done = time.perf_counter()
        assert outcome.summary["vertices"] == graph.n
        return _measured((began, planned, done), plan, 0, sink.array, kind.unreachable)


def _measured(
    times: tuple[float, float, float], plan: Any, kept: int, matrix: Any, unreachable: float
) -> dict[str, Any]:
    (began, planned, done), parts = times, None if plan.statistics is None else plan.statistics.parts
    return {
        "seconds": done - began,
        "planning": planned - began,
        "algorithm": plan.algorithm,
        "type": plan.dtype,
        "kept": kept,
        "partition": parts.seconds if parts is not None and plan.algorithm == "partitioned" else 0.0,
        "answer": (matrix, unreachable),
    }


def ours(graph: Any, runs: int, rows: list[int], threads: int, *, doors: bool = True) -> dict[str, Any]:
    """Measure the engine and SciPy's door: the first call on this graph, and ``runs`` later ones.

    Args:
        graph: the graph.
        runs: the most later calls; there is at least one, and none begins after calls have taken ``ENOUGH`` seconds.
        rows: the rows that are returned for comparison.
        threads: threads of the engine.
        doors: whether to measure SciPy's door, too.
    """
    from dataclasses import replace

    try:
        door = importlib.import_module("engine.interop.scipy_csgraph")
        engine: Engine | OldEngine = Engine(threads)
    except ImportError:
        door = importlib.import_module("engine.doors.csgraph")
        engine = OldEngine(threads)
    from scipy.sparse import csr_array

    calls, found = {which: list[dict[str, Any]]() for which in (("engine", "door") if doors else ("engine",))}, {}
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    for which, times in calls.items():
        began = time.perf_counter()
        for k in range(runs + 1):
            if which == "engine":
                one = engine.measure(replace(graph))  # a new object, so that preparing the graph is timed in each call
                matrix, unreachable = one.pop("answer")
                times.append(one)
                found[which] = distances(matrix[rows], unreachable)
            else:
                start = time.perf_counter()
                matrix = door.shortest_path(arcs)
                times.append({"seconds": time.perf_counter() - start})
                found[which] = list(matrix[rows])
            del matrix
            if k > 0 and time.perf_counter() - began > ENOUGH:
                break
    return {**calls, "rows": found}


def peer(name: str) -> Callable[[Any, int, list[int], int], Any]:
    """Return a generator function that measures another library: it yields once the graph is made, then the result."""

    def measure(graph: Any, runs: int, rows: list[int], threads: int) -> Any:
        from benchmarks.peers import DENSE, SPARSE
        from benchmarks.sampled import PEERS

        dense = graph.arcs > 0.5 * graph.n**2
        if dense and name not in DENSE:
            yield
            yield {"unsuitable": "no algorithm for dense graphs"}
            return
        unit = not graph.weighted
        whole, row = (DENSE if dense else SPARSE)[name](graph, unit, threads)
        some = PEERS[name](graph, unit, threads) if not dense and name in ("SciPy", "NetworKit") else None
        yield
        if some is not None and (told := _sampled(some, graph.n, rows, threads)) is not None:
            yield told
            return
        times: list[float] = []
        began, answer = time.perf_counter(), None
        for _ in range(runs + 1):
            answer = None
            start = time.perf_counter()
            answer = whole()
            times.append(time.perf_counter() - start)
            if time.perf_counter() - began > ENOUGH:
                break
        yield {"engine": [{"seconds": each} for each in times], "rows": {"engine": [row(answer, u) for u in rows]}}

    return measure


def _sampled(some: Any, n: int, rows: list[int], threads: int) -> dict[str, Any] | None:
    """Search some sources, and return the seconds of all in proportion; None if all take less than ``LONG`` seconds."""
    import numpy as np

    order = np.random.default_rng(1).permutation(n).tolist()
    few = order[: max(8, 4 * threads)]
    some(few)
    began = time.perf_counter()
    some(few)
    took = (time.perf_counter() - began) / len(few)
    if took * n < LONG:
        return None
    count = min(n, max(len(few), int(SAMPLED / took) // threads * threads))
    chosen = [*rows, *order][:count]
    began = time.perf_counter()
    found = some(chosen)
    took = (time.perf_counter() - began) / count
    lengths = found.getDistances() if hasattr(found, "getDistances") else found
    answered = [np.asarray(lengths[k], float) for k in range(len(rows))]
    answered = [np.where(each > 1e300, np.inf, each) for each in answered]
    return {"engine": [{"seconds": took * n}], "sampled": count, "rows": {"engine": answered}}


def agrees(found: list[Any], wanted: Any, *, integral: bool) -> bool:
    """Return whether rows equal SciPy's rows: exactly for whole numbers, else to the precision of float32."""
    import numpy as np

    got = np.asarray([np.asarray(row, float) for row in found])
    if got.shape != wanted.shape or not np.array_equal(np.isinf(got), np.isinf(wanted)):
        return False
    return bool(np.array_equal(got, wanted) if integral else np.allclose(got, wanted, rtol=1e-5, atol=0))


def answer(name: str, order: dict[str, Any], threads: int) -> None:
    """Carry one order out."""
    import numpy as np

    began = time.perf_counter()
    graph = load(order["graph"])
    with np.load(order["graph"]) as found:
        rows, wanted = found["sample"].tolist(), found["distances"]
    if name in ("now", "old"):
        if order.get("compile"):
            for place in ("execution.trials", "devices.cpu.atonce.calls"):
                with contextlib.suppress(ImportError, AttributeError):  # 96d7eee lacks it: it compiles while it plans
                    mock.patch(f"engine.{place}.only_ready", contextlib.nullcontext).start()
        say({"ready": time.perf_counter() - began})
        told = ours(graph, order["runs"], rows, threads, doors=order.get("doors", True))
    else:
        steps = peer(name)(graph, order["runs"], rows, threads)
        next(steps)
        say({"ready": time.perf_counter() - began})
        told = next(steps)
    integral = graph.weights.dtype.kind == "i"
    told["agrees"] = all(agrees(each, wanted, integral=integral) for each in told.pop("rows", {}).values())
    say(told)


def say(what: dict[str, Any]) -> None:
    """Write one line for the parent."""
    os.write(_ANSWERS, (json.dumps(what) + "\n").encode())


_ANSWERS = os.dup(1)


def main() -> None:
    """Carry out orders until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    bind(given.threads)
    os.dup2(2, 1)  # libraries print on standard output, which must hold answers only
    if given.name not in ("now", "old"):
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    for line in sys.stdin:
        try:
            answer(given.name, json.loads(line), given.threads)
        except Exception as error:  # the parent records the failure, and continues with other contenders
            with contextlib.suppress(OSError):
                say({"failed": f"{type(error).__name__}: {error}"[:300]})


if __name__ == "__main__":
    main()
