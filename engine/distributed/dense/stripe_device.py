"""The device on which a worker computes: it holds stripes, relaxes them by one panel at a time, and closes panels.

In this package a stripe is as high as a pivot block is wide, so panel k is made of stripe k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from engine.algorithms.products import multiply
from engine.distributed.messages import DistributedJob
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES, settle
from engine.model.stripe_device import StripeJob
from engine.model.tier import Tier
from engine.streaming.cpu_panels import Checks, check_diagonal, close_panel

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


class WorkerDevice(Protocol):
    """A device of a worker.

    The methods from ``use`` to ``mark`` are called from one thread at a time, the other methods from any thread.  No
    two calls use the same stripe at the same time, except ``copy``.
    """

    def hold(self, stripe: int, rows: Array) -> None:
        """Hold a stripe; ``rows``, shape (rows of the stripe, n), must come from ``buffer``.  The device keeps them."""
        ...

    def forget(self, stripe: int) -> None:
        """Drop a stripe."""
        ...

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe; this is possible while the stripe is being relaxed.

        Args:
            stripe: the number of the stripe.
            first: the first row to copy, counted within the stripe.
            out: receives the rows, shape (rows, n).
        """
        ...

    def use(self, k: int, panel: Array) -> None:
        """Load panel ``k`` for the next calls of ``relax_by``."""
        ...

    def relax_by(self, k: int, stripe: int, *, urgent: bool = False) -> None:
        """Relax a stripe by the panel in use; the call may return before this is done.

        Args:
            k: the round of the panel in use.
            stripe: the number of the stripe.
            urgent: whether this product runs before earlier products that are not urgent.
        """
        ...

    def become(self, k: int, panel: Array) -> None:
        """Overwrite stripe ``k`` with the closed panel ``k``."""
        ...

    def close_panel(self, k: int, out: Array) -> None:
        """Close panel ``k`` from stripe ``k``, which has reached round ``k`` - 1, and copy it to ``out``.

        This has the priority of urgent products; the call may return before it is done.
        """
        ...

    def mark(self, *, urgent: bool) -> Callable[[], None]:
        """Return a function that waits until all earlier calls are done: the urgent ones if ``urgent``, else the
        others.

        Any thread may call this function.  It raises BelowZero or SolveFailed if one of these calls failed.
        """
        ...

    def buffer(self, height: int) -> Array:
        """Return an array in host memory for a panel or stripe, shape (``height``, n); the device copies it fast."""
        ...

    def release(self) -> None:
        """Release all memory."""
        ...


class CpuWorkerDevice:
    """Stripes in host memory, relaxed and closed by a backend; every method has finished its work when it returns.

    Args:
        job: the solve.
        backend: computes the products.
        check: called between pieces of a product; it raises an error if the solve should stop.
    """

    def __init__(self, job: DistributedJob, backend: CpuBackend, check: Callable[[], None]) -> None:
        self._backend, self._monitor = backend, Checks(check)
        self._n, self._tiling, self._nonnegative = job.n, job.tiling, job.nonnegative
        self._dtype = WORK_TYPES[job.plan.dtype].dtype
        self._last = job.tiling.rounds(job.n) - 1
        self._stripes: dict[int, Array] = {}
        self._panel: Array

    def hold(self, stripe: int, rows: Array) -> None:
        """Keep the array."""
        self._stripes[stripe] = rows

    def forget(self, stripe: int) -> None:
        """Drop the array."""
        self._stripes.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe; if an entry changes meanwhile, its copy is the old or the new value.

        Args:
            stripe: the number of the stripe.
            first: the first row to copy, counted within the stripe.
            out: receives the rows, shape (rows, n).
        """
        out[:] = self._stripes[stripe][first : first + len(out)]

    def use(self, k: int, panel: Array) -> None:  # noqa: ARG002
        """Use ``panel`` in the next calls of ``relax_by``; it is not copied, because a closed panel never changes."""
        self._panel = panel

    def relax_by(self, k: int, stripe: int, *, urgent: bool = False) -> None:  # noqa: ARG002
        """Relax a stripe by the panel in use, before the call returns.

        Args:
            k: the round of the panel in use.
            stripe: the number of the stripe.
            urgent: not used.

        Raises:
            BelowZero: the distance of a vertex to itself is negative (checked for whole numbers only).
        """
        rows, pivots = self._stripes[stripe], slice(*self._tiling.pivot(k, self._n))
        a, signed = rows[:, pivots].copy(), not self._nonnegative
        multiply(self._backend, rows, a, self._panel, nonnegative=not signed, monitor=self._monitor)
        if signed:
            check_diagonal(rows, self._tiling.rows(stripe, self._n)[0], k)
        if signed and k == self._last:
            settle(rows)

    def become(self, k: int, panel: Array) -> None:
        """Copy the closed panel ``k`` into stripe ``k``."""
        self._stripes[k][:] = panel

    def close_panel(self, k: int, out: Array) -> None:
        """Copy stripe ``k`` to ``out``, close it there, and copy it back.

        Raises:
            BelowZero: there is a negative cycle (see :meth:`relax_by`).
        """
        out[:] = self._stripes[k]
        span, safe = self._tiling.pivot(k, self._n), self._nonnegative
        close_panel(self._backend, out, span, k, nonnegative=safe, monitor=self._monitor)
        if not safe and k == self._last:
            settle(out)
        self._stripes[k][:] = out

    def mark(self, *, urgent: bool) -> Callable[[], None]:  # noqa: ARG002
        """Return a function that does nothing, because all earlier calls have finished their work."""
        return _nothing

    def buffer(self, height: int) -> Array:
        """Return ordinary (pageable) memory."""
        return np.empty((height, self._n), self._dtype)

    def release(self) -> None:
        """Drop the stripes and shut the backend down."""
        self._stripes.clear()
        self._backend.shutdown()


@dataclass(frozen=True)
class _Shape:
    """Size and type of the matrix: the only attributes of a tier that a GPU needs if all stripes stay on it."""

    n: int
    dtype: np.dtype[np.generic]


def _nothing(*_: object) -> None:
    """Do nothing."""


def _streaming_run(job: DistributedJob, check: Callable[[], None]) -> StripeJob:
    """Return the solve as a streamed run on one device, for which a GPU allocates memory; it reports no progress."""
    tier = cast(Tier, _Shape(job.n, WORK_TYPES[job.plan.dtype].dtype))
    return StripeJob(job.tiling, tier, job.nonnegative, [], [], _nothing, _nothing, check)


def make_device(job: DistributedJob, threads: int, check: Callable[[], None]) -> WorkerDevice:
    """Return the device with which this worker computes.

    Args:
        job: the solve.
        threads: number of processors to use.
        check: raises an error if the solve should stop.
    """
    if job.device == "cuda":
        from engine.devices.cuda.stripes.worker import CudaWorkerDevice

        return CudaWorkerDevice(_streaming_run(job, check), places=job.pace.places, threads=threads)
    from engine.devices.cpu.backend import CpuBackend

    return CpuWorkerDevice(job, CpuBackend(threads), check)
