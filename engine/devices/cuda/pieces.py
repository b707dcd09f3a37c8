"""Page-locked memory of the host for panels, and for stripes on their way, that is used again and again."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, suppress

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import open_device, translated
from engine.devices.cuda.pinned import host_matrix
from engine.model.backend import Array
from storage.errors import SolveFailed


class Pieces:
    """Pieces of memory of one size; each comes back by itself once no array shows any of it.

    The driver's own call gets the pages by one thread, and cupy's pool asks it for the next power of two.

    Args:
        shape, dtype: of a piece.
        threads: that get the pages of one.
    """

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike, threads: int) -> None:
        self._shape, self._dtype, self._threads = shape, np.dtype(dtype), threads
        self._free: list[Array] = []
        self._made = ExitStack()

    def take(self, height: int) -> Array:
        """An array of ``height`` rows, at most those of a piece, not cleared.  DoesNotFit if there is no memory.

        Called from any thread, with a device current.
        """
        try:
            whole = self._free.pop()
        except IndexError:
            whole = self._made.enter_context(host_matrix(self._shape, self._dtype, threads=self._threads)).array
        lease = _Lease(whole[:height])
        weakref.finalize(lease, self._free.append, whole).atexit = False
        return np.asarray(lease)

    def release(self) -> None:
        """Unlock all; what arrays still show stays theirs.  A device that has failed is not asked."""
        self._free.clear()
        with suppress(SolveFailed), translated(open_device()):
            self._made.close()


class _Lease:
    """What all arrays that show a piece keep alive: views of views refer to it, not to the first of them."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.__array_interface__ = rows.__array_interface__
