"""Prepares a small graph for counting shortest paths, and joins the sums afterwards: a kernel for each, because calls
from Python for every step would take as long as the steps.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.blocks import split_blocks
from engine.devices.cpu.betweenness.gathering import order_along_tree, order_by_pivots
from engine.devices.cpu.betweenness.merging import merge_sources, share_flow
from engine.devices.cpu.betweenness.peeling import (
    DOWN,
    UP,
    flow_around,
    fold_twins,
    hand_down,
    peel_trees,
    sum_components,
)
from engine.devices.cpu.betweenness.preparing import bound_visits, cut_out, reverse_arcs
from engine.graph._walks import count_levels, strong_components
from engine.graph.kernels import njit

#: If the longest arc is longer, hops say nothing of distances: mediumEWD takes longer if its sources are ordered by
#: hops to pivots, celegansneural, whose lengths are at most 70, takes less time.
SHORT = 255
#: Blocks are not split if counting what cut vertices reach takes a look at more than this number times the graph.
LOOKS = 16


@njit(nogil=True, cache=True)
def _peel(indptr, heads, directed, share):  # type: ignore[no-untyped-def]
    """Fold trees if they have at least a share of the vertices; see :func:`prepare_small`."""
    removed, parent, ways, out, into, products, left = peel_trees(indptr, heads)
    n = len(left)
    if len(removed) < max(1.0, share * n):
        removed, parent[:], out[:], into[:], products[:] = removed[:0], -1, 1, 1, 0
        vertices, places, arcs = np.arange(n), np.arange(len(heads)), (indptr.copy(), heads.copy())
    else:
        _, vertices, places, arcs = cut_out(indptr, heads, left, directed)
    kept, times = np.empty(len(vertices)), np.empty(len(vertices))
    for i in range(len(vertices)):
        kept[i], times[i] = out[vertices[i]], into[vertices[i]]
    return (removed, parent, ways), (out, into, products), (vertices, places, arcs), (kept, times)


@njit(nogil=True, cache=True)
def _fold(indptr, heads, directed, unit, shares, least):  # type: ignore[no-untyped-def]
    """Fold trees, split the rest into blocks, and fold twins in these; see :func:`prepare_small`."""
    tree, sizes, (vertices, places, arcs), stands = _peel(indptr, heads, directed, shares[0])
    n, split, twins = len(vertices), False, 0
    number, told = np.arange(n), (np.zeros(n, np.bool_), np.zeros((2, n)), np.zeros(n))
    if shares[0] <= 1 and n * (n + len(arcs[1])) >= least:
        limits = shares[2], LOOKS * (n + len(arcs[1]))
        split, (vertex, moved, apart), weights, across = split_blocks(
            arcs[0], arcs[1], (directed, unit), stands, limits
        )
        if split:
            number, places, arcs, stands, told = vertex, places[moved], apart, weights, across
    if shares[0] <= 1 and not directed:
        left = np.ones(len(number), np.bool_)
        if unit:
            twins = fold_twins(arcs[0], arcs[1], left, stands[0])
        if split or twins > 0:
            _, some, moved, arcs = cut_out(arcs[0], arcs[1], left, False)
            number, places, stands = number[some], places[moved], (stands[0][some], stands[0][some])
    return (tree, sizes, (vertices, number, *told)), (places, arcs), stands, split


@njit(nogil=True, cache=True)
def prepare_small(indptr, heads, lengths, directed, shares, limits):  # type: ignore[no-untyped-def]
    """Fold the trees of a graph, decide how to search from each vertex of its core, and prepare the searches.

    Args:
        indptr, heads: the arcs (CSR), read-only.
        lengths: int32, shape (arcs,): the lengths of the arcs; empty if all are 1.
        directed: whether some arc may have no reverse.
        shares: trees are folded if they have at least the first share of the vertices; if that is at most 1, twins are
            folded, too, and the rest is split into blocks if searches then visit at most the third share of what they
            visit otherwise; searches that visit at most the second share of the core are made alone.
        limits: the least number of sources that are searched from together; the number of hops up to which all sources
            are near each other; a number that no length exceeds; and the least number of vertices times vertices and
            arcs with which blocks are looked for.

    Returns:
        Five tuples.  What was folded: three tuples.  ``removed``, ``parent`` and ``ways``, and ``out``, ``into`` and
        ``products``, of :func:`engine.devices.cpu.betweenness.peeling.peel_trees`, with ``removed`` empty if trees are
        not folded.  The vertices that are left, int64; for each vertex of the core the index of its vertex among these,
        int64, because a vertex in several blocks is in the core once for each of them; and three arrays about these, as
        the last result of :func:`engine.devices.cpu.betweenness.blocks.split_blocks`.
        The core: its CSR, the lengths of its arcs, for each of its vertices the number of vertices for which it stands
        as a target and as a source, both float64, and the vertices from which searches are made alone, int64.
        The part that searches together visit, empty without such searches: its vertices, by their numbers in the core;
        the arcs out, CSR; the arcs in, as :func:`engine.devices.cpu.betweenness.preparing.reverse_arcs` returns them;
        its vertices without arcs in; and for how many vertices each of its vertices stands, as in the core.
        The sources of searches together, near ones next to each other, as
        :func:`engine.devices.cpu.betweenness.merging.merge_sources` returns them.
        Four numbers: bounds on the vertices and arcs that searches together and searches alone visit; 1 if flow that
        begins and ends at vertices must be counted, else 0; and 1 if blocks are components of the core, else 0.
    """
    unit = len(lengths) == 0
    folded, (places, core), (kept, times), split = _fold(indptr, heads, directed, unit, shares, limits[3])
    size = len(kept)
    steps = lengths if unit else lengths[places]
    ends = directed and len(folded[0][0]) > 0
    component, order = strong_components(core[0], core[1])
    little = int(shares[1] * (size + len(core[1])))
    visits, inside, direct = bound_visits(core[0], core[1], component, order, little)
    many = visits > little
    if many.sum() < limits[0]:
        many[:] = False
        inside[:] = False
    alone = ~many & ~direct if unit and not ends else ~many & (visits > 1)
    number, part, at, out = cut_out(core[0], core[1], inside, True)
    into, lone, _ = reverse_arcs(out[0], out[1], steps if unit else steps[at], len(part), limits[2])
    rows = number[:size][many]
    if len(rows) > 0:
        most = 0
        for v in range(len(part)):
            if out[0][v + 1] - out[0][v] > out[0][most + 1] - out[0][most]:
                most = v
        if count_levels(out[0], out[1], most)[0] > limits[1]:
            rows = rows[order_along_tree(out, (into[0], into[2]), rows)]
        elif unit or lengths.max() <= SHORT:
            rows = rows[order_by_pivots(out, into[0], rows)[0]]
    sources, members, merged = merge_sources(out, component[part], rows, times[part])
    rows = sources[0]
    together = np.int64(len(rows)) * (len(part) + len(out[1]))
    told = together, visits[~many].sum(), np.int64(ends), np.int64(split)
    own = folded, (*core, steps, kept, times, np.flatnonzero(alone))
    return (*own, (part, *out, *into, lone, kept[part], times[part]), (sources, members, merged), told)


@njit(nogil=True, cache=True)
def join_small(graph, folded, core, part, merged, alone, together):  # type: ignore[no-untyped-def]
    """Add up all sums; return the flow through each vertex of a small graph over all ordered pairs, shape (n,).

    Args:
        graph: CSR of the arcs, read-only, and whether the graph is directed.
        folded: as :func:`prepare_small` returns it.
        core, part, merged: the core, the part that searches together have visited, and their sources, as
            :func:`prepare_small` returns them.
        alone, together: sums of searches alone in the core, to which all others are added, and of searches together in
            the part: the flow through each vertex, and the flow that begins and that ends there, which may be empty,
            except for the flow that begins at vertices of the part if sources are merged.
    """
    indptr, heads, directed = graph
    tree, (out, into, products), (vertices, number, known, sums, across) = folded
    (searched, factors), (_, _, lacking), merging = merged
    share_flow((searched, factors, lacking), merging, part[-2:], together)
    for k in range(3):
        total, some = alone[k], together[k]
        for i in range(min(len(some), len(total))):
            total[part[0][i]] += some[i]
    if len(number) == len(out) == len(vertices) and not known.any():
        return alone[0]
    if len(tree[0]) == 0:
        found = np.zeros(len(out))
    else:
        reached, reaching = out.copy(), into.copy()
        if directed:
            for i in range(len(number)):
                if not known[number[i]]:
                    reached[vertices[number[i]]] += np.int64(np.rint(alone[1][i] / core[4][i]))
                    reaching[vertices[number[i]]] += np.int64(np.rint(alone[2][i] / core[3][i]))
            for i in range(len(vertices)):
                reached[vertices[i]] += np.int64(sums[0, i])
                reaching[vertices[i]] += np.int64(sums[1, i])
            hand_down(tree, into, reaching, DOWN)
        else:
            reached = sum_components(indptr, heads, tree[1], out)
            reaching = reached
        hand_down(tree, out, reached, UP)
        found = flow_around((out, into, products), (reached, reaching))
    for i in range(len(vertices)):
        found[vertices[i]] += across[i]
    for i in range(len(number)):
        found[vertices[number[i]]] += alone[0][i]
    return found
