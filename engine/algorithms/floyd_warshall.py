"""Floyd-Warshall in place, in two orders of a backend's operations: relax (C <- min(C, A (x) B), the min-plus product)
and close (Floyd-Warshall inside one block).

*Recursive* (Kleene 1956; Park, Penner and Prasanna, "Optimizing graph algorithms for improved cache performance",
2004): the matrix is halved again and again, so that nearly all updates are in large products.  *Blocked* (Venkataraman,
Sahni and Mukhopadhyaya, "A blocked all-pairs shortest-paths algorithm", 2003): each round closes a pivot block, then
relaxes its panels, then the remainder; in this order a matrix can be streamed.

Floats with negative arcs need weights reduced by potentials: if many cycles have a length of (nearly) zero, rounding
makes some of these lengths negative, and lengths then fall without bound, as with any negative cycle.

A panel is relaxed by a copy of itself, one stripe at a time, so that sums of floats do not depend on the order in which
threads run.  Undirected graphs need half of the work: entries below the diagonal are copied from those above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.algorithms.products import clamp_diagonal, multiply, settle_all
from engine.devices.rounds import Action, RoundOrder
from engine.model.backend import Array, Signs
from engine.model.blocks import LEAF, PIVOT, STRIPE, Span, cut
from engine.model.progress import Monitor
from engine.planning.cost_dense import blocked_updates, kleene_updates, split_point

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def recursive(
    backend: CpuBackend, d: Array, *, nonnegative: Signs, symmetric: bool = False, monitor: Monitor | None = None
) -> None:
    """Turn the matrix of arc weights into the matrix of distances (close it), in the recursive order.

    Args:
        backend: relaxes and closes blocks.
        d: square matrix of arc weights (n x n), zero on the diagonal; becomes the matrix of distances.
        nonnegative: promises that no entry is below zero; otherwise there must be no negative cycle.
        symmetric: promises that ``d`` is symmetric, for half the work.
        monitor: receives the progress, in updates, and can stop the run.

    Raises:
        Cancelled: the monitor asked to stop; ``d`` then holds lengths of walks, not all of them shortest.
    """
    solve = _Solve(backend, d, nonnegative, symmetric, monitor or Monitor())
    solve.begin(kleene_updates(len(d), symmetric=symmetric))
    solve.close((0, len(d)))
    solve.finish()


def blocked(
    backend: CpuBackend, d: Array, *, nonnegative: Signs, symmetric: bool = False, monitor: Monitor | None = None
) -> None:
    """Turn the matrix of arc weights into the matrix of distances (close it), in rounds of PIVOT vertices.

    Args:
        backend, d, nonnegative, symmetric, monitor: as in :func:`recursive`, which raises the same errors.
    """
    n = len(d)
    solve = _Solve(backend, d, nonnegative, symmetric, monitor or Monitor())
    solve.begin(blocked_updates(n, symmetric=symmetric))
    for _, steps in RoundOrder(-(-n // PIVOT)).rounds():
        for action, k in steps:
            pivot = (k * PIVOT, min(n, (k + 1) * PIVOT))
            if action is Action.CLOSE:
                solve.close_panel(pivot)
            elif action is Action.REST:
                solve.rest(pivot)
    if symmetric:
        solve.mirror((0, n))
    solve.finish()


class _Solve:
    """One run: the matrix, and the products that the recursive and the blocked order have in common.

    A *span* is a range of vertices.
    """

    def __init__(self, backend: CpuBackend, d: Array, nonnegative: Signs, symmetric: bool, monitor: Monitor) -> None:
        self._backend, self._d, self._monitor = backend, d, monitor
        self._nonnegative, self._symmetric = nonnegative, symmetric
        self._stripe = np.empty(0, d.dtype)

    def begin(self, total: int) -> None:
        """Tell the monitor how many updates the run will make."""
        self._monitor.begin("relax", total, "updates")

    def finish(self) -> None:
        """Set entries that are the sum of *unreachable* and a negative length back to *unreachable*."""
        if not self._nonnegative:
            settle_all(self._d)

    def close(self, span: Span) -> None:
        """Close the diagonal block of ``span`` by Kleene's recursion."""
        start, stop = span
        if stop - start <= LEAF:
            block = self._d[start:stop, start:stop]
            self._backend.close(block, nonnegative=self._nonnegative, symmetric=self._symmetric)
            self._monitor.step((stop - start) ** 3)
            return
        middle = start + split_point(stop - start)
        one, two = (start, middle), (middle, stop)
        for done, other in ((one, two), (two, one)):
            self.close(done)
            if self._symmetric:
                self._carry_symmetric(done, other, one, two)
            else:
                self.row_panel(done, other)
                self.column_panel(other, done)
                self.product(other, done)

    def _carry_symmetric(self, done: Span, other: Span, one: Span, two: Span) -> None:
        """Relax the block ``other`` by the closed block ``done``; ``one`` and ``two`` are these two spans in ascending
        order, and only entries above the diagonal are computed.
        """
        if done == one:
            self.row_panel(one, two)
        else:
            self.column_panel(one, two)
        above, below = self._block(one, two), self._block(two, one)
        self._backend.transpose(below, above)
        self.product(other, done)
        self.mirror(other)

    def mirror(self, span: Span) -> None:
        """Make a diagonal block symmetric: copy each entry above the diagonal to its place below the diagonal."""
        block = self._block(span, span)
        self._backend.transpose(block, block, lower=True)

    def close_panel(self, pivot: Span) -> None:
        """Close a pivot block, and relax its panels; in a symmetric matrix, only the panels above the diagonal."""
        before, after = self._others(pivot)
        if self._symmetric:
            self.mirror(pivot)
        self.close(pivot)
        if self._symmetric:
            self.column_panel(before, pivot)
            self.row_panel(pivot, after)
            return
        for other in (before, after):
            self.row_panel(pivot, other)
            self.column_panel(other, pivot)

    def rest(self, pivot: Span) -> None:
        """Relax the remainder of a round, after its pivot block and its panels."""
        if self._symmetric:
            self._rest_symmetric(pivot)
            return
        for rows in self._others(pivot):
            for columns in self._others(pivot):
                self._multiply(self._block(rows, columns), self._block(rows, pivot), self._block(pivot, columns))
            clamp_diagonal(self._block(rows, rows))

    def _rest_symmetric(self, pivot: Span) -> None:
        """Relax the remainder of a symmetric matrix above the diagonal.

        The panels above the diagonal are the column above the pivot block and the row to its right.  The panels below
        the diagonal are their transposes.
        """
        before, after = self._others(pivot)
        n, width = len(self._d), pivot[1] - pivot[0]
        tall, wide = np.empty((n, width), self._d.dtype), np.empty((width, n), self._d.dtype)
        tall[slice(*before)] = self._block(before, pivot)
        wide[:, slice(*after)] = self._block(pivot, after)
        self._backend.transpose(wide[:, slice(*before)], tall[slice(*before)])
        self._backend.transpose(tall[slice(*after)], wide[:, slice(*after)])
        for rows in (before, after):
            self._multiply(self._block(rows, rows), tall[slice(*rows)], wide[:, slice(*rows)], upper=True)
            clamp_diagonal(self._block(rows, rows))
        self._multiply(self._block(before, after), tall[slice(*before)], wide[:, slice(*after)])

    def row_panel(self, pivot: Span, columns: Span) -> None:
        """Relax the row panel of the closed block ``pivot``, in the columns ``columns``."""
        for stripe in cut(columns, STRIPE):
            panel = self._block(pivot, stripe)
            self._multiply(panel, self._block(pivot, pivot), self._copy(panel))

    def column_panel(self, rows: Span, pivot: Span) -> None:
        """Relax the column panel of the closed block ``pivot``, in the rows ``rows``."""
        for stripe in cut(rows, STRIPE):
            panel = self._block(stripe, pivot)
            self._multiply(panel, self._copy(panel), self._block(pivot, pivot))

    def _copy(self, panel: Array) -> Array:
        """Return a copy of ``panel`` that is valid until the next call.

        All calls reuse the same memory, because allocating takes longer than copying.
        """
        if self._stripe.size < panel.size:
            self._stripe = np.empty(0, panel.dtype)
            self._stripe = np.empty(panel.size, panel.dtype)
        copy = self._stripe[: panel.size].reshape(panel.shape)
        copy[:] = panel
        return copy

    def product(self, block: Span, through: Span) -> None:
        """Relax the diagonal block of the span ``block`` by the paths through the span ``through``."""
        left, right = self._block(block, through), self._block(through, block)
        inside = self._block(block, block)
        self._multiply(inside, left, right, upper=self._symmetric)
        clamp_diagonal(inside)

    def _others(self, pivot: Span) -> tuple[Span, Span]:
        return (0, pivot[0]), (pivot[1], len(self._d))

    def _block(self, rows: Span, columns: Span) -> Array:
        return self._d[rows[0] : rows[1], columns[0] : columns[1]]

    def _multiply(self, c: Array, a: Array, b: Array, *, upper: bool = False) -> None:
        multiply(self._backend, c, a, b, nonnegative=self._nonnegative, upper=upper, monitor=self._monitor)
