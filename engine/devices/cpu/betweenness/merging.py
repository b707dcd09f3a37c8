"""Merges sources with a single arc into the head of this arc, so that one search serves all of them.

Every path from such a source leads through the head of its arc, and no shortest path from there leads back through the
source, because a path from the source itself would be shorter.  So the paths from the source are those from the head,
except those to the source.  Merged sources form trees, whose roots are searched from: the search from a root sends the
flow of its whole tree.  To a vertex of the tree it sends only the flow of those vertices whose path to the root does
not lead through it; other paths between vertices of the tree are counted here.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True, from_start=True)
def merge_sources(out, component, sources, times):  # type: ignore[no-untyped-def]
    """Merge sources that have a single arc, which leads to another source.

    Args:
        out: CSR of the arcs: ``indptr``, int64, and ``heads``, int32.
        component: the strongly connected component of each vertex, shape (n,).
        sources: int64, different vertices.
        times: float64, shape (n,): the factor by which the flow of each source is multiplied.

    Returns:
        The sources from which searches are made, int64, in their given order; and the factor of each, float64.
        ``first``, ``members`` and ``lacking`` of :func:`engine.devices.cpu.betweenness.together.pass_together`, which
        are empty if no source is merged.
        For :func:`share_flow`: the merged sources, int64, each after the head of its arc; the head of the arc and the
        root of the tree of each vertex, both int64, shape (n,).
    """
    (indptr, heads), n = out, len(times)
    parent, root, state = np.full(n, -1, np.int64), np.arange(n), np.zeros(n, np.uint8)
    chain, merged, count, kept_sources = np.empty(n, np.int64), np.empty(n, np.int64), 0, np.zeros(n, np.bool_)
    kept_sources[sources] = True
    for v in sources:
        depth, u = 0, v
        while state[u] == 0 and indptr[u + 1] - indptr[u] == 1 and kept_sources[heads[indptr[u]]]:
            state[u], chain[depth], depth, u = 1, u, depth + 1, np.int64(heads[indptr[u]])
        # the chain has come to a root, to a merged source, or back to itself; then this vertex becomes a root
        top, state[u] = u, 2
        for i in range(depth - 1, -1, -1):
            u = chain[i]
            if u != top:
                parent[u] = heads[indptr[u]]
                root[u], state[u], merged[count] = root[parent[u]], 2, u
                count += 1
    merged = merged[:count]
    searched = sources[root[sources] == sources]
    lacking = times.copy()
    for i in range(count - 1, -1, -1):
        lacking[parent[merged[i]]] += lacking[merged[i]]
    place, first = np.zeros(n, np.int64), np.zeros(len(searched) + 1 if count else 0, np.int64)
    members = np.empty(count, np.int64)
    if count:
        place[searched] = np.arange(len(searched))
        for u in merged:
            first[place[root[u]] + 1] += 1
        for k in range(len(searched)):
            first[k + 1] += first[k]
        free = first.copy()
        for u in merged:
            members[free[place[root[u]]]] = u
            free[place[root[u]]] += 1
    return (
        (searched, lacking[searched]),
        (first, members, lacking if count else lacking[:0]),
        (merged, parent, root, component),
    )


@njit(nogil=True, cache=True, from_start=True)
def share_flow(task, tree, stands, sums):  # type: ignore[no-untyped-def]
    """Add the flow on paths inside trees, and tell the flow that begins at a root from that of its tree.

    Args:
        task: ``searched``, ``times``, and ``lacking``, as :func:`merge_sources` has returned them.
        tree: the last result of :func:`merge_sources`.
        stands: float64, shape (n,) each: the flow from each source that ends at each vertex, and ``times`` of
            :func:`merge_sources`.
        sums: the flow through each vertex, and the flow that begins and the flow that ends there, all of which are
            updated.  The flow that begins at a root is that of its tree so far.  The last array may be empty.
    """
    (searched, factors, lacking), (merged, parent, root, component), (vertices, begins, ends) = task, tree, sums
    kept, times = stands
    n, count = len(kept), len(merged)
    if count == 0:
        return
    # of each merged source: what ends on its path to the root, without the root, in all, and of that what the root
    # reaches; and for each vertex sums over the merged sources below it: of their factors, and of their factors times
    # what the root would send to their paths
    along, again, below, less = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    reached = np.zeros(n)
    for i in range(len(searched)):
        reached[searched[i]] = begins[searched[i]]
    for u in merged:
        top, before = root[u], parent[u]
        mine = kept[u] if component[u] == component[top] else 0.0
        along[u], again[u] = along[before] + kept[u], again[before] + mine
        reached[top] += mine * lacking[u]
    for i in range(len(searched)):
        reached[searched[i]] /= factors[i]
    for i in range(count - 1, -1, -1):
        u = merged[i]
        top, before = root[u], parent[u]
        onward = reached[top] + kept[top] + along[u] - kept[u]
        vertices[u] += below[u] * onward - less[u]
        begins[u] = times[u] * (onward - again[u])
        below[before] += below[u] + times[u]
        less[before] += less[u] + times[u] * again[u]
        if len(ends):
            ends[u] += kept[u] * (lacking[u] - times[u])
    for i in range(len(searched)):
        top = searched[i]
        vertices[top] += below[top] * reached[top] - less[top]
        begins[top] = times[top] * reached[top]
        if len(ends):
            ends[top] += kept[top] * (lacking[top] - times[top])
