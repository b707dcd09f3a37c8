"""Potentials: a number for each vertex, chosen so that the reduced weight of every arc is non-negative (Johnson 1977).

``engine.graph.profile`` caches the potentials of a graph, and decides when they are needed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.graph.bound import distance_bound
from engine.model.dtypes import REACH
from engine.model.progress import Monitor
from storage.errors import InvalidRequest, NegativeCycle
from storage.graph.graph import Graph

#: int64 or float64.
Potentials = npt.NDArray[Any]

#: A cycle of float weights counts as negative if its sum lies below -TOLERANCE times its sum of |w|.  This is 64 units
#: of rounding, so that cycles such as 0.1 + 0.2 - 0.3, or logarithms whose exact sum is 0, do not count as negative.
TOLERANCE: Final = 2.0**-46
#: The least relative amount by which the label of a vertex (its tentative distance) must fall, for floats: 4 units of
#: rounding.
_SLACK: Final = 2.0**-50
#: Number of arcs that the kernel scans before it returns to Python, about a second's work.  After each return, the
#: monitor may stop the run, and signals are handled.
SLICE: Final = 2**23


def find_potentials(graph: Graph, monitor: Monitor | None = None) -> Potentials:
    """Find potentials h with w + h[u] - h[v] >= 0 for each arc from u to v of weight w, in O(n m) time at worst.

    h[v] is the length of the shortest walk that ends in v, at most 0; all potentials are 0 if no arc is negative.  The
    inequality is exact for integers.  For floats it holds within rounding (2^-46 of |h| and |w|), and
    ``reduced_weights`` replaces values that rounding left below zero by 0.

    Args:
        graph: the graph.
        monitor: is asked whether to stop; None never to stop.

    Returns:
        h, int64 or float64, shape (n,).

    Raises:
        NegativeCycle: there is a negative cycle; the error names its vertices, by label, and its exact weight.
        InvalidRequest: integer weights are so large that sums could exceed 2^62, or floats so large that sums could
            overflow.
        Cancelled: the monitor asked to stop.
    """
    integral = graph.integral
    h = np.zeros(graph.n, np.int64 if integral else np.float64)
    if graph.arcs == 0 or graph.weights.min() >= 0:
        return h
    largest = max(graph.weights.max().item(), -graph.weights.min().item())
    if integral and largest * graph.n > 2**62:
        raise InvalidRequest(
            f"weights up to {largest} on {graph.n} vertices: sums may pass the limit of 2^62", field="weights"
        )
    if not integral and not REACH * distance_bound(graph, None)[0] < math.inf:
        raise InvalidRequest(
            f"weights up to {largest:g} of both signs on {graph.n} vertices: sums may leave float64; "
            "divide all weights by a power of ten",
            field="weights",
        )
    from engine.graph._label_correcting import begin_labels, correct_labels, mark_tails

    begin, monitor = np.zeros(graph.n, np.bool_), monitor or Monitor()
    slack, tolerance = (0, 0) if integral else (_SLACK, TOLERANCE)
    arcs = (graph.indptr, graph.heads, graph.weights)
    # for integers this loop runs once; for floats, a label that would fall by less than the slack stays as it is, so
    # some arcs may still lower a label afterwards; each iteration doubles the slack, so that the loop ends
    while mark_tails(*arcs, h, slack, begin):
        tree, queue = begin_labels(graph.n, begin)
        while queue[2][1] > 0:
            closing = correct_labels(arcs, h, tree, queue, (slack, tolerance), SLICE)
            if closing >= 0:
                raise _negative_cycle(graph, closing, *tree[:2])
            monitor.step(0)
        slack *= 2
    return h


def reduced_weights(graph: Graph, h: Potentials) -> Potentials:
    """Return the reduced weights w + h[u] - h[v], int64 or float64, shape (arcs,); none is below zero.

    The difference of the two potentials is computed first.  It has a small rounding error, and exactly the same
    difference is subtracted again later (:func:`engine.rows.dense.write_rows`); so small weights stay exact even if
    potentials are large.  Values that rounding left below zero become 0.
    """
    falls = np.repeat(h, np.diff(graph.indptr))
    falls -= h[graph.heads]
    falls += graph.weights
    if not graph.integral:
        np.maximum(falls, 0, out=falls)
    return falls


def _negative_cycle(
    graph: Graph, closing: int, parent: npt.NDArray[np.int32], arc_into: npt.NDArray[np.int64]
) -> NegativeCycle:
    """Return the error for a negative cycle: arc ``closing`` and the path in the tree between its ends."""
    start = int(graph.heads[closing])
    v = int(np.searchsorted(graph.indptr, closing, side="right")) - 1
    cycle, weights = [v], [graph.weights[closing].item()]
    while v != start:
        weights.append(graph.weights[arc_into[v]].item())
        v = int(parent[v])
        cycle.append(v)
    names = [graph.labels[v].item() if graph.labels.dtype.kind == "i" else str(graph.labels[v]) for v in cycle[::-1]]
    return NegativeCycle(names, sum(weights) if graph.integral else math.fsum(weights))
