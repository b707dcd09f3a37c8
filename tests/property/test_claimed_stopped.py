"""Tests a claim that is suspended before any one of its file operations, and wakes after another claim took over.

The result must be complete and exact.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from service.jobs import claims
from storage.files import atomic
from storage.matrix.reader import open_matrix
from tests.unit.service.jobs.test_claims import ENTRIES, NEW, OLD, N, whole, working


class Stops:
    """Calls ``overtake`` before the file operation of this number, once; counts all operations below a folder."""

    def __init__(self, folder: Path, at: int, overtake: Callable[[], None]) -> None:
        self._folder, self._at, self._overtake = str(folder), at, overtake
        self.count, self.armed = 0, True
        #: set but while ``overtake`` runs, which a thread beside the test's may call
        self.idle = threading.Event()
        self.idle.set()
        self.failed: BaseException | None = None

    def see(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.armed or event not in _OPERATIONS or not str(arguments[0]).startswith(self._folder):
            return
        self.count += 1
        if self.count == self._at:
            self.idle.clear()
            self.armed = False
            try:
                self._overtake()
            except BaseException as error:
                self.failed = error
            finally:
                self.idle.set()


_OPERATIONS = frozenset(
    {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "rename"}
)
_SEEN: list[Stops] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _SEEN and event in _OPERATIONS:
        _SEEN[0].see(event, arguments)


@pytest.fixture(scope="module")
def _hearing() -> None:
    sys.addaudithook(_hear)  # for good: there is no way to take it back


def attempt(store: Path, trash: Path, claim: int) -> None:
    """All that a runner does about one claim."""
    if claims.begin(store, claim, trash, 0.0):
        return
    with working(store, claim) as writer:
        writer.write(0, 0, ENTRIES)
        writer.commit({"rows": N})
        writer.seal({"of": claim})
    claims.publish(store, claim, trash)


def _stopped_at(folder: Path, at: int, made: Path | None) -> int:
    """A claim is overtaken before its file operation number ``at``; how many there were.  Checks the result.

    ``made`` is the store of a successor that is done before the claim goes on; None for one that has only begun.
    """
    store, trash = folder / "jobs" / "j" / "matrix.zarr", folder / "trash"
    store.parent.mkdir(parents=True)
    trash.mkdir()

    def overtake() -> None:
        if not claims.begin(store, NEW, trash, 0.0) and made is not None:
            place = claims.place(store, NEW)
            shutil.rmtree(place.with_name(f".{place.name}.working"), ignore_errors=True)
            shutil.copytree(made, place)  # solved by a process of its own: zarr's thread may be what was stopped
            claims.publish(store, NEW, trash)

    stops = Stops(folder, at, overtake)
    _SEEN.append(stops)
    try:
        attempt(store, trash, OLD)
    except Exception:
        if stops.armed:  # it fails only if it was overtaken
            raise
    finally:
        _SEEN.clear()
        stops.idle.wait(60)
    if stops.failed is not None:
        raise stops.failed
    if made is None and not stops.armed and not store.exists():
        attempt(store, trash, NEW)
    whole(store)
    with open_matrix(store) as matrix:
        assert dict(matrix.summary) in ({"of": OLD}, {"of": NEW})
    assert not claims.place(store, OLD).exists()
    return stops.count


@pytest.fixture
def _told_of_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    rename = atomic._renameat2
    monkeypatch.setattr(atomic, "_renameat2", lambda *words: (sys.audit("rename", words[0]), rename(*words)))


@pytest.mark.usefixtures("_hearing", "_told_of_renames")
@pytest.mark.parametrize("done", [True, False], ids=["its successor is done", "its successor has begun"])
@pytest.mark.parametrize(
    "step", [pytest.param(16, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_a_claim_may_be_stopped_before_any_file_operation(tmp_path: Path, step: int, done: bool):
    """What some write after they wake makes a folder anew (zarr makes parents): that must not become the result."""
    last = _stopped_at(tmp_path / "0", 0, None)
    assert last > 100
    made = tmp_path / "0" / "jobs" / "j" / "matrix.zarr"
    for at in range(1, last + 1, step):
        _stopped_at(tmp_path / str(at), at, made if done else None)
