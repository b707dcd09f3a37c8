"""The two passes of a streamed solve: which panel is relaxed by which stripes, and when its rows are final.

Let A[i] be the rows of panel i, and A[i, k] their columns in pivot block k.  The *pass down* takes the panels from the
first to the last.  It relaxes A[i] by the rows above it, A[i] <- min(A[i], A[i, k] (x) A[k]) for k = 0, ..., i - 1, and
then closes its pivot block.  A[i] then has the lengths of all walks whose intermediate vertices lie in pivot blocks 0
to i.  The *pass up* takes the panels from the last but one to the first, and relaxes A[i] by the rows below it, which
are final.  Then A[i] is final, too.  A walk that begins in block i may stay in pivot blocks 0 to i.  Otherwise it has a
first vertex in a later block j, so its length is the sum of an entry of A[i, j], as the pass down left it, and an entry
of the final A[j].

Of any two panels, each relaxes the other once, and each panel is closed once.  That makes n^3 updates, as many as
rounds need.  But a device writes each panel only twice, and otherwise only reads.  Rows become final one panel after
the other during the second half of the work, and are written to the store while the passes continue.  The passes are
elimination and back substitution in the min-plus semiring (Carre, An algebra for network routing problems, 1971), by
blocks.

Several devices share the panels in this order: a device takes the next panel when it is about to finish its current
panel.  It relaxes the new panel by all panels that other devices have given back to the tier, and then by each further
panel once that is back.  The first panel that is not back yet needs only panels that are back, so the devices never
wait for each other in a circle.

The first panels of a pass are needed for all later panels.  So a device holds the first stripes that it reads in a
pass, as many as its memory can hold, and reads only the other stripes again for each panel.

Entries only fall, and every entry is at all times the length of a walk.  So a panel may be relaxed again over any
mixture of old and new entries, as in rounds.  Moreover, if each row r of a panel already has the lengths of all walks
with intermediate vertices up to r, the pass down only needs to close the panel.  It does not matter in which layout
such rows were computed.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.stripe_device import PanelDevice, Streamer, StripeJob
from engine.model.tier import Tier
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling
from engine.streaming.crew import Crew
from storage.threads import Promise


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
        last: whether this is the last panel of the matrix, which the pass down leaves final.
    """

    way: Direction
    panel: int
    sources: Sequence[int]
    last: bool = False

    @property
    def reached(self) -> int:
        """The level that the panel has after the task."""
        return FINISHED if self.way is Direction.UP or self.last else LOWERED

    @property
    def needed(self) -> int:
        """The level that the sources must have before they relax the panel."""
        return LOWERED if self.way is Direction.DOWN else FINISHED

    @property
    def own(self) -> int:
        """The level that the panel itself must have before the task; -1 if it may have any level."""
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
        PanelTask(Direction.DOWN, k, range(k) if least[k] < WALKS else range(0), last=k == rounds - 1)
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
    devices: Sequence[PanelDevice],
    monitor: Monitor,
    *,
    nonnegative: bool,
    levels: npt.NDArray[np.int64] | None = None,
) -> None:
    """Close the matrix of ``tier`` in two passes.

    Args:
        tiling: how the matrix is cut; ``tiling.passes`` is set.
        tier, devices, monitor, nonnegative: as in :func:`engine.streaming.schedule.run`, which raises the same errors.
        levels: shape (stripes,), the level that each stripe has reached, -1 for none; None if no stripe has a level.
    """
    if tier.n:
        reached = np.full(tiling.stripes(tier.n), -1, np.int64) if levels is None else levels.copy()
        _Run(tiling, tier, devices, monitor, nonnegative=nonnegative, levels=reached).run()
    tier.finish(tiling)


