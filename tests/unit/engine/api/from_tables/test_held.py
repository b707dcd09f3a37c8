"""Tables larger than memory: every question is answered, as by those that fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine.api.from_tables import held
from engine.api.from_tables.held import HeldTables
from engine.api.from_tables.measuring import PreparedMeasurement
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import DoesNotFit
from storage.prepared import sections, writer
from tests.property.test_prepared import KINDS, check_entries, random_graph
from tests.unit.engine.api.test_prepared import grid_graph

#: Entries in a chunk of a table, and bytes of a section of it.
CHUNK, SECTION = 64, 64


class Memory:
    """The free memory as the tables of one open prepared graph leave it."""

    def __init__(self, most, monkeypatch):
        self.most, self.matrix = most, None
        monkeypatch.setattr(held, "available_memory", self.free)

    def free(self):
        return self.most - (0 if self.matrix is None else HeldTables.held_bytes.fget(self.matrix))

    def open(self, path):
        self.matrix = None
        self.matrix = open_result(path)
        return self.matrix


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    monkeypatch.setattr(writer, "TABLE_CHUNK", CHUNK)
    monkeypatch.setattr(sections, "SECTION_BYTES", SECTION)


def compare(graph, path, options, memory):
    """Ask everything twice: with all tables in memory, and with little of it."""
    prepare(graph, path, options)
    memory.most = 2**40
    with memory.open(path) as full:
        want = full.rows(range(graph.n))
        there = Router(full)
        routes = [there.route(0, v) for v in range(min(graph.n, 5))]
        size = full.table_bytes
    largest = CHUNK * want.dtype.itemsize * 2 * (2 + graph.n // CHUNK)  # the chunks of two lines
    memory.most = max(size // 3, 6 * largest)
    with memory.open(path) as matrix:
        check_entries(matrix, want)
        np.testing.assert_array_equal(matrix.rows_towards(range(graph.n)), want.T)
        np.testing.assert_array_equal(matrix.block(range(graph.n), range(graph.n)), want)
        here = Router(matrix)
        assert [here.route(0, v) for v in range(min(graph.n, 5))] == routes
        assert matrix.held_bytes <= memory.most
        return matrix._described.ahead.passing, size / memory.most


@pytest.mark.parametrize("kind", KINDS)
def test_random_graphs(tmp_path, monkeypatch, kind):
    memory = Memory(0, monkeypatch)
    for seed in range(6):
        compare(random_graph(kind, seed), tmp_path / f"{seed}", Options(threads=1), memory)


@pytest.mark.parametrize("kind", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("directed", [True, False])
def test_lattices_of_many_parts(tmp_path, monkeypatch, kind, directed):
    graph = grid_graph(10 if kind.startswith("float") else 20, directed=directed)
    if kind.startswith("float"):
        graph = type(graph)(graph.indptr, graph.heads, graph.weights / 7, graph.labels, directed, graph.weighted)
    memory = Memory(0, monkeypatch)
    passing, times = compare(graph, tmp_path / "p", Options(dtype=kind, threads=2), memory)
    assert passing
    assert times > 1.3


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("held") / "p"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "TABLE_CHUNK", CHUNK)
        patch.setattr(sections, "SECTION_BYTES", SECTION)
        prepare(grid_graph(20), path, Options(threads=1))
    return path


def test_many_threads_ask_at_once(place, monkeypatch):
    with open_result(place) as full:
        want, size = full.rows(range(400)), full.table_bytes

    def ask(seed):
        u, v = np.random.default_rng(seed).integers(0, 400, (2, 40))
        return (
            (shared.entries(u, v) == want[u, v]).all()
            and (shared.rows(u[:7]) == want[u[:7]]).all()
            and (shared.columns(v[:5]) == want[:, v[:5]]).all()
            and (shared.block(u, v) == want[np.ix_(u, v)]).all()
        )

    memory = Memory(size // 2, monkeypatch)
    with memory.open(place) as shared, ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(12)))
        assert shared.held_bytes < size
        assert not shared._described.memory._asking


def test_a_line_that_does_not_fit_is_refused_with_the_numbers(place, monkeypatch):
    memory = Memory(CHUNK, monkeypatch)
    with memory.open(place) as matrix:
        for ask in (lambda: matrix.entries([0], [1]), lambda: matrix.rows([3]), lambda: matrix.columns([3])):
            with pytest.raises(DoesNotFit, match=rf"do not fit in memory: \d+ bytes are needed, {CHUNK} may be used"):
                ask()


def test_all_is_verified_with_little_memory(place, monkeypatch):
    monkeypatch.setattr(held, "available_memory", lambda: 100_000)
    assert verify_store(place, "all").searched == 400


def test_an_array_that_stays_whole_needs_its_memory(place, monkeypatch):
    """Sweeps hold what elimination found; without room for it they are refused."""
    monkeypatch.setattr(held, "available_memory", lambda: 2000)
    with open_result(place) as matrix, pytest.raises(DoesNotFit, match="do not fit in memory"):
        matrix.rows(range(5))


def test_measures_and_near_pairs_come_from_tables_larger_than_memory(place, monkeypatch):
    """They count what tables may hold, and not all that there is."""
    memory = Memory(2**40, monkeypatch)

    def asked():
        with memory.open(place) as matrix:
            measuring = PreparedMeasurement(matrix, within=[500.0, 2000.0], nearest=3)
            return measuring.make_plan().memory, measuring.run().columns

    needed, want = asked()
    memory.most = 200_000
    less, found = asked()
    assert less < needed
    assert found.keys() == want.keys()
    for name, column in want.items():
        np.testing.assert_array_equal(found[name], column)
