"""Searches of every form (packed, wide, hops; with and without potentials; every working type) against SciPy."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.devices.cpu import search as cpu_search
from engine.devices.cpu.arcs import prepare
from engine.devices.cpu.atonce import lane_blocks
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.row_facts import count_rows
from engine.devices.cpu.search import even_blocks, label_type
from engine.model.backend import Arcs, RowsWanted
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import FoundFacts


@pytest.fixture(scope="module", params=[1, 3])
def backend(request: pytest.FixtureRequest) -> Iterator[CpuBackend]:
    made = CpuBackend(request.param)
    yield made
    made.shutdown()


def random_arcs(rng: np.random.Generator, n: int, m: int, weights: npt.NDArray[np.generic]) -> Arcs:
    """About ``m`` arcs; some vertices without any; weights drawn from ``weights``."""
    keys = np.unique(rng.integers(0, n, m) * n + rng.integers(0, n, m)) if m else np.empty(0, np.int64)
    keys = keys[keys // n != keys % n]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(keys // n, minlength=n))))
    return Arcs(indptr, (keys % n).astype(np.int32), rng.choice(weights, len(keys)))


def oracle(arcs: Arcs, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    n = len(arcs.indptr) - 1
    matrix = csr_array((arcs.weights.astype(np.float64), arcs.heads, arcs.indptr), shape=(n, n))
    found = np.asarray(dijkstra(matrix, indices=sources))
    if arcs.potentials is not None:
        found = found - arcs.potentials[sources][:, None] + arcs.potentials[None, :]
    return found


def widened(out: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    kind = WORK_TYPES[out.dtype.name]
    result = out.astype(np.float64)
    result[out == kind.sentinel()] = np.inf
    return result


WEIGHTS = {
    "packed": np.arange(0, 30, dtype=np.int32),
    "zeros": np.array([0, 0, 0, 1, 2], np.int32),
    "int64": np.arange(5, 90, dtype=np.int64),
    "ones": np.ones(1, np.int32),
    "quarters": np.arange(0, 50, dtype=np.float64) / 4,
}


@pytest.fixture(params=["lanes", "singly"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to search; ``singly`` makes every block too small."""
    if request.param == "singly":
        monkeypatch.setattr(cpu_search, "LEAST_LANES", 10**9)
    else:
        monkeypatch.setattr(cpu_search, "LEAST_LANES", 1)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize("form", list(WEIGHTS))
