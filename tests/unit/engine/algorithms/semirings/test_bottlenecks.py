"""Bottlenecks of directed graphs by sweeps in lanes, and by merging components where sweeps are given up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.algorithms.semirings import bottlenecks, products
from engine.algorithms.semirings.bottlenecks import MergedRows, Ranks
from engine.devices.cpu.semirings import merging
from storage.graph.graph import Graph, build_graph
from storage.semirings import SEMIRINGS
from tests.semirings import Arcs


def road(side: int, seed: int) -> Graph:
    """A lattice, a fifth of whose roads are one-way."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    ends = np.append(at[:, :-1], at[:-1]), np.append(at[:, 1:], at[1:])
    drawn = rng.random(len(ends[0]))
    tails = np.concatenate([ends[0][drawn < 0.9], ends[1][drawn > 0.1]])
    heads = np.concatenate([ends[1][drawn < 0.9], ends[0][drawn > 0.1]])
    return build_graph(tails, heads, rng.integers(1, 999, len(tails)), n=side * side, directed=True)[0]


def chain(pairs: int) -> Graph:
    """Pairs of vertices in a chain, numbered at random: a sweep gets no further than one or two pairs."""
    rng = np.random.default_rng(pairs)
    vertices = rng.permutation(2 * pairs).reshape(pairs, 2)
    inner, outer = rng.permuted(vertices, axis=1), rng.permuted(vertices, axis=1)
    tails = np.concatenate([vertices[:, 0], vertices[:, 1], inner[:-1, 0]])
    heads = np.concatenate([vertices[:, 1], vertices[:, 0], outer[1:, 0]])
    weights = np.concatenate([np.ones(2 * pairs, np.int64), rng.integers(2, 99, pairs - 1)])
    return build_graph(tails, heads, weights, n=2 * pairs, directed=True)[0]


def found(graph: Graph, semiring: str, rows: Any, columns: Any, dtype: str = "float64") -> npt.NDArray[Any]:
    writer = MergedRows(graph, SEMIRINGS[semiring], dtype, np.asarray(columns), 1)
    out = np.full((len(rows), len(columns)), 0.5, dtype)
    order = writer.together(np.asarray(rows))
    writer.write(0, np.asarray(rows)[order], order, out)
    return out


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sources of each block that was found by merging components."""
    blocks: list[int] = []
    rows = merging.rows_merging

    def counted(*given: Any) -> None:
        blocks.append(len(given[3]))
        rows(*given)

    monkeypatch.setattr(merging, "rows_merging", counted)
    return blocks


@pytest.mark.parametrize("semiring", ["max-min", "min-max"])
@pytest.mark.parametrize("passes", [0, 1, 32])
def test_values_are_those_of_floyd_and_warshall(
    monkeypatch: pytest.MonkeyPatch, merged: list[int], semiring: str, passes: int
):
    """More sources than lanes, columns in any order, ties, negative weights, and weights that float32 does not hold."""
    monkeypatch.setattr(bottlenecks, "_PASSES", passes)
    rng = np.random.default_rng(passes)
    for _ in range(60):
        arcs = Arcs.random(rng, semiring, most=100)
        arcs.directed = True
        graph = arcs.graph(semiring)
        if not graph.arcs:
            continue
        rows, columns = (rng.integers(0, graph.n, int(rng.integers(1, 150))) for _ in range(2))
        columns = np.unique(columns)
        expected = arcs.values(semiring)[np.ix_(rows, columns)]
        np.testing.assert_array_equal(found(graph, semiring, rows, columns), expected)
    assert (passes == 0) <= bool(merged)
    assert passes < 32 or not merged


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roads_are_swept(merged: list[int], dtype: str):
    graph = road(40, seed=3)
    whole = found(graph, "min-max", np.arange(graph.n), np.arange(graph.n), dtype)
    assert merged == []
    assert whole.dtype == dtype
    some = np.random.default_rng(4).permutation(graph.n)[:70]
    np.testing.assert_array_equal(found(graph, "min-max", some, some[:5], dtype), whole[np.ix_(some, some[:5])])


def test_a_chain_that_takes_many_sweeps_is_given_up(monkeypatch: pytest.MonkeyPatch, merged: list[int]):
    graph = chain(3000)
    rows = np.linspace(0, graph.n - 1, 640).astype(int)
    values = found(graph, "min-max", rows, np.arange(graph.n))
    assert sum(merged) == 640  # nothing is tried again after two blocks
    monkeypatch.setattr(bottlenecks, "_PASSES", 10**6)
    merged.clear()
    np.testing.assert_array_equal(found(graph, "min-max", rows, np.arange(graph.n)), values)
    assert merged == []


def test_graphs_too_large_for_lanes_are_merged(monkeypatch: pytest.MonkeyPatch, merged: list[int]):
    graph = road(12, seed=1)
    swept = found(graph, "min-max", np.arange(144), np.arange(144))
    monkeypatch.setattr(products, "_MOST_VERTICES", 143)
    np.testing.assert_array_equal(found(graph, "min-max", np.arange(144), np.arange(144)), swept)
    assert sum(merged) == 144


def test_arcs_between_components_lead_along_the_line():
    """A graph without cycles takes one sweep upwards, which its sources wait for in any order."""
    rng = np.random.default_rng(2)
    ends, names = np.sort(rng.integers(0, 3000, (2, 9000)), axis=0), rng.permutation(3000)
    apart = ends[0] < ends[1]
    tails, heads = names[ends[0][apart]], names[ends[1][apart]]
    graph = build_graph(tails, heads, rng.integers(1, 99, len(tails)), n=3000, directed=True)[0]
    writer = MergedRows(graph, SEMIRINGS["min-max"], "float64", np.arange(3000), 1)
    indptr, after, *_ = writer._arcs[0]
    assert (after > np.repeat(np.arange(3000), np.diff(indptr))).all()


@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
@pytest.mark.parametrize("semiring", ["max-min", "min-max"])
def test_weights_become_ranks(kind: str, semiring: str):
    rng = np.random.default_rng(7)
    for spread in (1, 3, 300, 10**6):
        weights = (rng.integers(-spread, spread, 200) + 5).astype(kind)
        ranks = Ranks.of(weights, SEMIRINGS[semiring], "float64")
        np.testing.assert_array_equal(ranks.values[ranks.arcs], weights)
        assert ranks.arcs.dtype == np.int32
        assert (ranks.arcs.min(), ranks.arcs.max()) == (1, ranks.none - 1)
        ascending = ranks.values if semiring == "min-max" else -ranks.values
        assert (np.diff(ascending) > 0).all()
