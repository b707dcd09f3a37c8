"""Preparing: what is refused and with which numbers, what an end on the way leaves, and damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from engine.api import prepared as api
from engine.api import prepared_planning as planning
from engine.api.prepared import plan_prepared, prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.routes import Router
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, Conflict, DoesNotFit, InvalidRequest, NegativeCycle, NotFound, StorageFailed
from storage.graph.graph import build_graph
from storage.matrix.reader import Matrix, open_matrix
from tests.stores import line_graph, make_store


def grid_graph(side, *, seed=0, directed=True):
    """A lattice with random weights."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    right, down = (at[:, :-1].ravel(), at[:, 1:].ravel()), (at[:-1].ravel(), at[1:].ravel())
    tails, heads = (np.concatenate(ends) for ends in zip(right, down, strict=True))
    if directed:
        tails, heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    return build_graph(tails, heads, rng.integers(1, 1000, len(tails)), n=side * side, directed=directed)[0]


@pytest.fixture(scope="module")
def lattice():
    return grid_graph(30)


@pytest.fixture
def place(tmp_path, lattice):
    prepare(lattice, tmp_path / "p")
    return tmp_path / "p"


def test_answers_are_those_of_a_solved_store(tmp_path, place, lattice):
    solve_to_store(lattice, Options(device="cpu"), tmp_path / "solved.zarr")
    with open_result(place) as prepared, open_result(tmp_path / "solved.zarr") as solved:
        assert isinstance(solved, Matrix)
        everything = np.arange(lattice.n)
        want = solved.rows(everything)
        for answer in (prepared.rows(everything), prepared.columns(everything), prepared.block(everything, everything)):
            assert answer.dtype == want.dtype
            np.testing.assert_array_equal(answer, want)
        np.testing.assert_array_equal(prepared.eccentricities(everything), solved.eccentricities(everything))
        np.testing.assert_array_equal(solved.columns([5, 7]), want[:, [5, 7]])
        np.testing.assert_array_equal(prepared.block([3, 800, 4], [899, 2]), solved.block([3, 800, 4], [899, 2]))
        assert Router(prepared).route(0, 899) == Router(solved).route(0, 899)
        assert prepared.graph().n == lattice.n
        assert prepared.attributes["graph"] == solved.attributes["graph"]


def test_many_threads_ask_at_once(place, lattice):
    with open_result(place) as matrix:
        want = matrix.rows(np.arange(lattice.n))

    def ask(k):
        rng = np.random.default_rng(k)
        u, v = rng.integers(0, lattice.n, (2, 20_000))
        pairs, rows, columns = shared.entries(u, v), shared.rows(u[:7]), shared.columns(v[:5])
        block = shared.block(u[:40], v[:30])
        return (
            (pairs == want[u, v]).all()
            and (rows == want[u[:7]]).all()
            and (columns == want[:, v[:5]]).all()
            and (block == want[np.ix_(u[:40], v[:30])]).all()
        )

    with open_result(place) as shared, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(24)))


def test_a_graph_replaced_while_open_is_never_mixed(place, lattice):
    with open_result(place) as old:
        prepare(grid_graph(7), place, overwrite=True)
        assert not old.current()
        with pytest.raises(StorageFailed, match="replaced or removed"):
            old.entries([0], [1])


def test_undirected_graphs_keep_one_table(tmp_path):
    prepare(grid_graph(12, directed=False), tmp_path / "p")
    assert sorted(path.name for path in (tmp_path / "p" / "tables").iterdir()) == ["forward", "zarr.json"]
    assert verify_store(tmp_path / "p", "all").searched == 144


