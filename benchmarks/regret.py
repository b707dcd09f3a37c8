"""Measures what the planner's choices cost: every applicable algorithm, and other libraries, on each graph.

Run ``python -m benchmarks.regret [--threads 2] [--data FOLDER] [--only WORD ...] [--patience SECONDS]``; it prints a
Markdown table and writes JSON to ``benchmarks/results/``.  The plan is made for the whole matrix.  Rows go to a sink
that drops them, so that no disk is measured.  Large graphs are searched from some sources only: from runs of
consecutive sources, as in a whole solve, in batches of the size that a solve has after its first batches.  Then the
seconds of phases that depend on the number of sources are multiplied in proportion to all sources.
Peers are timed on as many sources as take about ``--budget`` seconds.  All contenders on a graph alternate, and the
best run of each counts.  ``heap`` is our own Dijkstra with one search for each source and without vectors.  *Regret* is
the time of the planner's choice divided by that of our fastest algorithm; the time of planning has its own column.

Memory that a run frees is used again by the next one, as a long solve uses its buffers again and again.

Tables show processor seconds of all threads together: other work on the machine hardly changes them, and libraries with
many threads and with one are compared as if each had one.  Wall seconds are in the JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt

from benchmarks import graphs
from benchmarks.peers import facts
from benchmarks.sampled import PEERS, Timed
from engine.algorithms import dijkstra
from engine.api.solve import make_plan, solve
from engine.graph.profile import GraphProfile
from engine.model.plan import Candidate, Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.graph.graph import Graph

#: Generated graphs: the shape, and the number of vertices.
MADE: Final = (
    *(("random", 1000 * 2**k) for k in range(8)),
    *(("rmat", n) for n in (1024, 4096, 16384, 65536)),
    *(("grid", n) for n in (1024, 4096, 16384, 65536)),
    *(("road", n) for n in (4096, 16384)),
    *(("ring", n) for n in (1000, 4096, 16384, 65536)),
    *(("dense", n) for n in (512, 1024)),
    *((shape, n) for shape in ("chords", "tails") for n in (4096, 16384)),
    *(("random hops", n) for n in (1000, 4000, 16000, 64000)),
    *(("rmat hops", n) for n in (4096, 65536)),
    *(("grid hops", n) for n in (4096, 65536)),
)
#: Real graphs, and the arguments of ``read_graph`` that say what the file does not declare.
REAL: Final[dict[str, dict[str, Any]]] = {
    "monaco_drive.csv": {},
    "krems_drive.csv": {},
    "helsinki_drive.csv": {},
    "north-bayreuth_drive.csv": {},
    "munich_net.tntp": {},
    "Winnipeg_net.tntp": {"centroids_through": True},
    "graph_23rd.gr": {},
    "minnesota_km.mtx": {},
    "openflights_km.csv.gz": {},
    "rome99.gr": {},
    "ChicagoRegional_net.tntp.gz": {"centroids_through": True},
    "cal.cedge.gz": {"directed": False},
    "Sydney_net.tntp.gz": {"centroids_through": True},
    "bremen_dist.gr.gz": {},
    "bremen_time.gr.gz": {},
    "seattle-roads.gr.gz": {},
    "delhi-roads.gr.gz": {},
    "power.graph": {},
    "p2p-Gnutella08.txt": {},
    "as-caida20070917.txt": {"unweighted": True},
    "PGPgiantcompo.graph": {},
    "4elt.graph": {},
    "p2p-Gnutella31.txt.gz": {},
    "delaunay_n16.mtx.gz": {"directed": False},
    "sx-askubuntu.txt.gz": {},
    "NY.gr.gz": {},
}
#: Phases whose time does not depend on the number of sources.
ONCE: Final = frozenset({"partition", "prepare", "potentials", "ingest", "load"})
#: The most sources of a sample, the most entries of their rows, and the number of consecutive sources in a span.
SAMPLE: Final = 4096
SAMPLE_ENTRIES: Final = 2**26
SPAN: Final = 512
#: The most runs of a contender, and the seconds of runs after which a contender that has run twice is finished.
TURNS: Final = 40
ENOUGH: Final = 0.4
#: Algorithms that treat each source separately, so that the time of all sources follows from a sample.
ROWS: Final = frozenset({"dijkstra", "bfs", "partitioned", "johnson"})
#: An algorithm whose prediction exceeds ``--patience`` runs only if it is below this many times that of the choice.
HOPELESS: Final = 4.0


@dataclass
class Dropped:
    """A sink that drops all rows."""

    tile: tuple[int, int]

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:
        """Drop the block."""


def sample(n: int) -> list[int]:
    """Return the sources of the sample: all vertices, or evenly spaced spans of ``SPAN`` consecutive vertices."""
    count = max(2 * SPAN, min(SAMPLE, SAMPLE_ENTRIES // n // SPAN * SPAN))
    if count >= n:
        return list(range(n))
    firsts = np.linspace(0, n - SPAN, count // SPAN).astype(int)
    return [int(k) for k in np.add.outer(firsts, np.arange(SPAN)).ravel()]


def keep_memory() -> None:
    """Let later runs use freed memory again, as a long solve uses its buffers again; has an effect on Linux only."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-4, 0)  # M_MMAP_MAX: all memory is allocated on the heap
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: freed memory of the heap is not returned to the system


