"""The sweep of the partitioned algorithm on the CPU: it fills many rows of the matrix at a time, part by part.

A thread takes some rows, fills in the lengths that ``engine.algorithms.partitioned`` computed (from each source to its
own part and the parts above), and goes through the parts from the last to the first.  For each part it relaxes the
columns of the part by the product (lengths from the sources to the part's border) (x) (lengths from the border to the
part), whose right operand is packed once for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.relax import DEPTH, aligned, pack_right, relax_packed
from engine.devices.cpu.searches import Done, Searches
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES, copy_run, pack_entry, packed_dtype
from engine.graph.kernels import njit
from engine.graph.partition import Lengths, Parts
from engine.model.backend import NOTHING_SPECIAL, Arcs, Array, RowsWanted
from engine.model.device_layout import SWEEP_ROWS
from engine.model.dtypes import WorkType, work_type

#: The largest number of rows that a thread computes before it gathers their facts (how many entries are reached, their
#: sum and the largest).
PIECE_ROWS: Final = 128
#: The least number of entries of a single row per thread if up to four threads share the row.  Measured with two
#: threads and one: 0.11 and 0.08 ms for 3,353 entries (Rome), 0.34 and 0.41 for 20,000 (a lattice), 0.59 and 1.09 for
#: 40,000.
SHARED_ROW: Final = 2**14
#: The least number of entries per thread if more than four threads share a row.  Measured: with 231,161 entries (Delhi)
#: eight threads are no faster than four; with 1,000,000 (a lattice) eight take 0.6 of the time of four, and sixteen
#: 0.5.
LONG_ROW: Final = 2**16
#: The largest number of threads that share a row; more threads were not measured.
MOST_SHARES: Final = 16
#: Approximate number of branches of the tree of parts for each thread that shares a row.  With more branches threads
#: are idle for less time, but more parts lie above all branches, and every thread relaxes these parts itself.
BRANCHES: Final = 4
#: The share of a row that one thread sweeps, as :func:`_shares` returns it.
Share = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], bool]
#: The largest number of entries that a thread sweeps before a sink takes them; the rows of a single sweep may have
#: more.
KEPT_ENTRIES: Final = 2**20


@njit(nogil=True, cache=True)
def _pack_across(weights, depth, columns, out, at):  # type: ignore[no-untyped-def]
    """Pack ``weights`` (flat, depth x columns) as the right operand of relax, DEPTH rows at a time, into
    ``out[at:]``.
    """
    width = TILE_VECTORS * VECTOR_BYTES // out.itemsize
    across = (columns + width - 1) // width * width
    for k in range(0, depth, DEPTH):
        deep = min(DEPTH, depth - k)
        pack_right(weights, k * columns, columns, deep, columns, out[at + k * across :])


@njit(nogil=True, cache=True)
def _gather(x, stride, rows, border, out):  # type: ignore[no-untyped-def]
    """Pack the columns ``border`` of ``x`` as the left operand of relax; the last strip is padded."""
    depth = len(border)
    for top in range(0, rows, TILE_ROWS):
        base, height = top * depth, min(TILE_ROWS, rows - top)
        for k in range(depth):
            source = top * stride + border[k]
            for r in range(TILE_ROWS):
                pack_entry(out, base + k * TILE_ROWS + r, x[source + min(r, height - 1) * stride])


@njit(nogil=True, cache=True)
def _seed(x, row, position, starts, parents, part, tables, table, wide):  # type: ignore[no-untyped-def]
    """Copy the lengths from ``position`` to its own part and to the parts above from the tables into ``x[row:]``."""
    j = part[position]
    at = table[j] + (position - starts[j]) * wide[j]
    while j >= 0:
        first, size = starts[j], starts[j + 1] - starts[j]
        copy_run(x, row + first, tables, at, size)
        at += size
        j = parents[j]


@njit(nogil=True, cache=True)
def _emit(x, places, shift, source, limit, far, sentinel, row):  # type: ignore[no-untyped-def]
    """Copy the finished row ``x`` into ``row``, in the caller's order of columns; unreachable entries become
    ``sentinel``.
    """
    if len(shift) == 0:
        for v in range(len(places)):
            value = x[places[v]]
            row[v] = sentinel if value > limit else value
    else:
        for v in range(len(places)):
            value = x[places[v]]
            row[v] = sentinel if value == far else value + (shift[v] - shift[source])


@njit(nogil=True, cache=True)
def _sweep_rows(walk, space, places, far, sources, by_bits):  # type: ignore[no-untyped-def]
    """Fill rows of the work space with the lengths from ``sources``, in the order of positions.

    ``walk``: ``starts``, ``parents``, ``ends`` and ``borders`` of the parts; the part of each position; the tables of
    all parts, where each part's table begins and how long its rows are; the packed lengths from borders to parts, and
    where those of each part begin.  ``space``: work space for the rows, the left side and the edge of a product.
    ``places``: the position of each vertex.  ``far``: *unreachable* in the type of the tables.
    """
    starts, parents, lasts, borders, part, tables, table, wide, across, packed = walk
    x, left, edge = space
    n, rows = starts[-1], len(sources)
    width = TILE_VECTORS * VECTOR_BYTES // tables.itemsize
    stride = (n + width - 1) // width * width
    x[: rows * stride] = far
    for i in range(rows):
        _seed(x, i * stride, places[sources[i]], starts, parents, part, tables, table, wide)
    for j in range(len(parents) - 1, -1, -1):
        depth, size = lasts[j + 1] - lasts[j], starts[j + 1] - starts[j]
        padded = (size + width - 1) // width * width
        for k in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - k)
            _gather(x, stride, rows, borders[lasts[j] + k : lasts[j] + k + deep], left)
            right = across[packed[j] + k * padded : packed[j] + (k + deep) * padded]
            above = -rows - size  # low enough that all tiles count as above the diagonal
            relax_packed(x, starts[j], stride, rows, size, deep, above, by_bits, left, right, edge)


# fastmath promises that there are no NaNs, because LLVM vectorises minima of floats only then; sums are not reordered
@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _relax_strip(some, value, across):  # type: ignore[no-untyped-def]
    """Relax some entries of a row: ``some`` <- min(``some``, ``value`` + ``across``)."""
    for c in range(len(some)):
        some[c] = min(some[c], type(value)(value + across[c]))


@njit(nogil=True, cache=True)
def _relax_part(walk, j, x):  # type: ignore[no-untyped-def]
    """Relax the entries of part ``j`` in the row ``x`` by those of its border, in vectors along the row."""
    starts, lasts, borders, across, packed = walk[0], walk[2], walk[3], walk[8], walk[9]
    depth, size = lasts[j + 1] - lasts[j], starts[j + 1] - starts[j]
    width = TILE_VECTORS * VECTOR_BYTES // across.itemsize
    padded = (size + width - 1) // width * width
    for k in range(0, depth, DEPTH):
        deep = min(DEPTH, depth - k)
        border = borders[lasts[j] + k : lasts[j] + k + deep]
        for first in range(0, size, width):
            some = x[starts[j] + first : starts[j] + min(first + width, size)]
            at = packed[j] + k * padded + first * deep
            for i in range(deep):
                _relax_strip(some, x[border[i]], across[at + i * width : at + (i + 1) * width])


@njit(nogil=True, cache=True)
def _emit_span(x, span, columns, source, ends, row):  # type: ignore[no-untyped-def]
    """Copy the entries of ``x`` at the positions ``first`` ... ``last`` - 1 into ``row``, as :func:`_emit` does."""
    (first, last), (_, vertices, shift), (limit, far, sentinel) = span, columns, ends
    if len(shift) == 0:
        for p in range(first, last):
            value = x[p]
            row[vertices[p]] = sentinel if value > limit else value
    else:
        for p in range(first, last):
            v, value = vertices[p], x[p]
            row[v] = sentinel if value == far else value + (shift[v] - shift[source])


@njit(nogil=True, cache=True)
def _sweep_one(walk, x, columns, ends, source, row, share):  # type: ignore[no-untyped-def]
    """Fill some entries of ``row`` with the distances from ``source``, computed in vectors along the row.

    The register tiles of :func:`_sweep_rows` are many rows high, so a single row would take as long as a tile full of
    rows.  This function computes the same sums and minima.

    ``columns``: the position of each vertex, the vertex of each position, and potentials, empty for none.  ``share``:
    which parts of the row to fill, see :func:`_shares`.
    """
    starts, parents, part, tables, table, wide = walk[0], walk[1], walk[4], walk[5], walk[6], walk[7]
    above, branches, whole = share
    for j in above:
        x[starts[j] : starts[j + 1]] = ends[1]
    for b in range(len(branches)):
        x[starts[branches[b, 0]] : starts[branches[b, 1]]] = ends[1]
    _seed(x, 0, columns[0][source], starts, parents, part, tables, table, wide)
    for j in above:
        _relax_part(walk, j, x)
    for b in range(len(branches)):
        for j in range(branches[b, 1] - 1, branches[b, 0] - 1, -1):
            _relax_part(walk, j, x)
        _emit_span(x, (starts[branches[b, 0]], starts[branches[b, 1]]), columns, source, ends, row)
    if whole:
        for j in above:
            _emit_span(x, (starts[j], starts[j + 1]), columns, source, ends, row)


@njit(nogil=True, cache=True)
def _sweep_piece(walk, space, columns, ends, sources, out, by_bits):  # type: ignore[no-untyped-def]
    """Sweep as many rows at a time as the work space holds, until all rows ``out`` are filled.

    ``columns``: the position of each vertex, and potentials, empty for none.  ``ends``: the largest distance and
    *unreachable* in the type of the tables, and *unreachable* in the type of ``out``.  All other arguments: as in
    :func:`_sweep_rows`.
    """
    places, shift = columns
    limit, far, sentinel = ends
    n, width = walk[0][-1], TILE_VECTORS * VECTOR_BYTES // walk[5].itemsize
    stride = (n + width - 1) // width * width
    high = len(space[0]) // stride
    for first in range(0, len(sources), high):
        some = sources[first : first + high]
        _sweep_rows(walk, space, places, far, some, by_bits)
        for i in range(len(some)):
            row = space[0][i * stride : i * stride + n]
            _emit(row, places, shift, some[i], limit, far, sentinel, out[first + i])


@njit(nogil=True, cache=True)
def _sweep_kept(walk, space, columns, ends, sources, block, by_bits):  # type: ignore[no-untyped-def]
    """Sweep rows as :func:`_sweep_piece` does, but into ``block``, without potentials, and in the order of positions.

    ``block``: shape (rows, positions, rounded up); entries after the last position become *unreachable*, too.
    ``space``: how many rows are swept together; work space for the left side and the edge of a product.
    """
    high, left, edge = space
    limit, far, _ = ends
    x, stride = block.reshape(-1), block.shape[1]
    for first in range(0, len(sources), high):
        some = sources[first : first + high]
        rows = x[first * stride : (first + len(some)) * stride]
        _sweep_rows(walk, (rows, left, edge), columns[0], far, some, by_bits)
        for j in range(len(rows)):  # without branches, so that LLVM vectorises the loop
            rows[j] = far if rows[j] > limit else rows[j]


class Sweeper(CpuBackend):
    """A CPU backend whose searches sweep over the parts of one graph.

    Args:
        parts: the parts of that graph.
        lengths: lengths within and between its parts.
        nonnegative: whether no arc is negative.
        owner: the backend whose threads and work space this one uses.
    """

    def __init__(self, parts: Parts, lengths: Lengths, *, nonnegative: bool, owner: CpuBackend) -> None:
        super().__init__(owner=owner)
        self._position, self._vertices = parts.position, np.argsort(parts.position)
        self._nonnegative = nonnegative
        self._parts = flattened(parts, lengths)
        self._one_row = _shares(parts, min(self.threads, most_shares(len(parts.position))))

    def begin_search(
        self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, wanted: RowsWanted = NOTHING_SPECIAL
    ) -> Searches:
        """Split the computation of whole rows into pieces of work, which the threads of ``share`` run.

        Args:
            arcs: only the potentials are read; they turn reduced lengths into distances.
            sources: vertex indices, shape (rows,).
            out: shape (rows, n); row i receives the distances from ``sources[i]``.
            wanted: ``dtype`` and ``take`` are used; ``targets`` and ``cutoff`` must be None, all other fields have no
                effect.

        Raises:
            ValueError: there are targets or a cutoff.
        """
        if wanted.targets is not None or wanted.cutoff is not None:
            raise ValueError("a sweep makes whole rows; they are cut on their way to the sink")
        kind = work_type(out.dtype if wanted.dtype is None else wanted.dtype)
        high = max(1, min(SWEEP_ROWS, -(-len(sources) // self.threads)))
        limit = kind.largest if self._nonnegative or not kind.integer else kind.largest_signed
        shift = np.empty(0) if arcs.potentials is None else np.ascontiguousarray(arcs.potentials)
        ends = (kind.dtype.type(limit), kind.sentinel(), work_type(out.dtype).sentinel())
        sources, columns = np.ascontiguousarray(sources, np.int64), (self._position, shift)
        if len(sources) == 1:
            return self._begin_one((self._position, self._vertices, shift), ends, int(sources[0]), out[0])

        # one call makes all sweeps of a piece, because threads that call kernels wait for each other in the
        # interpreter; a piece has few enough sweeps that there are at least four pieces per thread
        rows = high * max(1, min(PIECE_ROWS // high, len(sources) // (4 * high * self.threads)))
        if wanted.take is not None:
            rows = min(rows, high * max(1, KEPT_ENTRIES // (high * len(self._position))))

        kept = wanted.take if len(shift) == 0 else None

        def sweep(first: int, worker: int) -> Done:
            held = rows if kept is not None else 0
            key = ("sweep", high, held, kind.name)
            *space, block = self._spaces.of(worker, key, lambda: self._space_of(worker, high, held, kind))
            last = min(first + rows, len(sources))
            some = slice(first, last)
            if kept is not None:
                part, work = block[: last - first], (high, *space[1:])
                _sweep_kept(self._parts, work, columns, ends, sources[some], part, self._nonnegative)
                kept(np.arange(first, last), part, self._position)
                return Done(np.arange(first, last), taken=True)
            _sweep_piece(self._parts, tuple(space), columns, ends, sources[some], out[some], self._nonnegative)
            return Done(np.arange(first, last))

        return Searches(partial(sweep, first) for first in range(0, len(sources), rows))

    def _begin_one(self, columns: Sequence[Array], ends: tuple[Any, ...], source: int, row: Array) -> Searches:
        """Split the computation of one row into its shares; the arguments are those of :func:`_sweep_one`."""
        kind, count = self._parts[5].dtype, len(self._position)
        left = list(range(len(self._one_row)))

        def sweep_one(share: Share, worker: int) -> Done:
            x = self._spaces.of(worker, ("sweep one", kind.name), lambda: np.empty(count, kind))
            _sweep_one(self._parts, x, tuple(columns), ends, source, row, share)
            last = left.pop() == 0  # ``pop`` is atomic, so exactly one share is the last
            return Done(np.arange(1 if last else 0))

        return Searches(partial(sweep_one, share) for share in self._one_row)

    def _space_of(self, worker: int, high: int, held: int, kind: WorkType) -> tuple[Array, Array, Array, Array]:
        """Return the work space of a thread that sweeps ``high`` rows at a time: four arrays.

        They are for the rows, the left operand of a product, its edge, and ``held`` finished rows.  If ``held`` is not
        0, the fourth array replaces the first one.
        """
        x, left = sweep_space(self._parts, high)
        block = np.empty((held, len(x) // high), kind.dtype)
        return x[:0].copy() if held else x, left, self._space.packs(kind.dtype)[2][worker], block


def most_shares(entries: int) -> int:
    """Return how many threads share a single row of ``entries`` entries, at least 1."""
    return max(1, min(MOST_SHARES, entries // SHARED_ROW, max(4, entries // LONG_ROW)))


def sweep_space(walk: tuple[Array, ...], high: int) -> tuple[Array, Array]:
    """Return the work space of ``high`` rows that are swept together: for the rows, and for the left operand of a
    product.
    """
    starts, parents, lasts, dtype = *walk[:3], walk[5].dtype
    width = TILE_VECTORS * VECTOR_BYTES // dtype.itemsize
    stride = -(-int(starts[-1]) // width) * width
    deepest = min(DEPTH, int(np.diff(lasts).max())) if len(parents) else 0
    return np.empty(high * stride, dtype), np.empty((high + TILE_ROWS) * deepest, packed_dtype(dtype))


def flattened(parts: Parts, lengths: Lengths) -> tuple[Array, ...]:
    """Return the argument ``walk`` of :func:`_sweep_rows`."""
    dtype, sizes, depths, wide = lengths.flat.dtype, parts.sizes, parts.depths, parts.widths()
    table = np.cumsum(sizes * wide) - sizes * wide
    width = TILE_VECTORS * VECTOR_BYTES // dtype.itemsize
    entries = depths * (-(-sizes // width) * width)
    at = np.cumsum(entries) - entries
    packed = aligned(int(entries.sum()) * dtype.itemsize).view(dtype)
    for i in range(parts.count):
        across = lengths.across[i]
        if across.size:
            depth, columns = across.shape
            _pack_across(np.ascontiguousarray(across).reshape(-1), depth, columns, packed, at[i])
    walk = (parts.starts, parts.parents, parts.ends, parts.borders, parts.owner())
    return (*walk, lengths.flat, table, wide, packed, at)


def _shares(parts: Parts, threads: int) -> list[Share]:
    """Cut the sweep of one row into shares that do not depend on each other.

    Args:
        parts: the parts.
        threads: the largest number of shares.

    Returns:
        For each share a tuple: the parts above all branches, from the last to the first, which every share relaxes for
        itself; the first part of each of its branches and the part after the last, int64, shape (branches, 2); and
        whether the share also writes the entries of the parts above all branches.
    """
    work = parts.sizes * (parts.depths + 2)
    sums, lows = work.copy(), parts.lows()
    for i, above in enumerate(parts.parents.tolist()):
        if above >= 0:
            sums[above] += sums[i]
    top = sums > (int(work.sum()) // (BRANCHES * threads) if threads > 1 else -1)
    roots = np.flatnonzero(~top & ((parts.parents < 0) | top[parts.parents]))
    mine, done = [list[int]() for _ in range(threads)], [0] * threads
    for i in roots[np.argsort(-sums[roots], kind="stable")].tolist():
        least = done.index(min(done))
        mine[least].append(i)
        done[least] += int(sums[i])
    above = np.flatnonzero(top)[::-1].astype(np.int64)
    ranges = [np.array([(lows[i], i + 1) for i in some], np.int64).reshape(len(some), 2) for some in mine]
    return [(above, some, k == 0) for k, some in enumerate(ranges) if len(some) or k == 0]
