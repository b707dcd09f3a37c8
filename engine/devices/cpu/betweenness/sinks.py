"""Adds the flow to vertices without arcs out, which paths from sixteen sources end at and never pass."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.vectors import (
    LANES,
    add,
    divide,
    keep,
    larger,
    load,
    multiply,
    same_length,
    shorter,
    spread,
    store,
    tight,
    total,
)
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def add_sinks(sinks, known, hidden, lines, given, out):  # type: ignore[no-untyped-def]
    """Begin the flow backwards at the sinks, the last vertices, which the rows of distances lack.

    Args:
        sinks: where the arcs into each sink begin, int64; their tails, int32, which are no sinks; their weights, int32;
            their indices among the arcs out, int64; and work space for the masks of all arcs into one sink.
        known: the lengths of the other vertices, shape (others, LANES), and the length that stands for *unreachable*,
            int32.
        hidden: uint32: in which lanes a vertex keeps nothing: 2^LANES for the first lane, and so on.
        lines: float64.  Shape (others, LANES): the counts of paths; and the flow through each vertex, divided by its
            number of paths, to which the flow that leads on to sinks is added.  Shape (3, LANES) or more: the largest
            counts and the flow that arrived, to which this adds, and by which number all flow of each source is
            multiplied.
        given: float64, shape (n,): the flow from each source that ends at each vertex.
        out: the flow that ends at each vertex and that over each arc, to which this adds; they may be empty.
    """
    indptr, tails, weights, places, masks = sinks
    columns, far = known
    paths, coeff, told = lines
    arrivals, over = out
    most, arrived, times = load(told, 0), load(told, 1), load(told, 2)
    for j in range(len(indptr) - 1):
        v, first, last = len(columns) + j, indptr[j], indptr[j + 1]
        if given[v] == 0.0:
            continue
        least, sums, reached = same_length(far), spread(0.0), np.int64(0)
        for e in range(first, last):
            least = shorter(columns, least, np.int64(tails[e]), weights[e], far)
        for e in range(first, last):
            u = np.int64(tails[e])
            mask = tight(columns, least, u, weights[e], far)
            masks[e - first] = mask
            reached |= mask
            sums = add(sums, keep(mask, load(paths, u)))
        most = larger(most, sums)
        ending = keep(reached & ~(np.int64(hidden[v]) >> LANES), multiply(times, spread(given[v])))
        arrived = add(arrived, ending)
        if len(arrivals):
            arrivals[v] += total(ending)
        share = divide(ending, sums)
        for e in range(first, last):
            u, part = np.int64(tails[e]), keep(np.int64(masks[e - first]), share)
            store(coeff, u, add(load(coeff, u), part))
            if len(over):
                over[places[e]] += total(multiply(load(paths, u), part))
    store(told, 0, most)
    store(told, 1, arrived)