def test_every_form_and_type_agrees_with_scipy(backend: CpuBackend, dtype: str, form: str) -> None:
    if form == "quarters" and not dtype.startswith("float"):
        pytest.skip("fractions need a float type")
    rng = np.random.default_rng(11)
    for n, m in ((1, 0), (2, 1), (7, 12), (40, 60), (150, 900), (300, 450)):
        arcs = random_arcs(rng, n, m, WEIGHTS[form])
        sources = rng.permutation(n)[: max(1, n // 2)]
        out = np.full((len(sources), n), 77, dtype)
        backend.search(arcs, sources, out, unit=form == "ones")
        assert np.array_equal(widened(out), oracle(arcs, sources)), (n, m)


@pytest.mark.usefixtures("way")
def test_distances_beyond_32_bits_are_exact(backend: CpuBackend) -> None:
    """2^53 - 1 needs every bit; the wide form is taken because distance and vertex do not fit one word."""
    n = 2**11
    indptr = np.concatenate((np.arange(n), [n - 1]))
    each = (2**53 - 1) // (n - 1)
    arcs = Arcs(indptr, np.arange(1, n, dtype=np.int32), np.full(n - 1, each, np.int64))
    assert prepare(arcs).bits == 0
    out = np.empty((1, n), np.float64)
    backend.search(arcs, np.array([0]), out)
    assert np.array_equal(out[0], np.arange(n) * each)


@pytest.mark.usefixtures("way")
def test_float32_rows_are_rounded_once(backend: CpuBackend) -> None:
    """A path of 20,000 arcs: sums held in float32 would be wrong in the fourth digit."""
    n = 20_001
    indptr = np.concatenate((np.arange(n), [n - 1]))
    arcs = Arcs(indptr, np.arange(1, n, dtype=np.int32), np.full(n - 1, 0.1))
    out = np.empty((1, n), np.float32)
    backend.search(arcs, np.array([0]), out)
    assert np.array_equal(out[0], np.cumsum(np.concatenate(([0.0], arcs.weights))).astype(np.float32))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_potentials_are_taken_out_again(backend: CpuBackend, dtype: str) -> None:
    rng = np.random.default_rng(2)
    base = random_arcs(rng, 120, 500, np.arange(1, 9, dtype=np.int64))
    h = -rng.integers(0, 50, 120)
    arcs = Arcs(base.indptr, base.heads, base.weights, h if dtype == "int32" else h.astype(np.float64))
    out = np.empty((120, 120), dtype)
    backend.search(arcs, np.arange(120), out)
    assert np.array_equal(widened(out), oracle(arcs, np.arange(120)))
    assert out.min() < 0


@pytest.mark.usefixtures("way")
def test_rows_may_be_a_slice_of_a_larger_array(backend: CpuBackend) -> None:
    rng = np.random.default_rng(4)
    arcs = random_arcs(rng, 50, 200, WEIGHTS["packed"])
    whole = np.full((60, 70), -1, np.int32)
    backend.search(arcs, np.arange(50), whole[5:55, 10:60])
    assert np.array_equal(widened(whole[5:55, 10:60]), oracle(arcs, np.arange(50)))
    whole[5:55, 10:60] = -1
    assert (whole == -1).all()


def test_arcs_that_mirror_each_other_are_kept_once() -> None:
    rng = np.random.default_rng(6)
    one_way = random_arcs(rng, 60, 200, WEIGHTS["packed"])
    assert prepare(one_way).back is not None
    matrix = csr_array((one_way.weights + 1, one_way.heads, one_way.indptr), shape=(60, 60))
    both = (matrix + matrix.T).tocsr()
    both.sort_indices()
    mirrored = Arcs(both.indptr.astype(np.int64), both.indices.astype(np.int32), both.data)
    ready = prepare(mirrored)
    assert ready.back is None
    assert ready.tails is ready.heads
    lopsided = Arcs(mirrored.indptr, mirrored.heads, np.arange(1, len(both.data) + 1, dtype=np.int32))
    assert prepare(lopsided).back is not None
    backend = CpuBackend(1)
    for arcs in (mirrored, lopsided):
        out = np.empty((60, 60), np.int32)
        backend.search(arcs, np.arange(60), out)
        assert np.array_equal(widened(out), oracle(arcs, np.arange(60)))


def test_labels_take_the_narrowest_type_that_is_exact() -> None:
    def kind(weight: float, dtype: str, out: str, potentials: npt.NDArray[np.generic] | None = None) -> str | None:
        arcs = Arcs(np.array([0, 1, 1]), np.array([1], np.int32), np.array([weight], dtype), potentials)
        return label_type(prepare(arcs), potentials, out)

    assert kind(1.5, "float64", "float32") == "int32"
    assert kind(1.5, "float64", "float64") == "float64"
    assert kind(1 / 3, "float64", "float32") == "float64"
    assert kind(1e9 + 0.5, "float64", "float32") == "float64"
    assert kind(1.5, "float64", "float32", np.zeros(2)) == "float64"
    assert kind(32_766, "int32", "float64") == "uint16"
    assert kind(32_767, "int32", "float64") == "int32"
    assert kind(40_000, "int32", "uint16") == "uint16"
    assert kind(2**30 - 2, "int64", "float32") == "int32"
    assert kind(2**30 - 1, "int64", "float32") == "float64"
    assert kind(2**40, "int64", "int32") == "int32"
    assert kind(2**40, "int64", "int32", np.array([0, -(2**29) + 1])) == "int32"
    assert kind(2**40, "int64", "int32", np.array([0, -(2**29)])) == "float64"
    assert kind(2**53, "int64", "float64") is None


@pytest.mark.parametrize("digits", [0, 1, 3, 6])
def test_decimals_are_added_exactly(backend: CpuBackend, digits: int) -> None:
    """A float64 sum of tenths is off in its last bits; a whole number of tenths, divided once, is not."""
    rng = np.random.default_rng(digits)
    whole = random_arcs(rng, 300, 1200, np.arange(0, 4000))
    arcs = Arcs(whole.indptr, whole.heads, whole.weights / 10.0**digits)
    assert prepare(arcs).decimal is not None
    out = np.empty((300, 300), np.float32)
    backend.search(arcs, np.arange(300), out)
    np.testing.assert_array_equal(out, (oracle(whole, np.arange(300)) / 10.0**digits).astype(np.float32))


def test_short_labels_are_widened_where_they_are_cut_off(backend: CpuBackend) -> None:
    """300 vertices in the middle are near each other, all others hang on arms whose ends are 40 x 1,000 away."""
    rng = np.random.default_rng(4)
    tails, heads = rng.integers(200, 500, (2, 3000))
    arms = [np.arange(first, first + 40) for first in range(0, 200, 40)]
    tails = np.concatenate((tails, *(arm[:-1] for arm in arms), [arm[-1] for arm in arms]))
    heads = np.concatenate((heads, *(arm[1:] for arm in arms), [200 + i for i in range(5)]))
    order = np.argsort(tails, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(tails, minlength=500))))
    weights = rng.integers(900, 1100, len(tails)).astype(np.int32)
    arcs = Arcs(indptr, heads[order].astype(np.int32), weights)
    out = np.empty((500, 500), np.int32)
    backend.search(arcs, np.arange(500), out)
    np.testing.assert_array_equal(widened(out), oracle(arcs, np.arange(500)))
    assert out[out < WORK_TYPES["int32"].unreachable].max() > WORK_TYPES["uint16"].unreachable
    finished, cut_off = prepare(arcs).tally["uint16"]
    assert finished > 0
    assert cut_off > 0


