"""Paths that have a stored value: of a width, of a lowest pass, of a greatest product, or any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.graph.graph import Graph
from storage.semirings import SEMIRINGS


def path_with(graph: Graph, semiring: str, value: Any, source: int, target: int) -> list[int]:
    """Return the vertices of a path that has the best value.

    For bottlenecks and reachability it has the fewest arcs of all such paths: it is searched breadth first over the
    arcs that are no worse than the value.

    Args:
        graph: the graph, in which no path passes through a terminal.
        semiring: name of the semiring; not min-plus.
        value: the value of the path, as stored.
        source: vertex index.
        target: another vertex index.

    Returns:
        Vertex indices from source to target; only the target where there is no such path.
    """
    if semiring == "max-times":
        from engine.algorithms.semirings.products import ProductSearch

        search = ProductSearch(graph)
        search.run(source)
        return _back(search.before, target)
    kept = np.ones(graph.arcs, np.bool_)
    if semiring != "lor-land":
        kept = graph.weights >= value if SEMIRINGS[semiring].greatest else graph.weights <= value
    return _back(_breadth_first(graph, kept, source), target)


def _breadth_first(graph: Graph, kept: npt.NDArray[np.bool_], source: int) -> npt.NDArray[np.int32]:
    """Return the vertex before each on a path over the arcs that are kept; negative without one."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    indptr = np.concatenate([[0], np.cumsum(kept)])[graph.indptr]
    arcs = csr_array((np.ones(int(indptr[-1]), np.int8), graph.heads[kept], indptr), shape=(graph.n, graph.n))
    _, before = breadth_first_order(arcs, source, directed=True, return_predecessors=True)
    return np.asarray(before)


def _back(before: npt.NDArray[np.int32], target: int) -> list[int]:
    """Return the vertices from the source to ``target``."""
    path = [target]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


def path_value(semiring: str, weights: Sequence[float]) -> float:
    """Return the value of the path with these weights, in their order from the source on."""
    return [*path_values(semiring, weights)][-1]


def path_values(semiring: str, weights: Sequence[float]) -> list[float]:
    """Return the value of each beginning of a path, first that without arcs.

    Args:
        semiring: name of the semiring.
        weights: those of the arcs, in their order from the source on.
    """
    extend = {"max-min": min, "min-max": max, "max-times": lambda a, b: float(a) * float(b), "lor-land": _reached}
    itself = SEMIRINGS[semiring].itself
    found = [itself if math.isinf(itself) else int(itself)]
    return reduce(lambda values, weight: [*values, extend[semiring](values[-1], weight)], weights, found)


def _reached(value: float, _weight: float) -> float:
    return value
