"""Times what the user waits for, with commit 96d7eee and with this checkout in one run, and prints a table.

    python -m benchmarks.before --graphs FOLDER --old CHECKOUT [--threads 1,2,4,8,16] [--runs 4] [--json FILE]
    python -m benchmarks.before --print FILE

``benchmarks.waits --prepare`` writes FOLDER.  CHECKOUT has the packages of 96d7eee, which also need ``zstandard``.
Calls are timed as in ``benchmarks.waits``: a call plans and solves into memory with the summary, and the least time of
the later calls counts.  Peers are timed with 2 threads, 16 threads and the largest number asked for.  The commands are
those of ``benchmarks.start``; both programs run them in alternation.  A first solve runs in a copy of the program that
has the kernels that its set-up compiles, and no other cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import cores, waits
from benchmarks.peers import facts
from benchmarks.start import commands_in, took
from benchmarks.waits_tables import PEERS, cell, least, ratio

ROOT: Final = Path(__file__).resolve().parents[1]
#: Graphs that are solved with each number of threads; ``benchmarks.waits`` does not have the last one.
THREADED: Final = ("random 8,000", "social hops 6,440", "complete 4,096")
#: A graph that is timed only with the fewest and the most threads, and not through SciPy's functions, because 96d7eee
#: takes long on it.
DEAR: Final = "complete 4,096"
#: Numbers of threads, in addition to 2 and the largest one asked for, with which peers are timed.
BESIDE: Final = (16,)
#: Graphs whose planning has a line in the table, and an acyclic graph, in which most vertices reach few others.
PLANNED: Final = ("complete 2,048", "social hops 6,440", "p2p-Gnutella08 hops")
ACYCLIC: Final = "rome99, one arc a pair"
#: Caches that an installation does not contain: bytecode, and numba's index of kernels, without which numba compiles.
CACHES: Final = ("*.pyc", "*.nbi")

Row = dict[str, Any]


def measure_commands(programs: dict[str, Path], runs: int) -> Iterator[Row]:
    """Yield wall and processor seconds of commands (medians of alternating runs), and of a first and second solve."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        commands = commands_in(folder)
        for command, words in commands.items():
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
            for _ in range(runs + 1):  # the first run of each is not counted
                for name, program in programs.items():
                    found[name].append(took(words, program))
            medians = {
                name: [statistics.median(side) for side in zip(*times[1:], strict=True)]
                for name, times in found.items()
            }
            yield {"command": command, **medians}
        firsts = {name: _first_solves(program, folder / name, commands["solve"]) for name, program in programs.items()}
        for at, command in enumerate(("first solve", "second solve")):
            yield {"command": command, **{name: times[at] for name, times in firsts.items()}}


def _first_solves(program: Path, copy: Path, words: list[str]) -> list[tuple[float, float]]:
    """Solve twice in a fresh copy of the program, with caches of its own."""
    for package in ("engine", "service", "storage"):
        shutil.copytree(program / package, copy / package, ignore=shutil.ignore_patterns(*CACHES))
    with tempfile.TemporaryDirectory() as caches:
        return [took(words, copy, XDG_CACHE_HOME=caches) for _ in range(2)]


def measure(
    graphs: dict[str, Path], programs: dict[str, Path], threads: Sequence[int], runs: int
) -> Iterator[tuple[str, Row]]:
    """Yield (kind, row): first ``threads`` and ``peers`` for calls without and with peers, then ``commands``."""
    old = programs["96d7eee"]
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Callable[[], Any]] = {**waits.MADE, "complete 4,096": lambda: cores.dense(4_096)}
        for name in {*THREADED, *PLANNED} - set(graphs):
            graphs[name] = Path(folder) / f"{name}.npz"
            waits.save(graphs[name], made[name]())
        ends = [min(threads), max(threads)]
        timings = [
            waits.Timing(graphs[name], threads, ends if name == DEAR else threads, peers=False, doors=name != DEAR)
            for name in THREADED
        ]
        beside = [each for each in threads if each in {2, *BESIDE, max(threads)}]
        rest = [graphs[name] for name in sorted(graphs) if name not in THREADED]
        timings += [waits.timing(file, beside, peers=True) for file in rest]
        for row in waits.measure(timings, runs, old):
            yield "threads" if row["graph"] in THREADED else "peers", row
    for row in measure_commands(programs, runs):
        yield "commands", row


