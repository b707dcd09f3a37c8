"""What a helper process keeps of prepared results, and when it lets go of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.pool import answers
from service.pool.answers import PreparedPlace, answer
from storage.errors import StorageFailed
from tests.unit.service.support import small_graph


@pytest.fixture(autouse=True)
def _nothing_held():
    yield
    while answers._held:
        answers._held.popitem()[1].matrix.close()


def place_of(folder: Path, kept: int = 10**9) -> PreparedPlace:
    with open_result(folder) as result:
        return PreparedPlace(folder, result.digest, 1, kept)


def test_tables_beyond_what_may_be_kept_are_let_go(tmp_path: Path):
    places = []
    for k in range(3):
        prepare(small_graph(), tmp_path / f"p{k}")
        places.append(place_of(tmp_path / f"p{k}", kept=0 if k == 2 else 10**9))
    for place in places[:2]:
        seconds, found = answer(place, "entries", np.array([0]), np.array([2]))
        assert (found.tolist(), seconds >= 0) == ([3], True)
    assert [path.name for path, _ in answers._held] == ["p0", "p1"]
    answer(places[0], "rows", np.array([0]))
    assert [path.name for path, _ in answers._held] == ["p1", "p0"]
    answer(places[2], "rows", np.array([0]))
    assert [path.name for path, _ in answers._held] == ["p2"]


def test_another_result_at_the_same_path_is_not_answered_from(tmp_path: Path):
    folder = tmp_path / "p"
    prepare(small_graph(), folder)
    before = place_of(folder)
    assert answer(before, "path", 3, 2)[1] == ([3, 0, 1, 2], [1, 1, 2], 4)
    shutil.rmtree(folder)
    prepare(small_graph(names=True), folder)
    with pytest.raises(StorageFailed, match="was replaced"):
        answer(before, "rows", np.array([0]))
    assert not answers._held
    shutil.rmtree(folder)
    solve_to_store(small_graph(), Options(device="cpu"), folder)
    with pytest.raises(StorageFailed, match="was replaced"):
        answer(before, "rows", np.array([0]))


def test_a_result_is_opened_for_the_device_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from engine.devices.cuda.tables import resident

    limits: list[int | None] = []
    monkeypatch.setattr(resident, "usable_memory", lambda memory, index=0: limits.append(memory) or 1000)
    prepare(small_graph(), tmp_path / "p")
    place = replace(place_of(tmp_path / "p"), device="auto", device_memory=5000)
    assert answer(place, "entries", np.array([0]), np.array([2]))[1].tolist() == [3]  # they do not fit, and stay
    assert limits == [5000]
