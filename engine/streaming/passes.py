"""The two passes of a streamed solve: which panel is relaxed by which stripes, and when its rows are final.

Let A[i] be the rows of panel i, of B panels.  The *pass down* takes the panels from the first to the last.  It relaxes
A[i] by the rows above it, A[i] <- min(A[i], A[i, k] (x) A[k]) for k = 0, ..., i - 1, and then closes its pivot block.
A[i] then has the lengths of all walks whose intermediate vertices lie in pivot blocks 0 to i.  The *pass up* takes the
panels from the last but one to the first, and relaxes A[i] by the rows below it.  These are final, and so A[i] is: a
walk from i either stays in pivot blocks 0 to i, or has a first vertex in a later block j, so that its length is a sum
of A[i, j], as the pass down left it, and the final A[j].

Each pair of panels meets twice and each panel is closed once, which makes n^3 updates, as many as rounds need.  But a
device writes each panel only twice, and reads the others, and rows are final one panel after the other during the
second half of the work.  So they are written to the store while the passes continue.  The passes are elimination and
back substitution in the min-plus semiring (Carre, An algebra for network routing problems, 1971), by blocks.

Entries only fall, and each is at all times the length of a walk.  So a panel may be relaxed again over any mixture of
old and new entries, as in rounds.  Moreover, closing alone suffices to make a panel as the pass down leaves it if each
of its rows r has the lengths of all walks with intermediate vertices up to r, however the rows before were cut.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.stripe_device import PanelDevice, Streamer, StripeJob
from engine.model.tier import Tier
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling
from storage.errors import Cancelled
from storage.threads import Promise

#: Seconds between two checks whether a stripe has arrived in the tier.
_POLL: Final = 0.0005


class Direction(Enum):
    """The direction of a pass."""

    DOWN = "down"
    UP = "up"


@dataclass(frozen=True)
class PanelTask:
    """One panel in one pass.

    Attributes:
        way: the pass.
        panel: number of the panel.
        sources: panels by which it is relaxed, in this order.
        kept: the source that the device still holds; -1 for none.
    """

    way: Direction
    panel: int
    sources: Sequence[int]
    kept: int = -1

    @property
    def needed(self) -> int:
        """The level that the sources must have."""
        return LOWERED if self.way is Direction.DOWN else FINISHED

    @property
    def own(self) -> int:
        """The level that the panel itself must have; -1 for any."""
        return -1 if self.way is Direction.DOWN else LOWERED


def tasks(levels: npt.NDArray[np.int64], tiling: Tiling, n: int) -> list[PanelTask]:
    """Return the remaining tasks, in order.

    Args:
        levels: the level of each stripe.
        tiling: how the matrix is cut.
        n: vertices.
    """
    rounds = tiling.rounds(n)
    least = [int(levels[slice(*_span(tiling.members(k, n)))].min()) for k in range(rounds)]
    # The pass down leaves the last panel final.
    reached = [LOWERED if k < rounds - 1 else FINISHED for k in range(rounds)]
    down = [
        PanelTask(Direction.DOWN, k, range(k) if least[k] < WALKS else range(0))
        for k in range(rounds)
        if least[k] < reached[k]
    ]
    up = [
        PanelTask(Direction.UP, k, range(rounds - 1, k, -1)) for k in reversed(range(rounds - 1)) if least[k] < FINISHED
    ]
    return [*down, *up]


def order(levels: npt.NDArray[np.int64], tiling: Tiling, n: int) -> list[int]:
    """Return the stripes that the passes take, in the order in which they first need them.

    Args:
        levels: the level of each stripe.
        tiling: how the matrix is cut.
        n: vertices.
    """
    panels = [panel for task in tasks(levels, tiling, n) for panel in (task.panel, *task.sources)]
    return [stripe for panel in dict.fromkeys(panels) for stripe in tiling.members(panel, n)]


def run(
    tiling: Tiling,
    tier: Tier,
    device: PanelDevice,
    monitor: Monitor,
    *,
    nonnegative: bool,
    levels: npt.NDArray[np.int64] | None = None,
) -> None:
    """Close the matrix of ``tier`` in two passes.

    Args:
        tiling: how the matrix is cut; ``tiling.passes`` is set.
        tier: holds the matrix.
        device: the device that computes.
        monitor: gets updates (phase ``relax``) and is asked whether to stop, from the calling thread.
        nonnegative: promises that no entry is below zero; if False, there must be no negative cycle.
        levels: shape (stripes,), the level that each stripe has reached; None for -1, no level, everywhere.

    Raises:
        Cancelled: the monitor asked to stop; the tier contains whole stripes only.
        BelowZero: the distance of a vertex to itself is negative (for floats this may be rounding, so it is not
            checked).
        DoesNotFit, SolveFailed, StorageFailed: the device or the tier failed; the tier is consistent nevertheless.
    """
    if tier.n:
        reached = np.full(tiling.stripes(tier.n), -1, np.int64) if levels is None else levels.copy()
        _Run(tiling, tier, device, monitor, nonnegative=nonnegative, levels=reached).run()
    tier.finish(tiling)


class _Run:
    """One run on one device.  All its methods run in the calling thread."""

    def __init__(
        self,
        tiling: Tiling,
        tier: Tier,
        device: PanelDevice,
        monitor: Monitor,
        *,
        nonnegative: bool,
        levels: npt.NDArray[np.int64],
    ) -> None:
        self._tiling, self._tier, self._device, self._monitor, self._levels = tiling, tier, device, monitor, levels
        devices = cast(Sequence[Streamer], [device])  # only for the device's account of its own memory
        self._job = StripeJob(tiling, tier, nonnegative, [], devices, self._done, self._advance, self._check)
        self._tasks = _with_kept(tasks(levels, tiling, tier.n), keeps=device.keeps)
        self._requests = self._sequence()
        self._next = next(self._requests, None)
        self._ahead: deque[tuple[int, Promise[Array]]] = deque()
        self._news = self._finished = 0

    def run(self) -> None:
        """Carry out all tasks, and wait until their rows are in the tier."""
        try:
            self._device.open(self._job, 0, [])
            self._tier.await_rows(list(self._job.members(self._tasks[0].panel)) if self._tasks else [])
            self._monitor.begin("relax", sum(self._updates(task) for task in self._tasks), "updates")
            with self._device.guard():
                try:
                    for task in self._tasks:
                        self._follow(task)
                    self._device.drain(wait=True)
                except Cancelled:
                    self._device.drain(wait=True)  # report stripes that are still on their way back from the device
                    raise
            self._check()
        finally:
            self._device.release()
            # break reference cycles, so that the tier's memory is freed as soon as its last user drops it
            self._job.devices = ()
            del self._job, self._device, self._requests

    def _follow(self, task: PanelTask) -> None:
        device, k = self._device, task.panel
        device.begin(k, lambda stripe: self._rows(stripe, task.own))
        for source in task.sources:
            for stripe in self._job.members(source):
                self._check()
                device.lower(k, stripe, None if source == task.kept else self._rows(stripe, task.needed))
        if task.way is Direction.DOWN:
            device.close(k)
        device.give(k, FINISHED if task.way is Direction.UP or k == self._job.rounds - 1 else LOWERED)

    def _updates(self, task: PanelTask) -> int:
        """Return the updates of a task; closing a panel counts as relaxing it by its own rows."""
        start, stop = self._job.pivot(task.panel)
        depths = [stop - start] if task.way is Direction.DOWN else []
        depths += [last - first for first, last in map(self._job.pivot, task.sources)]
        return (stop - start) * self._job.n * sum(depths)

    # ---- the order of stripes ----------------------------------------------------------------------------------------

    def _sequence(self) -> Iterator[tuple[int, int]]:
        """Yield each stripe that is taken from the tier, and the level that it must have, in the order of use."""
        for task in self._tasks:
            yield from ((stripe, task.own) for stripe in self._job.members(task.panel))
            for source in task.sources:
                if source != task.kept:
                    yield from ((stripe, task.needed) for stripe in self._job.members(source))

    def _rows(self, stripe: int, needed: int) -> Array:
        """Return the rows of a stripe; wait until they have the level ``needed``."""
        while self._levels[stripe] < needed:
            self._device.drain(wait=False)
            self._check()
            if self._levels[stripe] < needed:
                time.sleep(_POLL)
        self._ask(self._tier.window + 1)
        found, rows = self._ahead.popleft()
        assert found == stripe
        self._ask(self._tier.window)
        return rows.result()

    def _ask(self, most: int) -> None:
        """Request the next stripes from the tier in advance, as long as they have their levels."""
        while self._next is not None and len(self._ahead) < most:
            stripe, needed = self._next
            if self._levels[stripe] < needed:
                return
            self._ahead.append((stripe, self._tier.take(stripe)))
            self._next = next(self._requests, None)

    # ---- what was done ----------------------------------------------------------------------------------------------

    def _done(self, level: int, stripe: int, rows: Array) -> None:
        """Give a stripe back with its new level."""
        self._tier.give(level, stripe, rows)
        self._levels[stripe] = max(level, self._levels[stripe])
        self._finished += 1
        self._tier.commit(self._finished)

    def _advance(self, amount: int) -> None:
        self._news += amount

    def _check(self) -> None:
        news, self._news = self._news, 0
        self._monitor.step(news)


def _with_kept(found: Sequence[PanelTask], *, keeps: bool) -> list[PanelTask]:
    """Return the tasks; if the device keeps the panel of the task before, it is named as the task's kept source."""
    if not keeps or not found:
        return list(found)
    later = [
        PanelTask(task.way, task.panel, task.sources, before.panel if before.panel in task.sources else -1)
        for before, task in pairwise(found)
    ]
    return [found[0], *later]


def _span(members: range) -> tuple[int, int]:
    return members.start, members.stop
