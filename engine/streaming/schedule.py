"""The rounds of a streamed solve: which device closes which panel, which device relaxes which stripe, and in which
order.

Each device has a thread.  In round k, each device loads panel k.  One device, the leader of panel k + 1, closes panel
k + 1 one round ahead.  Each device relaxes the stripes that are resident on it.  Each other stripe is relaxed by the
next device that is free.  The stripes of panel k + 2 come first, so that they are back in the tier when panel k + 2 is
closed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from engine.devices.rounds import Action, RoundOrder
from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.stripe_device import Streamer, StripeJob
from engine.model.tier import Tier
from engine.model.tiling import Tiling, round_updates, stripe_entries
from engine.streaming.crew import Crew
from storage.threads import Promise


def run(
    tiling: Tiling,
    tier: Tier,
    devices: Sequence[Streamer],
    monitor: Monitor,
    *,
    nonnegative: bool,
    first_round: int = 0,
) -> None:
    """Close the matrix of ``tier``.

    Args:
        tiling: how the matrix is cut.
        tier: holds the matrix; each of its stripes has reached at least round ``first_round`` - 1.
        devices: the devices that compute; any number, of any speed.
        monitor: receives the number of updates (phase ``relax``) and is asked whether to stop, in the calling thread.
        nonnegative: promises that no entry is below zero; if False, there must be no negative cycle.
        first_round: the round to begin with; above 0 when resuming.

    Raises:
        Cancelled: the monitor asked to stop; the tier contains whole stripes only.
        BelowZero: the distance of a vertex to itself is negative (for floats this may be rounding, so it is not
            checked).
        DoesNotFit, SolveFailed, StorageFailed: a device or the tier failed; the tier is consistent nevertheless.
    """
    if tier.n:
        _Run(tiling, tier, devices, monitor, nonnegative=nonnegative, first=first_round).run()
    tier.finish(tiling)


class _Run:
    """One run: the state that the device threads and the calling thread share."""

    def __init__(
        self,
        tiling: Tiling,
        tier: Tier,
        devices: Sequence[Streamer],
        monitor: Monitor,
        *,
        nonnegative: bool,
        first: int,
    ) -> None:
        n, self._tiling, self._tier, self._devices, self._monitor = tier.n, tiling, tier, devices, monitor
        crew = self._crew = Crew(devices, monitor)
        if tiling.passes:
            raise ValueError("this layout is one of passes")
        self._first, self._rounds, self._stripes = first, tiling.rounds(n), tiling.stripes(n)
        self._steps = RoundOrder(self._rounds, ahead=True, first=first)
        self._lock, self._change = crew.lock, crew.change
        self._committing = threading.Lock()
        self._position = [first] * len(devices)
        self._closed = first - 1  # the latest panel that is closed or queued to be closed
        self._owner = _owners(tiling, self._rounds, len(devices))
        leaders = [self._owner.get(k, k % len(devices)) for k in range(self._rounds)]
        self._job = StripeJob(tiling, tier, nonnegative, leaders, devices, self._done, crew.advance, crew.check)
        self._level = np.array([self._start(stripe) for stripe in range(self._stripes)])
        self._behind = [int((self._level < k).sum()) for k in range(self._rounds)]
        self._floor = first - 1
        self._wanted: dict[int, bool] = {}
        self._orders: dict[int, deque[int]] = {}
        self._ahead: dict[tuple[int, int], Promise[Array]] = {}
        self._late: set[tuple[int, int]] = (
            set()
        )  # (round, stripe) where a device had to request the stripe itself, because that was not done in advance
        self._asked = self._sequence()
        self._next = next(self._asked, None)

    # ---- the calling thread -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start a thread for each device, report the progress of the devices to the monitor, and join the threads."""
        entries = sum(stripe_entries(self._tiling, s, self._tier.n) for s in range(self._stripes))
        start = self._first * self._tiling.width
        self._monitor.begin("relax", entries * max(0, self._tier.n - start), "updates")
        try:
            for index, device in enumerate(self._devices):
                device.open(self._job, index, [k for k, own in self._owner.items() if own == index])
            self._crew.run(self._work)
        finally:
            for device in self._devices:
                device.release()
            self._part()

    def _part(self) -> None:
        """Break reference cycles, so that the tier's memory is freed as soon as no caller refers to it."""
        self._crew.part()
        self._job.devices = self._devices = ()
        del self._job, self._asked

    # ---- a device's thread ------------------------------------------------------------------------------------------

    def _work(self, index: int) -> None:
        device = self._devices[index]
        for k, owner in self._owner.items():
            if owner == index:
                self._bring(device, k)
        for _, steps in self._steps.rounds():
            for action, k in steps:
                if action is Action.CLOSE and self._job.leaders[k] == index:
                    if k == self._first:
                        self._seed()
                    self._lead(index, k)  # also relaxes panel k by panel k - 1
                elif action is Action.USE:
                    self._follow(device, k)
                elif action is Action.REST:
                    self._rest(index, device, k)
        device.drain(wait=True)
        device.hand_over()

    def _follow(self, device: Streamer, k: int) -> None:
        """Copy panel ``k`` to a device once it is closed."""
        self._crew.wait(device, lambda: self._closed >= k)
        # ``follow`` collects columns in the buffer of panel k - 1, so all devices must have finished using that buffer
        if self._tiling.symmetric:
            self._crew.wait(device, lambda: min(self._position) >= k)
        device.follow(k)

    def _rest(self, index: int, device: Streamer, k: int) -> None:
        """Relax by panel ``k`` on one device: first its resident stripes, then streamed stripes until none is left."""
        device.reside(k, out=self._wants(k))
        while (stripe := self._pop(k)) is not None:
            device.relax(k, stripe, self._rows(k, stripe, device))
        device.leave(k)
        with self._lock:
            self._position[index] = k + 1
            self._change.notify_all()

    def _bring(self, device: Streamer, k: int) -> None:
        """Copy the stripes of pivot block ``k``, which will be resident, to the device."""
        for stripe in self._job.members(k):
            self._crew.check()
            rows = self._tier.take(stripe).result()
            device.keep(stripe, rows)
            self._tier.drop(stripe, rows)

    def _seed(self) -> None:
        """For a symmetric layout that resumes, copy the columns of the first two panels from the stripes above them;
        each stripe is read once.
        """
        if not self._tiling.symmetric:
            return
        needed = [r for r in (self._first, self._first + 1) if r < self._rounds]
        for stripe in range(self._job.members(self._first).start):
            self._crew.check()
            rows = self._tier.take(stripe).result()
            for k in needed:
                self._devices[self._job.leaders[k]].seed(k, stripe, rows)
            self._tier.drop(stripe, rows)

    def _lead(self, index: int, k: int) -> None:
        """Close panel ``k`` as soon as no device uses the buffer that will hold it."""
        device, first = self._devices[index], k == self._first
        self._crew.wait(device, lambda: min(self._position) >= k - 1)
        take = None if k in self._owner else partial(self._rows, k - 1, device=device)
        device.lead(k, take, first=first)
        with self._lock:
            self._closed = k
            self._change.notify_all()

    # ---- the order of stripes ----------------------------------------------------------------------------------------

    def _order(self, k: int) -> list[int]:
        """Return the streamed stripes of round ``k``, beginning with the stripes of the panel that is closed next."""
        streamed = [group for group in self._steps.groups(k) if group not in self._owner]
        return [stripe for group in streamed for stripe in self._job.members(group)]

    def _pop(self, k: int) -> int | None:
        """Return the next stripe to relax in round ``k``; None if there is none.

        Stripes that an earlier run has relaxed are skipped.
        """
        with self._lock:
            order = self._orders.setdefault(k, deque(self._order(k)))
            while order:
                stripe = order.popleft()
                if self._level[stripe] < k:
                    return stripe
                self._crew.advance(round_updates(self._tiling, k, stripe, self._tier.n))
        self._crew.check()
        return None

    def _rows(self, k: int, stripe: int, device: Streamer) -> Array:
        """Return the rows of a stripe for round ``k``; wait until it is back in the tier after round ``k`` - 1."""
        self._crew.wait(device, lambda: bool(self._level[stripe] >= k - 1))
        with self._lock:
            found = self._ahead.pop((k, stripe), None)
            if found is None:
                found = self._tier.take(stripe)
                self._late.add((k, stripe))
            self._ask_ahead()
        return found.result()

    def _sequence(self) -> Iterator[tuple[int, int]]:
        """Yield all pairs (round, stripe), approximately in the order in which the devices will need them."""
        for k in range(self._first, self._rounds):
            closed = k + 1
            if closed < self._rounds and closed not in self._owner:
                yield from ((k, s) for s in self._job.members(closed))
            yield from ((k, s) for s in self._order(k))

    def _ask_ahead(self) -> None:
        """Request the next stripes from the tier in advance, at most ``tier.window`` of them at a time."""
        while self._next is not None and len(self._ahead) < self._tier.window:
            k, stripe = self._next
            if self._level[stripe] < k - 1:
                return
            panel = stripe // self._tiling.group == k + 1
            passed = not panel and self._level[stripe] >= k
            if (k, stripe) not in self._late and not passed:
                self._ahead[k, stripe] = self._tier.take(stripe)
            self._next = next(self._asked, None)

    # ---- what was done ----------------------------------------------------------------------------------------------

    def _start(self, stripe: int) -> int:
        """Return the last round that a stripe has reached; this run relaxes the stripe from the next round on."""
        level, k = self._first - 1, stripe // self._tiling.group
        if self._tiling.symmetric:  # each round copies columns of every stripe for a panel, so no stripe can be skipped
            return level
        while level + 1 < self._rounds and self._tier.skip(level + 1, stripe):
            level += 1
        return min(level, k - 1) if k in (self._first, self._first + 1) else level

    def _done(self, k: int, stripe: int, rows: Array) -> None:
        """Write a stripe back to the tier after round ``k``; if that completes a round for all stripes, commit."""
        self._tier.give(k, stripe, rows)
        with self._lock:
            for passed in range(int(self._level[stripe]) + 1, k + 1):
                self._behind[passed] -= 1
            self._level[stripe] = max(k, self._level[stripe])
            self._change.notify_all()
        with self._committing:
            floor = self._floor
            while floor + 1 < self._rounds and self._behind[floor + 1] == 0:
                floor += 1
            if floor > self._floor:
                self._floor = floor
                self._tier.commit(floor)

    def _wants(self, k: int) -> bool:
        with self._lock:
            if k not in self._wanted:
                self._wanted = {k: self._tier.wants(k), **self._wanted}
            return self._wanted[k]


def _owners(tiling: Tiling, rounds: int, devices: int) -> dict[int, int]:
    """Return the device that holds the stripes of each resident group, by the round of the group.

    Devices are assigned in rotation.  Groups that are streamed are left out.
    """
    most = min(rounds, tiling.resident // tiling.group * devices)
    return {k: k % devices for k in range(most)}