def table(record: dict[str, Any]) -> list[str]:
    """Return the table in Markdown."""
    rows: dict[str, list[Row]] = record["rows"]
    lines = ["| measured | 96d7eee | now |", "| --- | --- | --- |"]
    for name in THREADED:
        own = sorted((r for r in rows["threads"] if r["graph"] == name), key=lambda row: int(row["threads"]))
        said = (", ".join(cell(row.get(which)) for row in own) for which in ("old", "now"))
        lines.append(_line(f"{name}, threads {', '.join(str(row['threads']) for row in own)}, s", *said))
    every = [*rows["peers"], *rows["threads"]]
    for threads in sorted({row["threads"] for row in rows["peers"] if "SciPy" in row}):
        lines += _of_threads([r for r in every if r["threads"] == threads])
        lines += _efficiency(every, threads)
    for row in rows["commands"]:
        said = (f"{row[which][0]:.2f}, {row[which][1]:.2f}" for which in ("96d7eee", "now"))
        lines.append(_line(f"`apsp`, 973 vertices, {row['command']}: wall, processor seconds", *said))
    return lines


def _of_threads(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines about one number of threads."""
    threads, which = rows[0]["threads"], ("old", "now")
    for what, hops in (("weights", False), ("hops", True)):
        real = [r for r in rows if r["hops"] == hops and not r["made"] and r["graph"] not in THREADED]
        title = f"fastest peer / apsp, {len(real)} real graphs, {what}, {threads} threads"
        yield _line(f"{title}: median (least to most; slower on)", *(_ratios(real, each) for each in which))
    for row in rows:
        if row["graph"] in PLANNED:
            title = f"planning, and then solving {row['graph']}, {threads} threads, ms"
            yield _line(title, *(_planning(row, each) for each in which))
        if row["graph"] == ACYCLIC:
            seconds, name = min((least(row.get(each)), each) for each in PEERS)
            title = f"{ACYCLIC}, {threads} threads, ms (fastest peer: {name}, {1000 * seconds:.3g})"
            yield _line(title, *(f"{1000 * least(row.get(each)):.3g}" for each in which))
    yield _line(
        f"engine / SciPy's door, {len(rows)} graphs, {threads} threads: median, least",
        *(_doors(rows, each) for each in which),
    )


def _efficiency(rows: Sequence[Row], threads: int) -> Iterator[str]:
    """Yield the line about large graphs: how many times as fast they are with so many threads as with one."""
    of = {(row["graph"], row["threads"]): row for row in rows}
    large = [row for row in rows if row["threads"] == 1 < threads and row["n"] >= waits.LARGE]
    pairs = [(alone, of[alone["graph"], threads]) for alone in large if (alone["graph"], threads) in of]
    said = []
    for which in ("old", "now"):
        times = [(least(alone.get(which)), least(more.get(which))) for alone, more in pairs]
        found = [one / many for one, many in times if max(one, many) < math.inf]
        said.append(f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})" if found else "–")
    if pairs:
        title = (
            f"{len(pairs)} graphs from {waits.LARGE:,} vertices, with {threads} threads so many times as fast as with 1"
        )
        yield _line(f"{title}: median (least to most)", *said)


def _line(what: str, old: str, now: str) -> str:
    return f"| {what} | {old} | {now} |"


def _ratios(rows: Sequence[Row], which: str) -> str:
    found = [each for row in rows if (each := ratio(row, which)) is not None]
    if not found:
        return "–"
    slower = sum(each < 1 for each in found)
    return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f}; {slower})"


def _planning(row: Row, which: str) -> str:
    calls = row.get(which, {}).get("engine", [])
    if not calls:
        return "–"
    best = min(calls[1:] or calls, key=lambda call: float(call["seconds"]))
    planning, solving = (1000 * each for each in (best["planning"], best["seconds"] - best["planning"]))
    return f"{planning:,.1f}, {solving:,.1f}"


def _doors(rows: Sequence[Row], which: str) -> str:
    pairs = [(least(row.get(which)), least(row.get(which), "door")) for row in rows]
    found = [engine / door for engine, door in pairs if max(engine, door) < math.inf]
    return f"{statistics.median(found):.2f}, {min(found):.2f}" if found else "–"


def main() -> None:
    """Measure, record and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, help="folder of the real graphs as .npz")
    parser.add_argument("--old", type=Path, help="checkout of 96d7eee")
    parser.add_argument("--threads", default="1,2,4,8,16")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--print", type=Path, dest="printed")
    given = parser.parse_args()
    if given.printed is not None:
        print("\n".join(table(json.loads(given.printed.read_text()))))
        return
    if given.graphs is None or given.old is None:
        parser.error("--graphs and --old are needed, or --print")
    threads = [each for each in map(int, given.threads.split(",")) if each <= len(os.sched_getaffinity(0))]
    graphs = {file.stem: file for file in sorted(given.graphs.resolve().glob("*.npz"))}
    programs = {"96d7eee": given.old.resolve(), "now": ROOT}
    rows: dict[str, list[Row]] = {"threads": [], "peers": [], "commands": []}
    record = {"what": "96d7eee and now", "facts": facts(max(threads)), "rows": rows}
    for kind, row in measure(graphs, programs, threads, given.runs):
        rows[kind].append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if given.json is not None:  # written after each row, so that a time limit loses no finished row
            given.json.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(table(record)))


if __name__ == "__main__":
    main()
