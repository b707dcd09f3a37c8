"""Steps 1 and 2 of ``engine.algorithms.partitioned`` for small parts, in compiled code: each thread takes whole parts.

A small part has some dozens of vertices, so each of its products takes microseconds, less than a call from Python.  Two
parts are independent if neither lies above the other.  So threads take parts level by level: bottom up to eliminate
them, top down to extend their lengths.  Sums are formed in the same order as by a backend's operations, so both give
the same lengths to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Eliminated
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.relax import ITEM_BYTES, better_of, close_whole, relax_item
from engine.devices.cpu.team import fetch_add
from engine.devices.cpu.vector import TILE_VECTORS, VECTOR_BYTES, copy_run
from engine.graph.kernels import njit
from engine.graph.partition import Parts
from engine.model.backend import Array, Signs
from engine.model.blocks import GRAIN, LEAF
from engine.model.dtypes import WorkType

Indices = npt.NDArray[np.int64]

#: Most updates to eliminate a small part.  One thread takes 2 to 11 ms for them at the rates that planning assumes,
#: depending on the type.
PART_UPDATES: Final = 2**26
#: Most vertices of a small part and its border together: each thread has work space for the square of this number.
PART_SIDE: Final = 1024
#: A batch of several parts has at most about this many updates per thread; a stop is possible between batches.
BATCH_UPDATES: Final = 2**30
#: Each thread of a batch gets at least about this many updates; a small batch is computed by fewer threads.
EACH: Final = 2**21
#: When lengths are extended, work is cut into items: ITEMS for each thread, each of at least about ITEM_UPDATES
#: updates.
ITEMS: Final = 3
ITEM_UPDATES: Final = 2**20


@njit(nogil=True, cache=True)
def _relax(c, a, b, shape, by_bits, buffers):  # type: ignore[no-untyped-def]
    """Relax C by A and B.  Each operand is a tuple: a flat array, the index of the first entry, and the row stride."""
    rows, columns, depth = shape
    widest = ITEM_BYTES // c[0].itemsize
    for j in range(0, columns, widest):
        wide = min(widest, columns - j)
        relax_item(
            c[0], c[1] + j, c[2], a[0], a[1], a[2], b[0], b[1] + j, b[2],
            rows, wide, depth, -rows - wide, by_bits, buffers[0], buffers[1], buffers[2],
        )  # fmt: skip


@njit(nogil=True, cache=True)
def _copy(out, block, rows, columns):  # type: ignore[no-untyped-def]
    """Copy ``block`` to ``out``; each is a tuple (flat array, index of the first entry, row stride)."""
    for i in range(rows):
        into, source = out[1] + i * out[2], block[1] + i * block[2]
        copy_run(out[0], into, block[0], source, columns)


@njit(nogil=True, cache=True)
def _transpose(out, block, rows, columns):  # type: ignore[no-untyped-def]
    """Write the transpose of ``block``, which has shape (``rows``, ``columns``), to ``out``."""
    for i in range(rows):
        for j in range(columns):
            out[0][out[1] + j * out[2] + i] = block[0][block[1] + i * block[2] + j]


@njit(nogil=True, cache=True, inline="always")
def _carry(block, spans, spare, form, buffers):  # type: ignore[no-untyped-def]
    """Relax the rest of a block by the paths through its closed half.

    ``spans`` holds first row and size of the closed half, then first row and size of the other half.
    """
    d, start, stride = block
    at, size, to, rest = spans
    _, _, by_bits, directed = form
    zero = np.int64(0)
    done, other = (d, start + at * (stride + 1), stride), (d, start + to * (stride + 1), stride)
    row, column = (d, start + at * stride + to, stride), (d, start + to * stride + at, stride)
    if directed or at == 0:
        _copy((spare, zero, rest), row, size, rest)
        _relax(row, done, (spare, zero, rest), (size, rest, size), by_bits, buffers)
    if directed or at > 0:
        _copy((spare, zero, size), column, rest, size)
        _relax(column, (spare, zero, size), done, (rest, size, size), by_bits, buffers)
    if not directed and at == 0:
        _transpose(column, row, size, rest)
    elif not directed:
        _transpose(row, column, rest, size)
    _relax(other, column, row, (rest, rest, size), by_bits, buffers)
    for i in range(rest):
        place = other[1] + i * (stride + 1)
        d[place] = max(d[place], 0)
        for j in range(0 if directed else i):  # in a symmetric block, copy the entries above the diagonal to below it
            d[other[1] + i * stride + j] = d[other[1] + j * stride + i]


@njit(nogil=True, cache=True, inline="always")
def _close(block, n, spare, form, buffers):  # type: ignore[no-untyped-def]
    """Run Floyd-Warshall inside a block, in the order of ``engine.algorithms.floyd_warshall.recursive``.

    ``spare`` is work space for copies of panels.
    """
    d, stride = block[0], block[2]
    stack = np.empty((64, 3), np.int64)  # unfinished blocks: first entry, number of vertices, number of closed halves
    stack[0, 0], stack[0, 1], stack[0, 2], top = block[1], n, 0, 0
    while top >= 0:
        start, size, closed = stack[top, 0], stack[top, 1], stack[top, 2]
        if size <= LEAF:
            close_whole(d, start, stride, size, form[2], buffers[0], buffers[1], buffers[2], buffers[3])
            top -= 1
            continue
        h = (size + 2 * GRAIN - 1) // (2 * GRAIN) * GRAIN
        if closed > 0:
            spans = (0, h, h, size - h) if closed == 1 else (h, size - h, 0, h)
            _carry((d, start, stride), spans, spare, form, buffers)
        stack[top, 2] += 1
        if closed == 2:
            top -= 1
        elif closed == 0:
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = start, h, 0
        else:
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = start + h * (stride + 1), size - h, 0


@njit(nogil=True, cache=True)
def _place(position, start, stop, border):  # type: ignore[no-untyped-def]
    """Return the row of a position in the *front* of a part, a matrix over the vertices of the part and its border."""
    if position < stop:
        return position - start
    return stop - start + np.searchsorted(border, position)


@njit(nogil=True, cache=True)
def _assemble(i, tree, arcs, results, front, form):  # type: ignore[no-untyped-def]
    """Fill the *front* of a part, the matrix of lengths among its vertices and border: over single arcs, and through
    the parts below.
    """
    starts, ends, borders, below, begin_below = tree
    tails, heads, weights, begin = arcs
    far, _, by_bits, _ = form
    rests, rest_at = results[4], results[5]
    start, stop = starts[i], starts[i + 1]
    border = borders[ends[i] : ends[i + 1]]
    side = stop - start + len(border)
    front[: side * side] = far
    for v in range(side):
        front[v * side + v] = 1 if by_bits is None else 0
    for e in range(begin[i], begin[i + 1]):
        row = _place(tails[e], start, stop, border)
        front[row * side + _place(heads[e], start, stop, border)] = weights[e]
    for c in range(begin_below[i], begin_below[i + 1]):
        part = below[c]
        other = borders[ends[part] : ends[part + 1]]
        k = len(other)
        places = np.empty(k, np.int64)
        for u in range(k):
            places[u] = _place(other[u], start, stop, border)
        for u in range(k):
            row, source = places[u] * side, rest_at[part] + u * k
            for v in range(k):
                place = row + places[v]
                front[place] = better_of(front[place], rests[source + v], by_bits)
    return side


@njit(nogil=True, cache=True, inline="always")
def _eliminate_part(i, tree, arcs, results, spaces, form, buffers):  # type: ignore[no-untyped-def]
    """Close a part, and find the lengths to and from its border and between the vertices of the border."""
    front, spare = spaces
    far, most, by_bits, directed = form
    flat, upward, across, lengths_at, rests, rest_at, table, wide = results
    size = tree[0][i + 1] - tree[0][i]
    side = _assemble(i, tree, arcs, results, front, form)
    depth = side - size
    own, out, back = (front, np.int64(0), side), (front, size, side), (front, size * side, side)
    _close(own, size, spare, form, buffers)
    if size > LEAF and most > 0:
        for u in range(size):
            for v in range(u * side, u * side + size):
                front[v] = far if front[v] > most else front[v]
    _copy((flat, table[i], wide[i]), own, size, size)
    if depth == 0:
        return
    at = lengths_at[i]
    up, down, rest = (upward, at, depth), (across, at, size), (rests, rest_at[i], depth)
    _copy(up, out, size, depth)
    _relax(up, own, out, (size, depth, size), by_bits, buffers)
    if directed:
        _copy(down, back, depth, size)
        _relax(down, back, own, (depth, size, size), by_bits, buffers)
    else:
        _transpose(down, up, size, depth)
    _copy(rest, (front, size * side + size, side), depth, depth)
    _relax(rest, back, up, (depth, depth, size), by_bits, buffers)


@njit(nogil=True, cache=True)
def _eliminate_items(worker, counter, items, walk, spaces, form, packs):  # type: ignore[no-untyped-def]
    """Eliminate the parts ``items``; ``walk`` holds the tree of parts, the arcs and the results.

    All threads share ``counter``, the number of the next item; the call returns when no item is left.
    """
    buffers = (packs[0][worker], packs[1][worker], packs[2][worker], packs[3][worker])
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= len(items):
            break
        some = (spaces[0][worker], spaces[1][worker])
        _eliminate_part(items[item], walk[0], walk[1], walk[2], some, form, buffers)


@njit(nogil=True, cache=True)
def _extend_items(worker, counter, items, walk, spaces, form, packs):  # type: ignore[no-untyped-def]
    """Find the lengths of ``items``, each from a part to some columns: (part, first column, column after the last).

    All threads share ``counter``, the number of the next item; the call returns when no item is left.
    """
    starts, ends, borders, owner = walk[0]
    flat, upward, lengths_at, table, wide = walk[1]
    far, by_bits = form
    beyond = spaces[worker]
    buffers = (packs[0][worker], packs[1][worker], packs[2][worker], packs[3][worker])
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= len(items):
            break
        i, first, last = items[item]
        size, depth, columns = starts[i + 1] - starts[i], ends[i + 1] - ends[i], last - first
        for b in range(depth):
            position = borders[ends[i] + b]
            k = owner[position]
            # the number of columns that belong to parts below part k, for which the table of k has no columns
            unknown = max(0, min(columns, wide[i] - size - wide[k] - first))
            source = table[k] + (position - starts[k]) * wide[k] + first + unknown - (wide[i] - size - wide[k])
            beyond[b * columns : b * columns + unknown] = far
            copy_run(beyond, b * columns + unknown, flat, source, columns - unknown)
        into = table[i] + size + first
        for v in range(size):
            flat[into + v * wide[i] : into + v * wide[i] + columns] = far
        left, right = (upward, lengths_at[i], depth), (beyond, 0, columns)
        _relax((flat, into, wide[i]), left, right, (size, columns, depth), by_bits, buffers)


class SmallParts:
    """Computes small parts of a graph; all parts below a small part are small, too.

    Args:
        backend: provides the threads.
        found: the parts, and the arrays that receive the results of elimination; the results of parts below the
            selected ones are already in them.
        small: mask of the parts to compute, shape (parts,).
        kind: the working type.
        nonnegative: what is known about the weights.
        directed: whether lengths differ in the two directions.
    """

    def __init__(
        self,
        backend: CpuBackend,
        found: Eliminated,
        small: npt.NDArray[np.bool_],
        kind: WorkType,
        *,
        nonnegative: Signs,
        directed: bool,
    ) -> None:
        self._backend, self._parts, self._small, self._kind = backend, found.parts, small, kind
        self._nonnegative, self._directed, self._found = nonnegative, directed, found
        self._sizes, self._depths, self._wide = found.parts.sizes, found.parts.depths, found.parts.widths()
        self._updates = found.parts.updates()
        self._table = np.cumsum(self._sizes * self._wide) - self._sizes * self._wide

    def eliminate(self, flat: Array, arcs: tuple[Array, ...]) -> Iterator[Indices]:
        """Eliminate the small parts (step 1), and fill the first columns of their tables.

        Args:
            flat: the tables of all parts, one after the other.
            arcs: positions of tails, positions of heads, and weights, sorted by part; and the index at which the arcs
                of each part begin.  An arc belongs to that part of its two ends that is eliminated first.

        Yields:
            The numbers of the parts of each batch, once the batch is done.
        """
        parts, kind, found = self._parts, self._kind, self._found
        height, (below, begin_below) = self._heights(), self._below()
        tree = (parts.starts, parts.ends, parts.borders, below, begin_below)
        results = (
            flat, found.upward, found.across, found.at, found.rests, found.rest_at, self._table, self._wide,
        )  # fmt: skip
        most = kind.largest_signed if kind.integer and not self._nonnegative else 0
        form = (kind.sentinel(), kind.dtype.type(most), self._nonnegative, self._directed)
        threads, side = self._backend.threads, self._sizes + self._depths
        largest, widest = int(side[self._small].max(initial=0)), int(self._sizes[self._small].max(initial=0))
        spaces = (
            np.empty((threads, largest**2), kind.dtype),
            np.empty((threads, widest**2 // 2 if widest > LEAF else 0), kind.dtype),
        )
        updates = self._updates[0]
        for level in _levels(height, self._small):
            for some in self._batches(level[np.argsort(-updates[level], kind="stable")], updates):
                done = int(updates[some].sum())
                self._run(_eliminate_items, done, some, (tree, arcs, results), spaces, form)
                yield some

    def extend(self, flat: Array) -> Iterator[Indices]:
        """Extend the lengths of the small parts to all parts above (step 2); parts that are not small are done already.

        Args:
            flat: the tables of all parts.

        Yields:
            The numbers of the parts of each batch, once the batch is done.
        """
        parts, kind, updates = self._parts, self._kind, self._updates[1]
        tree = (parts.starts, parts.ends, parts.borders, parts.owner())
        lengths = (flat, self._found.upward, self._found.at, self._table, self._wide)
        form, above = (kind.sentinel(), self._nonnegative), self._wide - self._sizes
        widest = ITEM_BYTES // kind.itemsize
        entries = self._depths * np.minimum(above, widest)
        spaces = np.empty((self._backend.threads, int(entries[self._small].max(initial=0))), kind.dtype)
        for level in _levels(self._deeps(), self._small & (self._depths > 0)):
            for some in self._batches(level, updates):
                done = int(updates[some].sum())
                self._run(_extend_items, done, self._spans(some, done), (tree, lengths), spaces, form)
                yield some

    def _run(self, kernel: Callable[..., object], updates: int, items: Indices, *arguments: object) -> None:
        most = min(len(items), 1 + updates // EACH)
        self._backend.share_items(kernel, self._kind.dtype, items, *arguments, most=most)

    def _spans(self, some: Indices, updates: int) -> Indices:
        """Cut the columns of some parts into items; return a row for each: part, first column, last column + 1."""
        unit = TILE_VECTORS * VECTOR_BYTES // self._kind.itemsize
        widest = ITEM_BYTES // self._kind.itemsize
        least = max(ITEM_UPDATES, updates // (ITEMS * self._backend.threads)) if self._backend.threads > 1 else updates
        spans = []
        for i in some.tolist():
            above, each = int(self._wide[i] - self._sizes[i]), int(self._sizes[i] * self._depths[i])
            high = min(widest, max(unit, least // each // unit * unit))
            spans += [(i, first, min(above, first + high)) for first in range(0, above, high)]
        return np.array(spans, np.int64)

    def _batches(self, level: Indices, updates: Indices) -> Iterator[Indices]:
        """Cut the parts ``level`` into batches of one part, or of at most about BATCH_UPDATES updates per thread."""
        number = np.cumsum(updates[level]) // (BATCH_UPDATES * self._backend.threads)
        return iter(np.split(level, np.flatnonzero(np.diff(number)) + 1)) if len(level) else iter(())

    def _heights(self) -> Indices:
        """Return the height of each part in the tree: the longest chain of parts below it."""
        height = np.zeros(self._parts.count, np.int64)
        for i, above in enumerate(self._parts.parents.tolist()):
            if above >= 0:
                height[above] = max(height[above], height[i] + 1)
        return height

    def _deeps(self) -> Indices:
        """Return the depth of each part in the tree: the number of parts above it."""
        deep = np.zeros(self._parts.count, np.int64)
        parents = self._parts.parents
        for i in range(self._parts.count - 1, -1, -1):
            if parents[i] >= 0:
                deep[i] = deep[parents[i]] + 1
        return deep

    def _below(self) -> tuple[Indices, Indices]:
        """Return the children of all parts, one part after the other, and the index at which each part's children
        begin.
        """
        parents = self._parts.parents
        order = np.argsort(parents, kind="stable")
        return order, np.searchsorted(parents[order], np.arange(self._parts.count + 1))


def _levels(height: Indices, among: npt.NDArray[np.bool_]) -> Iterator[Indices]:
    """Return, for each height from the lowest to the highest, the parts of this height in the mask ``among``."""
    some = np.flatnonzero(among)
    order = some[np.argsort(height[some], kind="stable")]
    cuts = np.flatnonzero(np.diff(height[order])) + 1
    return iter(np.split(order, cuts)) if len(order) else iter(())


def small_parts(parts: Parts) -> npt.NDArray[np.bool_]:
    """Return a mask of the small parts: they and all parts below them are within PART_UPDATES and PART_SIDE."""
    small = (parts.updates()[0] <= PART_UPDATES) & (parts.sizes + parts.depths <= PART_SIDE)
    for i, above in enumerate(parts.parents.tolist()):
        if above >= 0 and not small[i]:
            small[above] = False
    return small
