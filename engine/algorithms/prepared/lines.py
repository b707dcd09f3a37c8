"""Distances from the tables of a prepared graph: pairs and blocks by merging lines, without any search.

The *line* of a vertex is its row in the table of its part: lengths to the vertices of its part and of all parts above.
The highest part that a shortest path visits lies above both ends of the path.  So a distance is the least sum of two
lengths, one from each line, over the columns that both lines have (a hierarchical two-hop labelling: Ouyang et al.,
"When Hierarchy Meets 2-Hop-Labeling", 2018).  Columns of the highest parts come last in each table, so the columns that
two lines have in common are the last entries of both lines, the same number in each.

Kernels take ``lines``, a tuple with these five entries:

- ``tree``: the parent of each part, and the width of its table;
- ``tables``: the forward and the backward tables, flat;
- ``ends``: the largest distance, and *unreachable*;
- ``sources``: for each row of the matrix the part of its vertex, and the index at which the vertex's line ends in the
  forward tables;
- ``targets``: the same for each column, in the backward tables.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


# the compiler vectorises minima of floats only if it may assume that there is no NaN (``nnan``) and that 0.0 equals
# -0.0 (``nsz``); tables hold no NaN, and these flags change no sum
@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _least(there, back, sentinel):  # type: ignore[no-untyped-def]
    """Return the least of ``sentinel`` and the sums there[i] + back[i].

    The arguments must be slices.  With an array and an offset, the index might be negative for all that the compiler
    knows, and it would not vectorise the loop.
    """
    best = sentinel
    for i in range(len(there)):
        best = min(best, type(sentinel)(there[i] + back[i]))
    return best


@njit(nogil=True, cache=True)
def _entry(tree, tables, ends, source, source_end, target, target_end):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Return the distance between two vertices, each given by its part and by the index at which its line ends."""
    parents, wide = tree
    limit, sentinel = ends
    while source != target:
        if source < target:
            source = parents[source]
            if source < 0:
                return sentinel
        else:
            target = parents[target]
            if target < 0:
                return sentinel
    count = wide[source]
    there, back = tables[0][source_end - count : source_end], tables[1][target_end - count : target_end]
    best = _least(there, back, sentinel)
    return sentinel if best > limit else best


@njit(nogil=True, cache=True)
def _by_part(parts, count, rows):  # type: ignore[no-untyped-def]
    """Return the order of ``rows`` by their parts: lines of the same part are then read while they are in the cache."""
    at = np.zeros(count + 1, np.int64)
    for u in rows:
        at[parts[u] + 1] += 1
    for j in range(count):
        at[j + 1] += at[j]
    order = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        part = parts[rows[i]]
        order[at[part]] = i
        at[part] += 1
    return order


@njit(nogil=True, cache=True)
def pair_lengths(lines, rows, columns, out):  # type: ignore[no-untyped-def]
    """Write the distances of pairs to ``out``.

    Args:
        lines: the tree of parts and the tables, see the docstring of this module.
        rows, columns: int64, shape (k,): row and column of each pair.
        out: shape (k,), of the type of the tables.
    """
    tree, tables, ends, sources, targets = lines
    few = len(rows) < len(tree[0])
    order = np.empty(0, np.int64) if few else _by_part(sources[0], len(tree[0]), rows)
    for k in range(len(rows)):
        i = k if few else order[k]
        u, v = rows[i], columns[i]
        out[i] = _entry(tree, tables, ends, sources[0][u], sources[1][u], targets[0][v], targets[1][v])


@njit(nogil=True, cache=True)
def block_lengths(lines, rows, columns, out):  # type: ignore[no-untyped-def]
    """Write the distances from each of ``rows`` to each of ``columns``.

    Args:
        lines: the tree of parts and the tables, see the docstring of this module.
        rows, columns: int64, shape (r,) and (c,).
        out: shape (r, c), of the type of the tables.
    """
    tree, tables, ends, sources, targets = lines
    for i in range(len(rows)):
        u = rows[i]
        for j in range(len(columns)):
            v = columns[j]
            out[i, j] = _entry(tree, tables, ends, sources[0][u], sources[1][u], targets[0][v], targets[1][v])