class Clock(Monitor):
    """Counts wall and processor seconds: ``each`` of phases that depend on the sources, ``once`` of all others."""

    def __init__(self) -> None:
        self._since, self._once = self._now(), False
        self.once, self.each = np.zeros(2), np.zeros(2)

    def begin(self, phase: str, total: int, unit: str) -> None:  # noqa: ARG002
        """End the previous phase and begin this one."""
        self.stop()
        self._once = phase in ONCE

    def stop(self) -> None:
        """Add the seconds of the present phase to ``once`` or ``each``."""
        now = self._now()
        (self.once if self._once else self.each)[:] += now - self._since
        self._since = now

    @staticmethod
    def _now() -> npt.NDArray[np.float64]:
        return np.array([time.perf_counter(), time.process_time()])


class Own:
    """One of our algorithms on one graph: best wall and processor seconds for the whole matrix over several runs."""

    def __init__(
        self,
        graph: Graph | GraphProfile,
        plan: Plan,
        candidate: Candidate,
        sources: Sequence[int],
        *,
        heap: bool = False,
    ):
        self._profile = GraphProfile.of(graph)
        graph = self._profile.graph
        whole = candidate.algorithm not in ROWS or len(sources) == graph.n
        self._graph, self._sources = graph, None if whole else tuple(sources)
        shape = (graph.n if whole else len(sources), graph.n)
        fields = {"algorithm", "tier", "streaming", "from_targets", "phases", "memory", "seconds"}
        # without its task the plan is also accepted for a sample of the sources
        self._plan = replace(plan, shape=shape, task=(), **{name: getattr(candidate, name) for name in fields})
        self._heap, self.name = heap, "heap" if heap else candidate.algorithm
        self.best, self.spent = np.full(2, math.inf), 0.0

    def run(self) -> None:
        """Run the algorithm once, and update ``best`` and ``spent``."""
        from engine.devices.cpu import search as cpu_search

        options = Options(device="cpu", threads=self._plan.threads, sources=self._sources)
        # for a sample, the first batch is as large as later ones: the short first batches would count for many rows
        first = dijkstra.FIRST_ENTRIES if self._sources is None else SPAN * self._graph.n
        with (
            mock.patch.object(cpu_search, "LEAST_LANES", 10**9 if self._heap else cpu_search.LEAST_LANES),
            mock.patch.object(dijkstra, "FIRST_ENTRIES", first),
        ):
            clock = Clock()
            # the copy has the facts that planning found, but not those that an earlier run found
            solve(copy(self._profile), self._plan, options, Dropped((64, self._graph.n)), clock)
            clock.stop()
        self.spent += float(clock.once[0] + clock.each[0])
        scale = 1.0 if self._sources is None else self._graph.n / len(self._sources)
        self.best = np.minimum(self.best, clock.once + scale * clock.each)


def worth(candidate: Candidate, chosen: Candidate, patience: float) -> bool:
    """Return whether a candidate is run: it is feasible, not streamed, and not hopelessly slow (``HOPELESS``)."""
    if not candidate.feasible or candidate.streaming is not None:
        return False
    return candidate.seconds < patience or candidate.seconds < HOPELESS * chosen.seconds


def small_enough(candidate: Candidate, most: float) -> bool:
    """Return whether a candidate takes less than ``most`` seconds, or runs over a sample of the sources."""
    return candidate.algorithm in ROWS or candidate.seconds < most


