"""A row panel that is closed and then packed in place, so that it takes the memory of only one panel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.algorithms import floyd_warshall
from engine.algorithms.products import PIECE, SIDE, clamp_diagonal, multiply
from engine.model.backend import Array, Backend, Packing
from engine.model.blocks import cut
from engine.model.dtypes import settle, work_type
from engine.model.progress import Monitor
from engine.model.stripe_device import below_zero, diagonal
from engine.model.tiling import Span


class PackedPanel:
    """The panel of one round at a time.

    Callers call ``begin``, ``put``, ``close`` and ``pack``, then ``relax`` and ``take``, in each round.

    Columns are stored in blocks, one after the other, each as wide as what the backend packs at once.  So each block is
    packed in its own place, and needs a temporary copy of one block only.

    Args:
        backend: computes the products, and packs.
        width: most rows of the panel.
        n: columns of the panel.
        dtype: the working type.
        monitor: asked during products whether to stop.
        nonnegative: promises that no entry is below zero.

    Raises:
        TypeError: the backend does not pack.
    """

    def __init__(
        self, backend: Backend, width: int, n: int, dtype: np.dtype[np.generic], monitor: Monitor, *, nonnegative: bool
    ) -> None:
        if not isinstance(backend, Packing):
            raise TypeError(f"the backend {backend.name} does not pack")
        self._backend, self._packing, self._monitor, self._nonnegative = backend, backend, monitor, nonnegative
        self._n, self._wide = n, backend.piece(dtype)
        self._memory = backend.packed(width, n, dtype)
        self._k, self._span = 0, (0, 0)

    def begin(self, k: int, span: Span) -> None:
        """Begin the panel of round ``k``, whose rows are ``span``."""
        self._k, self._span = k, span

    def put(self, first: int, rows: Array) -> None:
        """Copy rows of the matrix, the first of which is row ``first``, into the panel."""
        top = first - self._span[0]
        for (left, right), block in self._blocks():
            block[top : top + len(rows)] = rows[:, left:right]

    def close(self, *, last: bool) -> None:
        """Close the pivot block C, then set P <- C (x) P.

        If ``last``, whole numbers that are no distance are set to *unreachable*.

        Raises:
            BelowZero: a vertex is at less than zero from itself (whole numbers only).
        """
        start, stop = self._span
        closed = np.empty((stop - start, stop - start), self._memory.dtype)
        self._exchange(closed, into=False)
        signed = not self._nonnegative
        whole = work_type(closed.dtype).integer
        if signed:
            self._check(closed)
        floyd_warshall.recursive(self._backend, closed, nonnegative=self._nonnegative, monitor=self._monitor)
        if signed and whole and (closed + closed.T).min() < 0:  # type: ignore[operator]
            raise below_zero(self._k)
        self._exchange(closed, into=True)
        for _, block in self._blocks():
            multiply(self._backend, block, closed, block.copy(), nonnegative=self._nonnegative, monitor=self._monitor)
            if last and signed and whole:
                settle(block)

    def pack(self) -> None:
        """Pack all columns; from now on ``relax`` and ``take`` may be called."""
        for (left, _), block in self._blocks():
            self._packing.pack(self._memory[left * len(block) :], block.copy())

    def take(self, first: int, rows: Array) -> None:
        """Copy rows of the packed panel, from matrix row ``first`` on, into ``rows``."""
        start, stop = self._span
        self._packing.unpack(rows, self._memory, stop - start, first - start)

    def relax(self, rows: Array) -> None:
        """Compute X <- min(X, A (x) P) for the rows X, shape (rows, n); A is the pivot columns of X."""
        through = rows[:, slice(*self._span)].copy()
        most = PIECE * self._backend.threads // (through.size * rows.itemsize)
        for left, right in cut((0, self._n), max(1, most // SIDE) * SIDE):
            packed = self._memory[left * through.shape[1] :]
            self._packing.relax_by(rows[:, left:right], through, packed, nonnegative=self._nonnegative)
            self._monitor.step(0)

    def _blocks(self) -> Iterator[tuple[Span, Array]]:
        """Yield the columns of each block and its part of the memory, shape (rows of the panel, columns)."""
        depth = self._span[1] - self._span[0]
        for left, right in cut((0, self._n), self._wide):
            yield (left, right), self._memory[left * depth : right * depth].reshape(depth, right - left)

    def _exchange(self, square: Array, *, into: bool) -> None:
        """Copy the pivot block from the panel to ``square``; with ``into``, from ``square`` to the panel."""
        start, stop = self._span
        for (left, right), block in self._blocks():
            low, high = max(start, left), min(stop, right)
            if low < high:
                inside, outside = block[:, low - left : high - left], square[:, low - start : high - start]
                if into:
                    inside[:] = outside
                else:
                    outside[:] = inside

    def _check(self, square: Array) -> None:
        """Raise BelowZero for whole numbers below zero on the diagonal; set floats there, which rounding may cause, to
        zero.
        """
        if work_type(square.dtype).integer and diagonal(square, 0).min() < 0:
            raise below_zero(self._k)
        clamp_diagonal(square)
