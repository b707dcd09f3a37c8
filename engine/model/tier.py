"""Where a streamed matrix lies: what the rounds ask of host memory and of the store alike.

Every entry of a tier is at all times the length of some walk, and only falls.  Rounds may therefore be run again over
any mixture of entries from the end of the round before or later: torn writes, copies taken while a stripe changes and
commits inside a round are all exact.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.blocks import GRAIN, cut
from engine.model.tiling import Streaming

#: Entries that are turned round at a time.
_BLOCK: Final = 2**16


class Tier(Protocol):
    """The verbs.  Called from the threads of all devices at once, never two at a time for one stripe.

    A stripe's rows are an array of shape (rows of the stripe, n), C-contiguous, in host memory.  One that ``take`` or
    ``blank`` handed out is the caller's until it is passed to ``give`` or ``drop``.  Of such arrays there are never
    more than ``window`` asked for ahead, and ``slots`` + 2 with each device.  With a symmetric layout only columns from
    the stripe's first row on are read and written; the others may hold anything.
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
        """How many stripes may be asked for before a device has use for them."""
        ...

    def take(self, stripe: int) -> Future[Array]:
        """The stripe's rows, as last given; does not block."""
        ...

    def blank(self, stripe: int) -> Array:
        """An array for the stripe's rows, whose contents will be overwritten; may wait for one to be free."""
        ...

    def give(self, turn: int, stripe: int, rows: Array) -> None:
        """``rows`` are the stripe after round ``turn``; they go back, in the background if need be."""
        ...

    def drop(self, stripe: int, rows: Array) -> None:
        """``rows`` were only read."""
        ...

    def skip(self, turn: int, stripe: int) -> bool:
        """Whether the stripe is already that of round ``turn`` or later (resume)."""
        ...

    def wants(self, turn: int) -> bool:
        """Whether resident stripes, too, shall come here after round ``turn``, for a commit; asked once a round."""
        ...

    def commit(self, turn: int) -> None:
        """All stripes have been given for round ``turn`` or a later one.  Never called twice, nor for fewer rounds.

        A tier that promises durability blocks here until it is so.  It may also commit what it was given inside a
        round, on its own clock.
        """
        ...

    def finish(self, streaming: Streaming) -> None:
        """The last round is done.

        With a symmetric layout, entries left of the diagonal are still to be mirrored: here, or as rows are read.
        """
        ...


class HostTier:
    """The matrix as one array in host memory, shape (n, n); stripes are views of it."""

    window = 0  # nothing is gained by asking early

    def __init__(self, matrix: Array, streaming: Streaming, *, threads: int = 1) -> None:
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.flags.c_contiguous:
            raise ValueError(f"a square, contiguous matrix is needed, not {matrix.shape}")
        self.matrix, self.n, self.dtype = matrix, len(matrix), matrix.dtype
        self._streaming, self._threads = streaming, threads
        self._lock = threading.Lock()
        self.level = np.full(streaming.stripes(self.n), -1, np.int64)

    def take(self, stripe: int) -> Future[Array]:
        """A view."""
        found: Future[Array] = Future()
        found.set_result(self.blank(stripe))
        return found

    def blank(self, stripe: int) -> Array:
        """The same view."""
        first, last = self._streaming.rows(stripe, self.n)
        return self.matrix[first:last]

    def give(self, turn: int, stripe: int, rows: Array) -> None:  # noqa: ARG002
        """Remember of which round the stripe is."""
        with self._lock:
            self.level[stripe] = max(self.level[stripe], turn)

    def drop(self, stripe: int, rows: Array) -> None:
        """Nothing to do."""

    def skip(self, turn: int, stripe: int) -> bool:
        """Whether an earlier run brought the stripe so far."""
        return bool(self.level[stripe] >= turn)

    def wants(self, turn: int) -> bool:  # noqa: ARG002
        """Never: memory is not durable."""
        return False

    def commit(self, turn: int) -> None:
        """Nothing to do."""

    def finish(self, streaming: Streaming) -> None:
        """Mirror what lies above the diagonal."""
        if streaming.symmetric:
            mirror(self.matrix, self._threads)


def mirror(matrix: npt.NDArray[np.generic], threads: int, side: int = 4 * GRAIN) -> None:
    """Copy what lies above the diagonal of a square matrix below it, in bands of rows, by several threads."""
    with ThreadPoolExecutor(max(1, threads), "apsp-mirror") as pool:
        bands = reversed(list(cut((0, len(matrix)), side)))
        for done in [pool.submit(mirror_rows, matrix, *band) for band in bands]:
            done.result()


def mirror_rows(matrix: npt.NDArray[np.generic], first: int, last: int) -> None:
    """Fill rows ``first`` up to ``last`` of a square matrix left of the diagonal with what lies above it."""
    # rows may lie a power of two apart, which caches bear ill: blocks are turned round in a place of their own
    height = last - first
    side = max(1, _BLOCK // height)
    place = np.empty((side, height + 16), matrix.dtype)
    for top, bottom in cut((0, first), side):
        block = place[: bottom - top, :height]
        block[:] = matrix[top:bottom, first:last]
        matrix[first:last, top:bottom] = block.T
    square = matrix[first:last, first:last]
    np.copyto(square, square.T.copy(), where=np.tri(height, k=-1, dtype=np.bool_))
