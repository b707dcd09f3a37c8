"""What the planner's choices cost: every applicable algorithm runs on each graph, and the choice is compared.

Run ``python -m benchmarks.regret [--threads 2] [--data FOLDER] [--only WORD ...] [--patience SECONDS]``; it prints a
Markdown table and writes JSON to ``benchmarks/results/``.  Rows go to a sink that drops them, so that no disk is
measured; everything else of a solve counts, and for the choice also what planning took (calibration and the trial
partition).  Algorithms that are predicted to take more than ``--patience`` seconds and many times as long as the choice
are not run.  *Regret* is the time of the choice by that of the best.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks import graphs
from benchmarks.peers import facts
from engine.plan import Candidate
from engine.problem import Options
from engine.solve import make_plan, solve
from storage.graph import Graph

#: Made graphs: shape and vertices.
MADE: Final = (
    *(("random", n) for n in (1000, 2000, 4000, 8000)),
    *(("rmat", n) for n in (4096, 16384)),
    *(("grid", n) for n in (1024, 4096, 16384)),
    *(("road", n) for n in (4096, 16384)),
    *(("ring", n) for n in (1000, 4096, 16384)),
    *(("dense", n) for n in (512, 2048)),
)
#: Real graphs, and how they are read where the file does not say.
REAL: Final[dict[str, dict[str, Any]]] = {
    "monaco_drive.csv": {},
    "graph_23rd.gr": {},
    "rome99.gr": {},
    "minnesota_km.mtx": {},
    "munich_net.tntp": {},
    "helsinki_drive.csv": {},
    "krems_drive.csv": {},
    "north-bayreuth_drive.csv": {},
    "ChicagoRegional_net.tntp.gz": {},
    "power.graph": {},
    "4elt.graph": {},
    "PGPgiantcompo.graph": {},
    "p2p-Gnutella08.txt": {},
    "cal.cedge.gz": {"directed": False},
    "bremen_dist.gr.gz": {},
}
#: Runs of an algorithm: until so many seconds or so many runs have passed.
ENOUGH_SECONDS: Final = 1.0
ENOUGH_RUNS: Final = 5
#: An algorithm that is predicted to take so many times as long as the choice is not run if that tries the patience.
HOPELESS: Final = 4.0


@dataclass
class Dropped:
    """A sink that keeps nothing."""

    tile: tuple[int, int]

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:
        """Drop the block."""


def seconds_of(graph: Graph, algorithm: str, threads: int) -> float:
    """The best of some runs after a first one that compiles; planning left out."""
    options = Options(algorithm=algorithm, device="cpu", threads=threads)
    plan = make_plan(graph, options)
    best, total, runs = math.inf, 0.0, 0
    while runs < 2 or (runs < ENOUGH_RUNS and total < ENOUGH_SECONDS):
        began = time.perf_counter()
        solve(graph, plan, options, Dropped((64, graph.n)))
        took = time.perf_counter() - began
        best, total, runs = min(best, took), total + took, runs + 1
        if took > 4 * ENOUGH_SECONDS and runs == 1 and took < 1.5 * plan.seconds:
            break  # so long that compiling hardly counts
    return best


def worth(candidate: Candidate, chosen: Candidate, patience: float) -> bool:
    """Whether to run it."""
    if not candidate.feasible:
        return False
    return candidate.seconds < patience or candidate.seconds < HOPELESS * chosen.seconds


def compare(name: str, graph: Graph, threads: int, patience: float) -> dict[str, Any]:
    """All applicable algorithms on one graph."""
    options = Options(device="cpu", threads=threads)
    make_plan(graph, options)  # compiles what calibrating and partitioning need
    began = time.perf_counter()
    plan = make_plan(graph, options)
    planning = time.perf_counter() - began
    chosen = plan.candidates[0]
    run = [c for c in plan.candidates if worth(c, chosen, patience)]
    taken = {c.algorithm: seconds_of(graph, c.algorithm, threads) for c in run}
    best = min(taken, key=taken.__getitem__)
    return {
        "graph": name,
        "n": graph.n,
        "arcs": graph.arcs,
        "choice": plan.algorithm,
        "planning": planning,
        "best": best,
        "regret": taken[plan.algorithm] / taken[best],
        "seconds": taken,
        "predicted": {c.algorithm: c.seconds for c in plan.candidates if c.feasible},
        "rejected": {c.algorithm: c.rejected for c in plan.candidates},
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table."""
    head = ["graph", "n", "arcs", "choice", "s", "planning, s", "regret", "others, s"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        seconds = dict(row["seconds"])
        own = seconds.pop(row["choice"])
        others = ", ".join(f"{name} {took:.3g}" for name, took in sorted(seconds.items(), key=lambda item: item[1]))
        cells = [row["graph"], f"{row['n']:,}", f"{row['arcs']:,}", row["choice"], f"{own:.3g}"]
        cells += [f"{row['planning']:.2g}", f"{row['regret']:.2f}", others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cases(data: Path | None, only: list[str] | None) -> list[tuple[str, Any]]:
    """Names, and how to come by the graphs."""
    from storage.readers import read_graph

    found: list[tuple[str, Any]] = [
        (f"{shape} {n:,}", lambda shape=shape, n=n: graphs.GENERATORS[shape](n)) for shape, n in MADE
    ]
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
    parser.add_argument("--patience", type=float, default=5.0, help="predicted seconds that are run in any case")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = []
    for name, make in cases(options.data, options.only):
        rows.append(compare(name, make(), options.threads, options.patience))
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
