"""Streaming on the processors: a backend's relax and close, stripe by stripe, over panels in host memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from engine.algorithms import floyd_warshall
from engine.algorithms.products import clamp_diagonal, multiply
from engine.model.backend import Array, Backend
from engine.model.blocks import cut
from engine.model.dtypes import settle
from engine.model.progress import Monitor
from engine.model.stripe_device import StripeJob, below_zero, diagonal
from engine.model.tiling import CLOSED, stripe_entries
from engine.streaming.packed_panel import PackedPanel


class CpuStreamer:
    """The verbs of :class:`engine.model.stripe_device.Streamer` over a backend; each is done when it returns.

    Several of them share their panels.  Stripes can be resident here, too, as copies; that only serves tests.

    Nothing is gained here by closing a panel a round ahead: the processors would do that, too.  So where the layout
    closes each in its own round, there is one panel, and it is packed for the stripes where it lies.
    """

    name = "cpu"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._job: StripeJob
        self._resident: dict[int, Array] = {}
        self._packed: PackedPanel | None = None
        self._owed: deque[int] = deque()  # stripes of the packed panel that are to go back

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:  # noqa: ARG002
        """Take memory for the panels, once for all."""
        self._job, self._monitor, self._packed = job, _Checks(job), None
        width, dtype = min(job.streaming.width, job.n), job.kind.dtype
        if not job.streaming.ahead:
            self._packed = PackedPanel(self._backend, width, job.n, dtype, self._monitor, nonnegative=job.nonnegative)
        elif not job.panels:
            job.panels.extend(np.empty((job.streaming.panels, width, job.n), dtype))
        self._resident = {}
        self._owed.clear()

    def guard(self) -> AbstractContextManager[object]:
        """Nothing to make current."""
        return nullcontext()

    def keep(self, stripe: int, rows: Array) -> None:
        """Hold a copy."""
        self._resident[stripe] = rows.copy()

    def seed(self, turn: int, stripe: int, rows: Array) -> None:
        """Transpose the columns into the panel."""
        self._collect(turn, self._job.rows(stripe), rows)

    def lead(self, turn: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Gather, relax, close and write back a panel."""
        job, start, stop = self._job, *self._job.pivot(turn)
        if self._packed is not None:
            self._lead_packed(self._packed, turn, take)
            return
        panel = self._panel(turn)
        for stripe in job.members(turn):
            top, bottom = job.rows(stripe)
            left = job.streaming.left(stripe)
            own = take(stripe) if take else self._resident[stripe]
            panel[top - start : bottom - start, left:] = own[:, left:]
            if take:
                job.tier.drop(stripe, own)
        if job.streaming.symmetric:
            if not first:
                self._collect(turn, job.pivot(turn - 1), self._panel(turn - 1))
            block = panel[:, start:stop]
            self._backend.transpose(block, block, lower=True)
        if not first:
            before = slice(*job.pivot(turn - 1))
            self._multiply(panel, panel[:, before].copy(), self._panel(turn - 1))
        self._close(turn, panel)
        for stripe in job.members(turn):
            top, bottom = job.rows(stripe)
            part, left = panel[top - start : bottom - start], job.streaming.left(stripe)
            target = job.tier.blank(stripe) if take else self._resident[stripe]
            target[:, left:] = part[:, left:]
            if take:
                job.done(turn, stripe, target)
            self._advance(turn, stripe)
            if not first:
                self._advance(turn - 1, stripe)

    def follow(self, turn: int) -> None:
        """All share the panel; undirected, its columns that the panel after the next needs are collected."""
        job = self._job
        if job.streaming.symmetric and turn + 2 < job.rounds and job.devices[job.leaders[turn + 2]] is self:
            self._collect(turn + 2, job.pivot(turn), self._panel(turn))

    def reside(self, turn: int, *, out: bool) -> None:
        """Relax the copies."""
        job = self._job
        for stripe, rows in self._resident.items():
            if stripe // job.streaming.group not in (turn, turn + 1):
                self._relax(turn, stripe, rows)
            if out:
                self._give(turn, stripe)

    def relax(self, turn: int, stripe: int, rows: Array) -> None:
        """Relax and give back; of a packed panel a stripe goes back, too, so that none waits for the writing."""
        self._relax(turn, stripe, rows)
        self._job.done(turn, stripe, rows)
        if self._packed is not None and self._owed:
            self._give_owed(self._packed, turn)

    def leave(self, turn: int) -> None:
        """Give back what is left of the panel."""
        while self._packed is not None and self._owed:
            self._give_owed(self._packed, turn)

    def drain(self, *, wait: bool) -> None:
        """All is done already."""

    def hand_over(self) -> None:
        """Write the copies."""
        for stripe in self._resident:
            self._give(self._job.rounds - 1, stripe)

    def release(self) -> None:
        """Forget the copies; the backend is the caller's."""
        self._resident.clear()
        self._packed = None

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _lead_packed(self, panel: PackedPanel, turn: int, take: Callable[[int], Array] | None) -> None:
        """The same for the one panel that there is, whose stripes the round before has relaxed like all others."""
        job = self._job
        if take is None:
            raise ValueError("a panel that is not closed ahead comes from the tier")
        panel.begin(turn, job.pivot(turn))
        for stripe in job.members(turn):
            rows = take(stripe)
            panel.put(job.rows(stripe)[0], rows)
            job.tier.drop(stripe, rows)
        panel.close(last=job.settles(turn))
        panel.pack()
        self._owed.extend(job.members(turn))

    def _give_owed(self, panel: PackedPanel, turn: int) -> None:
        """A stripe of the panel goes back."""
        stripe = self._owed.popleft()
        rows = self._job.tier.blank(stripe)
        panel.take(self._job.rows(stripe)[0], rows)
        self._job.done(turn, stripe, rows)
        self._advance(turn, stripe)

    def _panel(self, turn: int) -> Array:
        start, stop = self._job.pivot(turn)
        return self._job.panels[turn % len(self._job.panels)][: stop - start]

    def _relax(self, turn: int, stripe: int, rows: Array) -> None:
        job, (start, stop), (top, bottom) = self._job, self._job.pivot(turn), self._job.rows(stripe)
        left = job.streaming.left(stripe)
        if self._packed is not None:
            self._packed.relax(rows)
        elif job.streaming.symmetric:
            through = np.empty((bottom - top, stop - start), rows.dtype)
            self._backend.transpose(through, self._panel(turn)[:, top:bottom])
            self._multiply(rows[:, left:], through, self._panel(turn)[:, left:])
        else:
            self._multiply(rows, rows[:, start:stop].copy(), self._panel(turn))
        if not job.nonnegative:
            self._check(turn, rows, top)
        if job.settles(turn):
            settle(rows[:, left:])
        if job.collected(turn, stripe):
            self._collect(turn + 2, (top, bottom), rows)
        self._advance(turn, stripe)

    def _close(self, turn: int, panel: Array) -> None:
        """C closed, then P <- C (x) P, over copies so that sums of floats do not depend on who came first."""
        job, (start, stop) = self._job, self._job.pivot(turn)
        block = panel[:, start:stop]
        if not job.nonnegative:
            self._check(turn, panel, start)
        floyd_warshall.recursive(self._backend, block, nonnegative=job.nonnegative, monitor=self._monitor)
        if not job.nonnegative and job.kind.integer and (block + block.T).min() < 0:  # type: ignore[operator]
            raise below_zero(turn)
        closed = block.copy()
        for some in cut((0, job.n), CLOSED):
            part = panel[:, slice(*some)]
            self._multiply(part, closed, part.copy())
        if job.settles(turn):
            settle(panel)

    def _check(self, turn: int, rows: Array, first: int) -> None:
        """Whole numbers below zero on the diagonal end the solve; floats may get there by rounding."""
        if self._job.kind.integer and diagonal(rows, first).min() < 0:
            raise below_zero(turn)
        clamp_diagonal(rows[:, first : first + len(rows)])

    def _collect(self, turn: int, span: tuple[int, int], rows: Array) -> None:
        """Columns of pivot block ``turn`` of the rows ``span``, transposed into its panel."""
        columns = slice(*self._job.pivot(turn))
        self._backend.transpose(self._panel(turn)[:, slice(*span)], rows[:, columns])

    def _multiply(self, c: Array, a: Array, b: Array) -> None:
        multiply(self._backend, c, a, b, nonnegative=self._job.nonnegative, monitor=self._monitor)

    def _give(self, turn: int, stripe: int) -> None:
        rows, left = self._job.tier.blank(stripe), self._job.streaming.left(stripe)
        rows[:, left:] = self._resident[stripe][:, left:]
        self._job.done(turn, stripe, rows)

    def _advance(self, turn: int, stripe: int) -> None:
        start, stop = self._job.pivot(turn)
        self._job.advance((stop - start) * stripe_entries(self._job.streaming, stripe, self._job.n))


class _Checks(Monitor):
    """Counts nothing, as stripes are counted, but stops a long product when the run is to stop."""

    def __init__(self, job: StripeJob) -> None:
        self._job = job

    def step(self, amount: int) -> None:  # noqa: ARG002
        self._job.check()
