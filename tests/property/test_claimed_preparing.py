"""Tests a claim that is suspended before any one file operation of preparing, and wakes after another claim took over:
the result is complete, and equal byte for byte.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.api.prepared import prepare
from engine.streaming import part_journal
from service.jobs import claims
from storage.files import atomic
from tests.property.test_claimed_stopped import _SEEN, Stops, _hearing, _told_of_renames
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import files_of
from tests.unit.service.jobs.test_claims import NEW, OLD

__all__ = ["_hearing", "_told_of_renames"]

GRAPH = grid_graph(7)


def attempt(store: Path, trash: Path, claim: int) -> dict[str, int]:
    """All that a runner does about one claim; how many parts of each step it need not have computed."""
    if claims.begin(store, claim, trash, 0.0):
        return {}
    outcome = prepare(GRAPH, claims.place(store, claim))
    claims.publish(store, claim, trash)
    resumed: dict[str, int] = outcome.summary["resumed"]
    return resumed


def site(folder: Path) -> tuple[Path, Path]:
    store, trash = folder / "jobs" / "j" / "matrix.zarr", folder / "trash"
    store.parent.mkdir(parents=True)
    trash.mkdir()
    return store, trash


def stopped_at(folder: Path, at: int, made: Path, *, done: bool) -> tuple[int, int]:
    """A claim is overtaken before its file operation number ``at``; how many there were, and how many parts the next
    claim found done.  ``done``: the successor has finished before the claim goes on; else it has only begun.
    """
    store, trash = site(folder)

    def overtake() -> None:
        if not claims.begin(store, NEW, trash, 0.0) and done:
            place = claims.place(store, NEW)
            shutil.rmtree(place.with_name(f".{place.name}.preparing"), ignore_errors=True)
            shutil.copytree(made, place)  # by a process of its own: zarr's thread may be what was stopped
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
    resumed = {}
    if not stops.armed and not done and not store.exists():
        resumed = attempt(store, trash, NEW + 1)
    assert files_of(store) == files_of(made)
    assert not claims.place(store, OLD).exists()
    return stops.count, sum(resumed.values())


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_hearing", "_told_of_renames")
@pytest.mark.parametrize("done", [True, False], ids=["its successor is done", "its successor has begun"])
@pytest.mark.parametrize(
    "step",
    [47, pytest.param(9, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)],
    ids=["few", "some", "all"],
)
def test_a_claim_may_be_stopped_before_any_file_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, done: bool
) -> None:
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)
    monkeypatch.setattr(atomic, "_SYNC_THREADS", 1)
    store, trash = site(tmp_path / "made")
    attempt(store, trash, OLD)
    last, _ = stopped_at(tmp_path / "0", 0, store, done=done)
    assert last > 100
    found = [stopped_at(tmp_path / str(at), at, store, done=done)[1] for at in range(3, last + 1, step)]
    assert done or max(found) > 0, "a successor goes on from what was committed"
