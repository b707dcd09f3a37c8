"""Splits a graph into blocks, so that each shortest path is searched for in its block alone.

A *block* is a largest part of a graph, arcs taken in both directions, that no single vertex holds together.  A vertex
in several blocks is a *cut vertex*: every path from one of them to another leads through it.  A shortest path between
two vertices of a block stays in the block, because it would have to come back through the vertex by which it left.
So searches are made in each block alone, where a cut vertex stands for all vertices behind it: as a source for those
that reach it, as a target for those that it reaches.  Paths between two blocks at a cut vertex are counted from these
numbers.  This generalises what :mod:`engine.devices.cpu.betweenness.peeling` does with trees.  Blocks are found as by
Hopcroft and Tarjan (1973).
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.preparing import bound_visits
from engine.graph._walks import strong_components
from engine.graph.kernels import njit


@njit(nogil=True, cache=True, from_start=True)
def _join_both_ways(indptr, heads):  # type: ignore[no-untyped-def]
    """Return the CSR of the arcs in both directions, and the CSR of the reversed arcs alone."""
    n = len(indptr) - 1
    into, both = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for v in heads:
        into[v + 1] += 1
    for v in range(n):
        into[v + 1] += into[v]
        both[v + 1] = into[v + 1] + indptr[v + 1]
    tails, ends, free = np.empty(len(heads), np.int32), np.empty(2 * len(heads), np.int32), into[:-1].copy()
    for u in range(n):
        ahead = both[u] + into[u + 1] - into[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            tails[free[v]] = u
            ends[both[v] + free[v] - into[v]] = u
            ends[ahead + e - indptr[u]] = v
            free[v] += 1
    return (both, ends), (into, tails)


@njit(nogil=True, cache=True, from_start=True)
def find_blocks(indptr, heads):  # type: ignore[no-untyped-def]
    """Find the blocks of a graph by a depth-first search.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32: the head of each arc; each arc has a reverse.

    Returns:
        Three arrays of int64.  The number of each vertex in the order of the search, shape (n,).  The block of each
        vertex and its parent in the search, -1 for a root.  The vertex of each block that the search meets first, its
        *top*.  Each other vertex of the block has the block in the second array.  Blocks further from the root have
        smaller numbers.
    """
    n = len(indptr) - 1
    number, low, block = np.full(n, -1, np.int64), np.empty(n, np.int64), np.full(n, -1, np.int64)
    parent, after, stack = np.full(n, -1, np.int64), indptr[:-1].copy(), np.empty(n, np.int64)
    tops, count, seen, height = np.empty(n, np.int64), 0, 0, 0
    for root in range(n):
        if number[root] >= 0:
            continue
        v = root
        number[v] = low[v] = seen
        seen += 1
        while True:
            if after[v] < indptr[v + 1]:
                u = np.int64(heads[after[v]])
                after[v] += 1
                if number[u] < 0:
                    parent[u], number[u], low[u], stack[height] = v, seen, seen, u
                    seen, height, v = seen + 1, height + 1, u
                else:
                    low[v] = min(low[v], number[u])
                continue
            u = parent[v]
            if u < 0:
                break
            if low[v] < number[u]:
                low[u] = min(low[u], low[v])
            else:  # nothing below ``v`` leads past its parent
                while block[v] < 0:
                    height -= 1
                    block[stack[height]] = count
                tops[count] = u
                count += 1
            v = u
    return number, block, tops[:count]


@njit(nogil=True, cache=True, from_start=True)
def _measure(indptr, heads, found, share, directed):  # type: ignore[no-untyped-def]
    """Return the block of each arc, int64, empty if splitting does not pay; the number of vertices and of arcs of each
    block; and whether splitting pays, which is whether searches in the blocks visit at most a share of the vertices and
    arcs that searches in the graph visit; both are bounded.  ``directed`` says whether some arc may have no reverse.
    """
    number, block, tops = found
    n, size, within = len(block), np.ones(len(tops), np.int64), np.zeros(len(tops), np.int64)
    for b in block:
        if b >= 0:
            size[b] += 1
    if (size * size).sum() > share * n * n:  # usually the vertices alone tell it, in less time
        return np.empty(0, np.int64), size, within, False
    block_of = np.empty(len(heads), np.int64)
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            u = heads[e]
            block_of[e] = block[v] if number[v] > number[u] else block[u]
            within[block_of[e]] += 1
    visits, graph = (size * (size + within)).sum(), n + len(heads)
    pays = visits <= share * n * graph
    if pays and not directed:  # searches stay in their components
        pays = visits <= share * visit_components(indptr, number, block)
    elif pays:  # where arcs lead one way, searches may reach little of their components
        component, order = strong_components(indptr, heads)
        pays = visits <= share * bound_visits(indptr, heads, component, order, graph)[0].sum()
    return block_of, size, within, pays


@njit(nogil=True, cache=True, from_start=True)
def visit_components(indptr, number, block):  # type: ignore[no-untyped-def]
    """Return the number of vertices and arcs that searches from all vertices of an undirected graph visit."""
    n, visits, vertices, arcs = len(number), 0, 0, 0
    vertex = np.empty(n, np.int64)
    for v in range(n):
        vertex[number[v]] = v
    for v in vertex:  # those of a component have successive numbers, and its root has no block
        if block[v] < 0:
            visits += vertices * (vertices + arcs)
            vertices = arcs = 0
        vertices += 1
        arcs += indptr[v + 1] - indptr[v]
    return visits + vertices * (vertices + arcs)


@njit(nogil=True, cache=True, from_start=True)
def _copy_vertices(block, tops):  # type: ignore[no-untyped-def]
    """Give each vertex a copy in each of its blocks.

    Args:
        block, tops: as :func:`find_blocks` returns them.

    Returns:
        The vertex of each copy, int64, ascending, and its block; the copy of the top of each block; and the copy of
        each vertex in the block that ``block`` has for it.
    """
    n, copies = len(block), 0
    free = np.zeros(n, np.int64)
    for v in range(n):
        free[v] = block[v] >= 0
    for p in tops:
        free[p] += 1
    for v in range(n):
        free[v], copies = copies, copies + free[v]
    vertex, member = np.empty(copies, np.int64), np.empty(copies, np.int64)
    crown, own = np.empty(len(tops), np.int64), np.empty(n, np.int64)
    for v in range(n):
        own[v] = free[v]
        if block[v] >= 0:
            vertex[own[v]], member[own[v]] = v, block[v]
            free[v] += 1
    for b in range(len(tops)):
        crown[b] = free[tops[b]]
        vertex[crown[b]], member[crown[b]] = tops[b], b
        free[tops[b]] += 1
    return vertex, member, crown, own


@njit(nogil=True, cache=True, from_start=True)
def _copy_into_blocks(indptr, heads, found, measured, plain):  # type: ignore[no-untyped-def]
    """Return a graph in which each block is a component: each vertex has a copy in each of its blocks.

    Args:
        indptr, heads: the arcs (CSR).
        found: as :func:`find_blocks` returns it.
        measured: as :func:`_measure` returns it; overwritten.
        plain: whether arcs in blocks are left out in which no shortest path has two arcs: those of two vertices, and if
            ``plain`` is 2, those in which all vertices are neighbours.

    Returns:
        The vertex of each copy, int64, ascending, and its block; the copy of the top of each block; the index of each
        arc in ``heads``; and the CSR of the arcs.
    """
    (_, block, tops), (tail_of, size, within, _) = found, measured  # ``tail_of`` is first the block of each arc
    n, blocks = len(block), len(tops)
    vertex, member, crown, own = _copy_vertices(block, tops)
    copies = len(vertex)
    starts, count = np.zeros(copies + 1, np.int64), 0
    for b in range(blocks):
        if plain and (size[b] == 2 or (plain == 2 and within[b] == size[b] * (size[b] - 1))):
            size[b] = 0
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            b = tail_of[e]
            tail_of[e] = -1 if size[b] == 0 else own[v] if block[v] == b else crown[b]
            if tail_of[e] >= 0:
                starts[tail_of[e] + 1] += 1
                count += 1
    for i in range(copies):
        starts[i + 1] += starts[i]
    places, ahead, at = np.empty(count, np.int64), np.empty(count, np.int32), starts[:-1].copy()
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            i = tail_of[e]
            if i >= 0:
                u = heads[e]
                places[at[i]], ahead[at[i]] = e, own[u] if block[u] == member[i] else crown[member[i]]
                at[i] += 1
    return (vertex, member), crown, places, (starts, ahead)


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _sum_reached(arcs, start, weights, queue, seen, now):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of all vertices that a vertex reaches, and the number of vertices and arcs seen."""
    indptr, heads = arcs
    queue[0], seen[start] = start, now
    done, count, total, work = 0, 1, 0.0, 0
    while done < count:
        u = queue[done]
        done += 1
        total += weights[u]
        work += 1 + indptr[u + 1] - indptr[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if seen[v] != now:
                seen[v], queue[count] = now, v
                count += 1
    return total, work


@njit(nogil=True, cache=True, from_start=True)
def _weigh(copies, tops, ways, component, stands, limit):  # type: ignore[no-untyped-def]
    """Count for how many vertices each copy stands, and the flow between blocks; see :func:`split_blocks`.

    Args:
        copies: the vertex and the block of each copy, and the copy of the top of each block.
        tops: the top of each block.
        ways: the CSR of the arcs between copies, and that of the reversed arcs.
        component: the strongly connected component of each copy; empty if all copies in a block reach each other.
        stands: for how many vertices each vertex stands, as a target and as a source.
        limit: give up after this number of vertices and arcs.
    """
    (vertex, member, crown), n, blocks = copies, len(stands[0]), len(tops)
    # of each vertex and both directions: those that it reaches, and that reach it, over all of its blocks
    sums, products, top = np.zeros((2, n)), np.zeros(n), np.zeros(n, np.bool_)
    weights, through, totals = np.empty((2, len(vertex))), np.zeros((2, blocks)), np.zeros((2, blocks))
    first, members, strong = np.zeros(blocks + 1, np.int64), np.empty(len(vertex), np.int64), np.ones(blocks, np.bool_)
    queue, seen, now, work, here = np.empty(len(vertex), np.int64), np.zeros(len(vertex), np.int64), 0, 0, np.empty(2)
    known, reach = np.zeros(len(component), np.bool_), np.empty((2, len(component)))
    for i in range(len(vertex)):
        first[member[i] + 1] += 1
        if len(component) and component[i] != component[crown[member[i]]]:
            strong[member[i]] = False
    for b in range(blocks):
        first[b + 1] += first[b]
        top[tops[b]] = True
    free = first.copy()
    for i in range(len(vertex)):
        members[free[member[i]]] = i
        free[member[i]] += 1
    for stage in range(2):  # first towards the roots, which tells what lies below the tops; then away from them
        for at in range(blocks):
            b = at if stage == 0 else blocks - 1 - at
            for d in range(2):
                weights[d, crown[b]] = 0.0 if stage == 0 else stands[d][tops[b]] + sums[d, tops[b]] - through[d, b]
                totals[d, b] += weights[d, crown[b]]
            for k in range(first[b], first[b + 1]):
                i, v = members[k], vertex[members[k]]
                if stage == 0 and i != crown[b]:
                    for d in range(2):
                        weights[d, i] = stands[d][v] + sums[d, v]
                        totals[d, b] += weights[d, i]
            for k in range(first[b], first[b + 1]):
                i, v = members[k], vertex[members[k]]
                if (i == crown[b]) != (stage == 0) or not top[v]:
                    continue
                for d in range(2):
                    if strong[b]:
                        here[d] = totals[d, b]
                    elif stage == 1 and known[component[i]]:
                        here[d] = reach[d, component[i]]
                    else:
                        now += 1
                        here[d], more = _sum_reached(ways[d], i, weights[d], queue, seen, now)
                        work += more
                        if stage == 1:
                            reach[d, component[i]] = here[d]
                    here[d] -= weights[d, i]
                    sums[d, v] += here[d]
                    if stage == 0:
                        through[d, b] = here[d]
                products[v] += here[0] * here[1]
                if stage == 1 and not strong[b]:
                    known[component[i]] = True
                if work > limit:
                    return False, (weights[0], weights[1]), (top, sums, products)
    for v in range(n):
        products[v] = sums[0, v] * sums[1, v] - products[v]
    return True, (weights[0], weights[1]), (top, sums, products)


@njit(nogil=True, cache=True, from_start=True)
def split_blocks(indptr, heads, kind, stands, limits):  # type: ignore[no-untyped-def]
    """Return a graph in which the blocks of a graph are components, so that searches stay in their blocks.

    Args:
        indptr, heads: the arcs (CSR).
        kind: whether some arc may have no reverse; and whether every arc has the length 1.
        stands: float64, shape (n,) each: for how many vertices each vertex stands, as a target and as a source.
        limits: splitting pays if searches in blocks visit at most this share of the vertices and arcs that searches in
            the graph visit, both of which are bounded; and give up if counting what cut vertices reach takes a look at
            more than this number of vertices and arcs.

    Returns:
        Whether this was possible within the limit, and pays; all else is undefined if not.
        The vertex of each copy, int64, ascending; the index of each arc in ``heads``; and the CSR of the new graph.  In
        an undirected graph, arcs are left out in blocks in which no shortest path passes through a vertex.
        For how many vertices each copy stands, as a target and as a source.
        Of the vertices of the graph: whether what each of them reaches is known, which it is for all cut vertices;
        float64, shape (2, n): the number of vertices that these reach and that reach them, without those for which they
        stand themselves; and the flow through each of them from one block to another.
    """
    (directed, unit), (share, limit) = kind, limits
    both = _join_both_ways(indptr, heads)[0] if directed else (indptr, heads)
    found = find_blocks(both[0], both[1])
    plain = 0 if directed else 2 if unit else 1
    measured = _measure(indptr, heads, found, share, directed)
    pays = measured[3]
    if not pays:
        found, indptr = (found[0][:0], found[1][:0], found[2][:0]), indptr[:1]
    (vertex, member), crown, places, arcs = _copy_into_blocks(indptr, heads, found, measured, plain)
    component, back = np.empty(0, np.int32), arcs
    if directed:
        component = strong_components(arcs[0], arcs[1])[0]
        weak = False
        for i in range(len(vertex)):
            weak |= component[i] != component[crown[member[i]]]
        if weak:
            back = _join_both_ways(arcs[0], arcs[1])[1]
    done, weights, told = _weigh((vertex, member, crown), found[2], (arcs, back), component, stands, limit)
    return done and pays, (vertex, places, arcs), weights, told
