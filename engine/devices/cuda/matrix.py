"""A matrix that lies completely on one GPU: arcs are copied in, rows and facts about rows are copied out.

Rows are copied out through page-locked memory, which a thread allocates while the device computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices import powers
from engine.devices.cuda.betweenness.counting import Counting
from engine.devices.cuda.code.kernel_set import ARITHMETICS, Arithmetic
from engine.devices.cuda.context import Modules, allocate, held_device, upload
from engine.devices.cuda.floyd_warshall import Solver, padded
from engine.devices.cuda.launch import blank
from engine.devices.cuda.outgoing import Outgoing, Outlet
from engine.devices.cuda.reducing import Reducing, outgoing_of
from engine.devices.cuda.row_facts import RowFactsReader
from engine.graph.potentials import Potentials
from engine.model import traffic
from engine.model.device_layout import PIECE, SINGLE
from engine.model.dtypes import WorkType
from engine.model.progress import Monitor
from engine.model.rows import RowFacts
from engine.model.stripe_device import BelowZero
from storage.graph.graph import Graph

Integers = npt.NDArray[np.int64]

_THREADS: Final = 256
#: The number of updates of a product between two calls of the monitor: a quarter of a second on a fast device.
_PIECE_UPDATES: Final = 4 * 10**12
#: The number of rows that are compared at a time, so that the comparison needs no mask as large as the matrix.
_COMPARED: Final = 4096


@contextmanager
def device_matrix(
    n: int, kind: WorkType, *, nonnegative: bool, symmetric: bool, memory: int | None = None
) -> Iterator[CudaMatrix]:
    """Context manager: provide a matrix on the first device, and free its memory at the end, also after an error.

    Args:
        n: the number of vertices.
        kind: the working type.
        nonnegative, symmetric: whether no arc is negative, and whether the matrix is symmetric; neither is checked.
        memory: bytes of device memory that may be used; None for all that is free.

    Raises:
        InvalidRequest: there is no usable device.
        DoesNotFit: the memory does not suffice.
        SolveFailed: the device failed.
    """
    with held_device(memory) as (found, _):
        matrix = CudaMatrix(found, n, kind, nonnegative=nonnegative, symmetric=symmetric)
        try:
            yield matrix
        finally:
            matrix.release()


class CudaMatrix:
    """A matrix on a device, made by :func:`device_matrix`.  Not thread-safe; methods return when the device is done."""

    def __init__(self, found: Modules, n: int, kind: WorkType, *, nonnegative: bool, symmetric: bool) -> None:
        self._modules, self._cupy, self._n, self._kind = found, found.cupy, n, kind
        self._nonnegative, self._symmetric = nonnegative, symmetric
        self._arithmetic: Arithmetic = ARITHMETICS[kind.name, kind.largest_signed >= 0 and not nonnegative]
        self._solver = Solver(found, kind.dtype, nonnegative=nonnegative)
        self._d: Any = padded(found, n, kind.dtype)
        self._reader = RowFactsReader(found, kind, self._arithmetic)
        self._outgoing: Outgoing | Reducing | Counting | None = None
        self._gathered = False
        self._below = False

    def open(self, outlet: Outlet, rows: int) -> None:
        """Begin to allocate page-locked memory for copying out ``rows`` rows; returns at once."""
        self._outgoing = outgoing_of(self._modules, outlet, (rows, self._n), self._kind)

    def fill(self, graph: Graph, monitor: Monitor) -> None:
        """Fill the matrix with arc weights, 0 on the diagonal and unreachable elsewhere; arcs are sent in pieces."""
        monitor.begin("ingest", self._n, "rows")
        blank(self._modules, self._d[: self._n, : self._n])
        indptr, first = graph.indptr, 0
        pointers = upload(self._cupy, indptr.astype(np.int64, copy=False))
        while first < self._n:
            begin = int(indptr[first])
            last = max(first + 1, int(np.searchsorted(indptr, begin + PIECE, "right")) - 1)
            end = int(indptr[last])
            # adding 0 turns -0.0, whose bits sort below every number, into 0.0
            weights = graph.weights[begin:end] + 0
            if self._kind.integer:  # an arc longer than every distance is on no shortest path, and might not fit
                weights = np.minimum(weights, int(self._kind.unreachable))
            heads = upload(self._cupy, graph.heads[begin:end].astype(np.int32, copy=False))
            values = upload(self._cupy, weights.astype(self._kind.dtype))
            traffic.moved("write", int(heads.nbytes) + int(values.nbytes))
            self._launch(
                "scatter", last - first,
                self._d, self._ld, np.int32(first), pointers, np.int64(begin), heads, values,
            )  # fmt: skip
            self._cupy.cuda.get_current_stream().synchronize()
            monitor.step(last - first)
            first = last

    def close(self, monitor: Monitor, *, recursive: bool = False) -> None:
        """Run Floyd-Warshall: blocked, or by halves if ``recursive`` is set.  A negative cycle may end the run early
        (see ``found_negative``).

        Raises:
            Cancelled: the monitor asked to stop.
        """
        n, side = self._n, len(self._d)
        inner = self._d[:n, :n]
        entries = side * (side + 1) // 2 if self._symmetric and not recursive else side * side
        small = n <= SINGLE and not recursive
        monitor.begin("relax", n**3 if small else entries * side, "updates")
        try:
            if small:
                self._solver.close(inner)
            elif recursive:
                self._solver.recursive(self._d, symmetric=self._symmetric, monitor=monitor)
            else:
                self._solver.close(self._d, symmetric=self._symmetric, monitor=monitor)
            if self._symmetric and small:  # thread blocks run concurrently, so last bits of the triangles may differ
                self._solver.bulk.mirror(inner)
            self._settle(self._d)
        except BelowZero:
            self._below = True
            return
        finally:
            self._cupy.cuda.runtime.deviceSynchronize()
        if small:
            monitor.step(n**3)

    def power(self, hops: int, monitor: Monitor, *, rows: Integers | None, by_rows: bool, total: int) -> None:
        """Compute the lengths of shortest paths of at most ``hops`` arcs, as ``engine.algorithms.squaring.power`` does.

        Args:
            hops: the largest number of arcs, at least 1.
            monitor: receives ``total`` updates, or fewer if a power equals the previous one.
            rows: vertex indices of the sources wanted; None for all.
            by_rows: whether to multiply the rows wanted by the weights again and again, so that each product adds one
                arc to the paths, in place of squaring.
            total: the number of updates of the whole computation.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        monitor.begin("relax", total, "updates")
        wanted = slice(None) if rows is None else self._cupy.asarray(rows)
        products = _DeviceProducts(partial(self._times, monitor=monitor), self._same, wanted)
        way = powers.by_rows if by_rows else powers.by_squares
        result = way(products, self._d, hops)
        self._d, self._gathered = result, rows is not None

    def restore(self, potentials: Potentials, sources: Integers) -> None:
        """Turn lengths over reduced weights (``engine.graph.potentials``) into lengths over the original weights."""
        rows = np.arange(self._n) if not self._gathered else sources
        there, h = self._cupy.asarray(rows), self._cupy.asarray(np.ascontiguousarray(potentials, np.float64))
        self._launch("restore", len(rows), self._d, self._ld, np.int32(self._n), there, h)
        self._cupy.cuda.get_current_stream().synchronize()

    def found_negative(self) -> bool:
        """Return whether a diagonal entry fell below zero, by a negative cycle or by the rounding of floats."""
        return self._below or self._solver.found_negative()

    def facts(self, sources: Integers) -> RowFacts:
        """Return the facts (reach, sum, largest distance) of the rows of ``sources`` (vertex indices)."""
        there = self._cupy.asarray(sources)
        return self._reader.facts(self._d[:, : self._n], there, gathered=self._gathered)

    def histogram(self, sources: Integers, width: float, counts: Integers) -> int:
        """Add the finite distances from some vertices to a histogram.

        Args:
            sources: vertex indices.
            width: width of a bin; the first one begins at 0.
            counts: shape (bins,), changed in place.

        Returns:
            How many distances lie below 0.
        """
        there, d = self._cupy.asarray(sources), self._d[:, : self._n]
        return self._reader.histogram(d, there, width, counts, gathered=self._gathered)

    def write(self, sources: Integers, monitor: Monitor) -> None:
        """Copy the rows of ``sources`` to the outlet given to ``open``.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        monitor.begin("write", len(sources), "rows")
        outgoing = self._outgoing
        assert outgoing is not None
        outgoing.told = monitor.step
        for first in range(0, len(sources) if self._n else 0, outgoing.band):
            outgoing.send(self._rows(first, sources[first : first + outgoing.band], outgoing.stream), first)
        outgoing.finish()

    def release(self) -> None:
        """Free all memory, also after an error."""
        try:
            if self._outgoing is not None:
                self._outgoing.release()
        finally:
            self._free()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _free(self) -> None:
        self._solver.release()
        self._reader.release()
        self._d = None
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    @property
    def _ld(self) -> np.int64:
        return np.int64(self._d.shape[1])

    def _launch(self, name: str, blocks: int, *arguments: object) -> None:
        if blocks:
            self._modules.get(name, self._arithmetic)((blocks,), (_THREADS,), arguments)

    def _settle(self, d: Any) -> None:
        """If arcs may be negative, set negative entries of the diagonal to 0, and set integers above the largest
        distance of the type to unreachable.
        """
        if self._nonnegative:
            return
        if d.shape[0] == d.shape[1]:
            diagonal = self._cupy.arange(len(d))
            values = d[diagonal, diagonal]
            self._below |= bool((values < 0).any())
            d[diagonal, diagonal] = self._cupy.maximum(values, 0)
        if self._kind.integer:
            limit = np.int32(self._kind.largest_signed)
            self._launch("settle", len(d), d, np.int64(d.shape[1]), np.int32(d.shape[1]), limit)

    def _times(self, a: Any, b: Any, monitor: Monitor) -> Any:
        """Return A (x) B, computed in slabs of rows.  A and B are powers of one matrix; A may have only some of its
        rows.
        """
        c, n = a.copy(), self._n
        rows, whole = (n if len(a) == len(b) else len(a)), len(a) == len(b)
        upper = whole and self._symmetric
        step = max(128, _PIECE_UPDATES // max(1, len(b) ** 2) // 128 * 128)
        told, total = 0, n * (n * (n + 1) // 2 if upper else rows * n)
        for first in range(0, len(a), step):
            last = min(first + step, len(a))
            left = first if upper else 0
            self._solver.bulk.relax(c[first:last, left:], a[first:last], b[:, left:], upper=upper and step >= len(a))
            self._cupy.cuda.get_current_stream().synchronize()
            now = total * last // len(a)
            monitor.step(now - told)
            told = now
        if upper:
            self._solver.bulk.mirror(c)
        self._settle(c)
        return c

    def _same(self, a: Any, b: Any) -> bool:
        return all(bool((a[i : i + _COMPARED] == b[i : i + _COMPARED]).all()) for i in range(0, len(a), _COMPARED))

    def _rows(self, first: int, wanted: Integers, stream: Any) -> Any:
        """Return rows of the result, as a view if they are consecutive, else as a copy that is queued on ``stream``."""
        if self._gathered:
            rows = self._d[first : first + len(wanted)]
        elif (np.diff(wanted) == 1).all():
            rows = self._d[int(wanted[0]) : int(wanted[0]) + len(wanted)]
        else:
            with stream:
                rows = allocate(self._cupy, (len(wanted), self._d.shape[1]), self._kind.dtype)
                self._cupy.take(self._d, self._cupy.asarray(wanted), axis=0, out=rows)
        return rows[:, : self._n]


@dataclass(frozen=True)
class _DeviceProducts:
    """Products on the device for :mod:`engine.devices.powers`; each result is in new memory.

    Attributes:
        multiply: returns the product of two powers.
        same: returns whether two matrices are equal.
        rows: the indices of the wanted rows, on the device, or a slice of all rows.
    """

    multiply: Callable[[Any, Any], Any]
    same: Callable[[Any, Any], bool]
    rows: Any

    def wanted(self, power: Any, *, last: bool) -> Any:  # noqa: ARG002
        return power[self.rows]

    def times(self, rows: Any, power: Any) -> Any:
        return self.multiply(rows, power)

    def square(self, power: Any) -> Any:
        return self.multiply(power, power)

    def longer(self, rows: Any, weights: Any) -> Any:
        return self.multiply(rows, weights)
