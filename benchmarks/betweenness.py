"""Times exact betweenness beside NetworKit and igraph, with equally many threads, and checks that all agree.

    python -m benchmarks.betweenness [FOLDER] [--threads 1,2] [--runs 3] [--seconds 25] [--graphs "NAME;NAME"] [--gpu]
    python -m benchmarks.betweenness [FOLDER] --before CHECKOUT [--runs 21] [--graphs "NAME;NAME"]

FOLDER has the graph files.  The contenders alternate on each graph.  A contender runs up to ``--runs`` times, and not
again after its runs have taken ``--seconds``; medians of wall seconds and of processor seconds are printed as a table.
Small graphs take milliseconds, which other processes disturb, so they need more runs.
Kernels that the set-up compiles are compiled first, because without them plain Python walks over small graphs.
igraph has one thread, so it is timed only with one thread.  With ``--gpu`` a GPU is a contender, too.  Programs that
are not installed are left out, which is said on standard error.

With ``--before``, the program in the folder CHECKOUT, this program and igraph are timed by turns with one thread, the
two programs in a process each, and medians and least times of processor milliseconds are printed in one row for each
graph.  Decisions on betweenness have this table.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.graph.graph import Graph
from storage.readers import read_graph

#: The graphs by name: a file, and how it is read.  Weights are whole numbers, or decimals without ties, because sums of
#: decimals are rounded differently in other programs, which then count different ties.
GRAPHS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "power, hops": ("power.graph", {"unweighted": True}),
    "PGPgiantcompo, hops": ("PGPgiantcompo.graph", {"unweighted": True}),
    "3elt, directed, hops": ("3elt.mtx", {"unweighted": True, "directed": True}),
    "p2p-Gnutella08, hops": ("p2p-Gnutella08.txt", {"unweighted": True}),
    "rome99, weights": ("rome99.gr", {}),
    "monaco, weights": ("monaco_drive.csv", {}),
    "mediumEWD, weights": ("mediumEWD.txt", {}),
    "celegansneural, weights": ("celegansneural.gml", {}),
    "celegans_metabolic, hops": ("celegans_metabolic.graph", {"unweighted": True}),
    "netscience, hops": ("netscience.mtx", {"unweighted": True}),
    "EVA, directed, hops": ("EVA.mtx", {"unweighted": True}),
    "monaco, hops": ("monaco_drive.csv", {"unweighted": True}),
    "krems, hops": ("krems_drive.csv", {"unweighted": True}),
    "helsinki, hops": ("helsinki_drive.csv", {"unweighted": True}),
    "north-bayreuth, hops": ("north-bayreuth_drive.csv", {"unweighted": True}),
    "facebook_combined, directed, hops": ("facebook_combined.txt.gz", {"unweighted": True, "directed": True}),
    "facebook_combined, hops": ("facebook_combined.txt.gz", {"unweighted": True, "directed": False}),
    "email-Eu-core, hops": ("email-Eu-core.txt", {"unweighted": True}),
    "wiki-Vote, hops": ("wiki-Vote.txt.gz", {"unweighted": True}),
    "rome99, hops": ("rome99.gr", {"unweighted": True}),
    "minnesota, hops": ("minnesota_km.mtx", {"unweighted": True}),
    "as-caida20070917, directed, hops": ("as-caida20070917.txt", {"unweighted": True, "directed": True}),
}

Scores = Any


def _read(folder: Path, name: str) -> Graph:
    file, options = GRAPHS[name]
    return read_graph(folder / file, **options)[0]


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _networkit(graph: Graph, threads: int, ends: tuple[Any, Any], weights: Any) -> Callable[[], Scores]:
    import networkit

    networkit.setNumberOfThreads(threads)
    theirs = networkit.Graph(graph.n, weighted=weights is not None, directed=graph.directed)
    listed = np.ones(len(ends[0])) if weights is None else weights
    for u, v, weight in zip(ends[0].tolist(), ends[1].tolist(), listed.tolist(), strict=True):
        theirs.addEdge(u, v, weight)

    def run() -> Scores:
        found = networkit.centrality.Betweenness(theirs)
        found.run()
        return np.array(found.scores()) * (1 if graph.directed else 0.5)

    return run


def contenders(graph: Graph, threads: int, gpu: bool = False) -> dict[str, Callable[[], Scores]]:
    """Return functions that compute the betweenness of all vertices, not normalized, by the name of the program.

    The graph has been converted for each program already.
    """
    from engine.api.betweenness.centrality import betweenness
    from engine.model.problem import Options

    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = np.ones(graph.arcs, np.bool_) if graph.directed else tails < graph.heads
    ends, weights = (tails[kept], graph.heads[kept]), graph.weights[kept]
    unit = bool((weights == 1).all())
    here = Options(threads=threads)
    found: dict[str, Callable[[], Scores]] = {"apsp": lambda: betweenness(graph, here, normalized=False).values}
    if _installed("networkit"):
        found["NetworKit"] = _networkit(graph, threads, ends, None if unit else weights)
    if gpu:
        there = Options(threads=threads, device="cuda")
        found["apsp, GPU"] = lambda: betweenness(graph, there, normalized=False).values
    if threads == 1 and _installed("igraph"):
        import igraph

        other = igraph.Graph(
            graph.n, list(zip(*(side.tolist() for side in ends), strict=True)), directed=graph.directed
        )
        listed = None if unit else weights.tolist()
        found["igraph"] = lambda: np.array(other.betweenness(weights=listed))
    return found


def measured(
    graph: Graph, threads: int, runs_each: int, seconds: float, gpu: bool = False
) -> dict[str, tuple[float, float, int]]:
    """Return for each contender the medians of wall and of processor seconds, and the number of its runs.

    Args:
        graph: the graph.
        threads: the threads of each contender.
        runs_each: the number of runs of each contender.
        seconds: a contender whose runs have taken more than these seconds begins no further run.
        gpu: whether a GPU is a contender.

    Raises:
        SystemExit: two contenders do not agree.
    """
    runs = contenders(graph, threads, gpu)
    right = runs["apsp"]()  # this run also compiles the kernels
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(runs_each):
        for name, run in runs.items():
            if taken[name] and sum(wall for wall, _ in taken[name]) > seconds:
                continue
            used, began = time.process_time(), time.perf_counter()
            values = run()
            taken[name].append((time.perf_counter() - began, time.process_time() - used))
            if not np.allclose(values, right, rtol=1e-6, atol=1e-6):
                raise SystemExit(f"{name} found another betweenness")
    return {
        name: (statistics.median(wall for wall, _ in each), statistics.median(used for _, used in each), len(each))
        for name, each in taken.items()
    }


class TimedProgram:
    """A process that times one program, and igraph, on request.

    Args:
        root: the folder of the program.
        folder: the folder with the graph files.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        paths = [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._process = subprocess.Popen(
            # with -P, modules beside this file do not hide those of the program
            [sys.executable, "-P", __file__, str(folder.resolve()), "--serve"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, words: str) -> str:
        """Send a line to the process, and return the line that it answers.

        Raises:
            SystemExit: the process has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        print(words, file=self._process.stdin, flush=True)
        said = self._process.stdout.readline().strip()
        if not said:
            raise SystemExit(f"the process that times a program has ended after {words!r}")
        return said

    def timed(self, contender: str) -> float:
        """Return the processor milliseconds that one call takes."""
        return 1e3 * float(self.ask(contender))


def serve(folder: Path) -> None:
    """Read the name of a graph, or of a contender to time on the last graph, from each line of standard input."""
    runs: dict[str, Callable[[], Scores]] = {}
    for line in sys.stdin:
        asked = line.strip()
        if asked in GRAPHS:
            runs = contenders(_read(folder, asked), 1)
            right = runs["apsp"]()
            if not all(np.allclose(run(), right, rtol=1e-7, atol=1e-7) for run in runs.values()):
                raise SystemExit(f"two programs do not agree on {asked}")
            print(",".join(runs), flush=True)
        else:
            began = time.process_time()
            runs[asked]()
            print(time.process_time() - began, flush=True)


def by_turns(folder: Path, before: Path, names: list[str], runs: int, seconds: float) -> None:
    """Print a row for each graph, after ``runs`` turns of the program in ``before``, igraph, this program and igraph.

    igraph runs in both processes, so that both programs find the caches equally cold; but it has no further turn once
    it has taken ``seconds``.
    """
    programs = {"before": before.resolve(), "now": Path(__file__).resolve().parents[1]}
    timers = {when: TimedProgram(root, folder) for when, root in programs.items()}
    print("| graph | before | now | before / now | igraph | igraph beside before, now | of the least of each |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        answers = [timer.ask(name) for timer in timers.values()]
        other = all("igraph" in answer.split(",") for answer in answers)
        taken: dict[str, list[float]] = {"before": [], "now": [], "igraph": []}
        for _ in range(runs):
            for when, timer in timers.items():
                taken[when].append(timer.timed("apsp"))
                if other and sum(taken["igraph"]) < 1e3 * seconds:
                    taken["igraph"].append(timer.timed("igraph"))
        middle, least = (
            {each: fact(taken[each]) for each in taken if taken[each]} for fact in (statistics.median, min)
        )
        shown = {each: f"{middle[each]:.3g} ({least[each]:.3g})" for each in middle}
        row = [name, shown["before"], shown["now"], f"{middle['before'] / middle['now']:.2f}"]
        if other:
            row += [shown["igraph"], _beside(middle), _beside(least)]
        print(f"| {' | '.join(row)} |", flush=True)


def _beside(taken: dict[str, float]) -> str:
    return ", ".join(f"{taken['igraph'] / taken[when]:.1f}" for when in ("before", "now")) + " x"


def main() -> None:
    """Print a row for each graph and number of threads, or for each graph with the program before."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data"))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--graphs", default=";".join(GRAPHS), help="names, separated by semicolons")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = [name.strip() for name in asked.graphs.split(";")]
    if unknown := [name for name in names if name not in GRAPHS]:
        parser.error(f"no such graphs: {unknown}; there are {list(GRAPHS)}")
    from engine.execution.kernel_list import missing_for

    for kernel in missing_for("betweenness"):
        kernel.compile()
    if asked.serve:
        serve(asked.folder)
        return
    for program in ("networkit", "igraph"):
        if not _installed(program):
            print(f"{program} is not installed, so it is left out", file=sys.stderr)
    if asked.before:
        by_turns(asked.folder, asked.before, names, asked.runs or 21, asked.seconds)
        return
    print("| graph | threads | contender | wall s | processor s | runs | processor time beside apsp |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        graph = _read(asked.folder, name)
        what = f"{name}, n = {graph.n:,}, {graph.arcs:,} arcs"
        for threads in map(int, asked.threads.split(",")):
            found = measured(graph, threads, asked.runs or 3, asked.seconds, asked.gpu)
            for contender, (wall, used, runs) in found.items():
                beside = used / found["apsp"][1]
                row = f"{wall:.4f} | {used:.4f} | {runs} | {beside:.1f} x"
                print(f"| {what} | {threads} | {contender} | {row} |", flush=True)


if __name__ == "__main__":
    main()
