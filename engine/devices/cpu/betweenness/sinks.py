"""Adds the flow to *sinks*, vertices without arcs out: paths from sixteen sources may end there, but none passes."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.vectors import (
    LANES,
    add,
    divide,
    equal,
    keep,
    larger,
    lengths_of,
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


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def add_sinks(sinks, known, hidden, lines, given, out):  # type: ignore[no-untyped-def]
    """Add the flow to the sinks, before the flow to all other vertices is summed in reverse order of the paths.

    Sinks have the largest numbers, and the rows of distances have no entries for them.  All paths to a sink with a
    single incoming arc pass through the tail of that arc.  Such a sink need not be visited: its flow is added at the
    tail, and its distance is not needed.

    Args:
        sinks: eight arrays: where the arcs into each sink begin, int64; their tails, int32, which are no sinks; their
            weights, int32; their indices among the arcs out, int64; the numbers of the sinks to visit, int64, counted
            from the first sink; the tails of the arcs into the other sinks, int32, each once; for each of these tails
            the sum of ``given`` over its sinks that are not visited, float64; and work space for the masks of all arcs
            into one sink.
        known: the lengths of the vertices that are no sinks, shape (others, LANES), and the length that stands for
            *unreachable*, int32.
        hidden: uint32, shape (n,): bit LANES + k is set if the source in lane k sends nothing to the vertex.
        lines: three arrays, float64.  Shape (others, LANES): the counts of paths; and the flow through each vertex,
            divided by its count of paths, to which the flow on to sinks is added.  Shape (3, LANES) or more: the
            largest count of paths, and the flow that arrived, both updated; and the factor by which all flow of each
            source is multiplied.
        given: float64, shape (n,): the flow from each source that ends at each vertex.
        out: two arrays, to which this adds: the flow that ends at each vertex, and the flow over each arc; both may be
            empty.
    """
    indptr, tails, weights, places, visited, before, sent, masks = sinks
    columns, far = known
    paths, coeff, told = lines
    arrivals, over = out
    most, arrived, times = load(told, 0), load(told, 1), load(told, 2)
    for j in visited:
        v, first, last = len(columns) + j, indptr[j], indptr[j + 1]
        if given[v] == 0.0:
            continue
        least, sums, reached = same_length(far), spread(0.0), np.int64(0)
        for e in range(first, last):
            least = shorter(columns, least, np.int64(tails[e]), weights[e])
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
    for i in range(len(before)):
        u = np.int64(before[i])
        reached = ~equal(lengths_of(columns, u), far) & (2**LANES - 1)
        if reached:
            ending = keep(reached, multiply(times, spread(sent[i])))
            arrived = add(arrived, ending)
            store(coeff, u, add(load(coeff, u), keep(reached, divide(ending, load(paths, u)))))
    store(told, 0, most)
    store(told, 1, arrived)