def test_long_distances_are_not_tried_in_short_labels(backend: CpuBackend) -> None:
    place = np.arange(500)
    arcs = Arcs(np.append(place, 499), place[1:].astype(np.int32), np.full(499, 100, np.int32))
    out = np.empty((500, 500), np.int32)
    backend.search(arcs, place, out)
    np.testing.assert_array_equal(widened(out), oracle(arcs, place))
    assert set(prepare(arcs).tally) == {"uint16", "int32"}  # the source in the middle reaches half as far
    heavy = Arcs(arcs.indptr, arcs.heads, arcs.weights * 2)
    backend.search(heavy, place, out)
    np.testing.assert_array_equal(widened(out), oracle(heavy, place))
    assert set(prepare(heavy).tally) == {"int32"}


def test_arcs_too_long_for_the_result_type_are_never_taken(backend: CpuBackend) -> None:
    """0 -> 1 -> 2 fits uint16 and int32; the arc 0 -> 2 does not."""
    for dtype, long in (("uint16", 70_000), ("int32", 2**31 + 5)):
        arcs = Arcs(np.array([0, 2, 3, 3]), np.array([1, 2, 2], np.int32), np.array([3, long, 4], np.int64))
        out = np.empty((24, 3), dtype)
        backend.search(arcs, np.zeros(24, np.int64), out)
        assert (out == [0, 3, 7]).all()


def hidden_path(n: int) -> Arcs:
    """A complete graph whose shortest paths all follow one secret path: n - 1 arcs, each of them found last."""
    place = np.random.default_rng(8).permutation(n)
    apart = np.abs(place[:, None] - place[None, :])
    weights = np.where(apart == 1, 1, 3 * apart)[~np.eye(n, dtype=bool)].astype(np.int32)
    heads = np.tile(np.arange(n, dtype=np.int32), (n, 1))[~np.eye(n, dtype=bool)]
    return Arcs(np.arange(n + 1) * (n - 1), heads, weights)


