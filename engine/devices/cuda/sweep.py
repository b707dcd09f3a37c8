"""The sweep of the partitioned algorithm on a GPU: a batch is swept while the rows of the previous batch are copied
out.

The device holds the tables and the packed lengths of all parts, one batch of rows in the order of the parts, and two
batches in the order of the vertices.  The launches of a batch, two per part, are the same each time, so they are
recorded once and replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import Modules, allocate, held_device, upload
from engine.devices.cuda.launch import Launcher, Product
from engine.devices.cuda.outgoing import Outlet
from engine.devices.cuda.reducing import held_bytes, outgoing_of
from engine.devices.cuda.row_facts import RowFactsReader
from engine.graph.partition import DEVICE_GRAIN, Lengths, Parts
from engine.model.device_layout import sweep_layout
from engine.model.dtypes import WorkType
from engine.model.rows import RowFacts, Sink

Integers = npt.NDArray[np.int64]

_WALK: Final = np.dtype([(f, "u8") for f in ("columns", "sizes", "parents", "tables", "entries", "parts")], align=True)
_THREADS: Final = 256
#: Parts begin at multiples of this number of entries, so that relax reads and writes whole vectors; the depth
#: of each product is a multiple of this number, too.
_GRAIN: Final = 16
#: The side, in entries, of the squares that ``gather`` copies.
_SIDE: Final = 32
#: The number of columns that a thread block of ``emit`` copies.
_ACROSS: Final = 8 * _THREADS


@contextmanager
def device_sweep(
    parts: Parts,
    kind: WorkType,
    sources: Integers,
    sink: Sink,
    *,
    threads: int,
    nonnegative: bool,
    memory: int | None = None,
) -> Iterator[DeviceSweep]:
    """Context manager: provide a sweep on the first device, and free its memory at the end, also after an error.

    Args:
        parts: the parts of the graph.
        kind: the working type.
        sources: vertex indices, one for each row of the matrix.
        sink: receives the rows.
        threads: the number of threads that write to the sink.
        nonnegative: whether no arc is negative.
        memory: bytes of device memory that may be used; None for all that is free.

    Raises:
        InvalidRequest: there is no usable device.
        DoesNotFit: the memory does not suffice.
        SolveFailed: the device failed.
    """
    with held_device(memory) as (found, usable):
        layout = sweep_layout(parts.facts(DEVICE_GRAIN, 0.0), len(parts.position), len(sources), kind.itemsize)
        results = held_bytes(sink, len(parts.position), kind)
        wanted = Wanted(sources, Outlet(sink, threads), layout.batch(usable - results))
        sweep = DeviceSweep(found, parts, kind, wanted, nonnegative=nonnegative)
        try:
            yield sweep
        finally:
            sweep.release()


@dataclass(frozen=True)
class Wanted:
    """The rows of the matrix that are wanted.

    Attributes:
        sources: vertex indices.
        outlet: where rows are written.
        batch: the number of rows that are swept at once, a multiple of 128.
    """

    sources: Integers
    outlet: Outlet
    batch: int


class DeviceSweep:
    """A sweep on a device, made by :func:`device_sweep`.  A batch is a multiple of 128 rows.  Not thread-safe.

    A thread allocates device memory and page-locked memory while the caller computes the lengths; :meth:`load` waits
    for these allocations.
    """

    def __init__(self, found: Modules, parts: Parts, kind: WorkType, wanted: Wanted, *, nonnegative: bool) -> None:
        self._found, self._cupy, self._parts, self._kind = found, found.cupy, parts, kind
        self._n, self._nonnegative = len(parts.position), nonnegative
        self._sources, self.batch = wanted.sources, wanted.batch
        self._launcher = Launcher(found, kind.dtype, nonnegative=nonnegative)
        self._reader = RowFactsReader(found, kind, self._launcher.arithmetic)
        self._padded = -(-parts.sizes // _GRAIN) * _GRAIN
        self._stride = int(self._padded.sum())
        self._depths = (-(-parts.depths // _GRAIN) * _GRAIN).tolist()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._graph: Any = None
        self._potentials: Any = None
        self._there: Any = None
        self._swept, self._buffer, self._rows = 0, 0, range(0)
        self._opener = ThreadPoolExecutor(1, "apsp-open")
        self._opened = self._opener.submit(self._open, wanted)

    def _open(self, wanted: Wanted) -> None:
        with self._cupy.cuda.Device(self._found.device):
            rows = len(wanted.sources)
            self._x: Any = allocate(self._cupy, (self.batch, self._stride), self._kind.dtype)
            self._a: Any = allocate(self._cupy, (max(self._depths, default=_GRAIN), self.batch), self._launcher.word)
            count, high = 2 if self.batch < rows else 1, min(self.batch, max(1, rows))
            self._out = [allocate(self._cupy, (high, self._n), self._kind.dtype) for _ in range(count)]
            self._left: list[Any] = [None] * count
            shape = (rows, self._n)
            self._outgoing = outgoing_of(self._found, wanted.outlet, shape, self._kind)

    def load(self, lengths: Lengths, potentials: npt.NDArray[np.float64] | None = None) -> None:
        """Copy the lengths to the device.  If they are reduced, ``potentials``, shape (n,), restore the distances."""
        self._opened.result()
        self._potentials = None if potentials is None else self._cupy.asarray(potentials.astype(np.float64))
        self._upload(self._parts, lengths)
        self._cupy.cuda.runtime.deviceSynchronize()  # because another stream reads these arrays

    def batches(self) -> Iterator[range]:
        """Yield the rows of each batch."""
        for first in range(0, len(self._sources), self.batch):
            yield range(first, min(first + self.batch, len(self._sources)))

    def begin(self, rows: range) -> None:
        """Queue the sweep of ``rows``; returns at once."""
        self._buffer, self._rows = (self._buffer + 1) % len(self._out), rows
        with self._stream as stream:
            if self._left[self._buffer] is not None:
                stream.wait_event(self._left[self._buffer])
            self._there = self._cupy.asarray(self._sources[rows.start : rows.stop])
            x, ld, n, out = self._x, np.int64(self._stride), np.int32(self._n), self._out[self._buffer]
            self._launch("seed", (self.batch,), x, ld, np.int32(len(rows)), self._there, self._walk)
            self._products()
            self._launch("emit", (-(-self._n // _ACROSS), len(rows)), x, ld, self._places, out, n)
            if self._potentials is not None:
                self._launch("restore", (len(rows),), out, np.int64(self._n), n, self._there, self._potentials)
            if not self._nonnegative and self._kind.integer:
                limit = np.int32(self._kind.largest_signed)
                self._launch("settle", (len(rows),), out, np.int64(self._n), n, limit)

    def finish(self) -> RowFacts:
        """Wait for the sweep that ``begin`` queued; return facts of the swept rows."""
        with self._stream:
            return self._reader.facts(self._out[self._buffer], self._there)

    def histogram(self, width: float, counts: Integers) -> int:
        """Add the distances of the rows swept last to a histogram (see ``RowFactsReader.histogram``)."""
        with self._stream:
            return self._reader.histogram(self._out[self._buffer], self._there, width, counts)

    def leave(self) -> tuple[Any, int, int]:
        """Return the rows swept last in the form that :meth:`send` takes."""
        return self._out[self._buffer][: len(self._rows)], self._rows.start, self._buffer

    def send(self, leaving: tuple[Any, int, int]) -> None:
        """Queue the copy of rows to the sink; the copy overlaps with the sweep of the next rows."""
        rows, first, buffer = leaving
        self._left[buffer] = self._outgoing.send(rows, first)

    def written(self) -> None:
        """Wait until all rows that were sent are written."""
        self._outgoing.finish()

    def release(self) -> None:
        """Free all memory."""
        self._opener.shutdown()
        if self._opened.exception() is None:
            self._outgoing.release()
        self._opened = Future()  # an error of the old future refers to frames that refer to this object
        self._stream.synchronize()
        self._launcher.release()
        self._reader.release()
        for name in ("_x", "_a", "_out", "_across", "_kept", "_graph", "_potentials", "_there"):
            setattr(self, name, None)
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _upload(self, parts: Parts, lengths: Lengths) -> None:
        """Copy the arrays that all batches use to the device."""
        send, sizes, owner, padded = self._send, parts.sizes, parts.owner(), self._padded
        columns = np.cumsum(padded) - padded
        shift = (columns - parts.starts[:-1])[owner]  # the column of a vertex in ``_x`` is its position plus this shift
        places = (np.arange(self._n) + shift).astype(np.int32)
        self._spans = list(zip(columns.tolist(), padded.tolist(), strict=True))
        self._places = send(places[parts.position])
        self._borders = send(places[parts.borders])
        self._ends = parts.ends.tolist()
        wide = parts.widths()
        begin = np.cumsum(sizes * wide) - sizes * wide
        entries = begin[owner] + (np.arange(self._n) - parts.starts[:-1][owner]) * wide[owner]
        self._kept = [
            *(send(columns), send(sizes.astype(np.int32)), send(parts.parents), send(lengths.flat)),
            *(send(entries[parts.position]), send(owner[parts.position])),
        ]
        self._walk = np.zeros((), _WALK)
        for name, array in zip(_WALK.names or (), self._kept, strict=True):
            self._walk[name] = array.data.ptr
        self._across = self._pack(lengths, padded)

    def _send(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device, flat; an empty array is replaced by one entry, to have an address."""
        return upload(self._cupy, array.ravel() if array.size else np.zeros(1, array.dtype))

    def _pack(self, lengths: Lengths, padded: Integers) -> list[Any]:
        """Return on the device, for each part, the right operand of its product: the lengths from the part's border to
        the part, padded with unreachable.
        """
        count = np.array(self._depths, np.int64) * padded
        flat = np.full(int(count.sum()), self._kind.sentinel(), self._kind.dtype)
        begin = np.cumsum(count) - count
        shapes = list(zip(self._depths, padded.tolist(), strict=True))
        for across, at, shape in zip(lengths.across, begin.tolist(), shapes, strict=True):
            depth, size = across.shape
            flat[at : at + shape[0] * shape[1]].reshape(shape)[:depth, :size] = across
        there = self._send(flat)
        return [
            there[at : at + depth * size].reshape(depth, size)
            for at, (depth, size) in zip(begin.tolist(), shapes, strict=True)
        ]

    def _products(self) -> None:
        """Queue the products of a sweep, from the last part to the first.  The first sweep loads the kernels, the
        second sweep records its launches, and later sweeps replay the recorded launches.
        """
        self._swept += 1
        if self._graph is None and self._swept == 2:
            self._stream.begin_capture()
            self._walk_parts()
            self._graph = self._stream.end_capture()
        if self._graph is not None:
            self._graph.launch(self._stream)
        else:
            self._walk_parts()

    def _walk_parts(self) -> None:
        ld, lda, rows = np.int64(self._stride), np.int64(self.batch), self.batch // _SIDE
        for i in range(len(self._spans) - 1, -1, -1):
            deep, depth = self._depths[i], self._ends[i + 1] - self._ends[i]
            if depth == 0:
                continue
            first, size = self._spans[i]
            border, a = self._borders[self._ends[i] :], self._a[:deep]
            grid = (rows, -(-deep // _SIDE))
            self._launch("gather", grid, self._x, ld, border, np.int32(depth), a, lda, np.int32(deep))
            self._launcher.products([Product(self._x[:, first : first + size], a, self._across[i])])

    def _launch(self, name: str, blocks: tuple[int, ...], *arguments: object) -> None:
        if 0 not in blocks:
            self._found.get(name, self._launcher.arithmetic)(blocks, (_THREADS,), arguments)
