"""Answers questions to a prepared graph on a GPU: the tables are in device memory until the graph is closed.

Every answer is the number that the processors find, bit for bit.  Pairs and blocks are the same sums on both; whole
rows are computed part by part (swept) only if sums are exact.  The processors answer small questions, for which they
are faster than a GPU.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from engine.api.prepared_matrix import PreparedMatrix
from engine.graph.selection import Narrow, Rectangle
from engine.model.dtypes import work_type
from engine.model.progress import Monitor
from engine.model.rows import ReducingSink, Sink
from storage.errors import DoesNotFit, InvalidRequest, SolveFailed
from storage.matrix.tiles import StoreFolder
from storage.remote.reader import RemoteFolder

if TYPE_CHECKING:
    from engine.devices.cuda.tables.resident import DeviceTables

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
#: The device that answers from a prepared graph: ``auto`` for a GPU if there is one with enough memory for the tables.
AnswerDevice = Literal["auto", "cpu", "cuda"]

#: The processors answer pairs and blocks with fewer entries than this, because a call of a GPU takes about a tenth of a
#: millisecond, and a processor takes about a microsecond for a pair.
_FEW: Final = 1 << 10
#: A sweep computes a whole row, part by part.  It takes as long as merging the line of the source with the lines of
#: this share of all vertices.  So if sums are exact, a block with a larger share of all columns is cut out of whole
#: rows.
_SWEPT_SHARE: Final = 0.1
log = logging.getLogger("apsp.engine")


class DevicePreparedMatrix(PreparedMatrix):
    """A prepared graph whose tables lie in the memory of a GPU from the first large question until :meth:`close`.

    It is safe to use from many threads; the GPU answers one question after the other.

    Attributes:
        See ``PreparedMatrix``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder, memory: int | None = None, *, must: bool = True) -> None:
        """Make the object; callers use ``open_result``.

        Args:
            folder: the folder of the prepared graph.
            memory: bytes of device memory that may be used; None for all that is free.
            must: whether to raise an error if the device fails or lacks memory for a question; if not, the processors
                answer this question and all later ones.
        """
        super().__init__(folder)
        self._memory, self._must, self._asking = memory, must, threading.Lock()
        self._stays = False
        self._on_device: DeviceTables | None = None

    def check_device(self) -> None:
        """Check that there is a GPU and that the tables fit in its memory, without reading them.

        Raises:
            InvalidRequest: there is no usable GPU; the message says why.
            DoesNotFit: the tables are larger than the memory that may be used; the message has both numbers.
            SolveFailed: the GPU failed.
        """
        from engine.devices.cuda.tables.layout import check_budget
        from engine.devices.cuda.tables.resident import usable_memory

        usable = usable_memory(self._memory)
        check_budget(self.path, self.table_bytes, self.n, self.dtype.itemsize, usable)

    @property
    def most_held(self) -> int:
        """The most bytes of tables that questions keep in host memory.  If the device computes rows, questions keep all
        tables there.
        """
        return self.table_bytes if self._all_go else super().most_held

    @property
    def least_held(self) -> int:
        """The fewest bytes of tables that must be in host memory at the same time.  If the device computes rows, all
        tables must be there.
        """
        return self.table_bytes if self._all_go else super().least_held

    @property
    def _all_go(self) -> bool:
        """Whether the device computes rows: sums are exact, and the processors have not taken over from the device."""
        return self.exact and not self._stays

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory that the tables take now; 0 before the first large question."""
        return 0 if self._on_device is None else self._on_device.bytes

    def entries(self, sources: Any, targets: Any) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,), by merging two lines for each pair."""
        rows, columns = self.source_positions(sources), self.target_positions(targets)
        if len(rows) < _FEW or rows.shape != columns.shape:
            return super().entries(sources, targets)
        found = self._asked(lambda tables: tables.pairs(rows, columns))
        return super().entries(sources, targets) if found is None else found

    def reduce(self, rectangle: Rectangle, sink: Sink, monitor: Monitor, *, inward: bool) -> bool:
        """Reduce the rows of a rectangle on the device, and pass the results to a sink; the rows stay on the device.

        Args:
            rectangle: the rows and columns wanted, and a cutoff.
            sink: receives the results.
            monitor: receives the number of rows, and is asked whether to stop.
            inward: whether an entry is the distance from its column's vertex to its row's vertex; else in the opposite
                direction.

        Returns:
            Whether the device did this; if not, the processors must do it.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        into = Narrow(sink, rectangle) if rectangle.narrow else sink
        if not (self.exact and len(rectangle.rows) and isinstance(into, ReducingSink)):
            return False
        rows = self.target_positions(rectangle.rows) if inward else self.source_positions(rectangle.rows)

        def reduced(tables: DeviceTables) -> Array:
            tables.reduce(rows, into, monitor.step, forward=not inward)
            return rows

        return self._asked(reduced) is not None

    def release(self) -> None:
        """Free the device memory; the next large question allocates it again."""
        with self._asking:
            tables, self._on_device = self._on_device, None
            if tables is not None:
                tables.release()

    def close(self) -> None:
        """Free the device memory and release the folder; the matrix must not be used afterwards."""
        self.release()
        super().close()

    def _swept(self, vertices: Indices, *, forward: bool) -> Array:
        if not len(vertices):
            return super()._swept(vertices, forward=forward)
        found = self._asked(lambda tables: tables.rows(vertices, forward=forward))
        return super()._swept(vertices, forward=forward) if found is None else found

    def _block(self, rows: Indices, columns: Indices) -> Array:
        if len(rows) * len(columns) < _FEW:
            return super()._block(rows, columns)
        if self.exact and len(columns) > _SWEPT_SHARE * self.n:
            found = self._asked(lambda tables: tables.rows(rows, others=columns))
        else:
            found = self._asked(lambda tables: tables.block(rows, columns))
        return super()._block(rows, columns) if found is None else found

    def _asked(self, question: Callable[[DeviceTables], Array]) -> Array | None:
        """Return the device's answer to a question; None if the processors must answer."""
        with self._asking:
            if self._stays:
                return None
            try:
                return question(self._resident())
            except (DoesNotFit, SolveFailed) as error:
                if self._must:
                    raise
                log.warning("%s is answered by the processors from now on: %s", self.path, error)
                self._stays = True
        with contextlib.suppress(SolveFailed):
            self.release()
        return None

    def _resident(self) -> DeviceTables:
        """Return the tables on the device; the first call copies them there."""
        if self._on_device is None:
            from engine.devices.cuda.tables.layout import HostTables
            from engine.devices.cuda.tables.resident import DeviceTables

            tables, (limit, _) = self._tables_here, self._limits
            with tables.whole():
                self._on_device = DeviceTables(
                    HostTables(
                        tables.parts, self._walk[0], tables.ahead.values, tables.back.values, self._row_places,
                        self._column_places, work_type(self.dtype), limit, bool(self.least_weight >= 0),
                    ),
                    memory=self._memory,
                    threads=self.threads,
                )  # fmt: skip
        return self._on_device


def answered_by(folder: StoreFolder | RemoteFolder, device: AnswerDevice, memory: int | None) -> PreparedMatrix:
    """Open a prepared graph from which a GPU or the processors answer.

    Args:
        folder: the folder of the prepared graph.
        device: ``cuda`` for a GPU, ``cpu`` for the processors, ``auto`` for a GPU if one can hold the tables.
        memory: bytes of device memory that may be used; None for all that is free.

    Raises:
        InvalidRequest, DoesNotFit, SolveFailed: ``device`` is ``cuda``, and there is no usable GPU, its memory is too
            small, or it failed.
        StorageFailed: the prepared graph is damaged.
    """
    found = DevicePreparedMatrix(folder, memory, must=device == "cuda")
    try:
        found.check_device()
    except (InvalidRequest, DoesNotFit, SolveFailed) as error:
        if device == "cuda":
            found.close()
            raise
        log.info("%s is answered by the processors: %s", found.path, error)
        return PreparedMatrix(folder)
    return found
