"""Prepares a small graph for counting shortest paths, makes searches alone, and joins the sums afterwards.

There are few kernels, because calls from Python for every step would take as long as the steps.  Each array that a
kernel takes or returns costs up to a microsecond, too; so searches together have kernels of their own.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.betweenness.accumulating import DONE, pass_hops, pass_packed
from engine.devices.cpu.betweenness.blocks import split_blocks
from engine.devices.cpu.betweenness.gathering import order_along_tree, order_by_pivots
from engine.devices.cpu.betweenness.merging import merge_sources, share_flow
from engine.devices.cpu.betweenness.peeling import (
    flow_around,
    fold_twins,
    hand_down,
    peel_trees,
    sum_components,
)
from engine.devices.cpu.betweenness.preparing import bound_visits, cut_out, reverse_arcs
from engine.devices.cpu.betweenness.vectors import LANES, Mask
from engine.graph._walks import count_levels, strong_components
from engine.graph.kernels import njit

#: If the longest arc is longer, hops say nothing of distances: mediumEWD takes longer if its sources are ordered by
#: hops to pivots, celegansneural, whose lengths are at most 70, takes less time.
SHORT = 255
#: Blocks are not split if counting what cut vertices reach takes a look at more than this number times the graph.
LOOKS = 16


@njit(nogil=True, cache=True, from_start=True)
def whole_multiples(weights, powers, most):  # type: ignore[no-untyped-def]
    """Write floats as multiples of the largest unit that divides them all.

    Args:
        weights: float64, shape (arcs,), read-only; there are some.
        powers: float64: the reciprocals of the units, ascending.
        most: no multiple may be larger than this number.

    Returns:
        The multiples, int32, shape (arcs,), and the reciprocal of the unit.  The array is empty, and the number is 1,
        if all floats are the same and not above ``most``; the number is 0 if a float is not above 0, or if no unit
        suits.
    """
    least = largest = weights[0]
    for weight in weights:
        least, largest = min(least, weight), max(largest, weight)
    if not (least > 0 and largest <= most):
        return np.empty(0, np.int32), 0.0
    if least == largest:
        return np.empty(0, np.int32), 1.0
    found = np.empty(len(weights), np.int32)
    for power in powers:
        if np.rint(largest * power) > most:
            break
        suits = True
        for i in range(len(weights)):
            whole = np.rint(weights[i] * power)
            suits = whole / power == weights[i]
            if not suits:
                break
            found[i] = np.int32(whole)
        if suits:
            return found, power
    return found[:0], 0.0


@njit(nogil=True, cache=True, from_start=True)
def _peel(indptr, heads, directed, share):  # type: ignore[no-untyped-def]
    """Fold trees if they have at least a share of the vertices; see :func:`prepare_small`."""
    removed, parent, ways, sizes, left = peel_trees(indptr, heads)
    n = len(left)
    if len(removed) < max(1.0, share * n):
        removed, parent[:], sizes[:2], sizes[2] = removed[:0], -1, 1, 0
        vertices, places, arcs = np.arange(n), np.arange(len(heads)), (indptr.copy(), heads.copy())
    else:
        _, vertices, places, arcs = cut_out(indptr, heads, left, directed)
    kept, times = np.empty(len(vertices)), np.empty(len(vertices))
    for i in range(len(vertices)):
        kept[i], times[i] = sizes[0, vertices[i]], sizes[1, vertices[i]]
    return (removed, parent, ways), sizes, (vertices, places, arcs), (kept, times)


@njit(nogil=True, cache=True, from_start=True)
def _fold(indptr, heads, directed, unit, shares, least):  # type: ignore[no-untyped-def]
    """Fold trees, split the rest into blocks, and fold twins in these; see :func:`prepare_small`."""
    tree, sizes, (vertices, places, arcs), stands = _peel(indptr, heads, directed, shares[0])
    n, split, twins = len(vertices), False, 0
    number, told = np.arange(n), (np.zeros(0, np.bool_), np.zeros((2, 0)), np.zeros(0))
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


@njit(nogil=True, cache=True, from_start=True)
def prepare_small(indptr, heads, lengths, directed, shares, limits):  # type: ignore[no-untyped-def]
    """Fold the trees of a graph, and decide how to search from each vertex of its core.

    Args:
        indptr, heads: the arcs (CSR), read-only.
        lengths: int32, shape (arcs,): the lengths of the arcs; empty if all are 1.
        directed: whether some arc may have no reverse.
        shares: trees are folded if they have at least the first share of the vertices; if that is at most 1, twins are
            folded, too, and the rest is split into blocks if searches then visit at most the third share of what they
            visit otherwise; searches that visit at most the second share of the core are made alone.
        limits: the least number of sources that are searched from together, and the least number of vertices times
            vertices and arcs with which blocks are looked for.

    Returns:
        Four tuples.  What was folded: ``removed``, ``parent`` and ``ways`` of
        :func:`engine.devices.cpu.betweenness.peeling.peel_trees`, with ``removed`` empty if trees are not folded; the
        sizes of their branches; and five arrays.  The vertices that are left, int64; for each vertex of the core the
        index of its vertex among these, int64, because a vertex in several blocks is in the core once for each of them;
        and three arrays about these, as the last result of
        :func:`engine.devices.cpu.betweenness.blocks.split_blocks`, which are empty if the graph is not split.
        The core: its CSR, the lengths of its arcs, for each of its vertices the number of vertices for which it stands
        as a target and as a source, both float64, and the vertices from which searches are made alone, int64.
        For :func:`prepare_together`: the strongly connected component of each vertex of the core; whether a search
        together can visit it; and the vertices from which these searches are made, int64.
        Three numbers: a bound on the vertices and arcs that searches alone visit; 1 if flow that begins and ends at
        vertices must be counted, else 0; and 1 if blocks are components of the core, else 0.
    """
    unit = len(lengths) == 0
    folded, (places, core), (kept, times), split = _fold(indptr, heads, directed, unit, shares, limits[1])
    size = len(kept)
    steps = lengths if unit else lengths[places]
    ends = directed and len(folded[0][0]) > 0
    component, order = strong_components(core[0], core[1])
    little = int(shares[1] * (size + len(core[1])))
    visits, inside, direct = bound_visits(core[0], core[1], component, order, little)
    few, many, visited, alone = 0, 0, 0, (np.empty(size, np.int64), np.empty(size, np.int64))
    for v in range(size):
        alone[1][many] = v
        many += visits[v] > little
    if many < limits[0]:
        many = 0
        inside[:] = False
    for v in range(size):
        if visits[v] <= little or many == 0:
            visited += visits[v]
            alone[0][few] = v
            few += not direct[v] if unit and not ends else visits[v] > 1
    own = (*core, steps, kept, times, alone[0][:few])
    return folded, own, (component, inside, alone[1][:many]), (visited, np.int64(ends), np.int64(split))


@njit(nogil=True, cache=True, from_start=True)
def prepare_together(core, facts, limits):  # type: ignore[no-untyped-def]
    """Cut out the part of the core that searches together visit, and order and merge their sources.

    Args:
        core, facts: as :func:`prepare_small` returns them; there are such searches.
        limits: the number of hops up to which all sources are near each other; and a number that no length exceeds.

    Returns:
        The part that searches together visit: its vertices, by their numbers in the core; the arcs out, CSR; the arcs
        in, as :func:`engine.devices.cpu.betweenness.preparing.reverse_arcs` returns them; its vertices without arcs in;
        and for how many vertices each of its vertices stands, as in the core.
        The sources of searches together, near ones next to each other, as
        :func:`engine.devices.cpu.betweenness.merging.merge_sources` returns them.
    """
    indptr, heads, steps, kept, times, _ = core
    component, inside, sources = facts
    number, part, at, out = cut_out(indptr, heads, inside, True)
    into, lone, _ = reverse_arcs(out[0], out[1], steps if len(steps) == 0 else steps[at], len(part), limits[1])
    rows, most = number[sources], 0
    for v in range(len(part)):
        if out[0][v + 1] - out[0][v] > out[0][most + 1] - out[0][most]:
            most = v
    if count_levels(out[0], out[1], most)[0] > limits[0]:
        rows = rows[order_along_tree(out, (into[0], into[2]), rows)]
    elif len(steps) == 0 or steps.max() <= SHORT:
        rows = rows[order_by_pivots(out, into[0], rows)[0]]
    return (part, *out, *into, lone, kept[part], times[part]), merge_sources(out, component[part], rows, times[part])


@njit(nogil=True, cache=True, from_start=True)
def together_space(n, arcs, sources, like, sizes):  # type: ignore[no-untyped-def]
    """Return the arrays that searches together need, which NumPy would take longer to make one by one.

    Args:
        n, arcs: the number of vertices, and of arcs, of the part that these searches visit.
        sources: int64: the vertices from which they are made.
        like: an array of the type of distances.
        sizes: the most rows of distances that are held; the number of entries for each vertex in ``spare``; and the
            number of ``counts``.

    Returns:
        Four arrays.  The rows of distances, and further ones for
        :func:`engine.devices.cpu.betweenness.together.pass_together`; the numbers of all
        vertices, int32; those of all sources, int64; and the row of each source, int32, shape (n,), as if all rows were
        held at the same time.
        Most of ``space`` of that function: ``columns``, ``keys``, ``counts`` and ``moved``; ``order``, ``flags`` and
        ``spare``; and the tuples ``before``, ``space``, ``taken`` and ``lines``.
    """
    held, entries, keys = sizes
    block = np.empty((min(len(sources), held) + LANES, n), like.dtype)
    place = np.empty(n, np.int32)
    for i in range(len(sources)):
        place[sources[i]] = i
    memory = np.zeros((3 * n * LANES + 8) * 8, np.uint8)
    wide = memory[-memory.ctypes.data % 64 :][: 3 * n * LANES * 8].view(np.float64).reshape(3 * n, LANES)
    narrow = np.zeros(n * LANES * like.itemsize + 64, np.uint8)
    columns = narrow[-narrow.ctypes.data % 64 :][: n * LANES * like.itemsize].view(like.dtype).reshape(n, LANES)
    return (
        (block, np.arange(n).astype(np.int32), np.arange(len(sources)), place),
        (columns, np.empty(n, np.int32), np.empty(keys, np.int32), np.empty(0, np.int64)),
        (np.empty(n, np.int32), np.zeros(n, np.uint32), np.empty((3, entries * n), np.int32)),
        (np.zeros(n + 1, np.int64), np.empty(arcs + 1, np.int32), np.empty(arcs + 1, Mask)),
        (
            np.empty(n, np.uint32),
            np.empty(n, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
        ),
        (np.empty(LANES * n + 1, np.int32), np.empty(LANES * n + 1, Mask)),
        (wide[:n], wide[n : 2 * n], wide[2 * n :], np.zeros((4, LANES))),
    )


@njit(nogil=True, cache=True, from_start=True)
def add_together(part, merged, together, sums):  # type: ignore[no-untyped-def]
    """Add the sums of searches together to those of the core.

    Args:
        part, merged: the part that searches together have visited, its last two arrays are enough; and their sources,
            as :func:`prepare_together` returns them.
        together: sums of searches together in the part: the flow through each vertex, and the flow that begins and that
            ends there, which may be empty, except for the flow that begins at vertices of the part if sources are
            merged.
        sums: the same of the core, to which these are added; the last two may be empty.
    """
    (searched, factors), (_, _, lacking), merging = merged
    share_flow((searched, factors, lacking), merging, part[-2:], together)
    for k in range(3):
        total, some = sums[k], together[k]
        for i in range(min(len(some), len(total))):
            total[part[0][i]] += some[i]


@njit(nogil=True, cache=True, from_start=True)
def _search_alone(core, sums):  # type: ignore[no-untyped-def]
    """Search from vertices of the core one after the other, and add their flows; see :func:`finish_small`."""
    indptr, heads, lengths, kept, times, rows = core
    n = len(kept)
    own, none, few = np.arange(n), np.empty(0), np.empty(0, np.int32)
    task, out = (own, own, own[:0], few, none, times), (*sums, none, none)
    space = np.empty(n), np.empty(n), np.empty(n, np.int32), kept.copy()
    if len(lengths) == 0:
        return pass_hops((indptr, heads), task, rows, kept, (np.full(n, -1, np.int32), *space), out)
    far, bits = np.int64(FAR), 1
    while 1 << bits < n:
        bits += 1
    heap = np.empty(n, np.int64), np.full(n, -1, np.int32), bits
    return pass_packed((indptr, heads, lengths, far), task, rows, kept, (np.full(n, far), *space), out, heap)


@njit(nogil=True, cache=True, from_start=True)
def finish_small(graph, folded, core, sums):  # type: ignore[no-untyped-def]
    """Search from those vertices that reach little, one after the other, and add up all sums.

    Args:
        graph: CSR of the arcs, read-only, and whether the graph is directed.
        folded: as :func:`prepare_small` returns it.
        core: the core, as :func:`prepare_small` returns it.
        sums: of searches together: the flow through each vertex of the core, and the flow that begins and that ends
            there, which may be empty.  The flow of searches alone is added.

    Returns:
        ``DONE``, or the code of the fault that a search found; and the flow through each vertex of the graph over all
        ordered pairs, shape (n,).
    """
    indptr, heads, directed = graph
    tree, sizes, (vertices, number, known, others, across) = folded
    said = DONE if len(core[-1]) == 0 else _search_alone(core, sums)
    n, split = sizes.shape[1], len(known) > 0
    if said != DONE or (len(number) == n == len(vertices) and not split):
        return said, sums[0]
    if len(tree[0]) == 0:
        found = np.zeros(n)
    else:
        out, into, products = sizes[0], sizes[1], sizes[2]
        if directed:
            reached, reaching = out.copy(), into.copy()
            for i in range(len(number)):
                if not split or not known[number[i]]:
                    reached[vertices[number[i]]] += np.int64(np.rint(sums[1][i] / core[4][i]))
                    reaching[vertices[number[i]]] += np.int64(np.rint(sums[2][i] / core[3][i]))
            for i in range(len(known)):
                reached[vertices[i]] += np.int64(others[0, i])
                reaching[vertices[i]] += np.int64(others[1, i])
        else:
            reached = sum_components(indptr, heads, tree[1], out)
            reaching = reached
        hand_down(tree, (out, into), (reached, reaching))
        found = flow_around((out, into, products), (reached, reaching))
    for i in range(len(across)):
        found[vertices[i]] += across[i]
    for i in range(len(number)):
        found[vertices[number[i]]] += sums[0][i]
    return said, found
