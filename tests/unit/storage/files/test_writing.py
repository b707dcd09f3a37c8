"""One writer at a time for each place: who comes second is told who the first one is, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from storage.errors import Conflict, StorageFailed
from storage.files import writing
from storage.files.writing import Writing, writing_early
from tests.interrupting import Interruption, by_itself

ROOT = Path(__file__).resolve().parents[4]
_HOLD = """
import sys
from storage.files.writing import Writing
with Writing(sys.argv[1], "prepare"):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path):
    """Another process that writes ``out``."""
    words = [sys.executable, "-c", _HOLD, str(tmp_path / "out")]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate()


def test_the_second_is_told_who_the_first_is(tmp_path: Path, other):
    with pytest.raises(Conflict, match=rf"out: apsp prepare, process {other.pid}, since 20[0-9T:+-]+; wait, or name"):
        Writing(tmp_path / "out", "solve")
    Writing(tmp_path / "another", "solve").release()
    with Writing(tmp_path / "out2", "solve"), pytest.raises(Conflict, match=re.escape(str(other.pid))):
        Writing(tmp_path / "." / "out", "solve")
    other.communicate()
    Writing(tmp_path / "out", "solve").release()
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_process_keeps_its_right_and_a_killed_one_loses_it(tmp_path: Path, other):
    other.send_signal(signal.SIGSTOP)
    with pytest.raises(Conflict, match=f"process {other.pid}"):
        Writing(tmp_path / "out", "solve")
    other.kill()
    other.wait()
    assert (tmp_path / ".out.writing").exists()
    with Writing(tmp_path / "out", "solve"):
        assert f'"process": {os.getpid()}' in (tmp_path / ".out.writing").read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_thread_may_take_again_what_it_has_and_no_other_thread(tmp_path: Path):
    refused: list[BaseException] = []
    before = dict(writing._HELD)

    def try_it() -> None:
        try:
            Writing(tmp_path / "out", "near").release()
        except Conflict as error:
            refused.append(error)

    def in_another_thread() -> None:
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()

    with Writing(tmp_path / "out", "solve") as outer:
        with Writing(tmp_path / "out", "export"):
            in_another_thread()
        in_another_thread()
        outer.release()
        in_another_thread()
        outer.release()
    assert before == writing._HELD
    assert ["apsp solve" in str(error) for error in refused] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_paths_to_one_place_are_one(tmp_path: Path, other):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(Conflict):
        Writing(tmp_path / "link" / "out", "solve")


def test_what_was_removed_meanwhile_is_made_again(tmp_path: Path):
    outer = Writing(tmp_path / "out", "solve")
    (tmp_path / ".out.writing").unlink()
    with Writing(tmp_path / "out", "solve"):
        outer.release()
        assert (tmp_path / ".out.writing").exists(), "this one is not the first one's"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("said", ["", "{", "[]", '{"what": 1}', '{"what": "x", "process": "y", "host": 1}'])
def test_a_writer_that_has_said_nothing_is_refused_all_the_same(tmp_path: Path, other, said: str):
    (tmp_path / ".out.writing").write_text(said)
    with pytest.raises(Conflict, match="it has not said who it is"):
        Writing(tmp_path / "out", "solve")


def test_without_a_folder_it_cannot_be_taken_and_need_not(tmp_path: Path):
    with pytest.raises(StorageFailed, match="No such file"):
        Writing(tmp_path / "no" / "out", "solve")
    with writing_early(tmp_path / "no" / "out", "solve"), writing_early(None, "measure"):
        pass
    assert list(tmp_path.iterdir()) == []


def use(target: Path) -> None:
    """All that is done with a lock: taken, taken again, released twice."""
    with Writing(target, "solve") as outer:
        inner = Writing(target, "export")
        inner.release()
        with writing_early(target, "solve"):
            pass
        outer.release()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def takes(target: Path) -> None:
    """Another thread can take the lock."""
    refused: list[BaseException] = []

    def take() -> None:
        try:
            Writing(target, "near").release()
        except Conflict as error:
            refused.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert refused == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [False, True])
def test_an_interrupt_at_any_step_leaves_neither_file_nor_lock(tmp_path: Path, every: bool):
    gc.collect()  # what other tests have left open is closed before files are counted
    before, handles = dict(writing._HELD), open_files()

    def work() -> int:
        for at in range(1, 10**4):
            hit = Interruption(at, writing, sys.modules[__name__], every=every).hits(lambda: use(tmp_path / "out"))
            assert (list(tmp_path.iterdir()), writing._HELD) == ([], before), f"after step {at}"
            if at % 8 == 0:
                takes(tmp_path / "out")
            if not hit:
                return at
        return 0

    assert by_itself(work) > (400 if every else 60)
    assert open_files() <= handles


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_leaves_the_lock_of_the_work_around_it(tmp_path: Path):
    with Writing(tmp_path / "out", "solve"):
        for at in range(1, 10**4):
            if not Interruption(at, writing).hits(lambda: Writing(tmp_path / "out", "export").release()):
                break
            assert (tmp_path / ".out.writing").exists()
            (hold,) = [hold for hold in writing._HELD.values() if Path(hold.file.name).parent == tmp_path]
            assert len(hold.users) == 1
        assert at > 5
    assert list(tmp_path.iterdir()) == []
