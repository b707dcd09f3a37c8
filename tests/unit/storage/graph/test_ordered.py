"""A graph from rows in order is the graph that ``build_graph`` makes, and the rows stay as they are."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from storage.errors import InvalidGraph, NegativeCycle
from storage.graph.graph import build_graph, graph_digest
from storage.graph.ordered import build_from_rows


def rows(weights: list[float], n: int = 6, seed: int = 1) -> csr_array:
    rng = np.random.default_rng(seed)
    places = np.sort(rng.choice(n * n, min(n * n, 3 * n), replace=False))
    return csr_array((rng.choice(weights, len(places)), np.divmod(places, n)), shape=(n, n))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "weights", [[1.0], [0.0, 3.0], [2.5, -0.0, 3.0], [2.0**40, 7.0], [2.0**60, 1.0], [np.inf, 4.0, 1.0], [np.inf, 0.5]]
)
def test_the_same_graph(weights: list[float], seed: int) -> None:
    arcs = rows(weights, seed=seed)
    before = arcs.data.copy()
    arcs.data.flags.writeable = arcs.indices.flags.writeable = arcs.indptr.flags.writeable = False
    found = build_from_rows(arcs.indptr, arcs.indices, arcs.data)
    tails = np.repeat(np.arange(6), np.diff(arcs.indptr))
    wanted = build_graph(tails, arcs.indices, arcs.data, n=6, directed=True)[0]
    assert graph_digest(found) == graph_digest(wanted)
    for name in ("indptr", "heads", "weights", "labels"):
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    assert not np.signbit(found.weights).any()
    np.testing.assert_array_equal(np.signbit(arcs.data), np.signbit(before))


def test_without_weights_every_arc_counts_one() -> None:
    arcs = rows([5.0])
    found = build_from_rows(arcs.indptr, arcs.indices, None)
    assert (found.weights == 1).all()
    assert not found.weighted
    assert not (np.repeat(np.arange(6), np.diff(found.indptr)) == found.heads).any()


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_weights_that_are_no_lengths(bad: float) -> None:
    with pytest.raises(InvalidGraph):
        build_from_rows(np.array([0, 1, 1]), np.array([1], np.int32), np.array([bad]))


def test_a_negative_self_loop_is_a_negative_cycle() -> None:
    with pytest.raises(NegativeCycle):
        build_from_rows(np.array([0, 1, 1]), np.array([0], np.int32), np.array([-1.0]))
