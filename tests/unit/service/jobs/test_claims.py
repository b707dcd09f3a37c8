"""A claim that was overtaken changes nothing of its successor's, whatever it was about to do when it was stopped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.jobs import claims
from service.jobs.checkpoints import checkpoint_time, has_checkpoint
from storage.errors import ApspError
from storage.matrix import handover
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.working import WorkingMatrix, find_checkpoint, open_working
from tests.stores import entries_of, line_graph, verify_matrix

ROOT = Path(__file__).resolve().parents[4]
N = 40
OLD, NEW = 3, 5
ENTRIES = entries_of(N, N, "float32", 1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the result of a job goes."""
    (tmp_path / "jobs" / "j").mkdir(parents=True)
    (tmp_path / "trash").mkdir()
    return tmp_path / "jobs" / "j" / "matrix.zarr"


@pytest.fixture
def trash(tmp_path: Path) -> Path:
    return tmp_path / "trash"


def working(store: Path, claim: int) -> WorkingMatrix:
    """What a claim writes into."""
    place = claims.place(store, claim)
    return open_working(place, line_graph(N), MatrixSpec("float32", float("inf")), resume=True)


def state(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Stale:
    """A claim that has committed and was stopped, and what its process may do when it wakes."""

    def __init__(self, store: Path, trash: Path, *, committed: bool) -> None:
        claims.begin(store, OLD, trash, 0.0)
        self.store, self.trash = store, trash
        self.writer = working(store, OLD)
        self.writer.write(0, 0, ENTRIES)
        if committed:
            self.writer.commit({"rows": N})

    def begins(self) -> None:
        claims.begin(self.store, OLD, self.trash, 0.0)

    def begins_anew(self) -> None:
        claims.begin_anew(self.store, OLD, self.trash)

    def tidies(self) -> None:
        claims.tidy(self.store, OLD, self.trash)

    def publishes(self) -> None:
        claims.publish(self.store, OLD, self.trash)

    def creates(self) -> None:
        working(self.store, OLD).leave()

    def overwrites(self) -> None:
        place = claims.place(self.store, OLD)
        open_working(place, line_graph(N), MatrixSpec("float32", float("inf")), overwrite=True).abort()

    def writes(self) -> None:
        self.writer.write(0, 0, ENTRIES + 1)

    def writes_and_commits(self) -> None:
        self.writer.write(0, 0, ENTRIES + 1)
        self.writer.commit({"rows": 1})

    def commits(self) -> None:
        self.writer.commit({"rows": 1})

    def makes_a_room(self) -> None:
        self.writer.make_exchange_dir()

    def seals(self) -> None:
        self.writer.seal({})

    def seals_and_publishes(self) -> None:
        self.writer.seal({})
        claims.publish(self.store, OLD, self.trash)

    def aborts(self) -> None:
        self.writer.abort()

    def leaves(self) -> None:
        self.writer.leave()


DEEDS = [name for name in vars(Stale) if not name.startswith("_")]


def test_no_deed_is_forgotten():
    """All that changes files in ``service.jobs.claims`` is among the deeds."""
    ours = {name for name, value in vars(claims).items() if callable(value) and value.__module__ == claims.__name__}
    asking = {"place", "places", "record_of", "kept_record", "throw_away", "_make", "_put", "_working_dir"}
    assert ours - asking == {"begin", "begin_anew", "tidy", "publish"}


@pytest.fixture(params=[True, False], ids=["committed", "uncommitted"])
def stale(request, store: Path, trash: Path) -> Iterator[Stale]:
    found = Stale(store, trash, committed=request.param)
    yield found
    found.writer._staging.discard()


@pytest.mark.parametrize("deed", DEEDS)
def test_a_stale_claim_changes_nothing_of_a_successor_that_works(stale: Stale, store: Path, trash: Path, deed: str):
    assert claims.begin(store, NEW, trash, 0.0) is False
    with working(store, NEW) as writer:
        writer.write(0, 0, ENTRIES)
        writer.commit({"rows": N})
        before = state(claims.place(store, NEW).parent)
        _do(stale, deed)
        assert state(claims.place(store, NEW).parent) == before
        writer.seal({})
    claims.publish(store, NEW, trash)
    whole(store)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_stale_claim_changes_nothing_of_a_result(stale: Stale, store: Path, trash: Path, deed: str):
    claims.begin(store, NEW, trash, 0.0)
    with working(store, NEW) as writer:
        writer.write(0, 0, ENTRIES)
        writer.seal({})
    claims.publish(store, NEW, trash)
    before = state(store)
    _do(stale, deed)
    assert state(store) == before
    whole(store)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_stale_claim_that_wakes_before_its_successor_begins_leaves_a_way_on(
    stale: Stale, store: Path, trash: Path, deed: str
):
    _do(stale, deed)
    stale.writer._staging.discard()
    if not claims.begin(store, NEW, trash, 0.0) and not store.exists():
        with working(store, NEW) as writer:
            writer.write(0, 0, ENTRIES)
            writer.seal({})
        claims.publish(store, NEW, trash)
    verify_matrix(store)


def _do(stale: Stale, deed: str) -> None:
    try:
        getattr(stale, deed)()
    except ApspError as error:  # it is told that its place is gone, which ends its attempt
        assert "claim-3" in str(error), error  # noqa: PT017


def whole(store: Path) -> None:
    verify_matrix(store)
    with open_matrix(store) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), ENTRIES)