def compare(name: str, graph: Graph, threads: int, patience: float, budget: float) -> dict[str, Any]:
    """Return the row of one graph: the times of all applicable algorithms and of the peers."""
    options = Options(device="cpu", threads=threads)
    profile = GraphProfile(graph)
    make_plan(profile, options)  # compiles the kernels that trials and the partition need
    began = time.process_time()
    plan = make_plan(profile, options)
    planning = time.process_time() - began
    profile.known = None  # forget the rows of trials, which searches would not have to compute again
    sources = sample(graph.n)
    unit = bool((graph.weights == 1).all())
    own = _contenders(profile, plan, sources, patience)
    order = np.random.default_rng(1).permutation(graph.n).tolist()
    peers = [Timed.of(peer, PEERS[peer](graph, unit, threads), threads, order, budget) for peer in PEERS]
    everyone: list[Own | Timed] = [*own, *peers]
    for turn in range(TURNS):
        for one in everyone:
            if turn < 2 or one.spent < ENOUGH:
                one.run()
    taken = {one.name: float(one.best[1]) for one in own}
    ours = {name: took for name, took in taken.items() if name != "heap"}
    best = min(ours, key=ours.__getitem__)
    return {
        "graph": name,
        "n": graph.n,
        "arcs": graph.arcs,
        "type": plan.dtype,
        "sampled": len(sources) if len(sources) < graph.n else None,
        "choice": plan.algorithm,
        "planning": planning,
        "best": best,
        "regret": taken[plan.algorithm] / taken[best],
        "seconds": taken,
        "wall": {one.name: float(one.best[0]) for one in own},
        "peers": {peer.name: float(peer.best[1]) * graph.n for peer in peers},
        "peers_wall": {peer.name: float(peer.best[0]) * graph.n for peer in peers},
        "peer_sources": {peer.name: len(peer.sources) for peer in peers},
        "predicted": {c.algorithm: c.seconds for c in plan.candidates if c.feasible and c.streaming is None},
        "rejected": {c.algorithm: c.rejected for c in plan.candidates},
    }


def _contenders(profile: GraphProfile, plan: Plan, sources: Sequence[int], patience: float) -> list[Own]:
    """Return the candidates of the plan that are run, and ``heap``."""
    chosen = plan.candidates[0]
    run = [c for c in plan.candidates if c is chosen or (worth(c, chosen, patience) and small_enough(c, patience))]
    own = [Own(profile, plan, c, sources) for c in run]
    search = next((c for c in plan.candidates if c.algorithm == "dijkstra" and c.feasible), None)
    if search is not None:
        n = profile.graph.n
        few = sources if len(sources) * n < 2**22 else sources[: max(32, 2**22 // n)]
        own.append(Own(profile, plan, search, few, heap=True))
    return own


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table of our algorithms' seconds, and of the peers' seconds divided by those of the choice."""
    head = ["graph", "n", "arcs", "choice", "s", "planning, s", "regret", "others, s", "heap ÷ choice", *PEERS]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        seconds = dict(row["seconds"])
        own, heap = seconds.pop(row["choice"]), seconds.pop("heap", math.nan)
        others = ", ".join(f"{name} {took:.3g}" for name, took in sorted(seconds.items(), key=lambda item: item[1]))
        star = "*" if row["sampled"] else ""
        cells = [row["graph"], f"{row['n']:,}", f"{row['arcs']:,}", row["choice"], f"{own:.3g}{star}"]
        cells += [f"{row['planning']:.2g}", f"{row['regret']:.2f}", others, f"{heap / own:.1f}×"]
        cells += [f"{row['peers'][peer] / own:.1f}×" for peer in PEERS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cases(data: Path | None, only: list[str] | None) -> list[tuple[str, Callable[[], Graph]]]:
    """Return the names of the graphs, each with a function that makes or reads the graph."""
    from storage.readers import read_graph

    def made(shape: str, n: int) -> Graph:
        graph = graphs.GENERATORS[shape.removesuffix(" hops")](n)
        return graphs.hops(graph) if shape.endswith("hops") else graph

    found: list[tuple[str, Any]] = [(f"{shape} {n:,}", lambda shape=shape, n=n: made(shape, n)) for shape, n in MADE]
    if data is not None:
        found += [
            (name, lambda name=name, given=given: read_graph(data / name, **given)[0]) for name, given in REAL.items()
        ]
    return [(name, make) for name, make in found if not only or any(word in name for word in only)]


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder of the real graphs")
    parser.add_argument("--only", nargs="*", help="words; graphs are kept whose name has one of them")
    parser.add_argument("--patience", type=float, default=0.7, help="predicted seconds that are run in any case")
    parser.add_argument("--budget", type=float, default=0.25, help="seconds of a run of a peer, about")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    keep_memory()
    rows = []
    for name, make in cases(options.data, options.only):
        rows.append(compare(name, make(), options.threads, options.patience, options.budget))
        print(markdown(rows[-1:]).splitlines()[-1], flush=True)
    record: dict[str, Any] = {"facts": facts(options.threads), "rows": rows}
    print(markdown(rows))
    digest = hashlib.sha256(json.dumps(record).encode()).hexdigest()[:8]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"regret-{record['facts']['date']}-{digest}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
