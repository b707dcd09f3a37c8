"""Min-plus powers of the weight matrix W, for shortest paths with a limit on the number of their arcs.

With zeros on the diagonal, the K-th power of W holds the shortest lengths over at most K arcs, and all powers from
n - 1 on are equal.  There are two ways to compute the K-th power.  W is squared repeatedly, and the squares selected by
the bits of K are multiplied; or, for few rows, these rows are multiplied by W again and again.  The way with fewer
updates is used.  Both ways end early if a power equals the previous one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.algorithms.products import clamp_diagonal, multiply, settle_all
from engine.devices import powers
from engine.model.backend import Array
from engine.model.blocks import GRAIN, cut
from engine.model.progress import Monitor
from engine.planning.cost_squaring import Schedule, power_updates, row_updates

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def power(
    backend: CpuBackend,
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
        backend: computes the products.
        d: arc weights, shape (n, n), zero on the diagonal; overwritten.
        hops: at least 1; None for no limit.
        rows: the sources wanted; None for all.
        nonnegative: promises that no weight is below zero.
        symmetric: promises that ``d`` is symmetric, for half the work.
        monitor: receives the progress, in updates, and can stop the run.

    Returns:
        The rows wanted, shape (sources, n); this may be ``d`` itself.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    n, count = len(d), len(d) if rows is None else len(rows)
    schedule, monitor = Schedule.of(n, count, hops, symmetric=symmetric), monitor or Monitor()
    products = _CpuProducts(backend, nonnegative, symmetric, monitor, rows)
    if rows is not None and schedule.by_rows:
        monitor.begin("relax", row_updates(n, count, schedule.hops), "updates")
        products.reserve(np.empty((count, n), d.dtype))
        return powers.by_rows(products, d, schedule.hops)
    monitor.begin("relax", power_updates(n, count, schedule.hops, symmetric=symmetric), "updates")
    products.reserve(np.empty_like(d if schedule.hops > 1 else d[:0]))
    return powers.by_squares(products, d, schedule.hops)


class _CpuProducts:
    """The products that :mod:`engine.devices.powers` needs; each product overwrites the older of two matrices.

    Args:
        backend: computes the products.
        nonnegative: promises that no weight is below zero.
        symmetric: promises that the matrix of weights is symmetric.
        monitor: receives the number of updates.
        rows: the sources wanted; None for all.
    """

    def __init__(
        self,
        backend: CpuBackend,
        nonnegative: bool,
        symmetric: bool,
        monitor: Monitor,
        rows: npt.NDArray[np.int64] | None,
    ) -> None:
        self._backend, self._monitor, self._rows = backend, monitor, rows
        self._nonnegative, self._symmetric = nonnegative, symmetric
        self._spare: Array

    def reserve(self, spare: Array) -> None:
        """Set the spare matrix, into which products are written; it has the shape of the largest product."""
        self._spare = spare

    def wanted(self, power: Array, *, last: bool) -> Array:
        """Return the wanted rows; as a copy, unless this is the last power and all rows are wanted."""
        if self._rows is not None:
            return power[self._rows]
        return power if last else power.copy()

    def times(self, rows: Array, power: Array) -> Array:
        """Overwrite ``rows`` with their product by ``power``, and return them."""
        product = self._spare[: len(rows)]
        self._times(product, rows, power, whole=self._rows is None)
        rows[:] = product
        return rows

    def square(self, power: Array) -> Array:
        """Return the square of ``power``.

        The square is written into the spare matrix; ``power`` becomes the spare, which the next product overwrites.
        """
        self._times(self._spare, power, power, whole=True)
        self._spare, square = power, self._spare
        return square

    def longer(self, rows: Array, weights: Array) -> Array:
        """Return the product of ``rows`` and ``weights``: shortest lengths over at most one arc more than ``rows`` has.

        The lengths are written into the spare matrix; ``rows`` becomes the spare, which the next product overwrites.
        """
        self._times(self._spare, rows, weights, whole=False)
        self._spare, product = rows, self._spare
        return product

    def same(self, one: Array, other: Array) -> bool:
        """Return whether two matrices are equal; compares bands of rows, so that the mask stays small."""
        return all(np.array_equal(one[i:j], other[i:j]) for i, j in cut((0, len(one)), GRAIN))

    def _times(self, product: Array, a: Array, b: Array, *, whole: bool) -> None:
        """Set ``product`` to A (x) B, a product of powers of one matrix; ``whole`` says whether A has all n rows."""
        product[:] = a
        upper = whole and self._symmetric
        multiply(self._backend, product, a, b, nonnegative=self._nonnegative, upper=upper, monitor=self._monitor)
        if upper:
            self._backend.transpose(product, product, lower=True)
        if whole:
            clamp_diagonal(product)
        if not self._nonnegative:
            settle_all(product)
