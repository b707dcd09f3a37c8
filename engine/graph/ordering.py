"""Finds vertex orders in which neighbours lie close together, and the number of hops across a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ints = npt.NDArray[np.int32]

#: The number of values that 16 bits hold; NumPy sorts such values by a radix sort, in linear time.
SHORT: Final = 2**16


def near_places(indptr: npt.NDArray[np.int64], heads: Ints) -> Ints:
    """Return the new number of each vertex in reverse Cuthill-McKee order, shape (n,)."""
    n = len(indptr) - 1
    place = np.arange(n, dtype=np.int32)
    if n > 1:
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        order = reverse_cuthill_mckee(_pattern(indptr, heads), symmetric_mode=False)
        place[order] = np.arange(n, dtype=np.int32)
    return place


def halved_places(indptr: npt.NDArray[np.int64], heads: Ints, parts: int = 256) -> Ints:
    """Number the vertices by recursive bisection (METIS): each half, quarter and so on has consecutive numbers.

    A picture of a matrix in this order shows which regions are near and which are far.  Inside a part the order is that
    of :func:`near_places`.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        parts: the largest number of parts.

    Returns:
        The new number of each vertex, shape (n,).
    """
    n, near = len(indptr) - 1, near_places(indptr, heads)
    count = min(parts, n // 4)
    if count < 2 or len(heads) == 0:
        return near
    import pymetis

    joined = _pattern(indptr, heads)
    joined = (joined + joined.T).tocsr()
    adjacency = pymetis.CSRAdjacency(joined.indptr.astype(np.int32), joined.indices.astype(np.int32))
    part = np.asarray(pymetis.part_graph(count, adjacency=adjacency, recursive=True)[1])
    place = np.empty(n, np.int32)
    place[np.lexsort((near, part))] = np.arange(n, dtype=np.int32)
    return place


def hop_radius(indptr: npt.NDArray[np.int64], heads: Ints) -> tuple[int, int]:
    """Return the largest number of hops from a vertex of highest degree to any vertex, and a vertex at this distance.

    In undirected graphs, the diameter in hops lies between this number and twice this number.
    """
    if len(indptr) <= 2 or len(heads) == 0:
        return 0, 0
    return _levels(fixed(indptr), fixed(heads), int((indptr[1:] - indptr[:-1]).argmax()))


def hops_across(indptr: npt.NDArray[np.int64], heads: Ints, first: tuple[int, int]) -> int:
    """Return a lower bound on the diameter in hops, which is seldom much smaller than the diameter.

    It is the largest number of hops that three breadth-first searches find.  The first begins at a vertex of highest
    degree, and each of the other two at the farthest vertex that the previous search found.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        first: the result of :func:`hop_radius`.
    """
    most, start = first
    if most:
        indptr, heads = fixed(indptr), fixed(heads)
        for _ in range(2):
            levels, start = _levels(indptr, heads, start)
            most = max(most, levels)
    return most


def _levels(indptr: npt.NDArray[np.int64], heads: Ints, start: int) -> tuple[int, int]:
    from engine.graph._walks import count_levels
    from engine.graph.kernels.plain import call

    levels, last = call(count_levels, indptr, heads, start, work=len(indptr) + len(heads))
    return int(levels), int(last)


def ascending(numbers: npt.NDArray[Any], below: int) -> npt.NDArray[np.int64]:
    """Return the indices that sort whole numbers stably, as ``np.argsort`` does, in linear time if they fit 16 bits.

    Args:
        numbers: shape (n,), none negative.
        below: a number that is larger than all of them.
    """
    return np.argsort(numbers.astype(np.uint16) if below <= SHORT else numbers, kind="stable")


def fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, so that kernels have one compiled form for arrays in memory and for mapped files."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


def _pattern(indptr: npt.NDArray[np.int64], heads: Ints) -> csr_array[Any, tuple[int, int]]:
    from scipy.sparse import csr_array

    n = len(indptr) - 1
    return csr_array((np.ones(len(heads), np.int8), heads, indptr), shape=(n, n))
