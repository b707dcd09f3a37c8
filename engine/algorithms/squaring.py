"""Min-plus powers of the weight matrix, for shortest paths with a limit on their arcs.

With zeros on the diagonal, the K-th power of W holds the shortest lengths over at most K arcs, and powers past n - 1
are all equal.  Powers are multiplied together by the bits of K, or, where few rows are wanted, the rows are multiplied
by W again and again; the way with fewer updates is taken.  If a power equals the previous one, it is the last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.algorithms.products import clamp_diagonal, multiply, settle_all
from engine.model.backend import Array, Backend
from engine.model.blocks import GRAIN, cut
from engine.model.progress import Monitor
from engine.planning.cost_squaring import Schedule, power_updates, row_updates


def power(
    backend: Backend,
    d: Array,
    hops: int | None,
    *,
    rows: npt.NDArray[np.int64] | None = None,
    nonnegative: bool,
    symmetric: bool = False,
    monitor: Monitor | None = None,
) -> Array:
    """Find the lengths of the shortest paths of at most ``hops`` arcs.

    Args:
        backend: multiplies.
        d: arc weights, shape (n, n), zero on the diagonal; overwritten.
        hops: at least 1; None for no limit.
        rows: the sources wanted; None for all.
        nonnegative: as in ``floyd_warshall.recursive``.
        symmetric: as in ``floyd_warshall.recursive``.
        monitor: as in ``floyd_warshall.recursive``.

    Returns:
        The rows wanted, shape (sources, n); may be ``d`` itself.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    schedule = Schedule.of(len(d), len(d) if rows is None else len(rows), hops, symmetric=symmetric)
    run = _Power(backend, nonnegative, symmetric, monitor or Monitor())
    if rows is not None and schedule.by_rows:
        return run.by_rows(d, rows, schedule.hops)
    return run.by_squares(d, rows, schedule.hops)


class _Power:
    """One run: how products are made and where progress goes."""

    def __init__(self, backend: Backend, nonnegative: bool, symmetric: bool, monitor: Monitor) -> None:
        self._backend, self._monitor = backend, monitor
        self._nonnegative, self._symmetric = nonnegative, symmetric

    def by_squares(self, d: Array, rows: npt.NDArray[np.int64] | None, hops: int) -> Array:
        """Square ``d`` again and again, and multiply the squares of the bits of ``hops`` together.

        Args:
            d: arc weights, shape (n, n); overwritten.
            rows: the sources wanted; None for all.
            hops: the power.
        """
        n = len(d)
        total = power_updates(n, n if rows is None else len(rows), hops, symmetric=self._symmetric)
        self._monitor.begin("relax", total, "updates")
        square, spare = d, np.empty_like(d if hops > 1 else d[:0])
        result: Array | None = None
        while True:
            if hops == 1 and result is None:
                return square if rows is None else square[rows]
            if hops & 1:
                if result is None:
                    result = square.copy() if rows is None else square[rows]
                else:
                    product = spare[: len(result)]
                    self._times(product, result, square, whole=rows is None)
                    result[:] = product
            hops >>= 1
            if not hops and result is not None:
                return result
            self._times(spare, square, square, whole=True)
            square, spare = spare, square
            if _same(square, spare):
                return square if rows is None else square[rows]

    def by_rows(self, d: Array, rows: npt.NDArray[np.int64], hops: int) -> Array:
        """Multiply the rows wanted by the weights, one arc more each time.

        Args:
            d: arc weights, shape (n, n).
            rows: the sources wanted.
            hops: the power.
        """
        self._monitor.begin("relax", row_updates(len(d), len(rows), hops), "updates")
        result = d[rows]
        product = np.empty_like(result)
        for _ in range(hops - 1):
            self._times(product, result, d, whole=False)
            result, product = product, result
            if _same(result, product):
                break
        return result

    def _times(self, product: Array, a: Array, b: Array, *, whole: bool) -> None:
        """Set ``product`` to A (x) B, both powers of the same matrix; with ``whole`` both are square."""
        product[:] = a
        upper = whole and self._symmetric
        multiply(self._backend, product, a, b, nonnegative=self._nonnegative, upper=upper, monitor=self._monitor)
        if upper:
            self._backend.transpose(product, product, lower=True)
        if whole:
            clamp_diagonal(product)
        if not self._nonnegative:
            settle_all(product)


def _same(a: Array, b: Array) -> bool:
    """Return whether two matrices are equal, without a mask of their size."""
    return all(np.array_equal(a[i:j], b[i:j]) for i, j in cut((0, len(a)), GRAIN))