def test_terminals_are_passed_through_by_no_path(tmp_path):
    plain = build_graph([0, 1, 2, 0], [1, 2, 3, 3], [1, 1, 1, 9], n=4, directed=True)[0]
    graph = replace(plain, terminals=2)  # 0 -> 1 -> 2 may not pass through 1
    prepare(graph, tmp_path / "p")
    solve_to_store(graph, Options(device="cpu"), tmp_path / "s.zarr")
    with open_result(tmp_path / "p") as prepared, open_result(tmp_path / "s.zarr") as solved:
        want = solved.rows(range(4))
        assert want[0, 3] == 9
        np.testing.assert_array_equal(prepared.rows(range(4)), want)
        np.testing.assert_array_equal(prepared.columns(range(4)), want)
        np.testing.assert_array_equal(prepared.entries([0, 0, 1], [3, 1, 2]), want[[0, 0, 1], [3, 1, 2]])
        assert Router(prepared).route(0, 3) == Router(solved).route(0, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(sources=(0,)), "--sources"),
        (Options(max_hops=3), "--max-hops cannot be kept"),
        (Options(device="cuda"), "device cuda"),
        (Options(algorithm="dijkstra"), "algorithm dijkstra"),
        (Options(executor="dask"), "executor dask"),
    ],
)
def test_what_a_prepared_graph_cannot_limit_is_refused(tmp_path, lattice, options, said):
    with pytest.raises(InvalidRequest, match=said):
        prepare(lattice, tmp_path / "p", options)
    assert list(tmp_path.iterdir()) == []


def test_negative_fractions_and_cycles_are_refused(tmp_path):
    fractions = build_graph([0, 1], [1, 2], [0.5, -0.25], n=3, directed=True)[0]
    with pytest.raises(InvalidRequest, match=r"negative fractions cannot be prepared \(the least weight is -0\.25\)"):
        prepare(fractions, tmp_path / "p")
    wholes = build_graph([0, 1], [1, 2], [2**25, -3], n=3, directed=True)[0]
    with pytest.raises(InvalidRequest, match=r"negative weights cannot be prepared in float32 \(the least weight is"):
        prepare(wholes, tmp_path / "p", Options(dtype="float32"))
    cycle = build_graph([0, 1], [1, 0], [1, -2], n=2, directed=True)[0]
    with pytest.raises(NegativeCycle):
        prepare(cycle, tmp_path / "p")


def test_too_little_memory_or_disk_is_refused_with_numbers(monkeypatch, lattice, tmp_path):
    with pytest.raises(DoesNotFit, match=r"cannot be prepared: \d+ bytes .* of memory \d+") as refused:
        plan_prepared(lattice, Options(memory=1 << 20))
    assert refused.value.needed > refused.value.available == 1 << 20
    survey = planning.survey
    monkeypatch.setattr(planning, "survey", lambda **asked: replace(survey(**asked), disk=1000))
    with pytest.raises(DoesNotFit, match=r"of disk 1000 \(1000 B\) are free"):
        plan_prepared(lattice, out=tmp_path / "p")


def test_large_separators_are_refused_with_numbers(monkeypatch):
    rng = np.random.default_rng(1)
    dense = build_graph(*rng.integers(0, 300, (2, 9000)), rng.integers(1, 9, 9000), n=300, directed=True)[0]
    monkeypatch.setattr(planning, "SMALL_TABLES", 0)
    with pytest.raises(DoesNotFit, match="of the matrix itself") as refused:
        plan_prepared(dense)
    assert refused.value.needed > 300 * 300 * 2 == refused.value.available
    monkeypatch.setattr(planning, "ENTRY_BYTES", 1 << 40)
    with pytest.raises(DoesNotFit, match="separators are large"):
        plan_prepared(dense)


class Stops(Monitor):
    """Stops a phase after its first step."""

    def __init__(self, phase):
        self.phase, self.now = phase, ""

    def begin(self, phase, total, unit):
        self.now = phase

    def cancelled(self):
        return self.now == self.phase


@pytest.mark.parametrize("phase", ["partition", "prepare", "write"])
def test_a_cancelled_run_leaves_nothing(tmp_path, lattice, phase):
    with pytest.raises(Cancelled):
        prepare(lattice, tmp_path / "p", monitor=Stops(phase))
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys, signal
from pathlib import Path
from storage.files import atomic
from storage.prepared import writer
from tests.unit.engine.api.test_prepared import grid_graph
from engine.api.prepared import prepare
place, stage = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if stage == "table":
    writer.crc32c = die
elif stage == "seal":
    writer.seal_document = die
elif stage == "sync":
    atomic.sync_tree = die
else:
    atomic.Staging.publish = die
