"""Times answers that are smaller than the matrix, and prints them beside the times that were required.

    python -m benchmarks.smaller [FOLDER] [--threads 1] [--runs 5] [--only WORD]

FOLDER has the real graphs.  All times are processor seconds, because the processors of a machine are often shared; runs
alternate, and the least time counts.  Required times are seconds on two cores, so 60 s mean 120 processor seconds.
Quantities along paths are timed in whole commands, from a table of arcs to the store, also in wall seconds.
``benchmarks.betweenness`` and ``benchmarks.semirings`` compare with other programs and other semirings.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.start import ROOT, took
from engine.api.measuring import Measurement
from engine.api.near import near_pairs
from engine.api.solve import solve
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import NullSink, Sink
from engine.rows.asked_measures import MeasureRequest, asked_measures
from engine.rows.measures import MeasureSink
from storage.graph.graph import Graph
from storage.pairs.saving import save_pairs
from storage.readers import read_graph
from tests.reference_options import read_arguments

#: Graphs, and numbers of their rows, on which searches with measures are timed beside searches whose rows are dropped.
MEASURED: Final = {
    "facebook_combined.txt.gz": 4_039,
    "PGPgiantcompo.graph": 4_096,
    "4elt.graph": 2_048,
    "p2p-Gnutella31.txt.gz": 1_024,
    "ChicagoRegional_net.tntp.gz": 2_048,
    "bremen_dist.gr.gz": 2_048,
    "seattle-roads.gr.gz": 512,
    "delhi-roads.gr.gz": 256,
}
SEATTLE, DELHI = "seattle-roads.gr.gz", "delhi-roads.gr.gz"
#: Graphs along whose paths quantities are summed, the number of rows of each (None for all), and whether every arc
#: counts 1.
SUMMED: Final = (
    ("rome99.gr", None, False),
    ("bremen_dist.gr.gz", 8_192, False),
    (DELHI, 1_024, False),
    ("ChicagoRegional_net.tntp.gz", None, False),
    ("bremen_dist.gr.gz", 8_192, True),
    (DELHI, 1_024, True),
    ("PGPgiantcompo.graph", None, True),
    ("facebook_combined.txt.gz", None, True),
    ("as-caida20070917.txt", None, True),
    ("4elt.graph", None, True),
    ("p2p-Gnutella31.txt.gz", 16_384, True),
)
#: The numbers of quantities with which commands are timed.
QUANTITIES: Final = (1, 2, 4)
#: A folder in memory, where there is one.
MEMORY: Final = Path("/dev/shm")

Row = tuple[str, str, str]
T = TypeVar("T")


def by_turns(runs: int, works: Sequence[Callable[[], T]]) -> list[list[T]]:
    """Call each of ``works`` ``runs`` times, in alternation; return for each what its calls returned."""
    found: list[list[T]] = [[] for _ in works]
    for _ in range(runs):
        for results, work in zip(found, works, strict=True):
            results.append(work())
    return found


def processor_seconds(work: Callable[[], Any]) -> float:
    """Call ``work``; return the processor seconds that this process took for it."""
    began = time.process_time()
    work()
    return time.process_time() - began


def least(runs: int, *works: Callable[[], Any]) -> list[float]:
    """Call each of ``works`` ``runs`` times, in alternation, and return the least processor seconds of each."""
    return [min(each) for each in by_turns(runs, [partial(processor_seconds, work) for work in works])]


def requests(n: int, largest: float) -> dict[str, MeasureRequest]:
    """Return requests for measures by name; cutoffs are shares of ``largest``, a typical eccentricity."""
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 1000, n) for name in ("jobs", "beds", "shops")}
    within = [float(math.ceil(largest * share)) for share in (0.2, 0.4, 0.6, 1)]
    one: list[str] = ["reached"]
    return {
        "all measures": {},
        "4 cutoffs": {"measures": one, "within": within},
        "3 columns x 4 cutoffs": {"measures": one, "within": within, "opportunities": columns},
        "3 columns, exponential decay": {
            "measures": one, "within": within[:1], "opportunities": columns, "decay": "exponential",
        },
        "10 nearest": {"measures": one, "nearest": 10},
        "median": {"measures": one, "quantiles": [0.5]},
    }  # fmt: skip


def some_sources(graph: Graph, rows: int) -> tuple[int, ...]:
    """Return consecutive sources from the middle of the labels."""
    first = max(0, (graph.n - rows) // 2)
    return tuple(range(first, min(graph.n, first + rows)))


def measures(folder: Path, threads: int, runs: int) -> Iterator[Row]:
    """Time searches with the measures of each request, beside the same searches with a sink that drops the rows."""
    for name, rows in MEASURED.items():
        graph, _ = read_graph(folder / name, **read_arguments(name))
        options = Options(sources=some_sources(graph, rows), threads=threads, device="cpu")
        measurement = Measurement(graph, options)
        plan, wanted = measurement.plan, Rectangle.of(options, graph.n)
        profile, searched = measurement._profile, measurement._options
        largest = float(np.nanmedian(measurement.run()["eccentricity"].astype(np.float64)))
        asked = {k: asked_measures(graph.n, 0.0, request) for k, request in requests(graph.n, largest).items()}

        def run(make: Callable[[], Sink], profile: Any = profile, plan: Any = plan, searched: Any = searched) -> None:
            solve(profile, plan, searched, make(), None, facts=False)

        kind = WORK_TYPES[plan.dtype]
        sinks: list[Callable[[], Sink]] = [partial(NullSink, graph.n)]
        sinks += [partial(MeasureSink, wanted, kind, one) for one in asked.values()]
        works: list[Callable[[], object]] = [partial(run, make) for make in sinks]
        dropped, *others = least(runs, *works)
        ratios = ", ".join(f"{name} {each / dropped:.2f}" for name, each in zip(asked, others, strict=True))
        entry = 1e9 * dropped / len(wanted.rows) / graph.n
        what = f"measures over a search: {name}, {plan.algorithm}, {plan.dtype}, {entry:.2f} ns an entry"
        yield what, ratios, "<= 1.1 of the search"


def whole_seattle(folder: Path, threads: int, runs: int) -> Iterator[Row]:
    """Extrapolate the time of all rows from those of 1,024 and 3,072 rows, so that work done once is counted once."""
    graph, _ = read_graph(folder / SEATTLE)
    columns = {f"c{k}": np.random.default_rng(k).integers(0, 1000, graph.n) for k in range(3)}
    request: MeasureRequest = {
        "measures": ["closeness", "harmonic", "eccentricity"], "opportunities": columns,
        "within": [5e3, 1e4, 2e4, 4e4],
    }  # fmt: skip

    def run(rows: int) -> Callable[[], Any]:
        return lambda: Measurement(graph, Options(sources=some_sources(graph, rows), threads=threads), **request).run()

    few, many = least(min(runs, 3), run(1024), run(3072))
    seconds = few + (many - few) / 2048 * (graph.n - 1024)
    yield (
        "Seattle: closeness, harmonic, eccentricity, 3 columns x 4 cutoffs",
        f"{seconds:.0f} s (from 1,024 and 3,072 rows)",
        "<= 60 s on two cores",
    )


def near(folder: Path, threads: int, runs: int) -> Iterator[Row]:
    """Time near pairs of Delhi: all pairs within 20 km, with saving them, and the 10 nearest of 10,000 targets."""
    graph, _ = read_graph(folder / DELHI)
    targets = tuple(np.linspace(0, graph.n - 1, 10_000).astype(int).tolist())
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "near.parquet"

        def all_near() -> None:
            save_pairs(near_pairs(graph, Options(cutoff=20_000, threads=threads)), out, overwrite=True)

        def ten() -> None:
            near_pairs(graph, Options(targets=targets, threads=threads), nearest=10)

        first, second = least(min(runs, 3), all_near, ten)
        size = out.stat().st_size
    yield "Delhi, all pairs within 20 km", f"{first:.1f} s, {size / 1e9:.3f} GB on disk", "<= 5 s, <= 0.15 GB"
    yield "10 nearest of 10,000 targets for all of Delhi", f"{second:.1f} s", "<= 3 s"


def _write_arcs(graph: Graph, file: Path, *, unit: bool) -> npt.NDArray[np.signedinteger]:
    """Write a table of arcs with their weights, or 1, and with quantities drawn from 1 to 100.

    Returns:
        The vertices that have an arc, which the table names by their indices.
    """
    tails, draw = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), np.random.default_rng(1)
    columns = {"from": tails, "to": graph.heads, "w": np.ones(graph.arcs, np.int32) if unit else graph.weights}
    columns |= {f"q{k}": draw.integers(1, 101, graph.arcs) for k in range(1, max(QUANTITIES) + 1)}
    pl.DataFrame(columns).write_csv(file)
    return np.unique(np.concatenate((tails, graph.heads)))


def _command(words: list[str], store: Path) -> tuple[float, float]:
    """Return the wall and processor seconds of a command, whose store is then deleted.

    Raises:
        FileNotFoundError: the command was refused, so it wrote no store.
    """
    seconds = took(words, ROOT)
    shutil.rmtree(store)
    return seconds


def _increases(times: list[float]) -> str:
    """Return the seconds without quantities, and what each quantity adds to them, as shares of them.

    Args:
        times: the seconds without quantities, and those with each number of ``QUANTITIES``.
    """
    base, *others = times
    shares = ((took - base) / base / count for count, took in zip(QUANTITIES, others, strict=True))
    return f"{base:.2f} s; {', '.join(f'{share:.2f}' for share in shares)}"


def quantities(folder: Path, threads: int, runs: int) -> Iterator[Row]:
    """Time whole commands without quantities, and with each number of ``QUANTITIES``, into a store in memory."""
    for name, rows, unit in SUMMED:
        graph, _ = read_graph(folder / name, **read_arguments(name))
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
            file, listed, store = (Path(place) / part for part in ("arcs.csv", "sources.txt", "distances.zarr"))
            vertices = _write_arcs(graph, file, unit=unit)
            words = ["solve", str(file), "-o", str(store), "--from", "from", "--to", "to", "--weight", "w"]
            words += ["--device", "cpu", "--threads", str(threads)]
            if rows is not None:
                spread = vertices[np.linspace(0, len(vertices) - 1, rows).astype(int)]
                listed.write_text("\n".join(map(str, spread.tolist())))
                words += ["--sources", f"@{listed}"]
            also = [["--also", ",".join(f"q{k}" for k in range(1, count + 1))] for count in QUANTITIES]
            taken = by_turns(runs, [partial(_command, [*words, *more], store) for more in ([], *also)])
        wall, used = ([min(seconds[side] for seconds in each) for each in taken] for side in (0, 1))
        what = f"{name}, {'hops' if unit else 'weights'}, {len(vertices) if rows is None else rows:,} rows"
        counts = ", ".join(map(str, QUANTITIES))
        yield (
            f"whole command and each of {counts} quantities, of the command without: {what}",
            f"wall {_increases(wall)}; processor {_increases(used)}",
            "<= 0.5 each",
        )


PARTS: Final = {"measures": measures, "seattle": whole_seattle, "near": near, "quantities": quantities}


def main() -> None:
    """Print a row for each line of the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=sorted(PARTS))
    given = parser.parse_args()
    print("| work | processor seconds, or their ratio | target |\n| --- | --- | --- |")
    for name, part in PARTS.items():
        if given.only in (None, name):
            for row in part(given.folder, given.threads, given.runs):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
