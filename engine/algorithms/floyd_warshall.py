"""Floyd-Warshall in two orders over a backend's relax and close, in place.

*Recursive* (Kleene 1956; Park, Penner and Prasanna, "Optimizing graph algorithms for improved cache performance",
2004): halves of halves, so that nearly all updates are large products.  *Blocked* (Venkataraman, Sahni and
Mukhopadhyaya, "A blocked all-pairs shortest-paths algorithm", 2003): rounds of pivot block, panels and remainder, the
order in which a matrix can be streamed.

Floats with negative arcs: where cycles of length (nearly) zero abound, rounding makes some of them negative, and what
passes through many of those falls without bound, as with any negative cycle; relax weights reduced by potentials then.

A panel is relaxed with a copy of itself, a stripe at a time, so that the sums of floats do not depend on who came
first.  Undirected graphs need half: what lies below the diagonal is transposed, not computed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.algorithms.products import GRAIN, PACK_BYTES, Span, clamp_diagonal, cut, multiply, settle_all, triangle
from engine.model import device_layout
from engine.model.backend import Array, Backend
from engine.model.plan import Candidate
from engine.model.progress import Monitor
from engine.planning.cost import Setting, dense_candidate, device_candidate

#: Vertices that a backend closes at once.
LEAF: Final = 256
#: Width of the pivot block of the blocked order.
PIVOT: Final = 768
#: Share of the rate of large products that a whole solve reaches; see benchmarks/kernels/cpu_floyd_warshall.py.
EFFICIENCY: Final = 0.9
#: Seconds of a round on a GPU, at least: of n = 4,096, eight rounds of 512, in 5.3 ms on an H200.
ROUND: Final = 0.65e-3
#: Columns (or rows) of a panel that are copied and relaxed at once.
STRIPE: Final = 1024


def workspace_bytes(n: int, itemsize: int, threads: int, *, rounds: bool = False) -> int:
    """Bytes allocated beside the matrix, the backend's own buffers included; ``rounds`` is for :func:`blocked`."""
    stripe = min(STRIPE, n) * (min(PIVOT, n) if rounds else _half(n))
    panels = 2 * min(PIVOT, n) * n if rounds else 0
    return itemsize * (stripe + panels) + threads * PACK_BYTES


def estimate_recursive(setting: Setting) -> Candidate:
    """The recursive order: one large product after another."""
    n, symmetric = setting.problem.n, not setting.problem.directed
    return dense_candidate(
        setting,
        "recursive-floyd-warshall",
        updates=kleene_updates(n, symmetric=symmetric),
        workspace=workspace_bytes(n, setting.kind.itemsize, setting.machine.threads),
        efficiency=EFFICIENCY,
    )


def estimate_blocked(setting: Setting) -> Candidate:
    """Rounds: the order that streaming needs, a little slower in memory."""
    n, symmetric = setting.problem.n, not setting.problem.directed
    return dense_candidate(
        setting,
        "blocked-floyd-warshall",
        updates=blocked_updates(n, symmetric=symmetric),
        workspace=workspace_bytes(n, setting.kind.itemsize, setting.machine.threads, rounds=True),
        efficiency=0.95 * EFFICIENCY,
    )


def device_recursive(setting: Setting) -> Candidate:
    """The recursive order on a GPU."""
    n, size, symmetric = setting.problem.n, setting.kind.itemsize, not setting.problem.directed
    return device_candidate(
        setting,
        "recursive-floyd-warshall",
        updates=kleene_updates(n, symmetric=symmetric),
        workspace=device_layout.product_bytes(n, size),
        efficiency=0.9,  # what it closes and packs hides behind nothing
        least=_least_seconds(n),
    )


def device_blocked(setting: Setting) -> Candidate:
    """Rounds on a GPU: small graphs in one launch, larger ones with look-ahead."""
    n, size, symmetric = setting.problem.n, setting.kind.itemsize, not setting.problem.directed
    updates = blocked_updates(n, symmetric=symmetric)
    space, least = device_layout.rounds_bytes(n, size), _least_seconds(n)
    return device_candidate(setting, "blocked-floyd-warshall", updates=updates, workspace=space, least=least)