prepare(grid_graph(12), place, overwrite=True)
"""


@pytest.mark.parametrize("stage", ["table", "seal", "sync", "publish"])
@pytest.mark.parametrize("before", [False, True])
def test_a_killed_run_serves_nothing_half_sealed(tmp_path, stage, before):
    path = tmp_path / "p"
    if before:
        prepare(grid_graph(5), path)
    run = subprocess.run([sys.executable, "-c", KILLED, str(path), stage], check=False, env=os.environ)
    assert run.returncode == -signal.SIGKILL
    if before:
        assert verify_store(path, "all").searched == 25
    else:
        with pytest.raises(NotFound):
            open_result(path)
    prepare(grid_graph(12), path, overwrite=True)  # removes what the dead one left
    assert [found.name for found in tmp_path.iterdir()] == ["p"]
    assert verify_store(path, "all").searched == 144


def test_nothing_is_replaced_unasked(tmp_path, place, lattice):
    with pytest.raises(Conflict, match="exists already"):
        prepare(lattice, place)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("precious")
    with pytest.raises(Conflict, match="no matrix store"):
        prepare(lattice, tmp_path / "other", overwrite=True)
    make_store(tmp_path / "solved.zarr", 9)
    prepare(lattice, tmp_path / "solved.zarr", overwrite=True)
    assert isinstance(open_result(tmp_path / "solved.zarr"), PreparedMatrix)


def test_damage_is_named_and_never_answered(place):
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {"tables/forward/c/0", "parts/position/c/0"} < {path.relative_to(place).as_posix() for path in files}
    for path in files:
        data = path.read_bytes()
        for wrong in (data[:-1], data[:50] + bytes([data[50] ^ 1]) + data[51:] if len(data) > 51 else b"x" * len(data)):
            path.write_bytes(wrong)
            with pytest.raises(StorageFailed):
                verify_store(place, 0)
            if path.name != "zarr.json" and not {"graph", "elimination"} & {
                *path.parts
            }:  # chunks that answers come from; all sections are read
                with pytest.raises(StorageFailed), open_result(place) as matrix:
                    matrix.entries(range(matrix.n), range(matrix.n))
        path.write_bytes(data)
    path.unlink()
    with pytest.raises(StorageFailed):
        verify_store(place, 0)


def test_wrong_tables_are_found_by_searching_again(tmp_path, monkeypatch):
    found = api.find_tables

    def wrong(*args, **kwargs):
        tables = found(*args, **kwargs)
        tables.forward[tables.forward > 5] -= 1
        return tables

    monkeypatch.setattr(api, "find_tables", wrong)
    prepare(grid_graph(8), tmp_path / "p")
    with pytest.raises(StorageFailed, match="is wrong: from"):
        verify_store(tmp_path / "p", "all")


def test_tables_that_do_not_fit_in_memory_are_refused_with_numbers(place, monkeypatch):
    monkeypatch.setattr("engine.api.from_tables.held.available_memory", lambda: 1000)
    with open_result(place) as matrix, pytest.raises(DoesNotFit, match=r"do not fit in memory: \d+ bytes"):
        matrix.entries([0], [1])


def test_a_reader_of_matrices_says_what_it_is(place):
    with pytest.raises(StorageFailed, match="is a prepared graph"):
        open_matrix(place)


def test_questions_outside_the_graph_are_refused(place):
    with open_result(place) as matrix:
        for ask in (lambda: matrix.entries([900], [0]), lambda: matrix.rows([-1]), lambda: matrix.columns([900])):
            with pytest.raises(NotFound):
                ask()
        with pytest.raises(InvalidRequest, match="do not pair"):
            matrix.entries([1, 2], [3])


def test_empty_and_text_labelled_graphs(tmp_path):
    for k, graph in enumerate((line_graph(0), line_graph(1), line_graph(5, text=True))):
        prepare(graph, tmp_path / f"{k}")
        with open_result(tmp_path / f"{k}") as matrix:
            n = graph.n
            assert matrix.shape == matrix.rows(range(n)).shape == (n, n)
            assert matrix.entries([], []).shape == (0,)
            assert matrix.block([], range(n)).shape == (0, n)
            assert matrix.columns([]).shape == (n, 0)
            if n == 5:
                assert matrix.entries([matrix.vertex("v000000ß")], [4]).tolist() == [20]
