"""Sums of quantities along the shortest paths of 16 rows side by side, for most graphs (decision 248)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.graph.ordering import fixed
from engine.model.rows import Array
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]

#: LANES is the number of rows that are summed side by side, FAR the distance that means *no path*.  Both are copies of
#: the numbers in ``engine.rows._lane_vectors``, which imports the compiler and so is imported only for sums.
LANES: Final = 16
FAR: Final = 2**30 - 1
#: Fewer rows than this are summed one by one, which then takes less time than side by side.
LEAST_ROWS: Final = 5
#: At most this number of entries are summed in one call, which takes a tenth of a second.  A call holds no GIL, and
#: threads that call often wait for it; a request to stop is noticed between calls.
ENTRIES: Final = 2**24
#: Vertices of graphs with at most this many vertices are visited by their mean distances (decision 285).
SORTED: Final = 2**15
#: The largest cluster, in vertices; a cluster is a set of vertices that arcs of length zero join.  In graphs with a
#: larger cluster, rows are summed one by one.
CLUSTER: Final = 16


def lane_bytes(n: int, terminals: int, sums: int) -> int:
    """Return the bytes that one thread works with.

    Args:
        n: number of vertices.
        terminals: number of terminals.
        sums: bytes of the sums of one entry, of all quantities.
    """
    lines = (n + terminals) * LANES * (8 + sums)
    return lines + LANES * 4 * n + 19 * n


class LaneSums:
    """Sums quantities along the shortest paths of rows, 16 rows at a time.  Several threads may call :meth:`add`.

    Args:
        graph: the graph.
        weights: whole numbers, shape (arcs,): the weights in units.
        unit: the number of units that make 1, by which rows of floats are multiplied.
        quantities: int32, shape (arcs, k): the quantities of which int32 holds all sums; float64, shape (arcs, l): all
            other quantities; both in the order of the graph's arcs.
        columns: vertex indices of the columns.
    """

    def __init__(
        self, graph: Graph, weights: Array, unit: float, quantities: tuple[Array, Array], columns: Indices
    ) -> None:
        from engine.rows._lane_sums import number_vertices

        self._n, self._terminals, self._unit = graph.n, graph.terminals, unit
        self._numbers = np.empty(graph.n, np.int64)
        number_vertices(fixed(graph.indptr), fixed(graph.heads), graph.terminals, self._numbers)
        self._columns, (into, tails, order) = self._numbers[columns], arcs_into(graph, self._numbers)
        lengths = np.minimum(weights, FAR + 1).astype(np.int32)[order]
        heads = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(into))
        clusters = _clusters(graph.n, tails, heads, (lengths == 0) & (tails < graph.n))
        if clusters is None:
            raise ValueError("arcs of length zero join too many vertices: the graph does not suit sums side by side")
        self._clusters = clusters
        own, other = (values[order] for values in quantities)
        self._graph = (into, tails, lengths), (own, other)
        self._spaces = KeptSpaces(self._new_space)

    @staticmethod
    def suits(graph: Graph, weights: Array) -> bool:
        """Return whether rows of a graph can be summed side by side: no weight is negative, and arcs of length zero
        join few vertices.

        Args:
            graph: the graph.
            weights: shape (arcs,): the weights in units.
        """
        if not 0 < graph.arcs < FAR or weights.min() < 0:  # codes of arcs are int32
            return False
        every = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr))
        return _clusters(graph.n, every, graph.heads, (weights == 0) & (every >= graph.terminals)) is not None

    def add(
        self,
        which: Indices,
        searched: tuple[Indices, Array, np.generic],
        limited: bool,
        wanted: tuple[Any, ...],
    ) -> tuple[int, int, int]:
        """Sum along the paths of the first of some rows, as many as can be summed side by side.

        Args:
            which: the numbers of these rows, which ascend.
            searched: three entries: the sources, vertex indices, shape (rows,); int32, uint16 or float64, shape (rows,
                n): the distances from them to all vertices; and the value for *no path* among these.
            limited: whether distances beyond a cutoff are unreachable.
            wanted: the values for *no path* of the sums, int32 and float64; and the arrays that receive the sums:
                int32, shape (rows, k, columns), and float64, shape (rows, l, columns).

        Returns:
            How many of the rows ``which`` are summed; and row and vertex of an entry that is not a shortest distance,
            or -1 and -1.
        """
        from engine.rows._lane_sums import sum_groups, sum_groups_of

        (sources, rows, none), count = searched, side_by_side(len(which), LANES)
        order, begins = by_nearness(which[:count], sources, rows, LANES), self._numbers[sources]
        places = np.minimum(np.arange(-(-count // LANES) * LANES), count - 1)
        groups, block = order[places].reshape(-1, LANES), (self._numbers, int(limited), int(self._n <= SORTED))
        unit, most = None if rows.dtype.kind in "iu" else float(self._unit), max(1, ENTRIES // (LANES * self._n))
        with self._spaces.one() as (buffer, space):
            for first in range(0, len(groups), most):
                some = groups[first : first + most]
                given = block, self._graph, self._clusters, space, (self._columns, *wanted)
                if rows.dtype == np.int32:
                    group, lane, v = sum_groups((rows, some, begins[some]), *given)
                else:
                    group, lane, v = sum_groups_of((rows, some, begins[some]), (unit, none, buffer), *given)
                if lane < -1:
                    return 0, -1, -1
                if lane >= 0:
                    place = first + group
                    return LANES * place, int(groups[place, lane]), int(np.flatnonzero(self._numbers == v)[0])
        return count, -1, -1

    def _new_space(self) -> tuple[Any, ...]:
        n, (own, other) = self._n, self._graph[1]
        every = n + self._terminals
        distances, lines = aligned((every, LANES), np.int32), aligned((every, 1 + own.shape[1], LANES), np.int32)
        distances[n:], lines[n:] = FAR, -1
        sums = aligned((every, other.shape[1], LANES), np.float64)
        orders = (
            np.arange(n, dtype=np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.uint8),
            np.empty((n + 1, 2), np.int32),
        )
        return np.empty((LANES, n), np.int32), ((distances, lines, sums), orders, np.empty(n, np.uint16))


class KeptSpaces:
    """Arrays that threads work with: each set of arrays serves one call at a time, and is kept for the next call.

    Args:
        make: makes another set of arrays.
    """

    def __init__(self, make: Callable[[], tuple[Any, ...]]) -> None:
        self._make, self._free = make, list[tuple[Any, ...]]()

    @contextmanager
    def one(self) -> Iterator[tuple[Any, ...]]:
        """Context manager: yields the arrays for one call."""
        try:
            space = self._free.pop()
        except IndexError:
            space = self._make()
        yield space
        self._free.append(space)


def side_by_side(count: int, lanes: int) -> int:
    """Return how many of some rows are summed side by side, at most ``lanes`` at a time."""
    left = count % lanes
    return count - (left if left < LEAST_ROWS else 0)


def arcs_into(graph: Graph, numbers: Indices) -> tuple[Indices, npt.NDArray[np.int32], Indices]:
    """Return where the arcs into each vertex begin, their tails, and the numbers of these arcs in the graph.

    The tail of an arc out of terminal t is n + t.  The tails of the arcs into a vertex ascend by their numbers in the
    graph.

    Args:
        graph: the graph.
        numbers: shape (n,): the new number of each vertex; terminals keep theirs.
    """
    heads = numbers.astype(np.int32)[graph.heads]
    order = np.argsort(heads, kind="stable")  # stable, so tails ascend among the arcs into a vertex
    begins = numbers.astype(np.int32)
    begins[: graph.terminals] += np.int32(graph.n)
    tails = np.repeat(begins, np.diff(graph.indptr))[order]
    into = np.concatenate(([0], np.cumsum(np.bincount(heads, minlength=graph.n)))).astype(np.int64)
    return into, tails, order


def by_nearness(which: Indices, sources: Indices, rows: Array, lanes: int) -> Indices:
    """Return the numbers of some rows in an order in which those that are summed together have sources near each other.

    The rows are halved, again and again, by which of two distant sources is nearer.

    Args:
        which: the numbers of these rows.
        sources: vertex indices, shape (rows,).
        rows: shape (rows, n): the distances from ``sources``.
        lanes: how many rows are summed together.
    """
    if len(which) <= lanes:
        return which
    lengths = rows[which[:, None], sources[which]]
    if lengths.dtype.kind == "f":
        lengths = np.nan_to_num(lengths.astype(np.float64), posinf=1e300)
    else:
        lengths = lengths.astype(np.int64)

    def halved(part: Indices) -> Indices:
        if len(part) <= lanes:
            return part
        one = part[np.argmax(lengths[part[0], part])]
        other = part[np.argmax(lengths[one, part])]
        part = part[np.argsort(lengths[one, part] - lengths[other, part], kind="stable")]
        half = -(-(len(part) // 2) // lanes) * lanes
        return np.concatenate((halved(part[:half]), halved(part[half:])))

    return which[halved(np.arange(len(which)))]


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an array whose data begin at a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    found: Array = memory[skip : skip + size].view(dtype).reshape(shape)
    return found


def _clusters(n: int, tails: Array, heads: Array, zero: Array) -> tuple[Array, Array, Array] | None:
    """Find the clusters: a cluster is a set of vertices that arcs of length zero join.

    Args:
        n: number of vertices.
        tails: int32, shape (arcs,).
        heads: int32, shape (arcs,).
        zero: of bool, shape (arcs,): whether each arc has length zero and begins at no terminal.

    Returns:
        The cluster of each vertex, -1 for none, or an empty array if there is no cluster; where the members of each
        cluster begin; and the members.  None if a cluster has more than ``CLUSTER`` vertices.
    """
    if not zero.any():
        return np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32)
    joined = tails[zero], heads[zero]
    # every vertex takes the least number in its cluster, which reaches all of a cluster in fewer rounds than it has
    # vertices; to import a library for this takes longer than a search in a small graph
    least, before = np.arange(n), np.empty(0, np.int64)
    for _ in range(CLUSTER):
        if np.array_equal(least, before):
            break
        before = least.copy()
        nearer = np.minimum(*(before[ends] for ends in joined))
        for ends in joined:
            np.minimum.at(least, ends, nearer)
    sizes = np.bincount(least)
    if sizes.max() > CLUSTER or not np.array_equal(least, before):
        return None
    number = np.where(sizes > 1, np.cumsum(sizes > 1) - 1, -1).astype(np.int32)
    which = number[least]
    members = np.argsort(which, kind="stable")[np.count_nonzero(which < 0) :].astype(np.int32)
    begins = np.concatenate(([0], np.cumsum(sizes[sizes > 1]))).astype(np.int64)
    return which, begins, members
