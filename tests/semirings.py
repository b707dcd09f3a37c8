"""Values of all pairs in any semiring by Floyd and Warshall in NumPy, and random graphs to compare them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from storage.graph.graph import Graph, build_graph
from storage.semirings import SEMIRINGS

Floats = npt.NDArray[np.float64]
#: The semirings other than that of distances.
OTHERS = ("max-min", "min-max", "max-times", "lor-land")
_EXTENDS: dict[str, Any] = {
    "max-min": np.minimum, "min-max": np.maximum, "max-times": np.multiply, "lor-land": np.minimum,
}  # fmt: skip


class Arcs:
    """Arcs as a file lists them: parallel ones, loops and all."""

    def __init__(self, n: int, tails: Any, heads: Any, weights: Any, *, directed: bool) -> None:
        self.n, self.tails, self.heads, self.directed = n, np.asarray(tails), np.asarray(heads), directed
        self.weights = np.asarray(weights)

    @classmethod
    def random(cls, rng: np.random.Generator, semiring: str, most: int = 24) -> Arcs:
        """Sparse or dense, of either direction, with parallel arcs, zeros, negative and equal weights where these may
        be, isolated vertices, and single ones.
        """
        n = int(rng.integers(1, most))
        m = int(rng.integers(0, 3 * n))
        tails, heads = rng.integers(0, n, (2, m))
        kinds = [rng.integers(0, 5, m), rng.integers(-3, 4, m), rng.random(m) * 2 - 1, rng.normal(size=m) * 1e300]
        if semiring == "max-times":
            kinds = [rng.integers(1, 9, m) / 8, np.maximum(rng.random(m), 1e-3), np.ones(m)]
        weights = kinds[int(rng.integers(len(kinds)))]
        # where weights are lengths, a loop below zero is a negative cycle
        kept = (tails != heads) | (weights >= 0) | (SEMIRINGS[semiring].parallel == "greatest")
        return cls(n, tails[kept], heads[kept], weights[kept], directed=bool(rng.integers(2)))

    def graph(self, semiring: str) -> Graph:
        """The graph, cleaned as its semiring needs it."""
        parallel: Any = SEMIRINGS[semiring].parallel
        graph, _ = build_graph(
            self.tails, self.heads, self.weights, n=self.n, directed=self.directed, parallel=parallel
        )
        return graph

    def values(self, name: str) -> Floats:
        """The best value of each pair, shape (n, n)."""
        semiring, n = SEMIRINGS[name], self.n
        better = np.maximum if semiring.greatest else np.minimum
        found = np.full((n, n), float(semiring.unreachable))
        weights = np.ones(len(self.tails)) if name == "lor-land" else self.weights.astype(np.float64)
        better.at(found, (self.tails, self.heads), weights)
        if not self.directed:
            better.at(found, (self.heads, self.tails), weights)
        np.fill_diagonal(found, semiring.itself)
        for k in range(n):
            found = better(found, _EXTENDS[name](found[:, k : k + 1], found[k : k + 1, :]))
        return found

    def values_past(self, name: str, terminals: int) -> Floats:
        """The same where no path passes through the first ``terminals`` vertices: each has a copy for paths that end
        at it.
        """
        both = (np.concatenate([self.tails, self.heads]), np.concatenate([self.heads, self.tails]))
        tails, heads = (self.tails, self.heads) if self.directed else both
        weights = self.weights if self.directed else np.tile(self.weights, 2)
        at = np.arange(self.n) + self.n * (np.arange(self.n) < terminals)
        found = Arcs(self.n + terminals, tails, at[heads], weights, directed=True).values(name)[: self.n, at]
        np.fill_diagonal(found, SEMIRINGS[name].itself)
        return found


def assert_values(found: npt.NDArray[Any], expected: Floats, semiring: str) -> None:
    """Assert that all values are right: products to within rounding, all others exactly."""
    if semiring == "max-times":
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        np.testing.assert_array_equal(found == 0, expected == 0)
    else:
        np.testing.assert_array_equal(found.astype(np.float64), expected)
