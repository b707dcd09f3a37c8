"""What a worker computes with: stripes that it holds, one panel at a time to relax them by, and its own to close.

A stripe here is as high as a pivot block is wide, so stripe k is what panel k is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import numpy as np

from engine.distributed.messages import Job
from engine.model.backend import Array, Backend
from engine.model.dtypes import WORK_TYPES
from engine.model.stripe_device import StripeJob
from engine.model.tier import Tier
from engine.streaming.cpu_device import CpuStreamer


class Holder(Protocol):
    """The verbs.

    Those from ``use`` to ``mark`` are called from one thread at a time, the others from any, but nothing happens to a
    stripe twice at a time, ``copy`` apart.
    """

    def hold(self, stripe: int, rows: Array) -> None:
        """Take a stripe, shape (its rows, n), in an array from ``room``, which is the holder's now."""
        ...

    def forget(self, stripe: int) -> None:
        """Forget a stripe."""
        ...

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe, from its row ``first`` on, into ``out``; also while the stripe is being relaxed."""
        ...

    def use(self, turn: int, panel: Array) -> None:
        """Have panel ``turn`` at hand, until another one is."""
        ...

    def relax_by(self, turn: int, stripe: int, *, urgent: bool = False) -> None:
        """Relax a stripe by the panel in use, that of round ``turn``; may return before it is done.

        ``urgent``: before what was asked for earlier.
        """
        ...

    def become(self, turn: int, panel: Array) -> None:
        """Stripe ``turn`` becomes panel ``turn``."""
        ...

    def close_panel(self, turn: int, out: Array) -> None:
        """Close stripe ``turn``, as round ``turn`` - 1 left it, into panel ``turn``; a copy goes to ``out``.

        Urgent, and may return before it is done.
        """
        ...

    def mark(self, *, urgent: bool) -> Callable[[], None]:
        """What waits, in any thread, until all that was asked for so far is done: of the urgent, or of the rest.

        It raises what went wrong: BelowZero, SolveFailed.
        """
        ...

    def room(self, height: int) -> Array:
        """An array of ``height`` rows for a panel or a stripe, as fast as there is to copy from and to."""
        ...

    def release(self) -> None:
        """Give all memory back."""
        ...


def run_of(job: Job, check: Callable[[], None]) -> StripeJob:
    """The solve as streamers see it: one device, which closes every panel."""
    streaming = job.streaming
    tier = cast(Tier, _Here(job.n, WORK_TYPES[job.plan.dtype].dtype))
    leaders = [0] * streaming.rounds(job.n)
    return StripeJob(streaming, tier, job.nonnegative, leaders, [], _told, _counted, check)


def _told(turn: int, stripe: int, rows: Array) -> None:
    """The bench knows what it asked for."""


def _nothing() -> None:
    """There is nothing to wait for."""


def _counted(amount: int) -> None:
    """The bench counts itself."""


class _Here:
    """The tier of stripes that lie where they are worked on: as much of one as streamers ask for."""

    def __init__(self, n: int, dtype: np.dtype[np.generic]) -> None:
        self.n, self.dtype = n, dtype
        self.stripes: dict[int, Array] = {}

    def blank(self, stripe: int) -> Array:
        return self.stripes[stripe]

    def drop(self, stripe: int, rows: Array) -> None: ...


class CpuHolder:
    """Stripes in host memory, relaxed by a backend through :class:`engine.streaming.cpu_device.CpuStreamer`."""

    def __init__(self, job: Job, backend: Backend, check: Callable[[], None]) -> None:
        self._backend, self._run = backend, run_of(job, check)
        self._stripes = cast(_Here, self._run.tier).stripes
        self._streamer = CpuStreamer(backend)
        self._run.devices = [self._streamer]
        self._streamer.open(self._run, 0, [])
        self._used = -1

    def hold(self, stripe: int, rows: Array) -> None:
        """Keep the array."""
        self._stripes[stripe] = rows

    def forget(self, stripe: int) -> None:
        """Forget the array."""
        self._stripes.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy; entries that change meanwhile are old or new."""
        out[:] = self._stripes[stripe][first : first + len(out)]

    def use(self, turn: int, panel: Array) -> None:
        """Pack the panel."""
        if self._used != turn:
            self._used = -1
            place = self._run.panels[turn % len(self._run.panels)]
            place[: len(panel)] = panel
            self._streamer.follow(turn)
            self._used = turn

    def relax_by(self, turn: int, stripe: int, *, urgent: bool = False) -> None:  # noqa: ARG002
        """One product."""
        self._streamer.relax(turn, stripe, self._stripes[stripe])

    def become(self, turn: int, panel: Array) -> None:
        """Copy."""
        self._stripes[turn][:] = panel

    def close_panel(self, turn: int, out: Array) -> None:
        """Close in the panel's place, from where it goes back into the stripe."""
        self._used = -1  # the panel in use may have lain in that place
        self._streamer.lead(turn, self._stripes.__getitem__, first=True)
        out[:] = self._stripes[turn]

    def mark(self, *, urgent: bool) -> Callable[[], None]:  # noqa: ARG002
        """All is done already."""
        return _nothing

    def room(self, height: int) -> Array:
        """Plain memory."""
        return np.empty((height, self._run.n), self._run.kind.dtype)

    def release(self) -> None:
        """The backend goes with the stripes."""
        self._stripes.clear()
        self._streamer.release()
        self._backend.shutdown()