class _Run:
    """One run: the state that the device threads and the calling thread share."""

    def __init__(
        self,
        tiling: Tiling,
        tier: Tier,
        devices: Sequence[PanelDevice],
        monitor: Monitor,
        *,
        nonnegative: bool,
        levels: npt.NDArray[np.int64],
    ) -> None:
        self._tier, self._devices, self._monitor = tier, devices, monitor
        crew = self._crew = Crew(devices, monitor, apart=False)
        streamers = cast(Sequence[Streamer], devices)  # a device looks here for other devices on the same GPU
        self._job = StripeJob(tiling, tier, nonnegative, [], streamers, self._done, crew.advance, crew.check)
        self._tasks = tasks(levels, tiling, tier.n)
        self._left = deque(self._tasks)  # the tasks that no device has taken
        self._levels = self._pending(levels)
        self._committing, self._given = threading.Lock(), 0
        # by panel of the pass up: the stripes that a device has held since it relaxed the panel
        self._copied: dict[int, list[int]] = {}
        self._holders: Counter[int] = Counter()  # by stripe: the number of devices that hold it in the pass up

    def run(self) -> None:
        """Carry out all tasks, and wait until their rows are in the tier."""
        try:
            for index, device in enumerate(self._devices):
                device.open(self._job, index, [])
            self._tier.await_rows(list(self._job.members(self._tasks[0].panel)) if self._tasks else [])
            self._monitor.begin("relax", sum(self._updates(task) for task in self._tasks), "updates")
            self._crew.run(self._work)
        finally:
            for device in self._devices:
                device.release()
            # break reference cycles, so that the tier's memory is freed as soon as no caller refers to it
            self._crew.part()
            self._job.devices = self._devices = ()
            del self._job

    def _pending(self, levels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return, for each stripe, the level that waiting devices regard as reached.

        If a remaining task brings a panel to some level, devices do not regard this level as reached, even if
        ``levels`` says that it is.  So no device reads a stripe that another device may be writing.
        """
        found = levels.copy()
        for task in reversed(self._tasks):
            own = slice(*_span(self._job.members(task.panel)))
            found[own] = np.minimum(found[own], LOWERED if task.way is Direction.UP else WALKS)
        return found

    def _updates(self, task: PanelTask) -> int:
        """Return the updates of a task; closing a panel counts as relaxing it by its own rows."""
        start, stop = self._job.pivot(task.panel)
        depths = [stop - start] if task.way is Direction.DOWN else []
        depths += [last - first for first, last in map(self._job.pivot, task.sources)]
        return (stop - start) * self._job.n * sum(depths)

    # ---- a device's thread ------------------------------------------------------------------------------------------

    def _work(self, index: int) -> None:
        """Carry out tasks on one device, as long as there are any, and wait until their rows are in the tier."""
        device, before = self._devices[index], None
        with closing(_Feed(self._job, device, self._crew, self._left, self._levels)) as feed:
            while (task := feed.task()) is not None:
                if before is not None and task.way is not before:
                    device.forget()
                self._follow(device, feed, task)
                before = task.way
            device.drain(wait=True)

    def _follow(self, device: PanelDevice, feed: _Feed, task: PanelTask) -> None:
        held = list[int]()
        device.begin(task.panel, partial(feed.rows, needed=task.own))
        for source in task.sources:
            for stripe in self._job.members(source):
                self._crew.check()
                place = feed.place()
                rows = None if place is SourcePlace.DEVICE else feed.rows(stripe, task.needed)
                device.lower(task.panel, stripe, rows, hold=place is SourcePlace.HELD)
                if place is SourcePlace.HELD:
                    held.append(stripe)
        if task.way is Direction.DOWN:
            device.close(task.panel)
        if task.way is Direction.UP:
            self._copied[task.panel] = held
        device.give(task.panel, task.reached)

    def _done(self, level: int, stripe: int, rows: Array) -> None:
        """Write a stripe back to the tier with its new level, and let waiting devices continue."""
        self._tier.give(level, stripe, rows)
        with self._crew.lock:
            self._levels[stripe] = max(level, self._levels[stripe])
            self._crew.change.notify_all()
        self._retire(self._copied.pop(stripe // self._job.tiling.group, ()))
        with self._committing:
            self._given += 1
            self._tier.commit(self._given)

    def _retire(self, held: Sequence[int]) -> None:
        """Count that one more device holds the stripes ``held``; let the tier retire stripes that all devices hold.

        The device has relaxed a panel by the stripes ``held``, and the panel is back in the tier.  So the stripes are
        on the device, and it will not read them from the tier again in this pass.
        """
        for stripe in held:
            with self._crew.lock:
                self._holders[stripe] += 1
                everywhere = self._holders[stripe] == len(self._devices)
            if everywhere:
                self._tier.retire(stripe)


class SourcePlace(Enum):
    """Where a device finds the rows of a stripe that relaxes its panel, and whether it keeps rows that it reads."""

    #: The rows are on the device already.
    DEVICE = "device"
    #: The device reads the rows from the tier, and holds them for later panels of the pass.
    HELD = "held"
    #: The device reads the rows from the tier for this panel only, and does not hold them.
    TIER = "tier"


class _Feed:
    """The tasks of one device, and the stripes that it takes from the tier, requested ahead in the order of use.

    Args:
        job: the run.
        device: the device, in whose thread all methods are called.
        crew: the threads of the run.
        left: the tasks that no device has taken, in order; this device takes the next task after it has requested the
            last stripe of its current task.
        levels: shape (stripes,), the level that each stripe has reached; changed by other threads.
    """

    def __init__(
        self, job: StripeJob, device: PanelDevice, crew: Crew, left: deque[PanelTask], levels: npt.NDArray[np.int64]
    ) -> None:
        self._job, self._device, self._crew, self._left, self._levels = job, device, crew, left, levels
        self._taken: deque[PanelTask] = deque()
        self._places: deque[SourcePlace] = deque()  # where the sources of these tasks are, stripe by stripe
        self._requests = self._sequence()
        self._next = next(self._requests, None)
        self._ahead: deque[tuple[int, Promise[Array]]] = deque()

    def task(self) -> PanelTask | None:
        """Return the next task; None at the end."""
        return self._taken.popleft() if self._taken else None

    def place(self) -> SourcePlace:
        """Return where the device finds the next stripe of the task's sources."""
        return self._places.popleft()

    def rows(self, stripe: int, needed: int) -> Array:
        """Return the rows of the next stripe; wait until they have the level ``needed``."""
        self._crew.wait(self._device, lambda: bool(self._levels[stripe] >= needed))
        window = self._job.tier.window
        self._ask(window + 1)
        found, rows = self._ahead.popleft()
        assert found == stripe
        self._ask(window)
        # ``wait`` also reports the stripes that have come back from this device, because other devices may need them
        if not self._crew.alone:
            self._crew.wait(self._device, rows.done)
        return rows.result()

    def close(self) -> None:
        """Drop the generator of requests.  The generator refers to this object, which refers to the tier, so the memory
        of the tier could not be freed otherwise.  To close the generator is not enough: in Python 3.12.2 and 3.12.3 a
        closed generator still holds its local variables (python/cpython issue 118272).
        """
        del self._requests

    def _sequence(self) -> Generator[tuple[int, int], None, None]:
        """Take tasks; yield each stripe that they need from the tier, with the level that it must have."""
        before, held = cast("PanelTask | None", None), set[int]()
        while self._left:
            try:
                task = self._left.popleft()
            except IndexError:  # another device has taken the last task
                return
            kept = -1
            if before is not None and self._device.keeps and before.reached >= task.needed:
                kept = before.panel
            if before is not None and before.way is not task.way:
                held.clear()
            self._taken.append(task)
            yield from ((stripe, task.own) for stripe in self._job.members(task.panel))
            for source in task.sources:
                for stripe in self._job.members(source):
                    if source == kept or stripe in held:
                        self._places.append(SourcePlace.DEVICE)
                        continue
                    hold = len(held) < self._device.most_held
                    self._places.append(SourcePlace.HELD if hold else SourcePlace.TIER)
                    if hold:
                        held.add(stripe)
                    yield stripe, task.needed
            before = task

    def _ask(self, most: int) -> None:
        """Request stripes from the tier in advance, until there are ``most`` requests or the next stripe has not
        reached its level.
        """
        while self._next is not None and len(self._ahead) < most:
            stripe, needed = self._next
            if self._levels[stripe] < needed:
                return
            self._ahead.append((stripe, self._job.tier.take(stripe)))
            self._next = next(self._requests, None)


def _span(members: range) -> tuple[int, int]:
    return members.start, members.stop
