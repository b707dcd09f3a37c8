"""Writes a small store again and again, in child processes: the k-th is killed before its file operation k.

Run as a program: ``crash_store.py FOLDER SCENARIO``.  Folder k then holds the files that the k-th child left.  Prints
the operations of the last child, which was not killed, as JSON.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import zarr.codecs  # noqa: F401 - imported once here, not in every child

from storage.files import atomic, memory
from tests.stores import make_store

OLD, NEW = 1, 2
N = 70
SCENARIOS = ("fresh", "overwrite", "overwrite without exchange")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link"}


class Trap:
    """Counts file operations and kills the process just before the ``deadly`` one, or in the middle of a write."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.seen: list[str] = []
        self.lock = threading.Lock()

    def step(self, name: str) -> bool:
        """Note an operation; whether it is the deadly one."""
        with self.lock:
            self.seen.append(name)
            return len(self.seen) == self.deadly

    def audit(self, event: str, arguments: tuple) -> None:
        if event in _EVENTS or (event == "open" and arguments[2] & _WRITING):
            self.before(event)

    def before(self, name: str) -> None:
        if self.step(name):
            os.kill(os.getpid(), signal.SIGKILL)

    def arm(self, *, exchange: bool) -> None:
        writev, rename = os.writev, atomic._renameat2

        def torn_writev(handle, buffers):
            if self.step("writev"):
                first = memoryview(buffers[0]).cast("B")
                os.write(handle, first[: len(first) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return writev(handle, buffers)

        def trapped_fsync(_handle):
            self.before("fsync")

        def trapped_rename(source, target, flags):
            if not exchange:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            self.before("renameat2")
            rename(source, target, flags)
            self.before("after renameat2")

        os.writev, os.fsync, atomic._renameat2 = torn_writev, trapped_fsync, trapped_rename
        sys.addaudithook(self.audit)


def in_child(work) -> int:
    """Run ``work`` in a forked child; its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitpid(child, 0)[1]


def main(folder: Path, scenario: str) -> None:
    memory.KINDS = ()  # the folder may be in memory; files are written as on a disk
    template = folder / "template"
    template.mkdir()
    if scenario != "fresh":
        in_child(lambda: make_store(template / "d.zarr", N, seed=OLD))
    point, status = 0, signal.SIGKILL
    while status == signal.SIGKILL:
        point += 1
        place = folder / str(point)
        shutil.copytree(template, place)

        def write(place=place, trap=Trap(point)):  # noqa: B008 - one trap a turn
            trap.arm(exchange=scenario != "overwrite without exchange")
            make_store(place / "d.zarr", N, seed=NEW, overwrite=scenario != "fresh")
            (folder / "operations.json").write_text(json.dumps(trap.seen))

        status = in_child(write)
    if status != 0:
        raise SystemExit(f"the run at point {point} failed with status {status}")
    print((folder / "operations.json").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