def test_a_graph_that_lanes_are_bad_at_is_given_up_and_still_right(backend: CpuBackend) -> None:
    arcs = hidden_path(500)
    out = np.empty((500, 500), np.int32)
    for _ in range(2):
        out[:] = -1
        backend.search(arcs, np.arange(500), out)
        some = np.arange(0, 500, 50)
        assert np.array_equal(widened(out[some]), oracle(arcs, some))
    for kind in ("uint16", "int32"):
        finished, given_up = prepare(arcs).tally[kind]
        assert finished == 0
        assert 2 <= given_up <= 2 + backend.threads


def test_the_prepared_form_lives_as_long_as_its_arcs() -> None:
    arcs = random_arcs(np.random.default_rng(1), 20, 60, WEIGHTS["packed"])
    assert prepare(arcs) is prepare(arcs)
    ready = weakref.ref(prepare(arcs))
    del arcs
    gc.collect()
    assert ready() is None


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("cutoff", [None, 40])
def test_rows_that_reach_little_are_looked_at_where_they_reach(
    dtype: str, cutoff: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Components of nine vertices: facts come from the columns that a block reaches, and are those of whole rows."""
    rng = np.random.default_rng(11)
    n, name = 900, rng.permutation(900)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    keys = np.unique(name[tails] * n + name[tails // 9 * 9 + heads % 9])
    keys = keys[keys // n != keys % n]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(keys // n, minlength=n))))
    weights = rng.integers(0, 30, len(keys)).astype(np.int64 if dtype in ("uint16", "int32") else np.float64)
    arcs = Arcs(indptr, (keys % n).astype(np.int32), weights)
    out, sources = np.empty((n, n), dtype), rng.permutation(n)
    looked: list[int] = []
    few = lane_blocks.row_facts

    def counted(block: Any, own: Any, rows: Any, columns: Any) -> Any:
        looked.append(len(rows) * len(columns))
        return few(block, own, rows, columns)

    monkeypatch.setattr(lane_blocks, "row_facts", counted)
    backend = CpuBackend(1)
    searches = backend.begin_search(arcs, sources, out, RowsWanted(cutoff=cutoff))
    told = np.zeros(n, bool)

    def then(rows: Any, found: FoundFacts | None) -> None:
        if found is None:
            return
        told[rows] = True
        facts = (found.facts.reached, found.facts.sums, found.facts.largest, found.facts.farthest)
        for got, want in zip(facts, few(out, sources[rows], rows), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
        bins, counts = np.zeros(64, np.int64), np.zeros(64, np.int64)
        assert found.count(4.0, bins) == count_rows(out, sources[rows], 4.0, counts, rows)
        np.testing.assert_array_equal(bins, counts)

    while searches.waiting:
        searches.take(0, then)
    backend.shutdown()
    expected = oracle(arcs, sources)
    expected[expected > (np.inf if cutoff is None else cutoff)] = np.inf
    np.testing.assert_array_equal(widened(out), expected)
    assert np.count_nonzero(~told) < 128  # the rest of a block is searched one by one
    assert sum(looked) < n * n / 3


@pytest.mark.parametrize(
    ("least", "rows", "lanes", "threads", "blocks"),
    [
        (0, 11, 64, 16, 0),  # too few rows for lanes
        (8, 1000, 128, 2, 8),
        (8, 1000, 128, 3, 9),
        (8, 1000, 128, 16, 16),  # half of the lanes are used, and all threads
        (8, 1000, 128, 64, 31),  # a quarter of the lanes, not fewer
        (1, 13, 64, 16, 1),
        (17, 1088, 64, 16, 32),
    ],
)
def test_each_thread_gets_equally_many_blocks(least: int, rows: int, lanes: int, threads: int, blocks: int) -> None:
    assert even_blocks(least, rows, lanes, threads) == blocks