def committed(store: Path, claim: int) -> Path:
    """A claim that has committed, whose process is dead; its place."""
    with working(store, claim) as writer:
        writer.write(0, 0, ENTRIES)
        writer.commit({"rows": N})
    return claims.place(store, claim)


def test_the_checkpoint_of_a_dead_claim_is_moved_and_not_copied(store: Path, trash: Path):
    claims.begin(store, OLD, trash, 0.0)
    tile = claims.record_of(committed(store, OLD)).parent / "store" / "distances" / "c" / "0" / "0"
    number = tile.stat().st_ino
    assert claims.begin(store, NEW, trash, 0.0) is False
    moved = claims.record_of(claims.place(store, NEW)).parent / "store" / "distances" / "c" / "0" / "0"
    assert moved.stat().st_ino == number
    assert find_checkpoint(claims.place(store, NEW)).record == {"rows": N}
    assert [path.name for path in store.parent.iterdir()] == [f"claim-{NEW}"]
    assert list(trash.iterdir()) == []


def test_the_checkpoint_of_a_claim_that_holds_its_folder_is_copied(stale: Stale, store: Path, trash: Path):
    tile = stale.writer._place.folder / "distances" / "c" / "0" / "0"
    number = tile.stat().st_ino
    assert claims.begin(store, NEW, trash, 0.0) is False
    found = find_checkpoint(claims.place(store, NEW))
    assert (found is not None) == (stale.writer.record() is not None)
    if found is not None:
        copied = claims.record_of(claims.place(store, NEW)).parent / "store" / "distances" / "c" / "0" / "0"
        assert copied.stat().st_ino != number, "no file is shared with a process that may wake up"
        with working(store, NEW) as writer:
            assert writer.record() == {"rows": N}
            writer.seal({})
        claims.publish(store, NEW, trash)
        whole(store)


def test_a_process_that_lets_go_in_time_is_waited_for(store: Path, trash: Path):
    claims.begin(store, OLD, trash, 0.0)
    tile = claims.record_of(committed(store, OLD)).parent / "store" / "distances" / "c" / "0" / "0"
    number = tile.stat().st_ino
    code = "import sys, time; from pathlib import Path; from storage.matrix.working_dir import lock\n"
    code += "held = lock(Path(sys.argv[1])); print(flush=True); time.sleep(0.5)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(claims.place(store, OLD))], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    claims.begin(store, NEW, trash, 30.0)
    moved = claims.record_of(claims.place(store, NEW)).parent / "store" / "distances" / "c" / "0" / "0"
    assert moved.stat().st_ino == number
    holder.wait(30)
    holder.stdout.close()


