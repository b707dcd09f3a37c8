"""``./dev test`` in fresh clones with cold caches, one after the other or side by side, as a newcomer would run it.

    python -m tests.clones [--runs 10] [--side 1] [--processors 2] [--wheels FOLDER] [--keep FOLDER] [-- ARGUMENTS]

Each run has a clone of the last commit, and its own home folder, caches and temporary files.  Beside every second run,
a process keeps one of its processors busy.  With ``--side`` many runs at once, each has its own ``--processors``.  With
``--wheels``, packages come from a folder and not from an index.  The real graphs are found where they are now.  What
follows ``--`` is passed on to ``./dev test``.  The status is 1 if a run fails, and each failed test is named.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Variables of this process that would change how a newcomer's run works.
_OURS: Final = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
#: The lines of pytest's output that name a test which did not pass, and those that count tests.
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) .*", re.MULTILINE)
_COUNTED: Final = re.compile(r"^=*\s*(\d+ (?:passed|failed).*? in [\d.]+s)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run that has ended.

    Attributes:
        number: counts from 0; beside odd ones, a process was busy.
        status: the exit status of ``./dev test``.
        seconds: how long it took, set-up included.
        counts: what pytest said of the number of tests, once for each of its passes.
        failed: the lines that name tests which failed.
    """

    number: int
    status: int
    seconds: float
    counts: list[str]
    failed: list[str]


def run_clone(number: int, folder: Path, processors: set[int], wheels: Path | None, words: list[str]) -> Run:
    """Run ``./dev test`` in a fresh clone in ``folder``, on some processors."""
    clone = folder / "main"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    shared = ROOT.parent / "shared"
    if shared.exists():
        (folder / "shared").symlink_to(shared)
    places = {"HOME": folder / "home", "XDG_CACHE_HOME": folder / "home" / ".cache", "TMPDIR": folder / "tmp"}
    for place in places.values():
        place.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    environment.update({name: str(place) for name, place in places.items()})
    if wheels is not None:
        found = str(wheels.resolve())
        environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=found, UV_OFFLINE="1", UV_NO_INDEX="1", UV_FIND_LINKS=found)
    bound = ["taskset", "--cpu-list", ",".join(map(str, sorted(processors)))]
    busy = subprocess.Popen([*bound, sys.executable, "-c", "while True: pass"]) if number % 2 else None
    log, began = folder / "log", time.monotonic()
    try:
        with log.open("wb") as out:
            command = [*bound, sys.executable, "dev", "test", *words]
            done = subprocess.run(
                command, cwd=clone, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False
            )
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    said = log.read_text(errors="replace")
    return Run(number, done.returncode, time.monotonic() - began, _COUNTED.findall(said), _FAILED.findall(said))


def run_all(runs: int, side: int, each: int, wheels: Path | None, place: Path, words: list[str]) -> list[Run]:
    """Carry out all runs; print a line for each as it ends."""
    usable = sorted(os.sched_getaffinity(0))
    free = SimpleQueue[set[int]]()
    for index in range(side):
        free.put(set(usable[index * each : (index + 1) * each]))

    def go(number: int) -> Run:
        processors = free.get()
        try:
            folder = place / str(number)
            folder.mkdir()
            done = run_clone(number, folder, processors, wheels, words)
        finally:
            free.put(processors)
        beside = ", a process beside it" if number % 2 else ""
        print(f"run {number + 1}: status {done.status}, {done.seconds:.0f} s{beside}: {'; '.join(done.counts)}")
        print("".join(f"  {line}\n" for line in done.failed), end="", flush=True)
        return done

    with ThreadPoolExecutor(side) as pool:
        return list(pool.map(go, range(runs)))


def main() -> int:
    """Parse the arguments, and carry out the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--side", type=int, default=1, help="how many runs at once")
    parser.add_argument("--processors", type=int, default=2, help="processors of each run")
    parser.add_argument("--wheels", type=Path, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="a new folder for clones and logs, which stay there")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    if given.side * given.processors > (usable := len(os.sched_getaffinity(0))):
        parser.error(f"{given.side} runs with {given.processors} processors each: there are {usable}")
    if given.keep is not None:
        given.keep.mkdir()
        ended = run_all(given.runs, given.side, given.processors, given.wheels, given.keep.resolve(), given.words)
    else:
        with tempfile.TemporaryDirectory(prefix="apsp-clones-") as place:
            ended = run_all(given.runs, given.side, given.processors, given.wheels, Path(place), given.words)
    passed = sum(run.status == 0 for run in ended)
    print(f"{passed} of {len(ended)} runs passed")
    return 0 if passed == len(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
