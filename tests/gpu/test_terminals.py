"""Vertices that no path passes through, on the device: the rectangles of opened graphs."""

import numpy as np
import pytest

from tests.unit.engine.graph.test_terminals import answer, expected, network

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]

ALGORITHMS = ("bellman-ford", "partitioned", "recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("fractions", [True, False])
def test_every_algorithm_agrees_with_searches_that_open_one_terminal(
    algorithm: str, directed: bool, fractions: bool
) -> None:
    graph = network(90, 11, seed=5, fractions=fractions, directed=directed)
    found = answer(graph, algorithm=algorithm, device="cuda")
    np.testing.assert_allclose(found, expected(graph), rtol=2e-6 if fractions else 0)


def test_some_sources_and_targets() -> None:
    graph = network(200, 30, seed=6)
    sources, targets = (3, 50, 29), (0, 3, 77)
    found = answer(graph, device="cuda", sources=sources, targets=targets)
    np.testing.assert_array_equal(found, expected(graph)[np.ix_(sources, targets)])
