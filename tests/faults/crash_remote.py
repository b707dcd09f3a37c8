"""Writes a small store into an object store again and again, in child processes: the k-th is killed before request k.

Run as a program: ``crash_remote.py FOLDER ADDRESS SCENARIO``.  ``ADDRESS/k/d.zarr`` then holds the objects that the
k-th child left.  Prints the requests of the last child, which was not killed, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import zarr.codecs  # noqa: F401 - imported once here, not in every child

from storage.matrix.frame import MatrixSpec
from storage.matrix.working import open_working
from storage.remote.objects import Objects
from tests.faults.crash_store import in_child
from tests.stores import entries_of, line_graph

OLD, NEW = 1, 2
N = 70
SCENARIOS = ("overwrite", "committed")


class Trap:
    """Counts requests that change something, and kills the process just before the ``deadly`` one."""

    def __init__(self, deadly: int) -> None:
        self.deadly, self.seen, self.lock = deadly, list[str](), threading.Lock()

    def arm(self) -> None:
        for name in ("write", "create", "replace", "remove"):
            setattr(Objects, name, self.trapped(name, getattr(Objects, name)))

    def trapped(self, action, call):
        def before(objects, name, *more):
            with self.lock:
                self.seen.append(f"{action} {name if isinstance(name, str) else ''}")
                if len(self.seen) == self.deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(objects, name, *more)

        return before


def write(folder: Path, address: str, seed: int, *, overwrite: bool = False, commit: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    graph, entries = line_graph(N), entries_of(N, N, "float32", seed)
    with open_working(
        folder / "d.zarr", graph, MatrixSpec("float32", float("inf")), address=address, overwrite=overwrite
    ) as writer:
        writer.write(0, 0, entries[:64])
        if commit:
            writer.commit({"rows": 64})
            writer._wait_for_sender()
        writer.write(64, 0, entries[64:])
        writer.seal({"seed": seed})


def main(folder: Path, address: str, scenario: str) -> None:
    point, status = 0, signal.SIGKILL
    while status == signal.SIGKILL:
        point += 1
        place, there = folder / str(point), f"{address}/{point}/d.zarr"
        if scenario == "overwrite":
            assert in_child(lambda place=place, there=there: write(place / "old", there, OLD)) == 0

        def again(place=place, there=there, trap=Trap(point)):  # noqa: B008 - one trap a turn
            trap.arm()
            write(place, there, NEW, overwrite=scenario == "overwrite", commit=scenario == "committed")
            (folder / "requests.json").write_text(json.dumps(trap.seen))

        status = in_child(again)
    if status != 0:
        raise SystemExit(f"the run at point {point} failed with status {status}")
    print((folder / "requests.json").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