def test_a_record_that_is_lowered_while_tiles_are_copied_is_not_believed(
    store: Path, trash: Path, monkeypatch: pytest.MonkeyPatch
):
    from storage.matrix import handover

    stale = Stale(store, trash, committed=True)
    copy, times = handover._copy_tiles, []

    def overtaken(distances: Path, folder: Path) -> None:
        copy(distances, folder)
        times.append(1)
        if len(times) == 1:
            stale.writer.commit({"rows": 0})

    monkeypatch.setattr(handover, "_copy_tiles", overtaken)
    claims.begin(store, NEW, trash, 0.0)
    assert len(times) == 2
    assert find_checkpoint(claims.place(store, NEW)).record == {"rows": 0}
    stale.writer.abort()


def test_a_checkpoint_of_a_release_before_claims_had_folders_is_taken_up(store: Path, trash: Path):
    with open_working(store, line_graph(N), MatrixSpec("float32", float("inf"))) as writer:
        writer.write(0, 0, ENTRIES)
        writer.commit({"rows": N})
    assert has_checkpoint(store)
    assert checkpoint_time(store) is not None
    assert claims.begin(store, NEW, trash, 0.0) is False
    assert find_checkpoint(claims.place(store, NEW)).record == {"rows": N}
    assert find_checkpoint(store) is None
    assert [path.name for path in store.parent.iterdir()] == [f"claim-{NEW}"]


def test_a_store_that_was_finished_and_not_put_in_its_place_is_put_there(store: Path, trash: Path):
    claims.begin(store, OLD, trash, 0.0)
    with working(store, OLD) as writer:
        writer.write(0, 0, ENTRIES)
        writer.seal({})  # and the process died
    assert claims.begin(store, NEW, trash, 0.0) is True
    whole(store)


def test_the_first_finished_store_stays(store: Path, trash: Path):
    for claim in (OLD, NEW):
        claims.begin_anew(store, claim, trash)
        with working(store, claim) as writer:
            writer.write(0, 0, ENTRIES)
            writer.seal({"of": claim})
    claims.publish(store, NEW, trash)
    claims.publish(store, OLD, trash)
    with open_matrix(store) as matrix:
        assert dict(matrix.summary) == {"of": NEW}
    assert [path.name for path in store.parent.iterdir()] == ["matrix.zarr"]


def test_tidying_keeps_the_newest_checkpoint_and_what_later_claims_have(store: Path, trash: Path):
    for claim in (1, 2, 4, 9):
        claims.begin_anew(store, claim, trash)
    for claim in (1, 2, 9):
        committed(store, claim)
    (store.parent / "log.txt").write_text("kept")
    claims.tidy(store, 5, trash)
    assert {path.name for path in store.parent.iterdir()} == {"claim-2", "claim-9", "log.txt"}
    assert claims.places(store)[0] == claims.place(store, 9)
    assert checkpoint_time(store) == claims.record_of(claims.place(store, 9)).stat().st_mtime


def test_tidying_a_solved_job_keeps_no_checkpoint(store: Path, trash: Path):
    """The claim before, which was overtaken, may have committed after its checkpoint was taken from it."""
    for claim in (OLD, NEW):
        claims.begin_anew(store, claim, trash)
    committed(store, OLD)
    with working(store, NEW) as writer:
        writer.write(0, 0, ENTRIES)
        writer.seal({})
    claims.publish(store, NEW, trash)
    later = claims.place(store, NEW + 1)
    later.parent.mkdir()
    claims.tidy(store, NEW, trash, solved=True)
    assert {path.name for path in store.parent.iterdir()} == {"matrix.zarr", later.parent.name}
    whole(store)


def test_a_folder_of_the_same_number_is_of_another_time(store: Path, trash: Path):
    """The database was restored from a backup: numbers come again."""
    claims.begin(store, NEW, trash, 0.0)
    committed(store, NEW)
    claims.begin(store, NEW, trash, 0.0)
    assert find_checkpoint(claims.place(store, NEW)) is None


