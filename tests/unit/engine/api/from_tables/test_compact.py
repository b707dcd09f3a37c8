"""Opening the compact form: damage is named, threads ask at once, large questions are cut, and a GPU is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine.algorithms.prepared import compact as tables
from engine.algorithms.prepared import pieces
from engine.api.from_tables.compacting import prepare_compact
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.verify import verify_store
from storage.errors import DoesNotFit, InvalidRequest, StorageFailed
from tests.unit.engine.api.test_prepared import grid_graph


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("compact")
    prepare(grid_graph(14), path / "full")
    prepare_compact(grid_graph(14), path / "p")
    return path / "p"


def test_damage_is_named_and_never_answered(place):
    files = [path for path in place.rglob("c/*") if {"tables", "elimination"} & {*path.parts}]
    assert {path.parent.parent.name for path in files} == {"closed", "upward", "across", "rests"}
    for path in files:
        data = path.read_bytes()
        path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        name = path.relative_to(place).as_posix()
        with pytest.raises(StorageFailed, match=name):
            verify_store(place, 0)
        if "rests" not in name:
            with open_result(place) as matrix:
                for ask in (lambda m: m.entries([0], [1]), lambda m: m.rows([0]), lambda m: m.columns([1])):
                    with pytest.raises(StorageFailed, match=name):
                        ask(matrix)
        path.write_bytes(data)
    assert verify_store(place, "all").searched == 196


def test_many_threads_ask_at_once(place, monkeypatch):
    monkeypatch.setattr(tables, "KEPT", 20_000)
    monkeypatch.setattr(pieces, "PIECE", 20_000)
    with open_result(place.parent / "full") as full:
        want = full.rows(range(196))

    def ask(seed):
        u, v = np.random.default_rng(seed).integers(0, 196, (2, 40))
        return (
            (shared.entries(u, v) == want[u, v]).all()
            and (shared.rows(u[:7]) == want[u[:7]]).all()
            and (shared.columns(v[:5]) == want[:, v[:5]]).all()
            and (shared.block(u, v) == want[np.ix_(u, v)]).all()
        )

    with open_result(place) as shared, ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(12)))
        assert shared._described.nbytes <= shared._described.stored.nbytes + 20_000


def test_what_is_stored_is_small_and_must_fit(place, monkeypatch):
    with open_result(place) as matrix, open_result(place.parent / "full") as full:
        assert matrix.table_bytes < full.table_bytes / 2
        assert (matrix.loaded, matrix.held_bytes) == (False, 0)
        matrix.entries([0], [1])
        assert matrix.loaded
        assert matrix.held_bytes > matrix.table_bytes
    monkeypatch.setattr("engine.api.from_tables.held.available_memory", lambda: 1000)
    with open_result(place) as matrix, pytest.raises(DoesNotFit, match="do not fit in memory"):
        matrix.entries([0], [1])


def test_a_gpu_is_refused(place):
    with pytest.raises(InvalidRequest, match="compact form, which processors answer"):
        open_result(place, device="cuda")
    with open_result(place, device="auto") as matrix:
        assert matrix.entries([0], [0])[0] == 0
