"""The budget that is given holds for tables, rows and results together; the plan says what the run takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from engine.api.from_tables import near, shares
from engine.api.from_tables.measuring import PreparedMeasurement
from engine.api.from_tables.near import NearWay, PreparedNear
from engine.api.near import near_pairs, plan_near
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.devices.cpu.relax import _pack_bytes
from engine.model.problem import Options
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph
from storage.prepared import writer
from storage.prepared.chunks import CheckedTable
from tests.unit.engine.api.test_prepared import grid_graph

#: Whole numbers are swept, and fractions whose sums depend on the order are merged.
KINDS = ("whole", "fractions")
SIDE = 24
#: Lattices that are smaller, for what reads its tables again and again.
SMALL = 14


@pytest.fixture(autouse=True)
def small_bands(monkeypatch):
    monkeypatch.setattr(shares, "BAND_BYTES", 1 << 15)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Prepared lattices of each kind, in chunks of 4,096 entries, and small ones in chunks of 1,024."""
    folder, found = tmp_path_factory.mktemp("shares"), {}
    with pytest.MonkeyPatch.context() as patch:
        for kind in (*KINDS, *(f"small {kind}" for kind in KINDS)):
            small, fractions = kind.startswith("small"), kind.endswith("fractions")
            patch.setattr(writer, "TABLE_CHUNK", 1 << (10 if small else 12))
            graph = grid_graph(SMALL if small else SIDE)
            if fractions:
                graph = type(graph)(graph.indptr, graph.heads, graph.weights / 7, graph.labels, graph.directed, True)
            prepare(graph, folder / kind, Options(threads=1, dtype="float64" if fractions else "int32"))
            found[kind] = folder / kind
    return found


@pytest.fixture
def held(monkeypatch):
    """The most bytes of tables that were in memory, by the count of the tables themselves."""
    most, usual, tables = [0], CheckedTable.bring, list[CheckedTable]()

    def bring(table, wanted):
        usual(table, wanted)
        if all(table is not other for other in tables):
            tables.append(table)
        most[0] = max(most[0], sum(other.read_bytes for other in tables if other.passing))

    monkeypatch.setattr(CheckedTable, "bring", bring)
    return most


def measured(place, memory=None, direction="out", **opened):
    """The columns, and the bytes of the plan."""
    with open_result(place, **opened) as matrix:
        asked = PreparedMeasurement(matrix, Options(memory=memory, threads=1), direction=direction, within=[500.0])
        found = asked.run()
        assert found.plan.memory == asked.make_plan().memory
        return found.columns, found.plan.memory


def same(found, want):
    assert found.keys() == want.keys()
    for name, column in want.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["out", "in"])
def test_measures_stay_within_the_budget(places, held, kind, direction):
    """Arrays are counted as they are allocated, and pages of tables, which that does not see, by the tables."""
    want, whole = measured(places[kind], direction=direction)
    with open_result(places[kind]) as matrix:
        memory, tables = whole - matrix.table_bytes * 3 // 4, matrix.table_bytes
        matrix.graph()
    held[0] = 0
    tracemalloc.start()
    try:
        found, needed = measured(places[kind], memory, direction)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    same(found, want)
    assert needed <= memory
    assert 0 < held[0] <= tables // 4
    # of the program itself: the graph and the tree of parts, and the buffers of a thread
    assert peak + held[0] <= memory + (1 << 20) + sum(_pack_bytes(8))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_refusal_names_the_smallest_budget(places, kind, direction):
    place = places[f"small {kind}"]
    want, whole = measured(place, direction=direction)
    with pytest.raises(DoesNotFit) as caught:
        measured(place, 1, direction)
    least = caught.value.needed
    found, needed = measured(place, least, direction)
    same(found, want)
    assert needed == least < whole
    with pytest.raises(DoesNotFit, match=f"{least} bytes of memory.*{least - 1} may be used"):
        measured(place, least - 1, direction)


def test_the_budget_with_which_it_was_opened_holds_for_measures(places):
    want, whole = measured(places["whole"])
    found, needed = measured(places["whole"], memory=None)
    assert needed == whole
    with open_result(places["whole"], memory=whole - 50_000) as matrix:
        for asked in (None, whole):
            taken = PreparedMeasurement(matrix, Options(memory=asked, threads=1), within=[500.0]).run()
            assert taken.plan.memory <= whole - 50_000
            same(taken.columns, want)
    same(found, want)


@pytest.mark.parametrize("kind", KINDS)
def test_all_questions_stay_within_the_budget_of_the_open_matrix(places, held, kind):
    with open_result(places[kind]) as full:
        want, size = full.block(range(full.n), range(full.n)), full.table_bytes
    held[0] = 0
    memory = size // 2
    rng = np.random.default_rng(1)
    with open_result(places[kind], memory=memory) as matrix:
        for _ in range(3):
            u, v = rng.integers(0, matrix.n, (2, 300))
            np.testing.assert_array_equal(matrix.entries(u, v), want[u, v])
            np.testing.assert_array_equal(matrix.rows(u[:40]), want[u[:40]])
            np.testing.assert_array_equal(matrix.block(u, v[:50]), want[np.ix_(u, v[:50])])
        assert matrix.held_bytes <= memory // 2
    assert 0 < held[0] <= memory // 2


