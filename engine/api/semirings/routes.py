"""Finds a path that has a stored value: a widest path, a minimax path, a path of the greatest product, or any path."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api.semirings.verifying import search_again
from storage.graph.graph import Graph
from storage.semirings import SEMIRINGS


def path_with(
    graph: Graph, semiring: str, value: Any, ends: tuple[int, int], row: npt.NDArray[np.float64] | None
) -> list[int]:
    """Return the vertices of a path that has the best value, and the fewest arcs of all such paths.

    The search is breadth first.  For bottlenecks and reachability it uses the arcs that are no worse than the value.
    For products it uses *tight* arcs: the product of the tail times the weight is the product of the head.  The two are
    equal to the last bit, because the search that found the products multiplied in the same order.

    Args:
        graph: the graph, in which no path passes through a terminal.
        semiring: name of the semiring; not min-plus.
        value: the value of the path, as stored.
        ends: vertex indices of the source and the target.
        row: the products from the source to all vertices, shape (n,); None if they are not known, or if the values are
            not products.

    Returns:
        Vertex indices from source to target; only the target if there is no such path.
    """
    source, target = ends
    kept = np.ones(graph.arcs, np.bool_)
    if semiring == "max-times":
        values = search_again(graph, SEMIRINGS[semiring], source) if row is None else row
        tails = np.repeat(values, np.diff(graph.indptr))
        kept = (tails > 0) & (tails * graph.weights == values[graph.heads])
    elif semiring != "lor-land":
        kept = graph.weights >= value if SEMIRINGS[semiring].greatest else graph.weights <= value
    return _back(_breadth_first(graph, kept, source), target)


def _breadth_first(graph: Graph, kept: npt.NDArray[np.bool_], source: int) -> npt.NDArray[np.int32]:
    """Return the predecessor of each vertex on a path over ``kept`` arcs; negative if there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    indptr = np.concatenate([[0], np.cumsum(kept)])[graph.indptr]
    arcs = csr_array((np.ones(int(indptr[-1]), np.int8), graph.heads[kept], indptr), shape=(graph.n, graph.n))
    _, before = breadth_first_order(arcs, source, directed=True, return_predecessors=True)
    return np.asarray(before)


def _back(before: npt.NDArray[np.int32], target: int) -> list[int]:
    """Return the vertices from the source to ``target``; ``before`` holds the predecessor of each vertex."""
    path = [target]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


def path_value(semiring: str, weights: Sequence[float]) -> float:
    """Return the value of the path with these weights, in their order from the source on."""
    return [*path_values(semiring, weights)][-1]


def path_values(semiring: str, weights: Sequence[float]) -> list[float]:
    """Return the value of a path up to each of its vertices, beginning with the path without arcs.

    Args:
        semiring: name of the semiring.
        weights: the weights of the arcs, in their order from the source on.
    """
    extends: dict[str, Callable[[float, float], float]] = {
        "max-min": min,
        "min-max": max,
        "max-times": lambda a, b: float(a) * float(b),
        "lor-land": _reached,
    }
    extend = extends[semiring]
    itself = SEMIRINGS[semiring].itself
    found = [itself if math.isinf(itself) else int(itself)]
    return reduce(lambda values, weight: [*values, extend(values[-1], weight)], weights, found)


def _reached(value: float, _weight: float) -> float:
    return value
