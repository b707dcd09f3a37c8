"""Dense matrices become the graph that the general way makes of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse.csgraph import NegativeCycleError

from engine.interop import dense, scipy_csgraph


def matrix(kind: str, n: int = 60) -> npt.NDArray[np.float64]:
    """A matrix with loops and entries that are no arcs, of weights of one kind."""
    rng = np.random.default_rng(7)
    low = {"int32": 1, "int64": -(2**33), "float64": 0, "huge": 2**53}[kind]
    found = rng.integers(low, max(low + 2, 2**33 if kind == "int64" else 1_000), (n, n)).astype(np.float64)
    if kind == "float64":
        found += 0.25
    if kind == "huge":
        found *= 4
    np.fill_diagonal(found, 3.5)
    for value in (0.0, -0.0, np.nan, np.inf, -np.inf):
        found[rng.integers(0, n, 40), rng.integers(0, n, 40)] = value
    found[np.arange(n), np.arange(n)] = np.where(np.isfinite(found.diagonal()), np.abs(found.diagonal()), np.inf)
    return found


@pytest.mark.parametrize("kind", ["int32", "int64", "float64", "huge"])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_graph_is_that_of_the_general_way(kind: str, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = matrix(kind).T if transposed else matrix(kind)
    slow = scipy_csgraph._graph(given, True, False)
    monkeypatch.setattr(dense, "FEW", 0)
    monkeypatch.setattr(dense, "PIECE", 300)
    fast = dense.graph_of_dense(given)
    assert fast is not None
    assert fast.weights.dtype == slow.weights.dtype == np.dtype("float64" if kind == "huge" else kind)
    for name in ("indptr", "heads", "weights", "labels"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))
    assert (fast.directed, fast.weighted) == (slow.directed, slow.weighted)


def test_what_needs_a_message_or_has_no_arc_goes_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "FEW", 0)
    looped = np.ones((5, 5))
    looped[3, 3] = -1
    assert dense.graph_of_dense(looped) is None
    with pytest.raises(NegativeCycleError):
        scipy_csgraph.shortest_path(looped)
    assert dense.graph_of_dense(np.full((5, 5), np.inf)) is None
    assert np.isinf(scipy_csgraph.shortest_path(np.full((5, 5), np.inf))).sum() == 20
