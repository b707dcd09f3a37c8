"""Sums of weights and nearest vertices that searches for hops find one step at a time, against rows of distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.devices.cpu.bfs_bits import BreadthFirst
from engine.model.backend import MOST_HOPS, LevelReduction, RowsWanted
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import FoundFacts
from tests.unit.engine.devices.cpu.test_bfs_bits import SHAPES

FAR = WORK_TYPES["uint16"].sentinel()
Array = npt.NDArray[Any]
#: The shapes whose searches end before the steps do.
ENDING = [name for name in SHAPES if name not in ("path of 256", "path of 600")]
STEPS = np.arange(MOST_HOPS)


@pytest.fixture(scope="module", params=[1, 3])
def backend(request: pytest.FixtureRequest) -> Iterator[BreadthFirst]:
    made = BreadthFirst(request.param)
    yield made
    made.shutdown()


def by_rows(row: Array, source: int, asked: LevelReduction) -> tuple[Array, list[int], list[float]]:
    """Sums, nearest vertices and their distances of one row."""
    there = np.flatnonzero(row != FAR)
    hops = row[there].astype(np.int64)
    weights: Array = asked.weights
    sums = (weights[:, None, there] * asked.shares[None][:, :, hops]).sum(2)
    near = sorted((int(row[v]), int(v)) for v in there if v != source)[: asked.nearest]
    lacking = asked.nearest - len(near)
    return sums, [v for _, v in near] + [-1] * lacking, [float(d) for d, _ in near] + [np.nan] * lacking


def compare(
    backend: BreadthFirst, shape: str, asked: LevelReduction, count: int, *, cutoff: float | None = None
) -> int:
    """Compare the results of every row, and return how many were found without writing them."""
    arcs = SHAPES[shape]
    n, found_by_level = len(arcs.indptr) - 1, []
    sources = np.random.default_rng(count).integers(0, n, count)
    right, out = np.empty((count, n), np.uint16), np.full((count, n), 7777, np.uint16)
    backend.search(arcs, sources, right, unit=True, cutoff=cutoff)
    exact = asked.weights.dtype == np.int32 and set(np.unique(asked.shares)) <= {0, 0.5, 1}

    def then(rows: npt.NDArray[np.int64], found: FoundFacts | None) -> None:
        if found is None or found.reduced is None:
            np.testing.assert_array_equal(out[rows], right[rows])
            return
        assert (out[rows] == 7777).all()
        for k, i in enumerate(rows):
            sums, near, distances = by_rows(right[i], sources[i], asked)
            assert found.reduced.nearest[k].tolist() == near
            np.testing.assert_array_equal(found.reduced.distances[k], distances)
            if exact:
                np.testing.assert_array_equal(found.reduced.weights[k], sums)
            else:
                np.testing.assert_allclose(found.reduced.weights[k], sums, rtol=1e-12, atol=1e-12)
            found_by_level.append(i)

    wanted = RowsWanted(True, None, cutoff, levels=asked)
    searches = backend.begin_search(arcs, sources, out, wanted)
    while searches.waiting:
        searches.take(0, then)
    return len(found_by_level)


def weights_of(n: int, kind: str, kinds: int) -> Array:
    rng = np.random.default_rng(kinds)
    if kind == "fractions":
        return rng.random((kinds, n)) - 0.2
    low, high = {"16 bits": (0, 4096), "beyond": (0, 4097), "negative": (-9, 9), "few": (0, 1000)}[kind]
    found = rng.integers(low, high, (kinds, n)).astype(np.int32)
    found[:, 0] = high - 1
    if kind == "few":
        found[:, rng.random(n) < 0.9] = 0
    return found


def shares_of(name: str) -> npt.NDArray[np.float64]:
    found: dict[str, npt.NDArray[np.float64]] = {
        "cutoffs": np.array([limit > STEPS for limit in (1, 2, 3, 5, 300)], np.float64),
        "one": (STEPS < 2)[None].astype(np.float64),
        "decay": 0.5 ** (STEPS / np.array([[1.5], [4.0]])),
        "slope": np.clip((9 - STEPS) / 4, 0, 1)[None],
        "alike and not": np.where(STEPS < 3, 1, np.where(STEPS == 4, 0.5, np.where(STEPS < 8, 0, 0.5)))[None],
        "none": np.zeros((2, MOST_HOPS)),
    }
    return found[name]


@pytest.mark.parametrize("shares", ["cutoffs", "one", "decay", "slope", "alike and not", "none"])
@pytest.mark.parametrize("kind", ["16 bits", "beyond", "negative", "fractions", "few"])
def test_sums_of_every_type_and_share_are_those_of_rows(backend: BreadthFirst, kind: str, shares: str) -> None:
    for shape in ("mirrored", "thin"):
        n = len(SHAPES[shape].indptr) - 1
        asked = LevelReduction(weights_of(n, kind, 2), shares_of(shares), 0)
        assert compare(backend, shape, asked, 200) == 200


@pytest.mark.parametrize("kinds", [1, 2, 3, 4, 5, 7])
def test_any_number_of_kinds_is_summed(backend: BreadthFirst, kinds: int) -> None:
    for kind in ("16 bits", "negative", "fractions"):
        asked = LevelReduction(weights_of(700, kind, kinds), shares_of("cutoffs"), 0)
        assert compare(backend, "sparse", asked, 33) == 33


@pytest.mark.parametrize("cutoff", [None, 0, 1, 2, 300])
@pytest.mark.parametrize("shape", ENDING)
def test_every_shape_has_the_sums_and_nearest_vertices_of_its_rows(
    backend: BreadthFirst, shape: str, cutoff: float | None
) -> None:
    n = len(SHAPES[shape].indptr) - 1
    for shares in ("cutoffs", "decay"):
        asked = LevelReduction(weights_of(n, "16 bits", 3), shares_of(shares), 4)
        assert compare(backend, shape, asked, max(n, 40), cutoff=cutoff) == max(n, 40)


@pytest.mark.parametrize("nearest", [1, 2, 10, 256])
@pytest.mark.parametrize("count", [32, 64, 65, 513])
def test_nearest_vertices_are_the_first_of_equal_ones(backend: BreadthFirst, count: int, nearest: int) -> None:
    for shape in ("mirrored", "star", "thin"):
        n = len(SHAPES[shape].indptr) - 1
        asked = LevelReduction(np.empty((0, n), np.int32), np.empty((0, MOST_HOPS)), nearest)
        assert compare(backend, shape, asked, count) == count


def test_blocks_that_need_too_many_steps_write_rows(backend: BreadthFirst) -> None:
    for shape in ("path of 256", "path of 600"):
        n = len(SHAPES[shape].indptr) - 1
        asked = LevelReduction(weights_of(n, "few", 1), shares_of("cutoffs"), 3)
        assert compare(backend, shape, asked, n) < n


@pytest.mark.parametrize("shares", ["cutoffs", "one", "decay", "slope", "alike and not", "none"])
@pytest.mark.parametrize("kind", ["16 bits", "negative", "fractions", "few"])
def test_factors_that_are_looked_up_give_the_same_sums(backend: BreadthFirst, kind: str, shares: str) -> None:
    for shape, kinds in (("mirrored", 3), ("thin", 2), ("star", 1), ("path of 255", 4), ("no arcs", 7)):
        asked = LevelReduction(weights_of(len(SHAPES[shape].indptr) - 1, kind, kinds), shares_of(shares), 2)
        asked.dear.set()
        for cutoff in (None, 2):
            assert compare(backend, shape, asked, 97, cutoff=cutoff) == 97


def test_sums_by_level_are_abandoned_where_they_would_be_dear() -> None:
    """Where many steps count differently, even the first block looks the factors up, and later ones begin so."""
    backend = BreadthFirst(1)
    for shape, dear in (("star", False), ("path of 255", True)):
        n = len(SHAPES[shape].indptr) - 1
        asked = LevelReduction(weights_of(n, "16 bits", 3), shares_of("decay"), 3)
        assert compare(backend, shape, asked, 97) == 97
        assert asked.dear.is_set() == dear
    asked = LevelReduction(weights_of(n, "16 bits", 3), shares_of("one"), 3)
    assert compare(backend, "path of 255", asked, 97) == 97
    assert not asked.dear.is_set()  # only two steps count
    backend.shutdown()