def test_a_question_beyond_the_budget_is_refused_with_one_that_suffices(places):
    with open_result(places["fractions"], memory=1000) as matrix, pytest.raises(DoesNotFit) as caught:
        matrix.entries([0], [1])
    assert caught.value.available == 1000
    with open_result(places["fractions"], memory=caught.value.needed) as matrix:
        assert matrix.entries([0], [1])[0] > 0
    with open_result(places["fractions"], memory=caught.value.needed - 2) as matrix, pytest.raises(DoesNotFit):
        matrix.entries([0], [1])


@pytest.mark.parametrize("memory", [0, -1, 1.5, True])
def test_a_budget_is_a_number_of_bytes(places, memory):
    with pytest.raises(InvalidRequest) as caught:
        open_result(places["whole"], memory=memory)
    assert caught.value.field == "memory"


def test_tables_that_were_read_before_are_dropped_or_counted(places):
    """A budget may come when questions were answered already."""
    want, whole = measured(places["whole"])
    with open_result(places["whole"]) as matrix:
        matrix.entries([0], [1])  # opened for memory that holds all tables: they stay
        size = matrix.table_bytes
        with pytest.raises(DoesNotFit) as caught:
            PreparedMeasurement(matrix, Options(memory=size, threads=1)).make_plan()
        assert caught.value.needed > size
    with open_result(places["whole"], memory=size) as matrix:
        matrix.entries(range(300), range(300))
        before = matrix.held_bytes
        asked = PreparedMeasurement(matrix, Options(memory=whole - size * 9 // 10, threads=1), within=[500.0])
        with matrix.holding(asked._shared()):
            assert matrix.held_bytes <= asked._shared().tables < before
        same(asked.run().columns, want)


@pytest.mark.parametrize("nearest", [None, 4])
def test_near_pairs_stay_within_the_budget(places, held, monkeypatch, nearest):
    monkeypatch.setattr(near.PreparedNear, "way", NearWay(swept=True, reason="the test says so"))
    with open_result(places["whole"]) as matrix:
        want = near_pairs(matrix, Options(cutoff=800, threads=1), nearest=nearest)
        whole, size = PreparedNear(matrix, Options(cutoff=800, threads=1))._shares.needed, matrix.table_bytes
    held[0] = 0
    few = Options(cutoff=800, threads=1, memory=whole - size // 2)
    with open_result(places["whole"]) as matrix:
        asked = PreparedNear(matrix, few, nearest=nearest)
        plan = plan_near(matrix, few, nearest=nearest)
        found = asked.run()
    np.testing.assert_array_equal(found.indices, want.indices)
    np.testing.assert_array_equal(found.lengths, want.lengths)
    assert 0 < held[0] <= asked._shares.tables < size
    assert asked._shares.needed <= plan.memory <= whole - size // 2


def test_near_pairs_that_only_tables_answer_name_the_smallest_budget(tmp_path):
    below, _ = build_graph([0, 1, 2], [1, 2, 3], [3, -1, 4], n=4, directed=True)
    prepare(below, tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        with pytest.raises(DoesNotFit) as caught:
            near_pairs(matrix, Options(cutoff=2, memory=1, threads=1))
        least = caught.value.needed
        assert "searches cannot" in PreparedNear(matrix, Options(cutoff=2, memory=least, threads=1)).way.reason
        with pytest.raises(DoesNotFit):
            near_pairs(matrix, Options(cutoff=2, memory=least - 1, threads=1))


@pytest.mark.parametrize("side", [10, 24])
@pytest.mark.parametrize("kind", ["uint16", "int32"])
def test_the_budget_that_a_refusal_names_suffices_for_the_same_question(tmp_path, side, kind):
    """Of an open matrix, for every kind of question: at once, and not only the second time."""
    prepare(grid_graph(side), tmp_path / "p", Options(threads=1, dtype=kind))
    rng, count = np.random.default_rng(side), side * side
    with open_result(tmp_path / "p") as matrix:
        want, size = matrix.block(range(count), range(count)), matrix.table_bytes + matrix.swept_bytes
    asked = {
        "entries": lambda matrix, u, v: (matrix.entries(u, v), want[u, v]),
        "rows": lambda matrix, u, v: (matrix.rows(u), want[u]),
        "columns": lambda matrix, u, v: (matrix.columns(v), want[:, v]),
        "block": lambda matrix, u, v: (matrix.block(u, v[:30]), want[np.ix_(u, v[:30])]),
        "measures": lambda matrix, u, v: (
            PreparedMeasurement(matrix, Options(threads=1)).run().columns["sum"],
            want.sum(axis=1, dtype=np.int64),
        ),
    }
    refused = 0
    for memory in rng.integers(1, int(1.3 * size), 12).tolist():
        u, v = rng.integers(0, count, (2, int(rng.choice([1, 20, 100]))))
        for ask in asked.values():
            with open_result(tmp_path / "p", memory=memory) as matrix:
                matrix.threads = 1
                try:
                    np.testing.assert_array_equal(*ask(matrix, u, v))
                    continue
                except DoesNotFit as error:
                    named, refused = error.needed, refused + 1
            with open_result(tmp_path / "p", memory=named) as matrix:
                matrix.threads = 1
                np.testing.assert_array_equal(*ask(matrix, u, v))
    assert refused
