"""The tables of a prepared graph, resident in the memory of a GPU, and distances from them.

The kernels are in ``engine/kernels/tables.cu``.  For a pair, two lines (rows of the tables) are merged; for a block,
panels of lines are multiplied.  Whole rows are swept from the highest parts downwards: one launch sweeps all parts of
one level of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.context import Modules, allocate, modules, translated, upload
from engine.devices.cuda.reducing import Reducing, reduced_bytes
from engine.devices.cuda.tables.fetching import AnswerFetcher
from engine.devices.cuda.tables.layout import LINE, ROW_STEP, Array, HostTables, Indices, TableLayout
from engine.model.rows import ReducingSink

_POINTERS: Final = ("meets", "widths", "lows", "sizes", "starts", "ends", "borders", "begins")
_TREE: Final = np.dtype([*((f, "u8") for f in _POINTERS), ("parts", "i4")], align=True)
_THREADS: Final = 256
#: _PAIR: number of threads that merge a pair.  _SIDE: side of the tiles in which a block is computed.  _SQUARE: side of
#: the squares that the kernel ``present`` copies.
_PAIR: Final = 16
_SIDE: Final = 64
_SQUARE: Final = 32
#: The number of pairs that are sent to the device at a time.
_PAIRS: Final = 1 << 24
#: A block is computed in bands of rows.  _BAND_BYTES: largest number of bytes of a band.  _BAND_ROWS: largest number of
#: rows of a band, which the height of a CUDA grid limits.
_BAND_BYTES: Final = 1 << 30
_BAND_ROWS: Final = 65_535 * _SIDE


def usable_memory(memory: int | None, index: int = 0) -> int:
    """Return the bytes of memory of a device that may be used.

    Args:
        memory: a limit; None for all that is free.
        index: index of the device.

    Raises:
        InvalidRequest: there is no usable device.
        SolveFailed: the device failed.
    """
    found = modules(index)
    with translated(found.cupy), found.cupy.cuda.Device(index):
        free = int(found.cupy.cuda.runtime.memGetInfo()[0] + found.cupy.get_default_memory_pool().free_bytes())
    return free if memory is None else min(memory, free)


class DeviceTables:
    """Tables in the memory of a device until :meth:`release`.  Not thread-safe.

    Args:
        tables: the tables, which are copied; the host's arrays are not kept.
        memory: bytes of device memory that may be used; None for all that is free.
        threads: the number of threads that copy answers into arrays of the host.
        index: index of the device.

    Attributes:
        bytes: bytes of device memory that the tables and indices take.

    Raises:
        InvalidRequest: there is no usable device.
        DoesNotFit: the memory does not suffice.
        SolveFailed: the device failed.
    """

    def __init__(self, tables: HostTables, *, memory: int | None = None, threads: int = 1, index: int = 0) -> None:
        self._found: Modules = modules(index)
        self._cupy, self._kind, self._limit = self._found.cupy, tables.kind, tables.limit
        self._memory, self._n = memory, len(tables.rows)
        kind = tables.kind
        self._arithmetic = ARITHMETICS[kind.name, kind.largest_signed >= 0 and not tables.nonnegative]
        self._layout = TableLayout(tables.parts, kind.itemsize)
        self._one_way = tables.forward is tables.backward
        self.bytes = self._layout.bytes(self._n, 1 if self._one_way else 2)
        self._held: list[Any] = []
        self._fetcher = AnswerFetcher(self._cupy, threads)
        self._released = False
        with self._working():
            self._load(tables)

    def pairs(self, rows: Indices, columns: Indices) -> Array:
        """Return the distances of pairs.

        Args:
            rows, columns: int64, shape (k,): rows and columns of the matrix.
        """
        out = np.empty(len(rows), self._kind.dtype)
        with self._working():
            step = max(1, min(_PAIRS, self._usable() // (4 * 8)))
            for first in range(0, len(rows), step):
                some = slice(first, first + step)
                there = allocate(self._cupy, (len(out[some]),), self._kind.dtype)
                self.merge(upload(self._cupy, rows[some]), upload(self._cupy, columns[some]), there)
                self._fetcher.fetch(there, out[some])
        return out

    def merge(self, rows: Any, columns: Any, out: Any) -> None:
        """Queue the computation of the distances of pairs on the current stream; all arrays are in device memory.

        Args:
            rows, columns: int64, shape (k,), contiguous.
            out: shape (k,), of the type of the tables.
        """
        count = len(out)
        given = (self._tree, *self._tables, *self._lines, rows, columns, out, np.int64(count), self._limit)
        self._launch("merge", (-(-count * _PAIR // _THREADS),), *given)

    def rows(self, vertices: Indices, *, forward: bool = True, others: Indices | None = None) -> Array:
        """Return whole rows, or some entries of them.  For float types, call this only where sums are exact.

        Args:
            vertices: int64: rows of the matrix, or columns.
            forward: True for rows, False for columns, which are returned as rows.
            others: int64: the indices of the entries that are wanted of each row; None for all.

        Returns:
            Shape (len(vertices), n), or (len(vertices), len(others)).
        """
        out = np.empty((len(vertices), self._n if others is None else len(others)), self._kind.dtype)
        for first, there in self.swept(vertices, forward=forward, others=others):
            with self._working():
                self._fetcher.fetch(there, out[first : first + len(there)])
        return out

    def swept(
        self, vertices: Indices, *, forward: bool = True, others: Indices | None = None, spare: int = 0
    ) -> Iterator[tuple[int, Any]]:
        """Yield whole rows in device memory, batch by batch; each batch overwrites the previous one.

        Args:
            vertices, forward, others: the rows and the entries that are wanted, as in :meth:`rows`.
            spare: bytes of device memory that are left free.

        Yields:
            The first of the rows, and the rows, shape (rows of the batch, n); work is queued, not finished.
        """
        with self._working():
            places = self._places[1 if forward else 0]
            if others is not None:
                positions = self._columns if forward else self._rows
                places = self._send(positions[others].astype(np.int32))[: len(others)]
            batch = self._layout.batch(self._n, len(vertices), self._usable() - spare)
            x = allocate(self._cupy, (len(self._layout.owner), batch), self._kind.dtype)
            out = allocate(self._cupy, (min(batch, len(vertices)), len(places)), self._kind.dtype)
        for first in range(0, len(vertices), batch):
            with self._working():
                some = vertices[first : first + batch]
                self._sweep(some, x, out[: len(some)], places, forward=forward)
            yield first, out[: len(some)]

    def reduce(self, vertices: Indices, sink: ReducingSink, told: Callable[[int], None], *, forward: bool) -> None:
        """Sweep whole rows, reduce them on the device, and give the results to a sink; no row is copied to the host.

        Args:
            vertices, forward: the rows that are wanted, as in :meth:`rows`.
            sink: takes the results; its row i is the row of ``vertices[i]``.
            told: called with the number of rows of each batch.
        """
        asked = sink.reduction
        assert asked is not None
        with self._working():
            reducing = Reducing(self._found, sink, asked, self._n, self._kind)
        try:
            spare = reduced_bytes(asked, self._n, self._kind)
            for first, there in self.swept(vertices, forward=forward, spare=spare):
                with self._working():
                    swept = self._cupy.cuda.Event(disable_timing=True)
                    swept.record(self._stream)
                    reducing.stream.wait_event(swept)
                    self._stream.wait_event(reducing.send(there, first))
                    reducing.stream.synchronize()  # so that ``told`` counts only rows that are reduced
                told(len(there))
            with self._working():
                reducing.finish()
        finally:
            with self._working():
                reducing.release()

    def block(self, rows: Indices, columns: Indices) -> Array:
        """Return the distances between all ``rows`` and all ``columns`` of the matrix, shape (rows, columns)."""
        out = np.empty((len(rows), len(columns)), self._kind.dtype)
        if not out.size:
            return out
        fitting = min(_BAND_BYTES, self._usable() // 2) // (len(columns) * self._kind.itemsize)
        high = max(1, min(_BAND_ROWS, fitting))
        with self._working():
            to, _ = self._sorted(columns, self._column_lines)
            for first in range(0, len(rows), high):
                band = out[first : first + high]
                there = allocate(self._cupy, band.shape, self._kind.dtype)
                self.multiply(rows[first : first + high], to, there)
                self._fetcher.fetch(there, band)
        return out

    def multiply(self, rows: Indices, to: Any, out: Any) -> None:
        """Queue the computation of the distances of a block on the current stream.

        Args:
            rows: rows of the matrix.
            to: the sorted lines of the columns, in device memory.
            out: in device memory, shape (rows, columns), contiguous.
        """
        came, _ = self._sorted(rows, self._row_lines)
        (high, wide), ld = out.shape, np.int64(out.shape[1])
        blocks = -(-wide // _SIDE), -(-high // _SIDE)
        given = (self._tree, *self._tables, came, to, np.int32(high), np.int32(wide), out, ld, self._limit)
        self._launch("multiply", blocks, *given)

    def release(self) -> None:
        """Free the device memory; no other method may be called afterwards."""
        if self._released:
            return
        self._released = True
        with self._working():
            self._stream.synchronize()
            self._fetcher.release()
            for name in ("_tables", "_lengths", "_lines", "_places", "_items", "_held", "_tree"):
                setattr(self, name, None)
            self._cupy.get_default_memory_pool().free_all_blocks()

    # ---- steps ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Context manager: makes the device and the stream current, and translates errors as ``translated`` does."""
        with translated(self._cupy), self._cupy.cuda.Device(self._found.device):
            if not hasattr(self, "_stream"):
                self._stream = self._cupy.cuda.Stream(non_blocking=True)
            with self._stream:
                yield

    def _usable(self) -> int:
        free = usable_memory(None, self._found.device)
        return free if self._memory is None else max(0, min(free, self._memory - self.bytes))

    def _load(self, tables: HostTables) -> None:
        """Copy tables and indices to the device, and gather the lengths from borders to parts."""
        parts, layout = tables.parts, self._layout
        self._row_lines, self._column_lines = layout.lines(tables.rows), layout.lines(tables.columns)
        there = self._send(tables.forward)
        self._tables = there, there if self._one_way else self._send(tables.backward)
        self._lines = self._send(self._row_lines), self._send(self._column_lines)
        self._rows, self._columns = tables.rows, tables.columns
        self._places = tuple(self._send(at.astype(np.int32))[: self._n] for at in (tables.rows, tables.columns))
        items, self._levels = layout.items()
        self._items = self._send(items).reshape(-1, 2)
        small = (array.astype(np.int32) for array in (layout.meets, layout.widths, tables.lows, layout.sizes))
        arrays = (*small, parts.starts, parts.ends, parts.borders, layout.length_begins)
        self._held = [self._send(array) for array in arrays]
        self._tree = np.zeros((), _TREE)
        for name, array in zip(_POINTERS, self._held, strict=True):
            self._tree[name] = array.data.ptr
        self._tree["parts"] = parts.count
        begins, owner = self._send(layout.begins), self._send(layout.owner)
        self._lengths = []
        for other in self._tables[:0:-1] if self._one_way else self._tables[::-1]:
            lengths = allocate(self._cupy, (max(1, layout.lengths),), self._kind.dtype)
            self._launch("across", (parts.count,), self._tree, other, begins, owner, lengths)
            self._lengths.append(lengths)
        self._stream.synchronize()

    def _sweep(self, vertices: Indices, x: Any, out: Any, places: Any, *, forward: bool) -> None:
        """Queue the sweep of the rows of ``vertices`` into ``x``, and the copy of entries at ``places`` to ``out``."""
        way, count, ld = 0 if forward else 1, np.int32(len(vertices)), np.int64(x.shape[1])
        lines = upload(self._cupy, (self._row_lines if forward else self._column_lines)[vertices])
        own, lengths = self._tables[way], self._lengths[0 if self._one_way else way]
        blocks = -(-(-(-len(vertices) // ROW_STEP) * ROW_STEP) // _THREADS)
        for first, last in pairwise(self._levels):
            given = (self._tree, self._items[first:last], own, lengths, lines, count, x, ld)
            self._launch("descend", (last - first, blocks), *given)
        columns = len(places)
        grid = -(-columns // _SQUARE), -(-len(vertices) // _SQUARE)
        self._launch("present", grid, x, ld, places, np.int32(columns), out, np.int64(columns), count, self._limit)

    def _sorted(self, vertices: Indices, lines: Array) -> tuple[Any, Indices]:
        """Return the lines of some vertices in device memory, sorted by part, and the permutation that sorts them."""
        order = np.argsort(lines["part"][vertices], kind="stable")
        some = lines[vertices[order]]
        some["place"] = order
        return upload(self._cupy, some.view(np.int64)), order

    def _send(self, array: Array) -> Any:
        """Copy an array to the device, flat; an empty array is replaced by one entry, to have an address."""
        plain = array.view(np.int64) if array.dtype == LINE else array
        return upload(self._cupy, plain.ravel() if plain.size else np.zeros(1, plain.dtype))

    def _launch(self, name: str, blocks: tuple[int, ...], *given: object) -> None:
        if 0 not in blocks:
            self._found.get(name, self._arithmetic)(blocks, (_THREADS,), given)
