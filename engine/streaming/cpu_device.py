"""Streaming on the processors: a backend relaxes and closes stripe by stripe, over panels in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from engine.algorithms.products import multiply
from engine.model.backend import Array
from engine.model.dtypes import settle
from engine.model.stripe_device import StripeJob
from engine.model.tiling import round_updates
from engine.streaming.cpu_panels import Checks, check_diagonal, close_panel

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


class CpuStreamer:
    """A :class:`engine.model.stripe_device.Streamer` over a backend; every method has finished its work when it
    returns.

    Several streamers can share their panels.  A streamer can also keep copies of resident stripes; only tests use that.
    """

    name = "cpu"

    def __init__(self, backend: CpuBackend) -> None:
        self._backend = backend
        self._job: StripeJob
        self._resident: dict[int, Array] = {}

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:  # noqa: ARG002
        """Allocate the panels.

        Args:
            job: the run.
            index: the number of this device; not used.
            resident: rounds whose stripes stay on this device; not used.
        """
        self._job, self._monitor = job, Checks(job.check)
        if not job.panels:
            width = min(job.tiling.width, job.n)
            job.panels.extend(np.empty((job.tiling.panels, width, job.n), job.kind.dtype))
        self._resident = {}

    def guard(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def keep(self, stripe: int, rows: Array) -> None:
        """Keep a copy of a resident stripe."""
        self._resident[stripe] = rows.copy()

    def seed(self, k: int, stripe: int, rows: Array) -> None:
        """Transpose the columns of pivot block ``k`` into panel ``k``.

        Args:
            k: the round of the panel.
            stripe: a stripe above the pivot block.
            rows: the rows of ``stripe``, shape (height, n).
        """
        self._collect(k, self._job.rows(stripe), rows)

    def lead(self, k: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Gather panel ``k`` from its stripes, relax it by panel ``k`` - 1, close it, and write it back.

        Args:
            k: the round.
            take: returns the rows of a stripe from the tier; None where the stripes are resident.
            first: whether the run begins with round ``k``, so that panel ``k`` is not relaxed by panel ``k`` - 1.

        Raises:
            BelowZero: the distance of a vertex to itself is negative (checked for whole numbers only).
        """
        job, start, stop = self._job, *self._job.pivot(k)
        panel = self._panel(k)
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            left = job.tiling.left(stripe)
            own = take(stripe) if take else self._resident[stripe]
            panel[top - start : bottom - start, left:] = own[:, left:]
            if take:
                job.tier.drop(stripe, own)
        if job.tiling.symmetric:
            if not first:
                self._collect(k, job.pivot(k - 1), self._panel(k - 1))
            block = panel[:, start:stop]
            self._backend.transpose(block, block, lower=True)
        if not first:
            before = slice(*job.pivot(k - 1))
            self._multiply(panel, panel[:, before].copy(), self._panel(k - 1))
        self._close(k, panel)
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            part, left = panel[top - start : bottom - start], job.tiling.left(stripe)
            target = job.tier.blank(stripe) if take else self._resident[stripe]
            target[:, left:] = part[:, left:]
            if take:
                job.done(k, stripe, target)
            self._advance(k, stripe)
            if not first:
                self._advance(k - 1, stripe)

    def follow(self, k: int) -> None:
        """In a symmetric layout, copy the columns of panel ``k`` that panel ``k`` + 2 needs.

        Only the leader of panel ``k`` + 2 does this.  No device copies panel ``k`` itself, because all share it.
        """
        job = self._job
        if job.tiling.symmetric and k + 2 < job.rounds and job.devices[job.leaders[k + 2]] is self:
            self._collect(k + 2, job.pivot(k), self._panel(k))

    def reside(self, k: int, *, out: bool) -> None:
        """Relax the resident copies by panel ``k``; if ``out``, also write them back to the tier."""
        job = self._job
        for stripe, rows in self._resident.items():
            if stripe // job.tiling.group not in (k, k + 1):
                self._relax(k, stripe, rows)
            if out:
                self._give(k, stripe)

    def relax(self, k: int, stripe: int, rows: Array) -> None:
        """Relax a stripe by panel ``k`` in place, and write it back to the tier.

        Args:
            k: the round.
            stripe: the stripe.
            rows: the rows of ``stripe``, shape (height, n).
        """
        self._relax(k, stripe, rows)
        self._job.done(k, stripe, rows)

    def leave(self, k: int) -> None:
        """Do nothing: no work is queued."""

    def drain(self, *, wait: bool) -> None:
        """Do nothing: no work is queued."""

    def hand_over(self) -> None:
        """Write the resident copies to the tier."""
        for stripe in self._resident:
            self._give(self._job.rounds - 1, stripe)

    def release(self) -> None:
        """Drop the copies; the caller shuts the backend down."""
        self._resident.clear()

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _panel(self, k: int) -> Array:
        start, stop = self._job.pivot(k)
        return self._job.panels[k % len(self._job.panels)][: stop - start]

    def _relax(self, k: int, stripe: int, rows: Array) -> None:
        job, (start, stop), (top, bottom) = self._job, self._job.pivot(k), self._job.rows(stripe)
        left = job.tiling.left(stripe)
        if job.tiling.symmetric:
            through = np.empty((bottom - top, stop - start), rows.dtype)
            self._backend.transpose(through, self._panel(k)[:, top:bottom])
            self._multiply(rows[:, left:], through, self._panel(k)[:, left:])
        else:
            self._multiply(rows, rows[:, start:stop].copy(), self._panel(k))
        if not job.nonnegative:
            check_diagonal(rows, top, k)
        if job.settles(k):
            settle(rows[:, left:])
        if job.collected(k, stripe):
            self._collect(k + 2, (top, bottom), rows)
        self._advance(k, stripe)

    def _close(self, k: int, panel: Array) -> None:
        job = self._job
        close_panel(self._backend, panel, job.pivot(k), k, nonnegative=job.nonnegative, monitor=self._monitor)
        if job.settles(k):
            settle(panel)

    def _collect(self, k: int, span: tuple[int, int], rows: Array) -> None:
        """Transpose the columns of pivot block ``k`` in ``rows`` into panel ``k``.

        ``span`` holds the row numbers in the matrix of the first of ``rows`` and of the row after the last.
        """
        columns = slice(*self._job.pivot(k))
        self._backend.transpose(self._panel(k)[:, slice(*span)], rows[:, columns])

    def _multiply(self, c: Array, a: Array, b: Array) -> None:
        multiply(self._backend, c, a, b, nonnegative=self._job.nonnegative, monitor=self._monitor)

    def _give(self, k: int, stripe: int) -> None:
        rows, left = self._job.tier.blank(stripe), self._job.tiling.left(stripe)
        rows[:, left:] = self._resident[stripe][:, left:]
        self._job.done(k, stripe, rows)

    def _advance(self, k: int, stripe: int) -> None:
        self._job.advance(round_updates(self._job.tiling, k, stripe, self._job.n))
