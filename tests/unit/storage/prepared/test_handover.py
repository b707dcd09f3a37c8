"""What a run has committed is moved to the next one, or copied while its process holds it; damage is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.matrix.working_dir import RECORD
from storage.prepared.handover import take_over_prepared
from storage.prepared.journal import PreparedJournal, journal_folder

IDENTITY = {"graph": "one"}
FILES = [np.arange(5, dtype=np.int64), np.full(3, 0.5), np.arange(9, dtype=np.int32)]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The targets of the earlier run and of the next one."""
    found = tmp_path / "old" / "p", tmp_path / "new" / "p"
    for place in found:
        place.parent.mkdir()
    return found


def journal(place: Path) -> PreparedJournal:
    return PreparedJournal(place, IDENTITY)


def committed(place: Path) -> PreparedJournal:
    """A run that has committed three files, and still holds its folder."""
    made = journal(place)
    for number, values in enumerate(FILES):
        made.commit(f"step {number}", [values])
    return made


def ended(made: PreparedJournal) -> None:
    made.__exit__(None, None, None)


def found_at(place: Path) -> list[list[object]]:
    with journal(place) as taken:
        return [array.tolist() for entry in taken.record for array in taken.read(entry)]


def expected(count: int) -> list[list[object]]:
    return [values.tolist() for values in FILES[:count]]


def test_what_an_ended_run_has_committed_is_moved(places):
    old, new = places
    ended(committed(old))
    number = (journal_folder(old) / "0.bin").stat().st_ino
    assert take_over_prepared(old, new) is True
    assert not journal_folder(old).exists()
    assert (journal_folder(new) / "0.bin").stat().st_ino == number
    assert found_at(new) == expected(3)


def test_what_a_run_holds_is_copied_and_nothing_is_shared(places):
    old, new = places
    holder = committed(old)
    assert take_over_prepared(old, new) is True
    before = {path.name: path.read_bytes() for path in journal_folder(new).iterdir()}
    holder.commit("later", [np.zeros(2)])  # it wakes, and goes on
    holder.finish()
    ended(holder)
    assert {path.name: path.read_bytes() for path in journal_folder(new).iterdir()} == before
    assert found_at(new) == expected(3)


def test_a_run_that_ends_in_time_is_waited_for(places):
    from threading import Timer

    old, new = places
    holder = committed(old)
    number = (journal_folder(old) / "0.bin").stat().st_ino
    timer = Timer(0.1, ended, [holder])
    timer.start()
    assert take_over_prepared(old, new, patience=30.0) is True
    timer.join()
    assert (journal_folder(new) / "0.bin").stat().st_ino == number


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_files_before_a_damaged_one_are_taken(places, number: int, held: bool):
    old, new = places
    holder = committed(old)
    path = journal_folder(old) / f"{number}.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    if not held:
        ended(holder)
    assert take_over_prepared(old, new) is (number > 0)
    assert found_at(new) == expected(number)
    if held:
        ended(holder)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"digest": 1, "format": 1}'])
def test_a_record_that_cannot_be_read_is_nothing(places, data: bytes):
    old, new = places
    ended(committed(old))
    (journal_folder(old) / RECORD).write_bytes(data)
    assert take_over_prepared(old, new) is False
    assert not (journal_folder(new) / RECORD).exists()
    assert take_over_prepared(new, old) is False, "nor is no record"


def test_files_that_go_while_they_are_copied_end_the_copy(places, monkeypatch):
    old, new = places
    holder = committed(old)
    (journal_folder(old) / "1.bin").unlink()  # its process has finished and is removing them
    assert take_over_prepared(old, new) is False
    assert found_at(new) == []
    ended(holder)
