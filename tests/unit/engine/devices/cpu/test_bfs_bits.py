"""Breadth-first searches one bit a source: every shape of graph and of what is asked, against SciPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.bfs_bits import BreadthFirst
from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.devices.cpu.search import SearchBatch
from engine.model.backend import MOST_HOPS, Arcs, LevelReduction, RowsWanted
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import FoundFacts


@pytest.fixture(scope="module", params=[1, 3])
def backend(request: pytest.FixtureRequest) -> Iterator[BreadthFirst]:
    made = BreadthFirst(request.param)
    yield made
    made.shutdown()


def arcs_of(n: int, tails: npt.NDArray[np.int64], heads: npt.NDArray[np.int64]) -> Arcs:
    """CSR, parallel arcs and loops kept."""
    order = np.argsort(tails, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(tails, minlength=n))))
    return Arcs(indptr, heads[order].astype(np.int32), np.ones(len(tails), np.int32))


def nothing_more(arcs: Arcs) -> LevelReduction:
    """Ask for facts and counts of the vertices at each distance only."""
    return LevelReduction(np.empty((0, len(arcs.indptr) - 1), np.int32), np.empty((0, MOST_HOPS)), 0)


def random_arcs(n: int, m: int, seed: int, *, mirrored: bool = False) -> Arcs:
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, m), rng.integers(0, n, m)
    if mirrored:
        tails, heads = np.concatenate((tails, heads)), np.concatenate((heads, tails))
    return arcs_of(n, tails, heads)


def path(n: int) -> Arcs:
    """One way; numbers shuffled."""
    place = np.random.default_rng(n).permutation(n)
    return arcs_of(n, place[:-1], place[1:])


#: Few arcs (most pairs are not reached) and many, one way and both, one vertex, hubs, paths as long as steps count.
SHAPES = {
    "thin": random_arcs(300, 200, 1),
    "sparse": random_arcs(700, 1400, 2),
    "mirrored": random_arcs(1300, 3000, 3, mirrored=True),
    "dense": random_arcs(200, 20_000, 4),
    "single": random_arcs(1, 3, 5),
    "no arcs": random_arcs(70, 0, 6),
    "star": arcs_of(500, np.repeat([0, 7], 499), np.concatenate((np.arange(1, 500), np.arange(1, 500)))),
    "path of 255": path(256),
    "path of 256": path(257),
    "path of 600": path(601),
}


def oracle(arcs: Arcs, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    n = len(arcs.indptr) - 1
    matrix = csr_array((np.ones(len(arcs.heads)), arcs.heads, arcs.indptr), shape=(n, n))
    return np.asarray(dijkstra(matrix, indices=sources, unweighted=True))


def widened(out: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    result = out.astype(np.float64)
    result[out == WORK_TYPES[out.dtype.name].sentinel()] = np.inf
    return result


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", WORK_TYPES)
def test_every_shape_and_type_agrees_with_scipy(backend: BreadthFirst, dtype: str, shape: str) -> None:
    arcs = SHAPES[shape]
    n = len(arcs.indptr) - 1
    sources = np.random.default_rng(7).permutation(n)
    out = np.empty((n, n), dtype)
    backend.search(arcs, sources, out, unit=True)
    np.testing.assert_array_equal(widened(out), oracle(arcs, sources))


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 65, 511, 512, 513, 1100])
def test_any_number_of_sources_some_asked_for_twice(backend: BreadthFirst, count: int) -> None:
    arcs = SHAPES["mirrored"]
    sources = np.random.default_rng(count).integers(0, 1300, count)
    out = np.empty((count, 1300), np.uint16)
    backend.search(arcs, sources, out, unit=True)
    np.testing.assert_array_equal(widened(out), oracle(arcs, sources))


@pytest.mark.parametrize("columns", [0, 1, 63, 64, 65, 300])
def test_targets_in_any_order(backend: BreadthFirst, columns: int) -> None:
    arcs, sources = SHAPES["sparse"], np.arange(0, 700, 3)
    targets = np.random.default_rng(columns).permutation(700)[:columns]
    out = np.empty((len(sources), columns), np.int32)
    backend.search(arcs, sources, out, unit=True, targets=targets)
    np.testing.assert_array_equal(widened(out), oracle(arcs, sources)[:, targets])


@pytest.mark.parametrize("shape", ["sparse", "path of 600"])
@pytest.mark.parametrize("cutoff", [0, 0.5, 1, 3, 254, 255, 256, 300, 1000])
def test_nothing_is_found_beyond_the_cutoff(backend: BreadthFirst, shape: str, cutoff: float) -> None:
    arcs = SHAPES[shape]
    sources = np.arange(600)
    for targets in (None, np.arange(599, 0, -7)):
        expected = oracle(arcs, sources)
        expected[expected > cutoff] = np.inf
        expected = expected if targets is None else expected[:, targets]
        out = np.empty(expected.shape, np.float32)
        backend.search(arcs, sources, out, unit=True, targets=targets, cutoff=cutoff)
        np.testing.assert_array_equal(widened(out), expected)


def test_rows_may_be_a_slice_of_a_larger_array(backend: BreadthFirst) -> None:
    arcs = SHAPES["sparse"]
    around = np.full((704, 711), 9, np.uint16)
    backend.search(arcs, np.arange(700), around[2:-2, 5:-6], unit=True)
    np.testing.assert_array_equal(widened(around[2:-2, 5:-6]), oracle(arcs, np.arange(700)))
    around[2:-2, 5:-6] = 9
    assert np.all(around == 9)


@pytest.mark.parametrize("seed", range(8))
def test_forwards_and_backwards_come_to_the_same(backend: BreadthFirst, seed: int) -> None:
    """Graphs whose fronts grow and shrink: steps of both kinds follow each other."""
    rng = np.random.default_rng(seed)
    arcs = random_arcs(int(rng.integers(2, 900)), int(rng.integers(1, 4000)), seed, mirrored=bool(seed % 2))
    n = len(arcs.indptr) - 1
    out = np.empty((n, n), np.uint16)
    backend.search(arcs, np.arange(n), out, unit=True)
    np.testing.assert_array_equal(widened(out), oracle(arcs, np.arange(n)))


@pytest.mark.parametrize(("unit", "potentials"), [(False, False), (True, True)])
def test_other_weights_and_potentials_are_left_to_other_searches(unit: bool, potentials: bool) -> None:
    arcs = graphs.random(100)
    n = arcs.n
    given = Arcs(arcs.indptr, arcs.heads, arcs.weights, np.arange(n) if potentials else None)
    found, expected = np.empty((n, n), np.int32), np.empty((n, n), np.int32)
    for searcher, out in ((BreadthFirst(1), found), (CpuBackend(1), expected)):
        searcher.search(given, np.arange(n), out, unit=unit)
        searcher.shutdown()
    np.testing.assert_array_equal(found, expected)


def test_a_block_that_needs_too_many_steps_is_searched_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    left = []
    monkeypatch.setattr(SearchBatch, "blocks", lambda self, rows, threads, spaces: left.append(len(rows)) or [])
    backend = BreadthFirst(1)
    for arcs, cutoff, count in (
        (path(255), None, 0),
        (path(257), None, 257),
        (path(257), 255, 0),
        (path(257), 256, 257),
    ):
        left.clear()
        n = len(arcs.indptr) - 1
        backend.search(arcs, np.arange(n), np.empty((n, n), np.uint16), unit=True, cutoff=cutoff)
        assert sum(left) == count
    backend.shutdown()


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("cutoff", [None, 2, 300])
@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "path of 600"])
def test_facts_of_the_bits_are_those_of_the_rows(
    backend: BreadthFirst, shape: str, cutoff: float | None, dtype: str
) -> None:
    arcs = SHAPES[shape]
    n = len(arcs.indptr) - 1
    sources = np.random.default_rng(8).integers(0, n, max(n, 40))
    out = np.empty((len(sources), n), dtype)
    searches = backend.begin_search(arcs, sources, out, RowsWanted(True, None, cutoff))
    told = np.zeros(len(sources), bool)

    def then(rows: npt.NDArray[np.int64], found: FoundFacts | None) -> None:
        if found is None:  # a block that needs too many steps is searched in lanes
            assert shape.startswith("path of 25")
            return
        told[rows] = True
        expected = row_facts(out, sources[rows], rows)
        some = expected[0] > 0
        facts = (found.facts.reached, found.facts.sums, found.facts.largest, found.facts.farthest)
        for k, (got, want) in enumerate(zip(facts, expected, strict=True)):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got[some if k == 2 else slice(None)], want[some if k == 2 else slice(None)])
        for width in (1.0, 4.0, 0.5):
            bins, counts = np.zeros(16, np.int64), np.zeros(16, np.int64)
            whole = WORK_TYPES[dtype].integer
            if width >= 1 or not whole:
                assert found.count(width, bins) == count_rows(out, sources[rows], width, counts, rows)
                np.testing.assert_array_equal(bins, counts)

    while searches.waiting:
        searches.take(0, then)
    assert told.all() or shape.startswith("path of 25")


def test_facts_of_chosen_columns_are_left_to_others(backend: BreadthFirst) -> None:
    found: list[FoundFacts | None] = []
    out = np.empty((64, 64), np.uint16)
    wanted = RowsWanted(True, np.arange(64))
    searches = backend.begin_search(SHAPES["sparse"], np.arange(64), out, wanted)
    while searches.waiting:
        searches.take(0, lambda _, some: found.append(some))
    assert found
    assert all(some is None for some in found)


@pytest.mark.parametrize("cutoff", [None, 2, 300])
@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "path of 600"])
def test_levels_are_counts_of_the_rows(backend: BreadthFirst, shape: str, cutoff: float | None) -> None:
    """Blocks whose levels are counted leave the rows as they were; all others write them."""
    arcs = SHAPES[shape]
    n = len(arcs.indptr) - 1
    sources = np.random.default_rng(8).integers(0, n, max(n, 40))
    right, out = np.empty((len(sources), n), np.uint16), np.full((len(sources), n), 7777, np.uint16)
    backend.search(arcs, sources, right, unit=True, cutoff=cutoff)
    searches = backend.begin_search(arcs, sources, out, RowsWanted(True, None, cutoff, levels=nothing_more(arcs)))

    def then(rows: npt.NDArray[np.int64], found: FoundFacts | None) -> None:
        if found is None:
            assert shape.startswith("path of 25")
            np.testing.assert_array_equal(out[rows], right[rows])
            return
        assert (out[rows] == 7777).all()
        assert found.levels is not None
        for row, levels in zip(rows, found.levels, strict=True):
            finite = right[row][right[row] != WORK_TYPES["uint16"].sentinel()]
            counts = np.bincount(finite, minlength=len(levels))
            counts[0] -= 1
            np.testing.assert_array_equal(levels, counts)
        expected = row_facts(right, sources[rows], rows)
        np.testing.assert_array_equal(found.facts.reached, expected[0])
        np.testing.assert_array_equal(found.facts.farthest, expected[3])

    while searches.waiting:
        searches.take(0, then)


def test_levels_of_chosen_columns_are_left_to_rows(backend: BreadthFirst) -> None:
    out, right = (np.empty((64, 10), np.uint16) for _ in range(2))
    searches = backend.begin_search(
        SHAPES["sparse"], np.arange(64), out, RowsWanted(True, np.arange(10), levels=nothing_more(SHAPES["sparse"]))
    )
    while searches.waiting:
        searches.take(0, lambda _, found: None if found is None else pytest.fail("only whole rows have levels"))
    backend.search(SHAPES["sparse"], np.arange(64), right, unit=True, targets=np.arange(10))
    np.testing.assert_array_equal(out, right)
