"""Which lengths the searches of small graphs take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.algorithms.betweenness.small import whole_lengths
from storage.graph.graph import build_graph


def test_weights_of_a_graph_without_weights_are_not_read() -> None:
    graph, _ = build_graph(np.array([0, 1]), np.array([1, 2]), None, n=3, directed=True)
    unread = replace(graph, weights=None)  # type: ignore[arg-type]
    lengths, *others = whole_lengths(unread, decimal=True) or ()
    assert (len(lengths), others) == (0, [1, 1.0])


@pytest.mark.parametrize(
    ("weights", "lengths", "others"),
    [
        ([7.0, 7.0], [], [1, 1.0]),
        ([2.0, 3.0], [2, 3], [3, 1.0]),
        ([0.5, 0.25], [50, 25], [50, 100.0]),
        ([0.5, 0.5], [], [1, 1.0]),
        ([1e-9, 0.125], [1, 125_000_000], [125_000_000, 1e9]),
        ([0.1, 0.1 + 2**-50], None, None),
        ([1e-10, 1.0], None, None),
        ([0.5, 2.0**29], None, None),  # a path of three arcs would not fit int32
        ([2.0**31, 2.0**31], None, None),
        ([0.0, 1.0], None, None),
        ([1.0, 2.0**31], None, None),
    ],
)
def test_weights_are_whole_lengths(weights: list[float], lengths: list[int] | None, others: list[float] | None) -> None:
    graph, _ = build_graph(np.array([0, 1]), np.array([1, 2]), np.array(weights), n=3, directed=True)
    found = whole_lengths(graph, decimal=True)
    if lengths is None or found is None:
        assert found is lengths
    else:
        assert (found[0].tolist(), list(found[1:])) == (lengths, others)
