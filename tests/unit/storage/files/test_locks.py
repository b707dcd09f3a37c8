from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import Conflict
from storage.files import locks
from storage.files.locks import FileLock, lock_folder
from tests.interrupting import Interruption

HOLD = """
import sys
from pathlib import Path
from storage.files.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_one_holder_at_a_time_and_death_frees_it(tmp_path: Path):
    path = tmp_path / "some" / "lock"
    assert not FileLock.taken(path)
    lock = FileLock(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert FileLock.taken(path)
        with pytest.raises(Conflict, match=f"process {other.pid}"):
            lock.acquire(timeout=0.1)
        other.kill()
        lock.acquire(timeout=60)
    assert FileLock.taken(path)
    with pytest.raises(Conflict):
        FileLock(path).acquire()
    lock.release()
    assert not FileLock.taken(path)
    lock.release()


def test_on_a_full_disk_it_is_held_without_a_name_and_can_be_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = FileLock(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        lock.acquire()
    with pytest.raises(Conflict, match="process unknown"):
        FileLock(lock.path).acquire()
    lock.release()
    assert not FileLock.taken(lock.path)


def test_an_interrupt_at_any_step_of_waiting_leaves_no_lock(tmp_path: Path):
    """Of the last step, before the lock knows its descriptor, only the caller could know."""
    path, hit = tmp_path / "lock", 0
    for at in range(1, 200):
        lock = FileLock(path)
        if not Interruption(at, locks).hits(lock.acquire):
            lock.release()
            break
        lock.release()
        hit += 1
        assert not FileLock.taken(path), f"after step {at}"
    assert hit >= 5


def test_a_folder_that_its_last_holder_removes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, removed = os.open, list[Path]()

    def racing(path: Path, flags: int) -> int:
        if not removed:
            removed.append(path)
            path.rmdir()
        return real(path, flags)

    monkeypatch.setattr(os, "open", racing)
    handle = lock_folder(tmp_path / "folder", tmp_path / "target")
    os.close(handle)
    assert removed == list(tmp_path.iterdir()) == [tmp_path / "folder"]
