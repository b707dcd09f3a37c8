"""Answers from a prepared graph in the compact form: the tables that a question needs are computed first."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Eliminated
from engine.algorithms.part_lengths import PartWork
from engine.algorithms.prepared.compact import CompactTables, StoredLengths
from engine.algorithms.prepared.pieces import CompactPieces
from engine.api.prepared_matrix import NO_ARCS, PreparedMatrix
from engine.graph.partition import Lengths
from engine.model.dtypes import settle, work_type
from engine.model.progress import Monitor
from storage.errors import InvalidRequest
from storage.matrix.tiles import StoreFolder
from storage.prepared.chunks import NOTHING
from storage.remote.reader import RemoteFolder

if TYPE_CHECKING:
    from engine.api.from_tables.on_device import AnswerDevice
    from engine.devices.cpu.sweep import Sweeper

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class CompactMatrix(PreparedMatrix):
    """A prepared graph in the compact form, open for reading; safe to use from many threads.

    Answers are the same as from the full form, to the last bit; they take more time and less memory.

    Attributes:
        See ``PreparedMatrix``.
    """

    @property
    def most_held(self) -> int:
        """Bytes of the stored lengths, all of which are kept in memory."""
        return self.table_bytes

    @property
    def least_held(self) -> int:
        """Bytes of the stored lengths; none of them can be dropped."""
        return self.table_bytes

    @property
    def _drops(self) -> bool:
        """Always False: the stored lengths stay in memory."""
        return False

    @cached_property
    def _described(self) -> CompactTables:  # type: ignore[override]
        """The tables; making this object reads all stored lengths, and compares every chunk with the seal."""
        from engine.devices.cpu.backend import CpuBackend

        parts, kind = self.parts(), work_type(self.dtype)
        closed, upward, across = (
            self._stored(name) for name in ("tables/closed", "elimination/upward", "elimination/across")
        )
        found = Eliminated.of(parts, upward, across, np.empty(0, self.dtype))
        nonnegative = bool(self.least_weight >= 0)
        self._backend = CpuBackend(self.threads)
        work = PartWork(self._backend, self.graph(), parts, kind, nonnegative, Monitor())
        directed = self.directed or len(parts.position) > self.n  # opened terminals make any graph directed
        return CompactTables(work, StoredLengths(closed, found), directed=directed)

    @property
    def _tables_here(self) -> CompactTables:  # type: ignore[override]
        with self._lock:
            return self._described

    def _stored(self, where: str) -> Array:
        found = self._whole_array(where)
        assert found is not None  # every prepared graph in the compact form has this array
        return found

    @property
    def loaded(self) -> bool:
        """Whether the stored lengths have been read."""
        return "_described" in self.__dict__

    @property
    def held_bytes(self) -> int:
        """Bytes of tables that are in memory between questions."""
        return self._described.nbytes if self.loaded else 0

    @cached_property
    def _pieces(self) -> CompactPieces:
        """The object that cuts a question into pieces if it needs more tables than can be computed at once."""
        found = self._kernels
        return CompactPieces(self._tables_here, (found[3], found[4]))

    def _held(self, rows: Indices, columns: Indices) -> AbstractContextManager[None]:  # noqa: ARG002
        """Context manager that does nothing: each question computes its own tables, so none must be kept for it."""
        return NOTHING

    @cached_property
    def _kernels(self) -> tuple[Any, ...]:
        tables, found = self._tables_here, self._limits
        lines = tables.lines(self._row_places), tables.lines(self._column_places)
        return (tables.parts.parents, tables.widths), None, found, *lines

    def _ready(self, rows: Indices, columns: Indices) -> tuple[tuple[Any, ...], Indices, Indices]:
        tree, _, limits, sources, targets = self._kernels
        tables = self._tables_here
        forward, starts = tables.ended(sources, rows, ahead=True)
        backward, ends = tables.ended(targets, columns, ahead=False)
        found = tree, (forward, backward), limits, starts, ends
        return found, np.arange(len(rows)), np.arange(len(columns))

    def _sweep_lengths(self, *, forward: bool) -> Lengths:
        tables, found = self._tables_here, self._tables_here.stored.found
        parts, across = tables.parts, []
        for i in range(parts.count):
            block = found.down(i) if forward else np.ascontiguousarray(found.up(i).T)
            if self.least_weight < 0:
                block = block.copy()
                settle(block)
            across.append(block)
        return Lengths([], across, np.empty(0, self.dtype))

    def _sweep(self, vertices: Indices, begin: Indices, out: Array, *, forward: bool) -> None:
        """Fill the rows ``out`` with lengths from ``vertices``, one group of vertices in adjacent parts at a time."""
        part = self._kernels[3 if forward else 4][0][vertices]
        for some in self._pieces.groups(vertices, forward=forward) or [np.arange(len(vertices))]:
            flat, begins = self._tables_here.flat(part[some], ahead=forward)
            rows = out[some]
            with self._sweeping_lock:
                self._over(self._sweeper(forward=forward), flat, begins).search(NO_ARCS, begin[some], rows)
            out[some] = rows

    @staticmethod
    def _over(sweeper: Sweeper, flat: Array, begins: Indices) -> Sweeper:
        """Return a copy of ``sweeper`` that reads lines from ``flat``, where the table of each part begins at
        ``begins``.
        """
        found = copy.copy(sweeper)
        walk = list(sweeper._parts)
        walk[5], walk[6] = flat, begins
        found._parts = tuple(walk)
        return found

    def close(self) -> None:
        """Release the folder and the threads; the matrix must not be used afterwards."""
        super().close()
        if self.loaded:
            self._backend.shutdown()


def compact_by(folder: StoreFolder | RemoteFolder, device: AnswerDevice) -> CompactMatrix:
    """Open a prepared graph in the compact form for a device.

    Args:
        folder: the folder of the prepared graph.
        device: ``auto`` or ``cpu``, for processors; ``cuda`` is refused.

    Raises:
        InvalidRequest: ``device`` is ``cuda``.
    """
    if device == "cuda":
        folder.close()
        raise InvalidRequest(
            f"{folder.path} is in the compact form, which processors answer; prepare it without --compact for a GPU",
            field="device",
        )
    return CompactMatrix(folder)
