"""The prepared arcs: the same graph under other numbers, in an order that suits searches, transposed once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import graphs
from engine.devices.cpu.arcs import PreparedArcs, prepare
from engine.graph import transpose
from engine.graph.profile import GraphProfile
from engine.model.backend import Arcs
from storage.graph.graph import Graph, build_graph


def acyclic(n: int, m: int, seed: int, *, heaviest: int = 100) -> Graph:
    """A random acyclic digraph whose vertices are numbered at random."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (2, m))
    low, high = ends.min(0), ends.max(0)
    kept, name = low < high, rng.permutation(n)
    weights = rng.integers(1, heaviest + 1, int(kept.sum()))
    return build_graph(name[low[kept]], name[high[kept]], weights, n=n, directed=True)[0]


GRAPHS = {
    "one way": graphs.one_way(300),
    "both ways": graphs.grid(400),
    "acyclic": acyclic(300, 700, 1),
    "acyclic, all weigh the same": acyclic(300, 700, 2, heaviest=1),
    "dense": graphs.dense(40),
    "no arcs": acyclic(5, 0, 3),
}


def triples(
    indptr: npt.NDArray[np.int64], ends: npt.NDArray[np.int32], weights: npt.NDArray[np.generic], *, swapped: bool
) -> list[tuple[int, int, float]]:
    """Arcs as sorted (tail, head, weight)."""
    starts = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    tails, heads = (ends, starts) if swapped else (starts, ends)
    return sorted(zip(tails.tolist(), heads.tolist(), weights.tolist(), strict=True))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("promised", [False, True])
def test_both_directions_hold_the_arcs_of_the_graph(name: str, promised: bool) -> None:
    graph = GRAPHS[name]
    arcs = GraphProfile(graph).arcs if promised else Arcs(graph.indptr, graph.heads, graph.weights)
    assert arcs.mirrored == (promised and not graph.directed)
    ready = prepare(arcs)
    old = np.empty(graph.n, np.int32)
    old[ready.rank] = np.arange(graph.n)
    expected = triples(graph.indptr, graph.heads, graph.weights, swapped=False)
    for ends, others, weights, swapped in (
        (ready.indptr, ready.heads, ready.weights, False),
        (ready.into, ready.tails, ready.weights_into("int32"), True),
    ):
        found = triples(ends, others, weights, swapped=swapped)
        assert sorted((int(old[u]), int(old[v]), w) for u, v, w in found) == expected
    assert (ready.tails is ready.heads) == (not graph.directed or graph.arcs == 0)


def test_promised_mirrors_are_never_transposed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    transposed = transpose.transposed

    def counted(*arrays: npt.NDArray[np.int64]) -> object:
        calls.append(len(arrays))
        return transposed(*arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(transpose, "transposed", counted)
    for name, graph in GRAPHS.items():
        calls.clear()
        prepare(GraphProfile(graph).arcs)
        assert len(calls) == int(graph.directed), name


def forward(ready: PreparedArcs) -> npt.NDArray[np.bool_]:
    """Which arcs lead to a higher number."""
    found: npt.NDArray[np.bool_] = np.repeat(np.arange(len(ready.rank)), np.diff(ready.indptr)) < ready.heads
    return found


@pytest.mark.parametrize("name", ["acyclic", "acyclic, all weigh the same"])
def test_arcs_of_acyclic_graphs_lead_forwards(name: str) -> None:
    assert forward(prepare(GraphProfile(GRAPHS[name]).arcs)).all()


def test_neighbours_are_near_each_other_where_most_vertices_reach_each_other() -> None:
    ready = prepare(GraphProfile(GRAPHS["both ways"]).arcs)
    tails = np.repeat(np.arange(400), np.diff(ready.indptr))
    assert np.abs(tails - ready.heads).max() < 60  # a grid of 20 by 20
    assert not forward(prepare(GraphProfile(GRAPHS["one way"]).arcs)).all()


def test_small_dense_graphs_of_hops_keep_the_order_of_their_vertices() -> None:
    """No other graph does: with weights, or with few arcs, the order of vertices saves sweeps."""
    draw = np.random.default_rng(1)
    tails, heads = draw.integers(0, 400, (2, 6000))
    for arcs, heaviest, kept in ((6000, 1, True), (6000, 5, False), (2000, 1, False)):
        weights = draw.integers(1, heaviest + 1, arcs)
        graph = build_graph(tails[:arcs], heads[:arcs], weights, n=400, directed=True)[0]
        ready = prepare(GraphProfile(graph).arcs)
        assert np.array_equal(ready.rank, np.arange(400)) == kept
