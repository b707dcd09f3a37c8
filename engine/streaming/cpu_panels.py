"""Passes on the processors: a backend relaxes and closes one panel at a time, in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from engine.algorithms import floyd_warshall
from engine.algorithms.products import clamp_diagonal, multiply
from engine.model.backend import Array
from engine.model.blocks import cut
from engine.model.dtypes import settle, work_type
from engine.model.progress import Monitor
from engine.model.stripe_device import StripeJob, below_zero, diagonal
from engine.model.tiling import CLOSED, FINISHED, Span

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


class CpuPanels:
    """A :class:`engine.model.stripe_device.PanelDevice` over a backend; every method has finished its work when it
    returns.
    """

    name = "cpu"
    keeps = False
    most_held = 0

    def __init__(self, backend: CpuBackend) -> None:
        self._backend = backend
        self._job: StripeJob
        self._memory: Array | None = None

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:  # noqa: ARG002
        """Allocate the panel.

        Args:
            job: the run.
            index: not used.
            resident: not used.
        """
        self._job, self._monitor = job, Checks(job.check)
        self._memory = np.empty((min(job.tiling.width, job.n), job.n), job.kind.dtype)

    def guard(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def begin(self, k: int, take: Callable[[int], Array]) -> None:
        """Copy the stripes of panel ``k`` from the tier into the panel; ``take`` returns the rows of a stripe."""
        job, panel, start = self._job, self._panel(k), self._job.pivot(k)[0]
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            rows = take(stripe)
            panel[top - start : bottom - start] = rows
            job.tier.drop(stripe, rows)

    def lower(self, k: int, stripe: int, rows: Array | None, *, hold: bool = False) -> None:  # noqa: ARG002
        """Relax panel ``k`` by a stripe.

        Args:
            k: the panel.
            stripe: number of the stripe.
            rows: the rows of ``stripe``, shape (height, n).
            hold: not used, because this device keeps no stripe.
        """
        assert rows is not None
        job, panel, (top, bottom) = self._job, self._panel(k), self._job.rows(stripe)
        through = panel[:, top:bottom].copy()
        multiply(self._backend, panel, through, rows, nonnegative=job.nonnegative, monitor=self._monitor)
        job.tier.drop(stripe, rows)
        job.advance(through.size * job.n)

    def forget(self) -> None:
        """Do nothing: no stripe is held."""

    def close(self, k: int) -> None:
        """Close panel ``k``.

        Raises:
            BelowZero: the distance of a vertex to itself is negative (checked for whole numbers only).
        """
        job, span = self._job, self._job.pivot(k)
        close_panel(self._backend, self._panel(k), span, k, nonnegative=job.nonnegative, monitor=self._monitor)
        job.advance((span[1] - span[0]) ** 2 * job.n)

    def give(self, k: int, level: int) -> None:
        """Write panel ``k``, which has reached ``level``, back to the tier.

        Raises:
            BelowZero: the distance of a vertex to itself is negative (checked for whole numbers only).
        """
        job, panel, start = self._job, self._panel(k), self._job.pivot(k)[0]
        if not job.nonnegative:
            check_diagonal(panel, start, k)
            if level == FINISHED and job.kind.integer:
                settle(panel)
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            rows = job.tier.blank(stripe)
            rows[:] = panel[top - start : bottom - start]
            job.done(level, stripe, rows)

    def drain(self, *, wait: bool) -> None:
        """Do nothing: no work is queued."""

    def release(self) -> None:
        """Drop the panel; the caller shuts the backend down."""
        self._memory = None

    def _panel(self, k: int) -> Array:
        assert self._memory is not None
        start, stop = self._job.pivot(k)
        return self._memory[: stop - start]


class Checks(Monitor):
    """A monitor that ends a long product when the run must stop; it ignores progress, which the device counts.

    Args:
        check: raises if the run is to stop.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def step(self, amount: int) -> None:  # noqa: ARG002
        """Raise if the run is to stop."""
        self._check()


def close_panel(
    backend: CpuBackend, panel: Array, span: Span, k: int, *, nonnegative: bool, monitor: Monitor
) -> None:  # fmt: skip
    """Run Floyd-Warshall inside the pivot block C, then set P <- min(P, C (x) P) for the whole panel P.

    The product reads copies of C and P, so that sums of floats do not depend on the order in which threads run.

    Args:
        backend: computes the products.
        panel: the panel P, shape (rows, n), changed in place.
        span: the first column of C, and the column after its last.
        k: number of the panel, for the message.
        nonnegative: promises that no entry is below zero.
        monitor: asked during products whether to stop.

    Raises:
        BelowZero: the distance of a vertex to itself is negative (checked for whole numbers only).
    """
    start, stop = span
    block = panel[:, start:stop]
    if not nonnegative:
        check_diagonal(panel, start, k)
    floyd_warshall.recursive(backend, block, nonnegative=nonnegative, monitor=monitor)
    if not nonnegative and work_type(panel.dtype).integer and (block + block.T).min() < 0:  # type: ignore[operator]
        raise below_zero(k)
    closed = block.copy()
    for some in cut((0, panel.shape[1]), CLOSED):
        part = panel[:, slice(*some)]
        multiply(backend, part, closed, part.copy(), nonnegative=nonnegative, monitor=monitor)


def check_diagonal(rows: Array, first: int, k: int) -> None:
    """Raise BelowZero for a negative whole number on the diagonal; set a negative float, a rounding error, to zero.

    Args:
        rows: rows of the matrix, shape (rows, n).
        first: the matrix row of ``rows[0]``.
        k: the round or panel, for the message.
    """
    if work_type(rows.dtype).integer and diagonal(rows, first).min() < 0:
        raise below_zero(k)
    clamp_diagonal(rows[:, first : first + len(rows)])
