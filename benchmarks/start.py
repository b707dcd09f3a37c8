"""Times commands whose work is small, so that their start counts most: wall and processor seconds.

    python benchmarks/start.py [--runs 5] [--first]

The graph has 973 vertices, 3,892 random arcs and whole weights.  ``--first`` also times a first and a second solve in a
copy of the program that has no cache of kernels.  Processor seconds are those of the command and its children, in user
and system mode.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERTICES, ARCS = 973, 3892
#: The program of a command: it calls the entry point of ``apsp``, which has another name in commit 96d7eee.
ENTRY = """
try:
    from service.cli.start import main
except ImportError:
    from service.cli import main
main()
"""


def make_graph(path: Path) -> None:
    """Write the graph as a table."""
    draw = random.Random(1)
    rows = (f"{i % VERTICES},{draw.randrange(VERTICES)},{draw.randrange(1, 1000)}\n" for i in range(ARCS))
    path.write_text("from,to,w\n" + "".join(rows))


def commands_in(folder: Path) -> dict[str, list[str]]:
    """Write the graph to a folder; return the words after ``apsp`` of each command that is timed."""
    graph, store = folder / "graph.csv", folder / "graph.zarr"
    make_graph(graph)
    return {
        "solve": ["solve", str(graph), "--out", str(store), "--overwrite"],
        "query": ["query", str(store), "summary"],
        "--help": ["--help"],
        "no such file": ["solve", str(folder / "none.csv"), "--out", str(store)],
    }


def took(words: list[str], program: Path, **environ: str) -> tuple[float, float]:
    """Return wall and processor seconds of one command, which may write bytecode files, as in an installation.

    Args:
        words: the words after ``apsp``.
        program: the folder with its packages, of this commit or an older one.
        environ: further variables of the environment.

    Raises:
        RuntimeError: the command failed, so its time means nothing.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    environment = {**kept, **environ}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", ENTRY, *words]
    done = subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 2):  # one of the commands names a missing file, and ends with 2
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        commands = commands_in(here)
        print(f"{'command':<14} {'wall':>8} {'processor':>10}   medians of {options.runs}")
        for name, words in commands.items():
            took(words, ROOT)
            runs = [took(words, ROOT) for _ in range(options.runs)]
            wall, used = (statistics.median(side) for side in zip(*runs, strict=True))
            print(f"{name:<14} {wall:>8.2f} {used:>10.2f}", flush=True)
        if options.first:
            copy = here / "program"
            ignored = shutil.ignore_patterns("__pycache__", ".venv", ".git", "tests", "build")
            shutil.copytree(ROOT, copy, ignore=ignored)
            for name in ("first solve", "second solve"):
                wall, used = took(commands["solve"], copy)
                print(f"{name:<14} {wall:>8.2f} {used:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
