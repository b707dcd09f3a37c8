"""Reads small results from the device: facts of rows (such as the sum of the distances), histograms, single words.

Kernels write these results directly to page-locked memory of the host.  A copy of a few bytes would have to wait: one
copy engine makes all copies in one direction, of all streams, in the order in which they were queued, so all rows
queued earlier would be copied first, and the search that depends on the result would wait, too.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.code.kernel_set import ARITHMETICS, Arithmetic
from engine.devices.cuda.context import Modules
from engine.model.dtypes import WorkType
from engine.model.rows import RowFacts

_ROWS: Final = np.dtype([("d", "u8"), ("sources", "u8"), ("ld", "i8"), ("n", "i4"), ("gathered", "i4")], align=True)
_THREADS: Final = 256
#: Bytes of the facts of a row: four numbers of at most 64 bits.
_FACTS: Final = 32


class RowFactsReader:
    """Computes facts of rows (see ``RowFacts``) on the current stream and waits for them.  Not thread-safe.

    Args:
        found: the kernels of the device.
        kind: working type of the rows.
        arithmetic: the arithmetic of the kernels.
    """

    def __init__(self, found: Modules, kind: WorkType, arithmetic: Arithmetic) -> None:
        self._found, self._kind, self._arithmetic = found, kind, arithmetic
        self._memory: Any = None

    def facts(self, d: Any, sources: Any, *, gathered: bool = True) -> RowFacts:
        """Return the facts of rows.

        Args:
            d: on the device, shape (rows, n), rows contiguous.
            sources: int64, on the device: the sources whose rows are wanted.
            gathered: whether row i of ``d`` is the row of ``sources[i]``; else it is the row of vertex i.
        """
        count, kind = len(sources), self._kind
        if count == 0:
            none = np.zeros(0, np.int64)
            return RowFacts(none, none, none, none)
        address = self._buffer(count * _FACTS)
        types = ("i8", "i8" if kind.integer else "f8", "i4" if kind.integer else kind.dtype, "i8")
        places = [np.uint64(address + 8 * count * i) for i in range(len(types))]
        self._launch("facts", count, described(d, sources, gathered), *places)
        self._synchronize()
        held = [np.frombuffer(self._memory, t, count, 8 * count * i).copy() for i, t in enumerate(types)]
        return RowFacts(*held)

    def histogram(
        self, d: Any, sources: Any, width: float, counts: npt.NDArray[np.int64], *, gathered: bool = True
    ) -> int:
        """Add the finite distances of rows to a histogram.

        Args:
            d, sources, gathered: the rows, described as in :meth:`facts`.
            width: width of a bin; the first one begins at 0.
            counts: int64, shape (128,), changed in place; the last bin also counts everything above it.

        Returns:
            How many distances lie below 0.
        """
        found = self._found.cupy.zeros(len(counts) + 1, "u8")
        if len(sources):
            self._launch("histogram", len(sources), described(d, sources, gathered), np.float64(1 / width), found)
        *bins, below = self.words(found).view(np.int64).tolist()
        counts += np.array(bins, np.int64)
        return int(below)

    def words(self, array: Any) -> npt.NDArray[np.uint32]:
        """Return the 32-bit words of a contiguous array of the device."""
        count = array.nbytes // 4
        kernel = self._found.get("tell", ARITHMETICS["int32", False])
        kernel((1,), (_THREADS,), (array, np.uint64(self._buffer(array.nbytes)), np.int32(count)))
        self._synchronize()
        return np.frombuffer(self._memory, np.uint32, count).copy()

    def release(self) -> None:
        """Free the host memory."""
        self._memory = None

    def _buffer(self, size: int) -> int:
        """Return the address of ``size`` bytes of page-locked memory, to which the device can write."""
        if self._memory is None or self._memory.mem.size < size:
            self._memory = self._found.cupy.cuda.alloc_pinned_memory(size)
        return int(self._memory.ptr)

    def _synchronize(self) -> None:
        self._found.cupy.cuda.get_current_stream().synchronize()

    def _launch(self, name: str, blocks: int, *arguments: object) -> None:
        self._found.get(name, self._arithmetic)((blocks,), (_THREADS,), arguments)


def described(d: Any, sources: Any, gathered: bool) -> npt.NDArray[Any]:
    """Return the struct ``Rows`` of common.cuh for some rows, described as in ``RowFactsReader.facts``."""
    rows = np.zeros((), _ROWS)
    rows["d"], rows["sources"] = d.data.ptr, sources.data.ptr
    rows["ld"], rows["n"], rows["gathered"] = d.strides[0] // d.itemsize, d.shape[1], gathered
    return rows