@pytest.mark.parametrize("stopped", ["before", "after"], ids=["before it is moved", "after it was moved"])
def test_removing_a_folder_never_removes_half_of_one_that_another_has_taken(
    store: Path, trash: Path, monkeypatch: pytest.MonkeyPatch, stopped: str
):
    """Whoever removes may be stopped at any step: the successor has either all of the checkpoint or none."""
    claims.begin(store, OLD, trash, 0.0)
    place, real = committed(store, OLD), Path.rename

    def successor() -> None:
        monkeypatch.setattr(Path, "rename", real)
        claims.begin(store, NEW, trash, 0.0)

    def rename(path: Path, target: Path) -> Path:
        if stopped == "before":
            successor()
            return real(path, target)
        moved = real(path, target)
        successor()
        return moved

    monkeypatch.setattr(Path, "rename", rename)
    claims.throw_away(place.parent, trash)
    found = find_checkpoint(claims.place(store, NEW))
    assert (found is not None) == (stopped == "before")
    if found is not None:
        with working(store, NEW) as writer:
            writer.seal({})
        claims.publish(store, NEW, trash)
        whole(store)


def test_what_cannot_be_moved_stays(store: Path, trash: Path):
    claims.begin(store, OLD, trash, 0.0)
    shutil.rmtree(trash)
    claims.throw_away(claims.place(store, OLD).parent, trash)
    assert claims.place(store, OLD).parent.is_dir()
    assert [path.name for path in store.parent.iterdir()] == [f"claim-{OLD}"]


# ---- the claim before goes on while its checkpoint is copied ---------------------------------------------------------


class Killed(BaseException):
    """Stands for SIGKILL: nothing of what follows is done."""


def during_copies(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, first: bool) -> None:
    """Call ``act`` with each copy of a checkpoint's tiles, before or after it."""
    copy = handover._copy_tiles

    def copied(distances: Path, folder: Path) -> None:
        if first:
            act()
        copy(distances, folder)
        if not first:
            act()

    monkeypatch.setattr(handover, "_copy_tiles", copied)


def test_stray_files_among_the_tiles_do_not_stop_a_copy(store: Path, trash: Path) -> None:
    stale = Stale(store, trash, committed=True)
    tiles = claims.record_of(claims.place(store, OLD)).parent / "store" / "distances" / "c"
    for stray in (".nfs0001", "foo"):
        (tiles / stray).write_bytes(b"somebody else's")
    assert stale.writer.record() is not None
    claims.begin(store, NEW, trash, 0.0)
    found = find_checkpoint(claims.place(store, NEW))
    assert found is not None
    assert found.fault is None


@pytest.mark.parametrize("first", [True, False])
def test_a_kill_while_a_checkpoint_is_copied_leaves_no_record_over_lowered_tiles(
    store: Path, trash: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    stale = Stale(store, trash, committed=True)

    def lower() -> None:
        stale.writer.commit({"rows": 0})
        stale.writer.write(0, 0, np.zeros_like(ENTRIES))

    place = handover.place_checkpoint

    def placed(*words: Any) -> None:
        try:
            place(*words)
        finally:
            raise Killed

    during_copies(monkeypatch, lower, first=first)
    monkeypatch.setattr(handover, "place_checkpoint", placed)
    with pytest.raises(Killed):
        claims.begin(store, NEW, trash, 0.0)
    found = find_checkpoint(claims.place(store, NEW))
    assert found is None or found.record["rows"] == 0


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_claim_that_finishes_while_its_checkpoint_is_copied_is_the_result(
    store: Path, trash: Path, monkeypatch: pytest.MonkeyPatch, published: bool, first: bool
) -> None:
    stale = Stale(store, trash, committed=True)

    def finish() -> None:
        stale.writer.seal({"of": OLD})
        if published:
            claims.publish(store, OLD, trash)

    during_copies(monkeypatch, finish, first=first)
    assert claims.begin(store, NEW, trash, 0.0)
    whole(store)


def test_a_checkpoint_that_changes_with_every_copy_stays_for_the_next_claim(
    store: Path, trash: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Stale(store, trash, committed=True)
    during_copies(monkeypatch, lambda: stale.writer.commit({"rows": N}), first=False)
    assert not claims.begin(store, NEW, trash, 0.0)
    assert find_checkpoint(claims.place(store, NEW)) is None
    monkeypatch.undo()
    claims.begin(store, NEW + 1, trash, 0.0)
    found = find_checkpoint(claims.place(store, NEW + 1))
    assert found is not None
    assert found.record["rows"] == N
