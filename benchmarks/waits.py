"""Times all distances of real and generated graphs, with planning, beside an older commit and other libraries (peers).

    python -m benchmarks.waits --prepare DATA --graphs FOLDER            # real graphs as .npz; needs the readers
    python -m benchmarks.waits --graphs FOLDER [--old CHECKOUT] [--threads 2,16] [--runs 4] [--part 1/3] [--json FILE]
    python -m benchmarks.waits --print FILE [FILE ...]                   # the tables of what was measured
    python -m benchmarks.waits --print FILE ... --into README.md docs/benchmarks.md    # between the marks there

Each contender has a process of its own (``benchmarks/contenders.py``), bound to as many processors as it has threads.
For each graph the contenders are timed one after the other, so that ratios are of one run.  *Engine* means planning and
solving into memory with the summary, and *door* means ``engine.interop.scipy_csgraph.shortest_path``.  A first pass,
which is not timed, compiles all kernels, also those of trials, for which planning itself would not wait.

The first call on a graph has its own column; of the later calls the least time counts.  SciPy has one thread, and is
timed once.  If SciPy or NetworKit would take longer than 1.5 s, they search some sources only, and the time of all
follows in proportion (~).  rustworkx is stopped when it is slower than the others for certain (>).  *Not kept* is the
part of planning's time that saves the solve nothing: it leaves out the time of finding parts, of preparing arcs for the
searches of the solve, and of the rows that the solve keeps from trials.  In every answer the rows of three sources are
compared with SciPy's.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import cores, graphs
from benchmarks.peers import facts
from benchmarks.waits_tables import insert, least, report, summary
from storage.graph.graph import Graph, build_graph

HERE: Final = Path(__file__).resolve().parent
#: The fewest and the most vertices of the real graphs.
LEAST: Final = 900
MOST: Final = 16_500
#: The most seconds of the first pass, of a contender that converts a graph to its own form, and of an answer.
WARM_UP: Final = 300.0
SET_UP: Final = 20.0
PATIENCE: Final = 30.0
#: rustworkx is stopped after GIVEN_UP times the seconds of the fastest other peer, plus AT_LEAST seconds.
GIVEN_UP: Final = 3.0
AT_LEAST: Final = 0.5
#: Graphs with at least this many vertices are also timed with one thread, for their parallel efficiency.
LARGE: Final = 8_000

#: Arguments of ``read_graph`` for real graphs whose files do not declare them.
READ: Final[dict[str, dict[str, Any]]] = {
    "as-caida20070917.txt": {"unweighted": True},
    "soc-sign-bitcoinotc.csv.gz": {"unweighted": True},
    "cal.cedge.gz": {"directed": False},
    "3elt.mtx": {"directed": False},
    "facebook_combined.txt.gz": {"directed": False},
    "bio-CE-GT.txt": {"directed": False},
}
#: Files that are no graphs, or whose graph is also in another file.
LEFT_OUT: Final = frozenset({"airports.dat.gz", "routes.dat.gz", "README.md", "make_reference.py"})


def one_arc_a_pair(graph: Graph) -> Graph:
    """Return the graph of the arcs to a higher index; it is acyclic, and most vertices reach few others."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = tails < graph.heads
    return build_graph(tails[kept], graph.heads[kept], graph.weights[kept], n=graph.n, directed=True)[0]


MADE: Final[dict[str, Callable[[], Graph]]] = {
    "random 1,000": lambda: cores.random(1_000),
    "random 4,000": lambda: cores.random(4_000),
    "random 8,000": lambda: cores.random(8_000),
    "random 16,000": lambda: cores.random(16_000),
    "R-MAT 4,096": lambda: graphs.rmat(4_096),
    "R-MAT 8,192": lambda: graphs.rmat(8_192),
    "grid 64²": lambda: cores.grid(64),
    "grid 100²": lambda: cores.grid(100),
    "complete 1,032": lambda: cores.dense(1_032),
    "complete 2,048": lambda: cores.dense(2_048),
    "social hops 6,440": lambda: graphs.hops(cores.social(6_440, 300_000)),
    "social hops 16,000": lambda: graphs.hops(cores.social(16_000, 160_000)),
    "random hops 8,000": lambda: graphs.hops(graphs.random(8_000)),
}


