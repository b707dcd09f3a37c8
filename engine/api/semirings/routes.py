"""Finds a path that has a stored value: a widest path, a minimax path, a path of the greatest product, or any path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.api.routes import rounding
from engine.api.semirings.verifying import allowed, search_again
from engine.graph.terminals import OpenedMatrix
from storage.graph.graph import Graph
from storage.matrix.sealed import SealedResult
from storage.semirings import SEMIRINGS, joined_products

Floats = npt.NDArray[np.float64]
#: Tolerances, in units of rounding, within which an arc counts as tight in a row of products of products; tried in
#: this order.
_LOOSE: Final = (0.5, 2.0, 8.0, 32.0)


def paths_with(
    matrix: SealedResult | OpenedMatrix, graph: Graph, value: Any, ends: tuple[int, int]
) -> Iterator[tuple[list[int], float]]:
    """Yield paths that may have the best value, the likeliest first, and how much the value of each may differ from it.

    Each path has the fewest arcs of all that the breadth-first search allows.  For bottlenecks and reachability these
    are paths of arcs that are no worse than the value.  For products they are paths of *tight* arcs: the product of the
    tail times the weight is the product of the head.  The two are equal to the last bit, because the search that found
    the products multiplied in the same order.  Products of products are equal but for rounding, so the tolerance is
    raised until a path is found; the last path is that of a new search.

    Args:
        matrix: the result.
        graph: its graph, in which no path passes through a terminal.
        value: the value of the path, as stored.
        ends: vertex indices of the source and the target; two different ones.
    """
    semiring, (source, target) = SEMIRINGS[matrix.semiring], ends
    if semiring.name != "max-times":
        kept = np.ones(graph.arcs, np.bool_)
        if semiring.name != "lor-land":
            kept = graph.weights >= value if semiring.greatest else graph.weights <= value
        yield _back(_breadth_first(graph, kept, source), target), 0.0
        return
    rounded, row = joined_products(matrix.attributes), None
    if matrix.attributes["targets"] == "all" and graph.n == matrix.n:
        row = matrix.row(source).astype(np.float64)
        for loose in _LOOSE if rounded else (0.0,):
            path = _back(_breadth_first(graph, _tight(graph, row, loose), source), target)
            yield path, float(rounding(len(path) - 1, value, np.float64)) if rounded else 0.0
    if row is None or rounded:
        values, arcs = search_again(graph, semiring, source)
        path = _back(_breadth_first(graph, _tight(graph, values, 0.0), source), target)
        yield path, float(allowed(arcs, values[target])) if rounded else 0.0


def _tight(graph: Graph, row: Floats, loose: float) -> npt.NDArray[np.bool_]:
    """Return which arcs are tight in a row of products, to within ``loose`` units of rounding."""
    tails, heads = np.repeat(row, np.diff(graph.indptr)), row[graph.heads]
    slack = np.abs(tails * graph.weights - heads)
    return np.asarray((tails > 0) & (slack <= loose * np.finfo(np.float64).eps * heads))


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
