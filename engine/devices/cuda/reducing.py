"""Reduces finished rows on the device to the few numbers that a sink needs, so that no row is copied to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.betweenness.counting import Counting, counted_bytes, counting_of
from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.context import Modules, allocate, upload
from engine.devices.cuda.outgoing import Outgoing, Outlet, told_nobody
from engine.devices.cuda.row_facts import described
from engine.model import traffic
from engine.model.dtypes import WorkType
from engine.model.rows import ReducedRows, ReducingSink, RowFacts, RowReduction, Sink

_WEIGHTS: Final = np.dtype([("held", "u8"), ("weights", "u8"), ("many", "i4"), ("kinds", "i4")], align=True)
_THREADS: Final = 256
#: The largest number of rows that a matrix sends at a time, which limits the memory for copies of rows that are not
#: consecutive.
_BAND: Final = 4096
#: The largest number of bytes of selected columns that are copied, and then reduced, at a time; a single row may be
#: larger.
_NARROWED: Final = 64 << 20


def outgoing_of(
    found: Modules, outlet: Outlet, shape: tuple[int, int], kind: WorkType
) -> Outgoing | Reducing | Counting:
    """Return the object that takes finished rows: it counts paths or reduces rows on the device if the sink needs no
    rows, and copies rows to the host otherwise.

    Args:
        found: the kernels of the device.
        outlet: where rows are written.
        shape: rows and columns of the matrix.
        kind: the working type.
    """
    sink, asked = outlet.sink, reduction_of(outlet.sink)
    if (counting := counting_of(found, sink, kind)) is not None:
        return counting
    if asked is None:
        return Outgoing(found.cupy, outlet, shape, kind.dtype)
    assert isinstance(sink, ReducingSink)
    return Reducing(found, sink, asked, shape[1], kind)


def reduction_of(sink: Sink) -> RowReduction | None:
    """Return what a device computes from the rows for a sink; None if the sink is no ``ReducingSink``, or needs the
    rows.
    """
    return sink.reduction if isinstance(sink, ReducingSink) else None


def without_subnormal(limits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return limits with which kernels compare entries, positive subnormal float32 replaced by the least normal number.

    The limit of the entries up to 0 is the least number above 0.  Kernels that CuPy compiles take it for 0, because
    CuPy appends ``-ftz=true`` to all options; no entry would be below it.  Entries are no subnormal numbers: a type is
    not used for smaller weights (``engine.planning.planner``), so the same entries are below both limits.
    """
    if limits.dtype != np.float32:
        return limits
    tiny = np.finfo(np.float32).tiny
    return np.where((limits > 0) & (limits < tiny), tiny, limits)


def reduced_bytes(asked: RowReduction | None, columns: int, kind: WorkType) -> int:
    """Return the bytes of device memory that reducing rows takes: for the results, and for copies of selected columns.

    Args:
        asked: what is computed; None for nothing.
        columns: number of columns of a full row.
        kind: the working type.
    """
    if asked is None:
        return 0
    narrowed = asked.columns is not None or asked.cutoff is not None
    return asked.bytes + (_NARROWED + columns * kind.itemsize if narrowed else 0)


def held_bytes(sink: Sink, columns: int, kind: WorkType) -> int:
    """Return the bytes of device memory that a sink's results take until they are fetched.

    Args:
        sink: receives the rows, or results computed from them.
        columns: number of columns of a full row.
        kind: the working type.
    """
    return counted_bytes(sink) + reduced_bytes(reduction_of(sink), columns, kind)


