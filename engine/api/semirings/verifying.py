"""Compares rows of a semiring with new searches, by code that no solve uses.

The searches are rounds of Bellman-Ford in NumPy, on the weights themselves, without ranks, trees, heaps or components.
Results must agree exactly: bottlenecks are weights, and the greatest rounded product does not depend on the order of
the search, because rounding is monotone: it never reverses the order of two products.  Only products that were not
multiplied arc by arc may differ, by the rounding of their multiplications.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.api.routes import rounding
from engine.graph.terminals import arrivals, opened
from storage.errors import StorageFailed
from storage.graph.graph import Graph
from storage.matrix.sealed import SealedResult
from storage.semirings import SEMIRINGS, Semiring, joined_products

Floats = npt.NDArray[np.float64]

#: For each semiring, the operation that gives the value of a path that is extended by an arc.
_EXTENDS: Final[dict[str, Any]] = {
    "max-min": np.minimum, "min-max": np.maximum, "max-times": np.multiply, "lor-land": lambda value, _weight: value,
}  # fmt: skip
#: Work of a search for each arc and vertex, in the unit of ``engine.api.verify.FREE_WORK``.
_SEARCH: Final = 64


class ValuesAgain:
    """Searches the graph of one store again, for the values of its semiring.

    Attributes:
        cost: work of a search from one source, in the unit of ``engine.api.verify.FREE_WORK``.
    """

    def __init__(self, matrix: SealedResult) -> None:
        graph = opened(matrix.graph())
        self._matrix, self._graph = matrix, graph
        self._semiring, self._rounded = SEMIRINGS[matrix.semiring], joined_products(matrix.attributes)
        self._columns = arrivals(matrix.targets, matrix.n, graph.n - matrix.n)
        self.cost = _SEARCH * max(1, graph.n + graph.arcs)

    def compare(self, sources: npt.NDArray[np.int64]) -> None:
        """Compare the rows of ``sources`` with a new search.

        Raises:
            StorageFailed: an entry is not the best value; the message names the first one.
        """
        matrix = self._matrix
        for source, stored in zip(sources.tolist(), matrix.rows(sources), strict=True):
            values, arcs = search_again(self._graph, self._semiring, source)
            values = values[self._columns]
            values[matrix.targets == source] = self._semiring.itself
            differ = values.astype(matrix.dtype) != stored
            if self._rounded:
                differ &= np.abs(stored - values) > allowed(arcs, values)
            wrong = np.flatnonzero(differ)
            if len(wrong):
                j = int(wrong[0])
                ends = f"from {matrix.labels[source]} to {matrix.labels[matrix.targets[j]]}"
                raise StorageFailed(
                    f"{matrix.path} is wrong: {ends} it holds {stored[j]}, and a new search of its graph for the "
                    f"{self._semiring.title} finds {values[j]:.17g}; solve it again"
                )


def allowed(arcs: int, values: Any) -> Any:
    """Return how much products over parts may differ from those of a search, in the shape of ``values``; 0 for pairs
    without a path.

    The stored product may be that of another path, which is as good except for rounding, so its number of arcs is not
    known.

    Args:
        arcs: the number of arcs of the longest path that the search has found.
        values: the products of the search.
    """
    return np.where(values > 0, rounding(arcs + _SEARCH, values, np.float64), 0)


def search_again(graph: Graph, semiring: Semiring, source: int) -> tuple[Floats, int]:
    """Return the best values from a source, shape (n,), and the number of rounds.

    Each round extends the paths to those vertices whose value the previous round has changed, so no path that was found
    has more arcs than there were rounds.

    Args:
        graph: the graph, in which no path passes through a terminal.
        semiring: the semiring; not min-plus.
        source: vertex index.
    """
    extend, better = _EXTENDS[semiring.name], np.maximum if semiring.greatest else np.minimum
    values = np.full(graph.n, float(semiring.unreachable))
    values[source] = semiring.itself
    changed, rounds = np.array([source]), 0
    while len(changed):
        rounds += 1
        counts = graph.indptr[changed + 1] - graph.indptr[changed]
        tails = np.repeat(changed, counts)
        arcs = np.repeat(graph.indptr[changed] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        arcs = arcs + np.arange(len(arcs))
        found, heads = extend(values[tails], graph.weights[arcs].astype(np.float64)), graph.heads[arcs]
        before = values[heads]
        better.at(values, heads, found)
        changed = np.unique(heads[values[heads] != before])
    return values, rounds
