"""Distances from the tables of a prepared graph: pairs and blocks by merging lines, without any search.

The *line* of a vertex is a row of its part's table: lengths to the vertices of its part and of all parts above.  A
shortest path passes through the highest part that it visits, which lies above both of its ends, so a distance is the
least sum over what two lines have in common (a hierarchical two-hop labelling: Ouyang et al., "When Hierarchy Meets
2-Hop-Labeling", 2018).  Rows of a table end with the columns of the highest parts, so that is as many last entries of
both.

Kernels take ``lines``: ``tree``, the parent of each part and the width of its table; ``tables``, the forward and the
backward tables, flat; ``ends``, the largest distance and *unreachable*; and ``sources`` and ``targets``, for each row
and column of the matrix its part, and where the line of its vertex ends in the forward or the backward tables.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.graph.kernels import njit

Array = npt.NDArray[np.generic]


# minima of floats become vectors only where no NaN can be met; no table holds one, and sums stay as they are
@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _least(there, back, sentinel):  # type: ignore[no-untyped-def]
    """Return the least of the sums of two slices, and ``sentinel``; computed indices would keep it out of vectors."""
    best = sentinel
    for i in range(len(there)):
        best = min(best, type(sentinel)(there[i] + back[i]))
    return best


@njit(nogil=True, cache=True)
def _entry(tree, tables, ends, source, source_end, target, target_end):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Return the distance between the vertices of two lines: their parts, and where the lines end."""
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
    """Return the order of ``rows`` by their parts, so that lines of a part are read while they are in a cache."""
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
    """Write the distances of pairs.

    Args:
        lines: as above.
        rows, columns: int64, shape (k,): the pairs.
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
        lines: as above.
        rows, columns: int64, shape (r,) and (c,).
        out: shape (r, c), of the type of the tables.
    """
    tree, tables, ends, sources, targets = lines
    for i in range(len(rows)):
        u = rows[i]
        for j in range(len(columns)):
            v = columns[j]
            out[i, j] = _entry(tree, tables, ends, sources[0][u], sources[1][u], targets[0][v], targets[1][v])
