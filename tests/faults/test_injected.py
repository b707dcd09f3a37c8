"""Tests that a solve ends with the reason if one write, fsync, rename, open or read fails, and that the next continues.

CI tests the failure of every fifth call, ``APSP_FAULT_STEP=1 ./dev test tests/faults/test_injected.py`` of every call.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import solve_to_store
from engine.model.problem import Options
from engine.streaming import checkpoint, host_tier
from storage.errors import StorageFailed
from storage.files import atomic
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import WorkingMatrix, find_checkpoint
from tests.faults.crash_solve import plan_of
from tests.stores import verify_matrix

N = 300
STEP = int(os.environ.get("APSP_FAULT_STEP", "5"))
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
#: what fails, with which error, and whether it goes on failing until somebody has seen to it
FAULTS = {
    "write": (errno.ENOSPC, True),
    "fsync": (errno.EIO, False),
    "rename": (errno.EIO, False),
    "open": (errno.ENOSPC, True),
    "read": (errno.EIO, False),
}


class Disk:
    """Lets one kind of call fail from its ``when``-th time on, in ``folder``; while entered."""

    current: Disk | None = None

    def __init__(self, kind: str, when: int, folder: Path) -> None:
        self.kind, self.when, self.folder = kind, when, str(folder)
        self.code, self.lasting = FAULTS[kind]
        self.calls = self.commits = 0
        self.lock = threading.Lock()

    def meets(self, kind: str) -> bool:
        if kind != self.kind:
            return False
        with self.lock:
            self.calls += 1
            return self.calls == self.when or (self.lasting and self.calls > self.when)

    def may(self, kind: str) -> None:
        if self.meets(kind):
            raise OSError(self.code, os.strerror(self.code))

    def audit(self, event: str, arguments: tuple) -> None:
        if event == "os.rename":
            self.may("rename")
        opens = event == "os.mkdir" or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
        if opens and str(arguments[0]).startswith(self.folder):
            self.may("open")

    def patch(self, monkeypatch) -> None:
        writev, fsync, fdatasync, preadv, rename, commit = (
            os.writev,
            os.fsync,
            os.fdatasync,
            os.preadv,
            atomic._renameat2,
            WorkingMatrix.commit,
        )

        def full(handle, buffers):
            if self.meets("write"):
                if self.calls == self.when:  # what fits is written
                    return os.write(handle, memoryview(buffers[0]).cast("B")[:7])
                raise OSError(self.code, os.strerror(self.code))
            return writev(handle, buffers)

        def failing(kind, real):
            def call(*arguments):
                self.may(kind)
                return real(*arguments)

            return call

        def committing(writer, record):
            commit(writer, record)
            self.commits += 1

        monkeypatch.setattr(os, "writev", full)
        monkeypatch.setattr(os, "fsync", failing("fsync", fsync))
        monkeypatch.setattr(os, "fdatasync", failing("fsync", fdatasync))
        monkeypatch.setattr(os, "preadv", failing("read", preadv))
        monkeypatch.setattr(atomic, "_renameat2", failing("rename", rename))
        monkeypatch.setattr(WorkingMatrix, "commit", committing)


_hooked: list[bool] = []


def hook(event: str, arguments: tuple) -> None:
    if Disk.current is not None:
        Disk.current.audit(event, arguments)


@pytest.fixture
def scratch(tmp_path):
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def graph():
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, N, (2, 3 * N))
    return build_graph(tails, heads, rng.integers(0, 1000, 3 * N), n=N, directed=True)[0]


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("tier", ["store", "host", "search"])
def test_whatever_fails_the_solve_says_so_and_the_next_goes_on(scratch, graph, monkeypatch, tier, kind):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.004 if tier == "store" else 0.0)
    for name in ("BATCH_SECONDS", "BUSY_SECONDS", "FIRST_ENTRIES", "BUSY_ENTRIES"):
        monkeypatch.setattr(f"engine.algorithms.dijkstra.{name}", 0)
    monkeypatch.setattr(host_tier, "COST", 100.0)
    if not _hooked:  # hooks stay as long as the process
        _hooked.append(True)
        sys.addaudithook(hook)
    plan, options = plan_of(graph, tier, 64, 64), Options(dtype="int32")
    solve_to_store(graph, options, scratch / "expected.zarr", plan=plan)
    with open_matrix(scratch / "expected.zarr") as matrix:
        expected = matrix.rows(range(N))
    when, failed = 1, 0
    while (ended := failing_solve(graph, plan, options, scratch, Disk(kind, when, scratch), monkeypatch)) is not None:
        failed += ended
        path = scratch / "d.zarr"
        if not path.exists():  # else only the last step failed, making the new name durable
            solve_to_store(graph, options, path, plan=plan, resume=True)
        verify_matrix(path)
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.rows(range(N)), expected)
        for place in scratch.iterdir():
            if place.name != "expected.zarr":
                shutil.rmtree(place)
        when += STEP if kind != "rename" else 1  # there are few, and a solve does without the copies that some end
    print(tier, kind, failed)
    assert failed >= (kind != "read"), "nothing was let fail"


def failing_solve(graph, plan, options, folder, disk, monkeypatch) -> bool | None:
    """Whether the solve failed; None if it came to its end before the call that was to fail."""
    path = folder / "d.zarr"
    try:
        with monkeypatch.context() as patch:
            disk.patch(patch)
            Disk.current = disk
            solve_to_store(graph, options, path, plan=plan)
    except StorageFailed as error:
        said = str(error)
    else:
        verify_matrix(path)
        return False if disk.calls >= disk.when else None
    finally:
        Disk.current = None
    time.sleep(0.02 if disk.kind == "open" else 0)  # zarr's own thread may be busy with the next file
    assert os.strerror(disk.code) in said
    assert path.exists() or disk.commits == 0 or find_checkpoint(path) is not None
    return True
