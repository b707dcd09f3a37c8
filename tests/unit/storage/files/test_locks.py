from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import Conflict
from storage.files.locks import FileLock

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
        lock.acquire(timeout=5)
    assert FileLock.taken(path)
    with pytest.raises(Conflict):
        FileLock(path).acquire()
    lock.release()
    assert not FileLock.taken(path)
    lock.release()