def _least_seconds(n: int) -> float:
    """Of rounds on a GPU: one closes its pivot block and relaxes two panels after the other, however small they are."""
    return 0.0 if n <= device_layout.SINGLE else -(-n // device_layout.pivot_width(n)) * ROUND


def recursive(
    backend: Backend, d: Array, *, nonnegative: bool, symmetric: bool = False, monitor: Monitor | None = None
) -> None:
    """Close ``d`` in the recursive order.

    Args:
        backend: what relaxes.
        d: square matrix of arc weights (n x n), zero on the diagonal; becomes the matrix of distances.
        nonnegative: promises that no entry is below zero; without it, that there is no negative cycle.
        symmetric: promises that ``d`` is symmetric, for half the work.
        monitor: told of progress in updates, asked whether to stop.

    Raises:
        Cancelled: the monitor asked to stop; ``d`` then holds lengths of walks, not all of them shortest.
    """
    solve = _Solve(backend, d, nonnegative, symmetric, monitor or Monitor())
    solve.begin(kleene_updates(len(d), symmetric=symmetric))
    solve.close((0, len(d)))
    solve.finish()


def blocked(
    backend: Backend, d: Array, *, nonnegative: bool, symmetric: bool = False, monitor: Monitor | None = None
) -> None:
    """Close ``d`` in rounds of PIVOT vertices; arguments and errors as in :func:`recursive`."""
    n = len(d)
    solve = _Solve(backend, d, nonnegative, symmetric, monitor or Monitor())
    rounds = [(p, min(n, p + PIVOT)) for p in range(0, n, PIVOT)]
    solve.begin(blocked_updates(n, symmetric=symmetric))
    for pivot in rounds:
        if symmetric:
            solve.mirror(pivot)
            solve.close(pivot)
            solve.round_symmetric(pivot)
        else:
            solve.close(pivot)
            solve.round(pivot)
    if symmetric:
        solve.mirror((0, n))
    solve.finish()


def kleene_updates(n: int, *, symmetric: bool = False) -> int:
    """Updates that :func:`recursive` makes: n^3, and about half of that for a symmetric matrix."""
    if n <= LEAF or not symmetric:
        return n**3
    h = _half(n)
    g = n - h
    halves = kleene_updates(h, symmetric=True) + kleene_updates(g, symmetric=True)
    return halves + h * g * (h + g) + triangle(g) * h + triangle(h) * g


def blocked_updates(n: int, *, symmetric: bool = False) -> int:
    """Updates that :func:`blocked` makes."""
    return sum(_round_updates(n, min(n, p + PIVOT) - p, symmetric=symmetric) for p in range(0, n, PIVOT))


def _round_updates(n: int, width: int, *, symmetric: bool) -> int:
    rest = n - width
    if not symmetric:
        return width * n**2
    return kleene_updates(width, symmetric=True) + width**2 * rest + width * triangle(rest)


def _half(n: int) -> int:
    """Where the recursion splits ``n`` vertices."""
    return -(-n // (2 * GRAIN)) * GRAIN


class _Solve:
    """One run: the matrix, and the products that both orders are made of.  A span is a range of vertices."""

    def __init__(self, backend: Backend, d: Array, nonnegative: bool, symmetric: bool, monitor: Monitor) -> None:
        self._backend, self._d, self._monitor = backend, d, monitor
        self._nonnegative, self._symmetric = nonnegative, symmetric
        self._stripe = np.empty(0, d.dtype)

    def begin(self, total: int) -> None:
        """Tell the monitor how much there is to do."""
        self._monitor.begin("relax", total, "updates")

    def finish(self) -> None:
        """Put sums with the integer sentinel back to the sentinel."""
        if not self._nonnegative:
            settle_all(self._d)

    def close(self, span: Span) -> None:
        """Kleene's recursion on the diagonal block of ``span``."""
        start, stop = span
        if stop - start <= LEAF:
            block = self._d[start:stop, start:stop]
            self._backend.close(block, nonnegative=self._nonnegative, symmetric=self._symmetric)
            self._monitor.step((stop - start) ** 3)
            return
        middle = start + _half(stop - start)
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
        """What the closed block ``done`` means for ``other``, computing only what is above the diagonal."""
        if done == one:
            self.row_panel(one, two)
        else:
            self.column_panel(one, two)
        above, below = self._block(one, two), self._block(two, one)
        self._backend.transpose(below, above)
        self.product(other, done)
        self.mirror(other)

    def mirror(self, span: Span) -> None:
        """Copy what is above the diagonal of a block to below it."""
        block = self._block(span, span)
        self._backend.transpose(block, block, lower=True)

    def round(self, pivot: Span) -> None:
        """Panels and remainder of a round whose pivot block is closed."""
        for other in self._others(pivot):
            self.row_panel(pivot, other)
            self.column_panel(other, pivot)
        for rows in self._others(pivot):
            for columns in self._others(pivot):
                self._multiply(self._block(rows, columns), self._block(rows, pivot), self._block(pivot, columns))
            clamp_diagonal(self._block(rows, rows))

    def round_symmetric(self, pivot: Span) -> None:
        """The same where only entries above the diagonal are kept right: panels are put together from both arms."""
        before, after = self._others(pivot)
        self.column_panel(before, pivot)
        self.row_panel(pivot, after)
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
        """Relax the rows of a closed ``pivot`` in ``columns``."""
        for stripe in cut(columns, STRIPE):
            panel = self._block(pivot, stripe)
            self._multiply(panel, self._block(pivot, pivot), self._copy(panel))

    def column_panel(self, rows: Span, pivot: Span) -> None:
        """Relax the columns of a closed ``pivot`` in ``rows``."""
        for stripe in cut(rows, STRIPE):
            panel = self._block(stripe, pivot)
            self._multiply(panel, self._copy(panel), self._block(pivot, pivot))

    def _copy(self, panel: Array) -> Array:
        """A copy that lives until the next one is made: fresh memory each time would cost more than the copying."""
        if self._stripe.size < panel.size:
            self._stripe = np.empty(0, panel.dtype)
            self._stripe = np.empty(panel.size, panel.dtype)
        copy = self._stripe[: panel.size].reshape(panel.shape)
        copy[:] = panel
        return copy

    def product(self, block: Span, through: Span) -> None:
        """Relax the diagonal block of ``block`` by the paths through another span."""
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
