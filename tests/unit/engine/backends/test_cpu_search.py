"""Searches of every form (packed, wide, hops; with and without potentials; every working type) against SciPy."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.backends import cpu_search
from engine.backends.base import Arcs
from engine.backends.cpu_search import prepare, search, workspace_bytes
from engine.backends.team import Team
from engine.types import WORK_TYPES


@pytest.fixture(scope="module", params=[1, 3])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    made = Team(request.param)
    yield made
    made.close()


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


@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize("form", list(WEIGHTS))
def test_every_form_and_type_agrees_with_scipy(team: Team, dtype: str, form: str) -> None:
    if form == "quarters" and not dtype.startswith("float"):
        pytest.skip("fractions need a float type")
    rng = np.random.default_rng(11)
    for n, m in ((1, 0), (2, 1), (7, 12), (40, 60), (150, 900), (300, 450)):
        arcs = random_arcs(rng, n, m, WEIGHTS[form])
        sources = rng.permutation(n)[: max(1, n // 2)]
        out = np.full((len(sources), n), 77, dtype)
        search(team, arcs, sources, out, form == "ones")
        assert np.array_equal(widened(out), oracle(arcs, sources)), (n, m)


def test_distances_beyond_32_bits_are_exact(team: Team) -> None:
    """2^53 - 1 needs every bit; the wide form is taken because distance and vertex do not fit one word."""
    n = 2**11
    indptr = np.concatenate((np.arange(n), [n - 1]))
    each = (2**53 - 1) // (n - 1)
    arcs = Arcs(indptr, np.arange(1, n, dtype=np.int32), np.full(n - 1, each, np.int64))
    assert prepare(arcs).bits == 0
    out = np.empty((1, n), np.float64)
    search(team, arcs, np.array([0]), out)
    assert np.array_equal(out[0], np.arange(n) * each)


def test_float32_rows_are_rounded_once(team: Team) -> None:
    """A path of 20,000 arcs: sums held in float32 would be wrong in the fourth digit."""
    n = 20_001
    indptr = np.concatenate((np.arange(n), [n - 1]))
    arcs = Arcs(indptr, np.arange(1, n, dtype=np.int32), np.full(n - 1, 0.1))
    out = np.empty((1, n), np.float32)
    search(team, arcs, np.array([0]), out)
    assert np.array_equal(out[0], np.cumsum(np.concatenate(([0.0], arcs.weights))).astype(np.float32))


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_potentials_are_taken_out_again(team: Team, dtype: str) -> None:
    rng = np.random.default_rng(2)
    base = random_arcs(rng, 120, 500, np.arange(1, 9, dtype=np.int64))
    h = -rng.integers(0, 50, 120)
    arcs = Arcs(base.indptr, base.heads, base.weights, h if dtype == "int32" else h.astype(np.float64))
    out = np.empty((120, 120), dtype)
    search(team, arcs, np.arange(120), out)
    assert np.array_equal(widened(out), oracle(arcs, np.arange(120)))
    assert out.min() < 0


def test_rows_may_be_a_slice_of_a_larger_array(team: Team) -> None:
    rng = np.random.default_rng(4)
    arcs = random_arcs(rng, 50, 200, WEIGHTS["packed"])
    whole = np.full((60, 70), -1, np.int32)
    search(team, arcs, np.arange(50), whole[5:55, 10:60])
    assert np.array_equal(widened(whole[5:55, 10:60]), oracle(arcs, np.arange(50)))
    whole[5:55, 10:60] = -1
    assert (whole == -1).all()


def test_the_prepared_form_lives_as_long_as_its_arcs() -> None:
    arcs = random_arcs(np.random.default_rng(1), 20, 60, WEIGHTS["packed"])
    assert prepare(arcs) is prepare(arcs)
    kept = len(cpu_search._PREPARED)
    del arcs
    gc.collect()
    assert len(cpu_search._PREPARED) == kept - 1


def test_workspace_grows_with_threads_vertices_and_arcs() -> None:
    base = workspace_bytes(1000, 8000, 2)
    assert base >= 1000 * 2 * 24 + 8000 * 12
    assert workspace_bytes(2000, 8000, 2) > base
    assert workspace_bytes(1000, 9000, 2) > base
    assert workspace_bytes(1000, 8000, 3) > base