def save(path: Path, graph: Graph) -> None:
    """Write a graph with SciPy's distances from three sources."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    sample = np.array([0, graph.n // 3, graph.n - 1])
    np.savez_compressed(
        path,
        indptr=graph.indptr,
        heads=graph.heads,
        weights=graph.weights,
        directed=graph.directed,
        weighted=graph.weighted,
        sample=sample,
        distances=dijkstra(arcs, indices=sample),
    )


def prepare(data: Path, folder: Path) -> None:
    """Convert the real graphs of a folder that have from ``LEAST`` to ``MOST`` vertices and no negative weights."""
    from storage.errors import ApspError
    from storage.readers import read_graph

    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(data.iterdir()):
        if not file.is_file() or file.name in LEFT_OUT or file.suffix == ".json":
            continue
        options = {"centroids_through": True} if "_net.tntp" in file.name else READ.get(file.name, {})
        try:
            graph = read_graph(file, **options)[0]
        except ApspError as error:
            print(f"{file.name}: {error}", file=sys.stderr)
            continue
        if not LEAST <= graph.n <= MOST or graph.arcs == 0 or graph.weights.min() < 0:
            continue
        name = file.name.removesuffix(".gz").rpartition(".")[0].removesuffix("_net")
        unit = bool((graph.weights == 1).all())
        save(folder / f"{name}{' hops' if unit else ''}.npz", graphs.hops(graph) if unit else graph)
        if name == "rome99":
            save(folder / "rome99, one arc a pair.npz", one_arc_a_pair(graph))


class Contender:
    """The process of one contender; a process that was stopped is started again for the next order."""

    def __init__(self, name: str, threads: int, checkout: Path) -> None:
        self.name, self.threads, self._checkout = name, threads, checkout
        self._process: subprocess.Popen[bytes] | None = None
        self._left = b""

    def ask(self, order: dict[str, Any], patience: float) -> dict[str, Any]:
        """Return the measurements of an order, or ``given up`` with the seconds after which the process was stopped."""
        if self._process is None:
            added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            path = [str(self._checkout), *(each for each in added if each and Path(each).resolve() != HERE.parent)]
            command = [sys.executable, "-P", str(HERE / "contenders.py"), self.name, "--threads", str(self.threads)]
            # no GPU is visible, because doors would use it
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "CUDA_VISIBLE_DEVICES": ""}
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=self._checkout
            )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(order) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            return {"failed": "the process is gone"}
        for limit in (SET_UP, patience):
            found = self._line(limit)
            if found is None or "ready" not in found:
                break
        if found is None:
            ended = self._process.poll() is not None
            self.stop()
            return {"failed": "the process ended"} if ended else {"given up": limit}
        return found

    def _line(self, limit: float) -> dict[str, Any] | None:
        """Return the next answer; None if there is none within ``limit`` seconds."""
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + limit
        while b"\n" not in self._left:
            ready = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                return None
            self._left += more
        line, _, self._left = self._left.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._left = None, b""


@dataclass(frozen=True)
class Timing:
    """A graph to be timed.

    Attributes:
        file: the graph, as ``--prepare`` writes it.
        threads: numbers of threads; there is a row for each.
        compared: those of ``threads`` with which the older commit and the peers are timed, too.
        peers: whether peers are timed.
        doors: whether SciPy's door is timed.
    """

    file: Path
    threads: Sequence[int]
    compared: Sequence[int]
    peers: bool
    doors: bool = True


def measure(timings: Sequence[Timing], runs: int, old: Path | None) -> Iterator[dict[str, Any]]:
    """Yield one row for each graph and number of threads."""
    mine = {"now": HERE.parent} | ({"old": old} if old is not None else {})
    warm_up([each.file for each in timings], max(max(each.threads) for each in timings), mine)
    every = Contenders(mine)
    try:
        for each in timings:
            file = each.file
            with np.load(file) as found:
                n, arcs, unit = len(found["indptr"]) - 1, len(found["heads"]), not bool(found["weighted"])
            scipy: dict[str, Any] | None = None
            for t in each.threads:
                row: dict[str, Any] = {
                    "graph": file.stem,
                    "n": n,
                    "arcs": arcs,
                    "hops": unit,
                    "threads": t,
                    "made": file.stem in MADE,
                }
                order = {"graph": str(file), "runs": runs, "doors": each.doors}
                for name in mine if t in each.compared else ["now"]:
                    row[name] = every.of(name, t).ask(order, PATIENCE)
                if each.peers and t in each.compared:
                    scipy = scipy or every.of("SciPy", t).ask(order, PATIENCE)
                    row["SciPy"] = scipy
                    row["NetworKit"] = every.of("NetworKit", t).ask(order, PATIENCE)
                    best = min(least(row["SciPy"]), least(row["NetworKit"]))
                    limit = min(PATIENCE, AT_LEAST + GIVEN_UP * best)
                    row["rustworkx"] = every.of("rustworkx", t).ask(order, limit)
                yield row
    finally:
        every.stop()


class Contenders:
    """The processes of all contenders, each started when it is first asked.

    Args:
        mine: the checkouts of apsp by name: ``now``, and perhaps ``old``.
    """

    def __init__(self, mine: dict[str, Path]) -> None:
        self._mine, self._started = mine, dict[tuple[str, int], Contender]()

    def of(self, name: str, threads: int) -> Contender:
        """Return the process of a contender with this number of threads."""
        if (name, threads) not in self._started:
            self._started[name, threads] = Contender(name, threads, self._mine.get(name, HERE.parent))
        return self._started[name, threads]

    def stop(self) -> None:
        """End all processes."""
        for contender in self._started.values():
            contender.stop()


def warm_up(files: Sequence[Path], threads: int, mine: dict[str, Path]) -> None:
    """Solve every graph once with each checkout in ``mine``, so that nothing has to be compiled while it is timed."""
    began = time.perf_counter()
    run = [sys.executable, "-P", str(HERE / "contenders.py")]
    orders = "".join(json.dumps({"graph": str(file), "runs": 0, "compile": True}) + "\n" for file in files).encode()
    processes = []
    for name, path in mine.items():
        added = [
            e for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e and Path(e).resolve() != HERE.parent
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *added])}
        each = subprocess.Popen(
            [*run, name, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd=path,
        )
        assert each.stdin is not None
        each.stdin.write(orders)
        each.stdin.close()
        processes.append(each)
    for each in processes:
        try:
            each.wait(WARM_UP)
        except subprocess.TimeoutExpired:
            each.kill()
    print(f"warm-up: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


def timing(file: Path, threads: Sequence[int], *, peers: bool) -> Timing:
    """Return how a graph is timed: a large one also with one thread, so that its parallel efficiency is known."""
    with np.load(file) as found:
        large = len(found["indptr"]) - 1 >= LARGE
    alone = large and max(threads) > 2 and 1 not in threads
    return Timing(file, [1, *threads] if alone else threads, threads, peers)


def main() -> None:
    """Prepare, measure or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="DATA")
    parser.add_argument("--graphs", type=Path, help="folder of the real graphs as .npz")
    parser.add_argument("--old", type=Path, help="checkout of 96d7eee")
    parser.add_argument("--threads", default="2,16")
    parser.add_argument("--runs", type=int, default=4, help="calls after the first one")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th graph, from the K-th one")
    parser.add_argument("--only", nargs="*", default=[""], help="words; graphs are kept whose name has one of them")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--print", type=Path, nargs="*", dest="printed")
    parser.add_argument("--into", type=Path, nargs="*", default=[], help="pages that show what is printed")
    given = parser.parse_args()
    if given.printed:
        rows = [row for file in given.printed for row in json.loads(file.read_text())["rows"]]
        print(summary(rows), report(rows), sep="\n\n")
        for page in given.into:
            insert(page, {"summary": summary(rows), "tables": report(rows)})
        return
    if given.prepare is not None:
        prepare(given.prepare, given.graphs)
        return
    part, parts = map(int, given.part.split("/"))
    with tempfile.TemporaryDirectory() as folder:
        files = {file.stem: file for file in sorted(given.graphs.resolve().glob("*.npz"))} if given.graphs else {}
        names = [name for name in (*MADE, *files) if any(word in name for word in given.only)][part - 1 :: parts]
        for name in names:
            if name in MADE:
                files[name] = Path(folder) / f"{name}.npz"
                save(files[name], MADE[name]())
        asked, processors = [int(each) for each in given.threads.split(",")], len(os.sched_getaffinity(0))
        if beyond := [each for each in asked if each > processors]:
            print(f"left out: {beyond} threads, there are {processors} processors", file=sys.stderr)
        threads = [each for each in asked if each <= processors]
        if not threads or not names:
            parser.error("nothing to measure")
        old = None if given.old is None else given.old.resolve()
        rows, told = [], facts(max(threads))
        timings = [timing(files[name], threads, peers=not given.no_peers) for name in names]
        for row in measure(timings, given.runs, old):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if given.json is not None:  # written after each row, so that a time limit loses no finished row
                given.json.write_text(json.dumps({"facts": told, "rows": rows}, indent=1) + "\n")
    print(summary(rows), report(rows), sep="\n\n")


if __name__ == "__main__":
    main()
