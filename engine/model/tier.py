"""Tiers hold a streamed matrix: host memory and the store offer the same operations to the rounds.

Every entry of a tier is at all times the length of some walk, and never grows.  A round may therefore be run again over
any mixture of entries, each as the previous round left it or newer.  So the result is exact even after torn writes,
copies taken while a stripe changes, and commits inside a round.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.blocks import GRAIN, cut
from engine.model.tiling import Tiling
from storage.threads import Promise, in_threads

#: Number of entries that are transposed at a time.
_BLOCK: Final = 2**16


class Tier(Protocol):
    """The operations of a tier, which the threads of all devices call at the same time.

    In rounds, no two threads use the same stripe at the same time.  In passes, several threads may take and drop a
    stripe at the same time, but not while a thread gives it.

    A stripe's rows are an array of shape (rows of the stripe, n), C-contiguous, in host memory.  An array from ``take``
    or ``blank`` belongs to the caller until the caller passes it to ``give`` or ``drop``.  Callers request at most
    ``window`` arrays in advance, and each device holds at most ``slots`` + 2.  In passes, each device requests at most
    ``window`` arrays in advance, and holds at most three.  With a symmetric layout only columns from the stripe's first
    row on are read and written; the other columns may hold anything.
    """

    @property
    def n(self) -> int:
        """Vertices."""
        ...

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The working type."""
        ...

    @property
    def window(self) -> int:
        """The number of stripes that may be requested before a device can use them."""
        ...

    def await_rows(self, stripes: Sequence[int]) -> None:
        """Wait for the stripes that a solve needs first, so that the time is not counted as work."""
        ...

    def take(self, stripe: int) -> Promise[Array]:
        """Return a promise of the stripe's rows as they were last given; this does not block."""
        ...

    def blank(self, stripe: int) -> Array:
        """Return an array with undefined content for the stripe's rows; this may wait until an array is free."""
        ...

    def give(self, k: int, stripe: int, rows: Array) -> None:
        """Put back a stripe in its state after round ``k``; this may return before the stripe is written.

        Args:
            k: the round; in passes, the level that the stripe has reached.
            stripe: number of the stripe.
            rows: the array from ``take`` or ``blank``.
        """
        ...

    def drop(self, stripe: int, rows: Array) -> None:
        """Return the array ``rows``, which the caller has only read, to the tier."""
        ...

    def retire(self, stripe: int) -> None:
        """Record that no device will take or give the stripe again; called only in passes, and not for every stripe."""
        ...

    def skip(self, k: int, stripe: int) -> bool:
        """Return whether, after a resume, the stripe already has the state of round ``k`` or of a later round."""
        ...

    def wants(self, k: int) -> bool:
        """Return whether a commit needs resident stripes to be given after round ``k``, too; called once per round."""
        ...

    def commit(self, k: int) -> None:
        """Commit round ``k``: the caller has given all stripes in the state of this round or a later one.  ``k`` only
        grows.  In passes, ``k`` counts the stripes that have been given.

        A tier that promises durability blocks until the stripes are durable.  It may also commit inside a round,
        without being asked to.
        """
        ...

    def finish(self, tiling: Tiling) -> None:
        """Finish the matrix after the last round.

        With a symmetric layout, entries left of the diagonal are mirrored here, or later when rows are read.
        """
        ...


class HostTier:
    """A matrix that is one array in host memory, shape (n, n); stripes are views of it."""

    window = 0  # requests in advance would gain nothing: all stripes are in memory

    def __init__(self, matrix: Array, tiling: Tiling, *, threads: int = 1) -> None:
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.flags.c_contiguous:
            raise ValueError(f"a square, contiguous matrix is needed, not {matrix.shape}")
        self.matrix, self.n, self.dtype = matrix, len(matrix), matrix.dtype
        self._tiling, self._threads = tiling, threads
        self._lock = threading.Lock()
        self.level = np.full(tiling.stripes(self.n), -1, np.int64)

    def await_rows(self, stripes: Sequence[int]) -> None:
        """Do nothing: the whole matrix is in memory."""

    def take(self, stripe: int) -> Promise[Array]:
        """Return a view of the stripe."""
        return Promise.of(self.blank(stripe))

    def blank(self, stripe: int) -> Array:
        """Return the same view as :meth:`take`."""
        first, last = self._tiling.rows(stripe, self.n)
        return self.matrix[first:last]

    def give(self, k: int, stripe: int, rows: Array) -> None:  # noqa: ARG002
        """Record the round of the stripe's state.

        Args:
            k: the round.
            stripe: number of the stripe.
            rows: the stripe's view, which already holds the entries.
        """
        with self._lock:
            self.level[stripe] = max(self.level[stripe], k)

    def drop(self, stripe: int, rows: Array) -> None:
        """Do nothing: stripes are views."""

    def retire(self, stripe: int) -> None:
        """Do nothing: the caller frees the memory."""

    def skip(self, k: int, stripe: int) -> bool:
        """Return whether an earlier run brought the stripe to round ``k``."""
        return bool(self.level[stripe] >= k)

    def wants(self, k: int) -> bool:  # noqa: ARG002
        """Return False: memory is not durable, so there is no commit."""
        return False

    def commit(self, k: int) -> None:
        """Do nothing: memory is not durable."""

    def finish(self, tiling: Tiling) -> None:
        """Mirror the entries above the diagonal where the layout is symmetric."""
        if tiling.symmetric:
            mirror(self.matrix, self._threads)


def mirror(matrix: npt.NDArray[np.generic], threads: int, side: int = 4 * GRAIN) -> None:
    """Copy the entries above the diagonal of a square matrix to their mirror places below it.

    Args:
        matrix: shape (n, n).
        threads: number of threads.
        side: rows of the band that a thread fills at a time.
    """
    bands = reversed(list(cut((0, len(matrix)), side)))
    in_threads(threads, lambda band: mirror_rows(matrix, *band), bands, name="apsp-mirror")


def mirror_rows(matrix: npt.NDArray[np.generic], first: int, last: int) -> None:
    """Fill some rows of a square matrix left of the diagonal, with the entries at the mirror places above the diagonal.

    Args:
        matrix: shape (n, n).
        first: first row to fill.
        last: row after the last to fill.
    """
    # a power-of-two row stride causes cache-set conflicts, so blocks are transposed through a padded scratch block
    height = last - first
    side = max(1, _BLOCK // height)
    scratch = np.empty((side, height + 16), matrix.dtype)
    for top, bottom in cut((0, first), side):
        block = scratch[: bottom - top, :height]
        block[:] = matrix[top:bottom, first:last]
        matrix[first:last, top:bottom] = block.T
    square = matrix[first:last, first:last]
    np.copyto(square, square.T.copy(), where=np.tri(height, k=-1, dtype=np.bool_))