class Reducing:
    """Reduces rows on a stream of its own and keeps the results on the device until :meth:`finish`.

    Args:
        found: the kernels of the device.
        sink: takes the results.
        asked: what is computed.
        columns: columns of the rows that are sent.
        kind: the working type.

    Attributes:
        band: the largest number of rows that a caller should send at a time.
        stream: the stream on which rows are reduced.
        told: called with the number of rows that have been reduced, in the thread that calls ``finish``.
    """

    def __init__(self, found: Modules, sink: ReducingSink, asked: RowReduction, columns: int, kind: WorkType) -> None:
        self.told: Callable[[int], None] = told_nobody
        self._found, self._cupy, self._sink, self._asked, self._kind = found, found.cupy, sink, asked, kind
        self._columns = columns if asked.columns is None else len(asked.columns)
        self._narrowed = asked.columns is not None or asked.cutoff is not None
        self.band = max(1, min(_BAND, len(asked.own)))
        self.stream = self._cupy.cuda.Stream(non_blocking=True)
        self._arithmetic = ARITHMETICS[kind.name, False]
        self._there: dict[str, Any] = {}
        self._sent: list[tuple[int, int]] = []

    def send(self, rows: Any, first: int) -> Any:
        """Queue the reduction of ``rows``, which are rows ``first``, ... of the matrix.

        Args:
            rows: on the device, shape (rows, columns); either complete, or completed by work queued on ``stream``.
            first: the row of the matrix at which ``rows`` begin.

        Returns:
            An event of the device; after it ``rows`` may be overwritten.
        """
        with self.stream:
            self._open()
            step = max(1, _NARROWED // max(1, self._columns * self._kind.itemsize)) if self._narrowed else len(rows)
            for start in range(0, len(rows), step):
                some = rows[start : start + step]
                self._reduce(self._narrow(some) if self._narrowed else some, first + start)
        self._sent.append((first, len(rows)))
        left = self._cupy.cuda.Event(disable_timing=True)
        left.record(self.stream)
        return left

    @property
    def levels(self) -> bool:
        """Whether the sink needs no rows of hops, because the numbers given to :meth:`take_levels` suffice."""
        return self._asked.levels

    def take_levels(self, first: int, levels: npt.NDArray[np.int64]) -> None:
        """Give the sink the number of targets at each number of hops, for rows ``first``, ... of the matrix.

        ``levels`` is int64, of shape (rows, numbers of hops).
        """
        self._sink.take_levels(first, levels)
        self.told(len(levels))

    def finish(self) -> None:
        """Wait until all rows that were sent are reduced, and give the results to the sink."""
        self.stream.synchronize()
        sent, self._sent = self._sent, []
        if not sent:
            return
        rows = slice(min(first for first, _ in sent), max(first + count for first, count in sent))
        found = {name: self._there[name][rows].get() for name in self._results()}
        traffic.moved("read", sum(array.nbytes for array in found.values()))
        sort_nearest(found["nearest"], found["distances"])
        for first, count in sent:
            some = {name: array[first - rows.start : first - rows.start + count] for name, array in found.items()}
            facts = RowFacts(*(some.pop(name) for name in ("reached", "sums", "largest", "farthest")))
            nearest = some.pop("nearest").astype(np.int64)
            self._sink.take_reduced(first, ReducedRows(facts, nearest=nearest, **some))
            self.told(count)

    def release(self) -> None:
        """Discard results that were not fetched, and free the device memory; a second call does nothing."""
        self.stream.synchronize()
        self._sent.clear()
        self._there.clear()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _results(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return the names of the arrays of results, each with the shape of the array for one row, and its type."""
        asked, kind = self._asked, self._kind
        limits = len(asked.limits)
        return {
            "reached": ((), "i8"),
            "sums": ((), "i8" if kind.integer else "f8"),
            "largest": ((), "i4" if kind.integer else kind.dtype.str),
            "farthest": ((), "i8"),
            "inverses": ((), "f8"),
            "within": ((limits,), "i8"),
            "quantiles": ((len(asked.shares),), "f8"),
            "nearest": ((asked.nearest,), "i4"),
            "distances": ((asked.nearest,), "f8"),
            "weights": ((len(asked.weights), limits), "f8"),
        }

    def _open(self) -> None:
        """At the first call, allocate the results of all rows, and send the arrays from which they are computed."""
        if self._there:
            return
        asked, rows, there = self._asked, len(self._asked.own), self._there
        for name, (shape, kind) in self._results().items():
            there[name] = allocate(self._cupy, (rows, *shape), kind)
        for name in ("nearest", "distances"):  # 255 in all bytes is -1 as int32, NaN as float64
            if there[name].nbytes:
                there[name].data.memset_async(255, there[name].nbytes)
        there["own"], there["limits"] = self._send(asked.own), self._send(without_subnormal(asked.limits))
        there["shares"] = self._send(asked.shares)
        there["held"], there["kinds"] = self._send(asked.held), self._send(asked.weights)
        there["middles"] = self._send(np.zeros(1) if asked.decay is None else asked.decay[2])
        there["columns"] = None if asked.columns is None else self._send(asked.columns)
        weights = np.zeros((), _WEIGHTS)
        weights["held"], weights["weights"] = there["held"].data.ptr, there["kinds"].data.ptr
        weights["many"], weights["kinds"] = len(asked.held), len(asked.weights)
        there["described"] = weights

    def _send(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device; an empty array is replaced by one entry, because kernels need its address."""
        return upload(self._cupy, array if array.size else np.zeros(1, array.dtype))

    def _narrow(self, rows: Any) -> Any:
        """Return a copy of the selected columns of ``rows``; entries from the cutoff on are *unreachable* in it."""
        asked, kind, columns = self._asked, self._kind, self._there["columns"]
        out = allocate(self._cupy, (len(rows), self._columns), kind.dtype)
        limit: Any = kind.sentinel()
        if asked.cutoff is not None:
            limit = without_subnormal(np.asarray(asked.cutoff, kind.dtype))[()]
        list_of = np.uint64(0) if columns is None else columns
        self._launch("narrow", len(rows), rows, _pitch(rows), list_of, np.int32(self._columns), limit, out)
        return out

    def _reduce(self, rows: Any, first: int) -> None:
        """Queue all kernels that reduce ``rows``, which are rows ``first``, ... of the matrix."""
        asked, there, count = self._asked, self._there, len(rows)
        every = described(rows, there["own"][first : first + count], gathered=True)
        at = {name: there[name][first : first + count] for name in self._results()}
        self._launch("facts", count, every, at["reached"], at["sums"], at["largest"], at["farthest"])
        if asked.inverses:
            self._launch("inverses", count, every, at["inverses"])
        limits = there["limits"], np.int32(len(asked.limits))
        if len(asked.limits):
            self._launch("within", count, every, *limits, at["within"])
        if len(asked.shares):
            self._launch("quantile", count, every, there["shares"], np.int32(len(asked.shares)), at["quantiles"])
        if asked.nearest:
            self._launch("nearest", count, every, np.int32(asked.nearest), at["nearest"], at["distances"])
        if len(asked.weights) and asked.decay is None:
            self._launch("weigh", count, every, there["described"], *limits, at["weights"])
        elif len(asked.weights) and asked.decay is not None:
            decay = np.int32(asked.decay[0]), np.float64(asked.decay[1]), there["middles"], limits[1]
            self._launch("fade", count, every, there["described"], *decay, at["weights"])

    def _launch(self, name: str, blocks: int, *arguments: object) -> None:
        if blocks:
            self._found.get(name, self._arithmetic)((blocks,), (_THREADS,), arguments)


def _pitch(rows: Any) -> np.int64:
    return np.int64(rows.strides[0] // rows.itemsize)


def sort_nearest(columns: npt.NDArray[np.int32], distances: npt.NDArray[np.float64]) -> None:
    """Sort the nearest columns of each row by distance, then by column; entries without a column come last."""
    if not columns.shape[1]:
        return
    order = np.lexsort((columns, distances), axis=1)
    columns[:] = np.take_along_axis(columns, order, axis=1)
    distances[:] = np.take_along_axis(distances, order, axis=1)
