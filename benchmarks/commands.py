"""Times whole commands of ``apsp`` on a GPU: their wall seconds, and the seconds of their phases.

    python -m benchmarks.commands now=. before=FOLDER [--out FILE] [--fast FOLDER] [--rows plan,few,...]
    python -m benchmarks.commands --show FILE

Each NAME=FOLDER is a program: a folder with its packages.  The caches of each program are empty at the start, except
for caches in its own folder.  So if that folder is fresh, a row *first* times the first command of its kind that the
program runs.  Graphs are random and directed, with four arcs for each vertex and whole weights from 1 to 99.  Stores
are written to ``--fast``, by default a folder in memory.  The programs must agree on the summary of each row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.start import ENTRY

CUDA: Final = ("--device", "cuda")
DENSE: Final = (*CUDA, "--dtype", "float32", "--algorithm", "blocked-floyd-warshall")


@dataclass(frozen=True)
class Row:
    """A command that is run one or more times.

    Attributes:
        key: the name of the row in ``--rows``.
        what: a description of the solve, for the table.
        graph: the number of vertices of the random graph, or the path of a file.
        words: the options of the command.
        later: how often the command is run again after the first run.
        verb: the name of the command, such as ``solve``.
    """

    key: str
    what: str
    graph: int | str
    words: tuple[str, ...]
    later: int
    verb: str = "solve"


ROWS: Final = (
    Row("plan", "plan of n = 32,768", 32768, DENSE, 1, "plan"),
    Row("few", "n = 2,500", 2500, CUDA, 3),
    Row("thousand", "n = 1,000", 1000, CUDA, 3),
    Row("rome", "rome99 (3,353 vertices)", "rome99.gr", CUDA, 3),
    Row("memory", "n = 32,768 in the GPU's memory", 32768, DENSE, 1),
    Row("searches", "n = 65,536 by searches", 65536, (*CUDA, "--dtype", "float32", "--algorithm", "bellman-ford"), 2),
    Row("streamed", "n = 65,536 in 4 GiB", 65536, (*DENSE, "--device-memory", "4GiB"), 1),
    Row("several", "n = 150,000, more than an H100 holds, by all GPUs", 150_000, DENSE, 0),
    Row("four", "n = 200,000, more than an H200 holds, by all GPUs", 200_000, DENSE, 1),
)


def make_graph(n: int, folder: Path) -> Path:
    """Return the file of a random graph of ``n`` vertices; the file is written if it does not exist."""
    import numpy as np
    from scipy.sparse import csr_array, save_npz

    path = folder / f"random-{n}.npz"
    if not path.exists():
        draw = np.random.default_rng(n)
        tails, heads = np.repeat(np.arange(n), 4), draw.integers(0, n, 4 * n)
        other, first = tails != heads, np.unique(tails * n + heads, return_index=True)[1]
        kept = first[other[first]]
        weights = draw.integers(1, 100, 4 * n)[kept]
        save_npz(path, csr_array((weights, (tails[kept], heads[kept])), shape=(n, n)), compressed=False)
    return path


def run(program: Path, caches: Path, words: list[str]) -> dict[str, Any]:
    """Run one command; return its wall seconds and what it printed as JSON.

    Raises:
        RuntimeError: the command failed.
    """
    places = {"XDG_CACHE_HOME": caches, "CUPY_CACHE_DIR": caches / "cupy"}
    environment = {**os.environ, **{name: str(path) for name, path in places.items()}}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *words, "--json"], cwd=program, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    wall = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return {"wall": wall, **json.loads(done.stdout)}


def measure(programs: dict[str, Path], rows: list[Row], fast: Path, rome: Path) -> Iterator[list[dict[str, Any]]]:
    """Run all rows of all programs; yields what was found so far, after each row."""
    found: list[dict[str, Any]] = []
    for row in rows:
        file = make_graph(row.graph, fast) if isinstance(row.graph, int) else rome
        sums = {}
        for name, program in programs.items():
            store, caches = fast / f"{name}.zarr", fast / f"caches-{name}"
            place = ["--out", str(store)]
            for turn in range(row.later + 1):
                try:
                    told = run(program, caches, [row.verb, str(file), *row.words, *place])
                except RuntimeError as error:
                    found.append({"row": row.key, "program": name, "turn": turn, "failed": str(error)})
                    print(found[-1], flush=True)
                    break
                shutil.rmtree(store, ignore_errors=True)
                plan, summary = told["plan"], told.get("summary", {})
                sums[name] = {key: summary.get(key) for key in ("reached_pairs", "sum", "diameter") if key in summary}
                found.append({
                    "row": row.key, "program": name, "turn": turn, "wall": round(told["wall"], 3),
                    "seconds": {k: round(v, 3) for k, v in told.get("seconds", {}).items()},
                    "algorithm": plan.get("algorithm"), "tier": plan.get("tier"), "streaming": plan.get("streaming"),
                    "predicted": {phase["name"]: round(phase["seconds"], 3) for phase in plan.get("phases", ())},
                    "summary": sums[name],
                })  # fmt: skip
                print(json.dumps(found[-1]), flush=True)
        assert len({json.dumps(one) for one in sums.values()}) <= 1, f"{row.key}: the programs disagree: {sums}"
        yield found


def table(record: dict[str, Any]) -> list[str]:
    """Return the table in Markdown: for each row a line for its first run, and a line for the fastest later run."""
    names = record["programs"]
    lines = [f"| whole command, s | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for row in ROWS:
        for word, later in (("first", False), ("later", True)):
            cells = []
            for name in names:
                here = [one for one in record["rows"] if (one["row"], one["program"]) == (row.key, name)]
                walls = [one["wall"] for one in here if "wall" in one and (one["turn"] > 0) == later]
                cells.append(f"{min(walls):.2f}" if walls else "-")
            if set(cells) != {"-"}:
                lines.append(f"| {row.what}, {word} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure, record and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fast", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--rome", type=Path, default=Path(os.environ.get("APSP_DATA", "../shared/data")) / "rome99.gr")
    parser.add_argument("--rows", default=",".join(row.key for row in ROWS))
    parser.add_argument("--once", action="store_true", help="run each command once only")
    parser.add_argument("--show", type=Path)
    given = parser.parse_args()
    if given.show:
        print("\n".join(table(json.loads(given.show.read_text()))))
        return
    programs = {name: Path(folder).resolve() for name, folder in (one.split("=", 1) for one in given.program)}
    rows = [row for row in ROWS if row.key in given.rows.split(",")]
    if given.once:
        rows = [Row(row.key, row.what, row.graph, row.words, 0, row.verb) for row in rows]
    record: dict[str, Any] = {"what": "whole commands", "date": time.strftime("%Y-%m-%d"), "programs": list(programs)}
    with tempfile.TemporaryDirectory(dir=given.fast, prefix="commands-") as folder:
        for found in measure(programs, rows, Path(folder), given.rome.resolve()):
            record["rows"] = found
            if given.out:  # after each row, so that a run that is cut off keeps the rows before
                given.out.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(table(record)))


if __name__ == "__main__":
    main()
