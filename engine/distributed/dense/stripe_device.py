"""The device on which a worker computes: it holds stripes, relaxes them by the panel in use, and closes panels.

A stripe here is as high as a pivot block is wide, so panel k is made of stripe k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import numpy as np

from engine.distributed.messages import DistributedJob
from engine.model.backend import Array, Backend
from engine.model.dtypes import WORK_TYPES
from engine.model.stripe_device import StripeJob
from engine.model.tier import Tier
from engine.streaming.cpu_device import CpuStreamer


class WorkerDevice(Protocol):
    """A device of a worker.

    The methods from ``use`` to ``mark`` are called from one thread at a time, the others from any thread.  No two calls
    work on one stripe at a time, except ``copy``.
    """

    def hold(self, stripe: int, rows: Array) -> None:
        """Hold a stripe, shape (its rows, n); the array comes from ``buffer`` and belongs to the device from now on."""
        ...

    def forget(self, stripe: int) -> None:
        """Drop a stripe."""
        ...

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe, also while the stripe is being relaxed.

        Args:
            stripe: the stripe.
            first: its first row to copy, counted within the stripe.
            out: array of shape (rows, n) that gets the rows.
        """
        ...

    def use(self, k: int, panel: Array) -> None:
        """Load panel ``k`` for the next calls of ``relax_by``."""
        ...

    def relax_by(self, k: int, stripe: int, *, urgent: bool = False) -> None:
        """Relax a stripe by the panel in use; may return before it is done.

        Args:
            k: the round of the panel in use.
            stripe: the stripe.
            urgent: whether this product runs before earlier products that are not urgent.
        """
        ...

    def become(self, k: int, panel: Array) -> None:
        """Overwrite stripe ``k`` with the closed panel ``k``."""
        ...

    def close_panel(self, k: int, out: Array) -> None:
        """Close panel ``k`` from stripe ``k``, which has reached round ``k`` - 1, and copy it to ``out``.

        The call is urgent and may return before it is done.
        """
        ...

    def mark(self, *, urgent: bool) -> Callable[[], None]:
        """Return a function that waits, in any thread, for all earlier calls: the urgent ones, or the others.

        The function raises BelowZero or SolveFailed if one of these calls failed.
        """
        ...

    def buffer(self, height: int) -> Array:
        """Return host memory, shape (``height``, n), for a panel or a stripe; of the kind that the device copies
        fastest.
        """
        ...

    def release(self) -> None:
        """Release all memory."""
        ...


def streaming_run(job: DistributedJob, check: Callable[[], None]) -> StripeJob:
    """Return the solve in the form that streamers take: a run on one device, which closes every panel."""
    tiling = job.tiling
    tier = cast(Tier, _Here(job.n, WORK_TYPES[job.plan.dtype].dtype))
    leaders = [0] * tiling.rounds(job.n)
    return StripeJob(tiling, tier, job.nonnegative, leaders, [], _told, _counted, check)


def _told(k: int, stripe: int, rows: Array) -> None:
    """Do nothing: the worker knows which stripes it has relaxed."""


def _nothing() -> None:
    """Do nothing: all calls have ended."""


def _counted(amount: int) -> None:
    """Do nothing: the worker counts its updates itself."""


class _Here:
    """A tier for stripes that stay where they are relaxed; it has only those methods of a tier that streamers call."""

    def __init__(self, n: int, dtype: np.dtype[np.generic]) -> None:
        self.n, self.dtype = n, dtype
        self.stripes: dict[int, Array] = {}

    def blank(self, stripe: int) -> Array:
        return self.stripes[stripe]

    def drop(self, stripe: int, rows: Array) -> None: ...


class CpuWorkerDevice:
    """Stripes in host memory, relaxed by a backend through :class:`engine.streaming.cpu_device.CpuStreamer`."""

    def __init__(self, job: DistributedJob, backend: Backend, check: Callable[[], None]) -> None:
        self._backend, self._run = backend, streaming_run(job, check)
        self._stripes = cast(_Here, self._run.tier).stripes
        self._streamer = CpuStreamer(backend)
        self._run.devices = [self._streamer]
        self._streamer.open(self._run, 0, [])
        self._used = -1

    def hold(self, stripe: int, rows: Array) -> None:
        """Keep the array."""
        self._stripes[stripe] = rows

    def forget(self, stripe: int) -> None:
        """Drop the array."""
        self._stripes.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe; if an entry changes meanwhile, its copy is the old or the new value.

        Args:
            stripe: the stripe.
            first: its first row to copy, counted within the stripe.
            out: array of shape (rows, n) that gets the rows.
        """
        out[:] = self._stripes[stripe][first : first + len(out)]

    def use(self, k: int, panel: Array) -> None:
        """Copy panel ``k`` into its buffer and pack it."""
        if self._used != k:
            self._used = -1
            place = self._run.panels[k % len(self._run.panels)]
            place[: len(panel)] = panel
            self._streamer.follow(k)
            self._used = k

    def relax_by(self, k: int, stripe: int, *, urgent: bool = False) -> None:  # noqa: ARG002
        """Relax a stripe by the panel in use, at once.

        Args:
            k: the round of the panel in use.
            stripe: the stripe.
            urgent: not used.
        """
        self._streamer.relax(k, stripe, self._stripes[stripe])

    def become(self, k: int, panel: Array) -> None:
        """Copy the closed panel ``k`` into stripe ``k``."""
        self._stripes[k][:] = panel

    def close_panel(self, k: int, out: Array) -> None:
        """Close panel ``k`` in its buffer, then copy it to stripe ``k`` and to ``out``."""
        self._used = -1  # closing may have overwritten the panel in use
        self._streamer.lead(k, self._stripes.__getitem__, first=True)
        out[:] = self._stripes[k]

    def mark(self, *, urgent: bool) -> Callable[[], None]:  # noqa: ARG002
        """Return a function that does nothing: all calls have ended."""
        return _nothing

    def buffer(self, height: int) -> Array:
        """Return ordinary memory."""
        return np.empty((height, self._run.n), self._run.kind.dtype)

    def release(self) -> None:
        """Drop the stripes and shut the backend down."""
        self._stripes.clear()
        self._streamer.release()
        self._backend.shutdown()


def make_device(job: DistributedJob, threads: int, check: Callable[[], None]) -> WorkerDevice:
    """Return the device that this worker computes with.

    Args:
        job: the solve.
        threads: processors to use.
        check: raises if the solve is to stop.
    """
    if job.device == "cuda":
        from engine.devices.cuda.stripes.worker import CudaWorkerDevice

        return CudaWorkerDevice(streaming_run(job, check), places=job.pace.places, threads=threads)
    from engine.devices.cpu.backend import CpuBackend

    return CpuWorkerDevice(job, CpuBackend(threads), check)
