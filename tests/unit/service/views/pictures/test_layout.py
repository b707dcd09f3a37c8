"""Places of graphs without coordinates: what they keep of distances, and shapes that leave no choice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csgraph, csr_array

from service.views.pictures.layout import MOST, find_places, has_layout
from storage.graph.graph import Graph, build_graph


def graph_of(tails: list[int], heads: list[int], weights: list[float] | None = None, n: int | None = None) -> Graph:
    weights = [1] * len(tails) if weights is None else weights
    return build_graph(tails, heads, weights, n=n or max(tails + heads) + 1, directed=True)[0]


def between(graph: Graph) -> np.ndarray:
    placed = find_places(graph)
    assert not placed.geographic
    assert np.isfinite(placed.x).all()
    assert np.isfinite(placed.y).all()
    return np.hypot(placed.x[:, None] - placed.x, placed.y[:, None] - placed.y)


def grid(side: int) -> Graph:
    name = np.arange(side * side).reshape(side, side)
    tails = [*name[:, :-1].ravel().tolist(), *name[:-1].ravel().tolist()]
    return graph_of(tails, [*name[:, 1:].ravel().tolist(), *name[1:].ravel().tolist()])


def test_a_path_becomes_a_line_as_long_as_it_is():
    weights = [1.0, 5, 2, 4]
    apart = between(graph_of([0, 1, 2, 3], [1, 2, 3, 4], weights))
    ends = np.concatenate([[0], np.cumsum(weights)])
    wanted = np.abs(ends[:, None] - ends)
    scale = apart[0, 4] / wanted[0, 4]
    np.testing.assert_allclose(apart, scale * wanted, atol=0.02 * apart[0, 4])


def test_a_grid_keeps_its_shape():
    graph = grid(12)
    apart = between(graph)
    arcs = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n,) * 2)
    wanted = csgraph.dijkstra(arcs, directed=False)
    upper = np.triu_indices(graph.n, 1)
    assert np.corrcoef(apart[upper], wanted[upper])[0, 1] > 0.95
    sides = apart[[0, 0, 143, 143], [11, 132, 11, 132]]
    assert sides.max() < 1.1 * sides.min()


def test_the_network_is_widest_from_left_to_right():
    placed = find_places(grid(6))
    long = find_places(graph_of(list(range(9)), list(range(1, 10))))
    assert np.ptp(long.x) > 20 * np.ptp(long.y)
    assert np.ptp(placed.x) > 0.9 * np.ptp(placed.y)


@pytest.mark.parametrize("weights", [[1e300] * 3, [1e-300] * 3, [1e-300, 1, 1e300], [3, 0, 1], [2.0, -1.0, 5.0]])
def test_any_weights(weights: list[float]):
    apart = between(graph_of([0, 1, 2], [1, 2, 3], weights))
    assert (apart[~np.eye(4, dtype=bool)] > 0).all()


def test_a_weight_of_zero_lets_all_arcs_count_the_same():
    ring = ([0, 1, 2, 3, 4], [1, 2, 3, 4, 0])
    heavy = graph_of(*ring, [1, 9, 9, 9, 9])
    np.testing.assert_array_equal(between(graph_of(*ring, [0, 9, 9, 9, 9])), between(graph_of(*ring)))
    assert between(heavy)[0, 1] < between(heavy)[1, 2] / 3


def test_parts_that_nothing_joins_do_not_overlap():
    graph = graph_of([0, 1, 2, 3, 4, 6, 8], [1, 2, 0, 4, 5, 7, 8], n=12)
    placed = find_places(graph)
    boxes = [
        (placed.x[part].min(), placed.x[part].max(), placed.y[part].min(), placed.y[part].max())
        for part in ([0, 1, 2], [3, 4, 5], [6, 7], [8], [9], [10], [11])
    ]
    for k, (left, right, low, high) in enumerate(boxes):
        for other in boxes[k + 1 :]:
            assert right < other[0] or other[1] < left or high < other[2] or other[3] < low


def test_places_are_the_same_in_every_call():
    rng = np.random.default_rng(3)
    graph = graph_of(rng.integers(0, 60, 150).tolist(), rng.integers(0, 60, 150).tolist(), n=60)
    first, second = (find_places(graph) for _ in range(2))
    np.testing.assert_array_equal([first.x, first.y], [second.x, second.y])


def test_random_small_graphs_have_places():
    rng = np.random.default_rng(4)
    for _ in range(300):
        n, m = int(rng.integers(1, 12)), int(rng.integers(1, 20))
        ends = rng.integers(0, n, (2, m)).tolist()
        graph = graph_of(*ends, rng.choice([0.0, 1, 2.5, 1e9], m).tolist(), n=n)
        if has_layout(graph.n, graph.arcs):
            between(graph)


def test_which_graphs_have_a_layout():
    assert has_layout(MOST, 1)
    assert not has_layout(MOST + 1, 1)
    assert not has_layout(5, 0)
