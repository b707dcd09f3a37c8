"""Answers from a prepared graph: pairs, blocks, rows and columns of a matrix that is never written.

Every entry is the least sum over two lines (``engine.algorithms.prepared.lines``).  If sums are exact, as for whole
numbers and for floats of few digits, rows and columns are computed part by part (swept) instead, which takes far fewer
sums.  Sums of other floats depend on the order of addition, so rows of these are also made from lines.  In both cases
an entry is the same number in every answer.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.prepared.sharing import ThreadLimit, share
from engine.api.from_tables.held import HeldTables
from engine.api.from_tables.reopening import reopened
from engine.graph.terminals import arrivals
from engine.model.backend import Arcs
from engine.model.dtypes import adds_exactly, work_type
from engine.model.system import usable_processors
from storage.arguments import check_whole
from storage.errors import InvalidRequest
from storage.matrix.format import is_compact, is_prepared
from storage.matrix.reader import Matrix, check_opening, open_sealed, understood
from storage.matrix.tiles import StoreFolder
from storage.remote.reader import RemoteFolder
from storage.semirings import MIN_PLUS

if TYPE_CHECKING:
    from engine.api.from_tables.on_device import AnswerDevice
    from engine.devices.cpu.sweep import Sweeper
    from engine.graph.partition import Lengths
    from storage.prepared.served import ComputedStore

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: Most pairs that one thread answers alone; a larger number is shared among threads.
_SHARED: Final = 1 << 13
#: The argument ``arcs`` of a sweep.  A sweep has the parameters of a search, but reads tables instead of arcs.
NO_ARCS: Final = Arcs(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), None)


def open_result(
    path: str | Path, *, semiring: str | Collection[str] = MIN_PLUS, device: AnswerDevice = "cpu",
    device_memory: int | None = None, memory: int | None = None,
) -> Matrix | PreparedMatrix:  # fmt: skip
    """Open a sealed result for reading: a solved store, or a prepared graph, which answers the same questions.

    Args:
        path: a folder, or an address in an object store (solved stores only).
        semiring: the semiring, or several, whose values the caller can use, such as ``max-min``.  A store of another
            semiring is refused, so that no program takes widths for distances.
        device: the device that answers from a prepared graph: ``cpu``; ``cuda``, whose memory holds the tables until
            the result is closed; or ``auto`` for a GPU if one has enough memory for the tables.  A solved store is read
            from its files.
        device_memory: bytes of device memory that may be used; None for all that is free.
        memory: bytes that the tables of a prepared graph and the answers from them may take together; None for all that
            is free.  If the tables take more than half of these bytes, parts of them are read as questions need them.

    Returns:
        The result: rows, columns, entries, blocks, labels and the graph.  The caller must close it, or use it as a
        context manager.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: there is no result at ``path``, or it is damaged.
        Conflict: the result is of another semiring.
        InvalidRequest: ``device`` is ``cuda``, and there is no usable GPU, or the result is a solved store.
        DoesNotFit: ``device`` is ``cuda``, and the tables are larger than its memory; the message has both numbers.
    """
    check_opening(path, semiring, device, device_memory)
    if memory is not None:
        check_whole("memory", memory, 1)

    def prepared(folder: StoreFolder | RemoteFolder) -> PreparedMatrix:
        if is_compact(folder.read("zarr.json")):
            from engine.api.from_tables.compact import compact_by

            return compact_by(folder, device)
        if device == "cpu":
            return PreparedMatrix(folder)
        from engine.api.from_tables.on_device import answered_by

        return answered_by(folder, device, device_memory)

    def made(folder: StoreFolder | RemoteFolder) -> Matrix | PreparedMatrix:
        if not is_prepared(folder.read("zarr.json")):
            if device == "cuda":
                folder.close()
                raise InvalidRequest(
                    f"{path} is a solved store, whose distances are read and not computed; leave out the device",
                    field="device",
                )
            return Matrix(folder)
        found = prepared(folder)
        found.memory = memory
        return found

    return understood(open_sealed(path, made), semiring)


class PreparedMatrix(HeldTables):
    """A prepared graph, open for reading; safe to use from many threads.

    It has the methods of a stored matrix.  They return the same labels, types and distances as a stored matrix of the
    same graph; floats may differ in rounding.  A chunk of the tables is read into memory, and compared with the seal,
    when a question first needs it.

    Attributes:
        threads: number of threads that share the work of a question, all usable processors by default.  Setting it
            changes the number for all questions; ``using`` changes it for the questions of the current thread.
        All other attributes: see ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Make the object; callers use :func:`open_result`."""
        super().__init__(folder)
        self._sweeping_lock = threading.Lock()
        self._sweepers: dict[bool, Sweeper] = {}
        self._swept_lengths: dict[bool, Lengths] = {}
        self._limit, self._threads = ThreadLimit(), usable_processors()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the path and the digest: a process that unpickles them opens the folder or address itself."""
        return reopened, (str(self.path), self.digest)

    @property
    def threads(self) -> int:
        """The number of threads that share the work of a question that the current thread asks."""
        return self._limit.wanted or self._threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self._threads = check_whole("threads", threads, 1)

    def using(self, threads: int | None) -> AbstractContextManager[None]:
        """Context manager: set the number of threads for the questions that the current thread asks in its body."""
        return self._limit.using(None if threads is None else check_whole("threads", threads, 1))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows (sources) and of columns (targets); both are the number of vertices."""
        return self.n, self.n

    def entries(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,), by merging two lines for each pair."""
        rows, columns = self.source_positions(sources), self.target_positions(targets)
        if rows.shape != columns.shape:
            raise InvalidRequest(f"{len(rows)} sources do not pair with {len(columns)} targets", field="targets")
        out = np.empty(len(rows), self.dtype)
        self._pairs(rows, columns, out)
        return out

    def _pairs(self, rows: Indices, columns: Indices, out: Array) -> None:
        """Write the distances of pairs to ``out``."""
        from engine.algorithms.prepared.lines import pair_lengths

        cut = self._pieces.cut(rows, columns)
        if cut is not None:
            with self._in_pieces():
                for half in cut[1]:
                    found = np.empty(len(half), self.dtype)
                    self._pairs(rows[half], columns[half], found)
                    out[half] = found
            return
        with self._held(rows, columns):
            fixed, rows, columns = self._ready(rows, columns)

            def work(first: int, last: int) -> None:
                pair_lengths(fixed, rows[first:last], columns[first:last], out[first:last])

            share(self.threads, len(rows), _SHARED, work)

    def block(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from each source to each target (vertex indices), shape (sources, targets).

        The fastest of three ways is used: lines are merged for each pair; lines are multiplied in panels; or, if sums
        are exact, whole rows or columns are computed part by part (swept).
        """
        rows, columns = self.source_positions(sources), self.target_positions(targets)
        return self._block(rows, columns)

    def rows(self, sources: Sequence[int] | Indices) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""
        rows = self.source_positions(sources)
        return self._swept(rows, forward=True) if self.exact else self._block(rows, self.targets)

    def columns(self, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from all sources to several targets (vertex indices), shape (rows, len(targets))."""
        columns = self.target_positions(targets)
        if not self.exact:
            return self._block(self.sources, columns)
        return np.ascontiguousarray(self.rows_towards(columns).T)

    def rows_towards(self, targets: Sequence[int] | Indices) -> Array:
        """Return a row for each of several targets: the distances from all sources, shape (len(targets), rows)."""
        columns = self.target_positions(targets)
        return self._swept(columns, forward=False) if self.exact else np.ascontiguousarray(self.columns(columns).T)

    @cached_property
    def zarr_store(self) -> ComputedStore:
        """The matrix as a read-only Zarr store, whose chunks are computed when they are read.

        It is an argument for ``zarr.open``, ``xarray.open_zarr`` and ``dask.array.from_zarr``.
        """
        from storage.prepared.served import CACHE_BYTES, ComputedStore

        return ComputedStore(self, cache=CACHE_BYTES if self.memory is None else min(CACHE_BYTES, self.memory // 4))

    @cached_property
    def exact(self) -> bool:
        """Whether all sums are exact, so that all algorithms find the same entries, bit for bit."""
        return self.dtype.kind in "iu" or adds_exactly(self.graph().weights, self.n, work_type(self.dtype))

    def block_seconds(self, rows: int, columns: int) -> float:
        """Predict the processor seconds that a block of the matrix takes; the tables need not be in memory.

        Args:
            rows, columns: shape of the block.
        """
        from engine.algorithms.prepared.panels import cheapest

        rows, columns = check_whole("rows", rows, 0), check_whole("columns", columns, 0)
        width = self.table_bytes / max(1, len(list(self._tables())) * self.n * self.dtype.itemsize)
        return cheapest(rows, columns, self.n, width, sweeps=self.exact)[1] / 1e9

    def _sweeper(self, *, forward: bool) -> Sweeper:
        from engine.devices.cpu.backend import CpuBackend
        from engine.devices.cpu.sweep import Sweeper

        if forward not in self._swept_lengths:
            self._swept_lengths[forward] = self._sweep_lengths(forward=forward)
        before = self._sweepers.get(forward)
        if before is None or before.threads != self.threads:
            if before is not None:
                before.shutdown()
            owner, lengths = CpuBackend(self.threads), self._swept_lengths[forward]
            parts, nonnegative = self._tables_here.parts, self.least_weight >= 0
            self._sweepers[forward] = Sweeper(parts, lengths, nonnegative=nonnegative, owner=owner)
        return self._sweepers[forward]

    def _sweep_lengths(self, *, forward: bool) -> Lengths:
        """Return the lengths that are needed to compute whole rows, or columns, part by part (a sweep)."""
        tables = self._tables_here
        found = self._whole_array("elimination/" + ("across" if forward else "upward"))
        return tables.swept(found, forward=forward, nonnegative=self.least_weight >= 0)

    def _swept(self, vertices: Indices, *, forward: bool) -> Array:
        """Return whole rows, or whole columns as rows, computed part by part (swept); shape (len(vertices), n)."""
        tables = self._tables_here
        places, begin, end = tables.parts.position, vertices, None
        if len(places) > self.n:  # there are terminals
            ends = arrivals(np.arange(self.n), self.n, len(places) - self.n)
            begin, end = (vertices, ends) if forward else (ends[vertices], np.arange(self.n))
        out = np.empty((len(vertices), len(places)), self.dtype)
        if len(vertices):
            self._sweep(vertices, begin, out, forward=forward)
        if self._beyond is not None:
            np.putmask(out, out >= self._beyond, self.unreachable)
        return out if end is None else np.ascontiguousarray(out[:, end])

    def _sweep(self, vertices: Indices, begin: Indices, out: Array, *, forward: bool) -> None:
        """Fill the rows of ``out`` with lengths from ``vertices``, whose indices in the opened graph are ``begin``."""
        with self._sweeping_lock:  # make the sweeper before rows are cut into groups, which must fit beside it
            self._sweeper(forward=forward)
        groups = self._pieces.groups(vertices, forward=forward)
        if groups is None:
            self._search(vertices, begin, out, forward=forward)
            return
        with self._in_pieces():
            for some in groups:
                rows = out[some]
                self._search(vertices[some], begin[some], rows, forward=forward)
                out[some] = rows

    def _search(self, vertices: Indices, begin: Indices, out: Array, *, forward: bool) -> None:
        """Compute whole rows, part by part, for sources whose lines fit in memory at the same time."""
        tables, lines = self._tables_here, self._kernels[3 if forward else 4]
        with self._sweeping_lock:
            sweeper = self._sweeper(forward=forward)
            with tables.memory.using([tables.need(lines, vertices, ahead=forward)]):
                sweeper.search(NO_ARCS, begin, out)

    def _block(self, rows: Indices, columns: Indices) -> Array:
        """Return the block of these rows and columns, computed in the way that is predicted to be fastest."""
        from engine.algorithms.prepared.lines import block_lengths
        from engine.algorithms.prepared.panels import PanelProduct, cheapest

        way, _ = cheapest(len(rows), len(columns), self.n, self._mean_width, sweeps=self.exact)
        out = np.empty((len(rows), len(columns)), self.dtype)
        if not out.size:
            return out
        if way in ("rows", "columns"):
            lines, across, into = (rows, columns, out) if way == "rows" else (columns, rows, out.T)
            step = max(self.threads, self.band_bytes // self.row_bytes)
            for first in range(0, len(lines), step):
                into[first : first + step] = self._swept(lines[first : first + step], forward=way == "rows")[:, across]
            return out
        cut = self._pieces.cut(rows, columns)
        if cut is not None:
            with self._in_pieces():
                for half in cut[1]:
                    if cut[0]:
                        out[half] = self._block(rows[half], columns)
                    else:
                        out[:, half] = self._block(rows, columns[half])
            return out
        with self._held(rows, columns):
            fixed, rows, columns = self._ready(rows, columns)
            if way == "multiply":
                nonnegative = bool(self.least_weight >= 0)
                product = PanelProduct(fixed, self._walk, rows, columns, nonnegative=nonnegative, out=out)
                product.make_all(self.threads)
                return out

            def work(first: int, last: int) -> None:
                block_lengths(fixed, rows, columns[first:last], out[:, first:last])

            share(self.threads, len(columns), max(1, _SHARED // len(rows)), work)
        return out

    def close(self) -> None:
        """Release the folder and the threads that compute rows; the matrix must not be used afterwards."""
        for sweeper in self._sweepers.values():
            sweeper.shutdown()
        self._sweepers.clear()
        super().close()
