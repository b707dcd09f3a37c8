"""The rounds of a streamed solve: which device closes which panel, and who relaxes what, in which order.

One thread a device.  In round k a device brings panel k to itself; the leader of panel k + 1 closes that one ahead of
time; resident stripes are relaxed where they are; all others are handed to whichever device is free.  Those that panel
k + 2 will be made of go first, so that they are in place again when it is their turn.

Where the layout closes no panel ahead (one CPU), panel k is closed first in round k, and those of panel k + 1 go first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

import numpy as np

from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.stripe_device import Streamer, StripeJob
from engine.model.tier import Tier
from engine.model.tiling import Streaming, stripe_entries

#: Seconds between two questions to the monitor while no device has anything to tell.
_PAUSE: Final = 0.1
#: Seconds between two looks at what has arrived on a device that waits for another one.
_POLL: Final = 0.001


class _Stopped(Exception):  # noqa: N818
    """The run is to end: another device failed, or the job was cancelled."""


def run(
    streaming: Streaming,
    tier: Tier,
    devices: Sequence[Streamer],
    monitor: Monitor,
    *,
    nonnegative: bool,
    first_round: int = 0,
) -> None:
    """Close the matrix of ``tier``.

    Args:
        streaming: how it is cut.
        tier: where it lies; from ``first_round`` on, all its stripes are those of round ``first_round`` - 1 or later.
        devices: who works; any number, of any speed.
        monitor: told of updates (phase ``relax``), asked whether to stop, from the calling thread.
        nonnegative: promises that no entry is below zero; without it, that there should be no negative cycle.
        first_round: where to go on (resume).

    Raises:
        Cancelled: the monitor asked to stop; the tier has been given whole stripes only.
        BelowZero: a vertex is at less than zero from itself (whole numbers only; floats may round to there).
        DoesNotFit, SolveFailed, StorageFailed: a device or the tier failed; the tier is consistent all the same.
    """
    if tier.n:
        _Run(streaming, tier, devices, monitor, nonnegative=nonnegative, first=first_round).run()
    tier.finish(streaming)


class _Run:
    def __init__(
        self,
        streaming: Streaming,
        tier: Tier,
        devices: Sequence[Streamer],
        monitor: Monitor,
        *,
        nonnegative: bool,
        first: int,
    ) -> None:
        n, self._streaming, self._tier, self._devices, self._monitor = tier.n, streaming, tier, devices, monitor
        if not streaming.ahead and len(devices) > 1:
            raise ValueError("several devices share panels that are closed ahead")
        self._early = int(streaming.ahead)  # rounds before its own in which a panel is closed
        self._first, self._rounds, self._stripes = first, streaming.rounds(n), streaming.stripes(n)
        self._change = threading.Condition()
        self._committing = threading.Lock()
        self._stop, self._errors, self._news = False, list[BaseException](), 0
        self._working = len(devices)  # threads that have not ended
        self._position = [first] * len(devices)
        self._closed = first - 1  # the latest panel that is closed, or queued to be
        self._owner = _owners(streaming, self._rounds, len(devices))
        leaders = [self._owner.get(turn, turn % len(devices)) for turn in range(self._rounds)]
        self._job = StripeJob(streaming, tier, nonnegative, leaders, devices, self._done, self._advance, self._check)
        self._level = np.array([self._start(stripe) for stripe in range(self._stripes)])
        self._behind = [int((self._level < turn).sum()) for turn in range(self._rounds)]
        self._floor = first - 1
        self._wanted: dict[int, bool] = {}
        self._orders: dict[int, deque[int]] = {}
        self._ahead: dict[tuple[int, int], Future[Array]] = {}
        self._late: set[tuple[int, int]] = set()  # taken before it was their turn to be asked for ahead
        self._asked = self._sequence()
        self._next = next(self._asked, None)

    # ---- the calling thread -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start a thread a device, pass on what they tell, end them."""
        entries = sum(stripe_entries(self._streaming, s, self._tier.n) for s in range(self._stripes))
        start = self._first * self._streaming.width
        self._monitor.begin("relax", entries * max(0, self._tier.n - start), "updates")
        try:
            for index, device in enumerate(self._devices):
                device.open(self._job, index, [turn for turn, own in self._owner.items() if own == index])
            threads = [
                threading.Thread(target=self._thread, args=(i,), name=f"apsp-stream-{d.name}-{i}", daemon=True)
                for i, d in enumerate(self._devices)
            ]
            for thread in threads:
                thread.start()
            try:
                while self._working:
                    self._report()
                self._report()
            except BaseException as error:
                self._fail(error)
            for thread in threads:
                thread.join()
        finally:
            for device in self._devices:
                device.release()
            self._part()
        if self._errors:
            del self._errors[1:]
            raise self._errors.pop()

    def _part(self) -> None:
        """Leave no cycle behind: whoever drops the tier gets its memory back at once, not with some collection."""
        self._job.devices = self._devices = ()
        del self._job, self._asked

    def _report(self) -> None:
        with self._change:
            if not self._news and self._working:
                self._change.wait(_PAUSE)
            news, self._news = self._news, 0
        if not self._stop:
            self._monitor.step(news)

    def _fail(self, error: BaseException) -> None:
        with self._change:
            self._errors.append(error)
            self._stop = True
            self._change.notify_all()

    # ---- a device's thread ------------------------------------------------------------------------------------------

    def _thread(self, index: int) -> None:
        device = self._devices[index]
        try:
            with device.guard():
                try:
                    self._work(index, device)
                except _Stopped:
                    device.drain(wait=True)  # what is on its way may as well arrive
        except BaseException as error:
            self._fail(error)
        finally:
            with self._change:
                self._working -= 1
                self._change.notify_all()

    def _work(self, index: int, device: Streamer) -> None:
        for turn, owner in self._owner.items():
            if owner == index:
                self._bring(device, turn)
        if self._first < self._rounds and self._job.leaders[self._first] == index:
            self._seed()
            self._lead(index, self._first)
        for turn in range(self._first, self._rounds):
            if self._closed < turn and not self._early:
                self._lead(index, turn)
            self._await(device, lambda: self._closed >= turn)  # noqa: B023
            if self._streaming.symmetric:  # the panel that is collected now lies where the last one was
                self._await(device, lambda: min(self._position) >= turn)  # noqa: B023
            device.follow(turn)
            if self._early and turn + 1 < self._rounds and self._job.leaders[turn + 1] == index:
                self._lead(index, turn + 1)
            device.reside(turn, out=self._wants(turn))
            while (stripe := self._pop(turn)) is not None:
                device.relax(turn, stripe, self._rows(turn, stripe, device))
            device.leave(turn)
            with self._change:
                self._position[index] = turn + 1
                self._change.notify_all()
        device.drain(wait=True)
        device.hand_over()

    def _bring(self, device: Streamer, turn: int) -> None:
        """The stripes of round ``turn`` come to stay."""
        for stripe in self._job.members(turn):
            self._check()
            rows = self._tier.take(stripe).result()
            device.keep(stripe, rows)
            self._tier.drop(stripe, rows)

    def _seed(self) -> None:
        """Undirected resume: columns of the first two panels come from the stripes above, in one pass over them."""
        if not self._streaming.symmetric:
            return
        turns = [t for t in (self._first, self._first + 1) if t < self._rounds]
        for stripe in range(self._job.members(self._first).start):
            self._check()
            rows = self._tier.take(stripe).result()
            for turn in turns:
                self._devices[self._job.leaders[turn]].seed(turn, stripe, rows)
            self._tier.drop(stripe, rows)

    def _lead(self, index: int, turn: int) -> None:
        """Close panel ``turn`` once nobody uses the place where it will lie."""
        device, first = self._devices[index], turn == self._first or not self._early
        self._await(device, lambda: min(self._position) >= turn - self._early)
        take = None if turn in self._owner else partial(self._rows, turn - self._early, device=device)
        device.lead(turn, take, first=first)
        with self._change:
            self._closed = turn
            self._change.notify_all()

    def _await(self, device: Streamer, ready: Callable[[], bool]) -> None:
        """Wait for another device; meanwhile what arrives on this one is told, as others may wait for that."""
        while not self._stop and not ready():
            device.drain(wait=False)
            with self._change:
                if not ready():
                    self._change.wait(_POLL)
        self._check()

    # ---- who gets what ----------------------------------------------------------------------------------------------

    def _order(self, turn: int) -> list[int]:
        """The stripes of a round that are streamed, those of the panel that is closed next first."""
        count, group, early = self._rounds, self._streaming.group, self._early
        turns = [(turn + 1 + early + i) % count for i in range(count)]
        mine = [t for t in turns if t not in (turn, turn + early) and t not in self._owner]
        return [s for t in mine for s in range(t * group, min(self._stripes, (t + 1) * group))]

    def _pop(self, turn: int) -> int | None:
        """The next stripe for whoever asks; one that an earlier run relaxed is passed over."""
        with self._change:
            order = self._orders.setdefault(turn, deque(self._order(turn)))
            while order:
                stripe = order.popleft()
                if self._level[stripe] < turn:
                    return stripe
                self._skip(turn, stripe)
        self._check()
        return None

    def _skip(self, turn: int, stripe: int) -> None:
        start, stop = self._job.pivot(turn)
        self._news += (stop - start) * stripe_entries(self._streaming, stripe, self._tier.n)

    def _rows(self, turn: int, stripe: int, device: Streamer) -> Array:
        """The stripe as round ``turn`` finds it; waits until the round before has given it back."""
        self._await(device, lambda: bool(self._level[stripe] >= turn - 1))
        with self._change:
            found = self._ahead.pop((turn, stripe), None)
            if found is None:
                found = self._tier.take(stripe)
                self._late.add((turn, stripe))
            self._ask_ahead()
        return found.result()

    def _sequence(self) -> Iterator[tuple[int, int]]:
        """All (round, stripe) in about the order in which they will be asked for."""
        for turn in range(self._first, self._rounds):
            closed = turn + self._early
            if closed < self._rounds and closed not in self._owner:
                yield from ((turn, s) for s in self._job.members(closed))
            yield from ((turn, s) for s in self._order(turn))

    def _ask_ahead(self) -> None:
        """Have the tier begin with stripes that will be wanted soon, as many as it has room for."""
        while self._next is not None and len(self._ahead) < self._tier.window:
            turn, stripe = self._next
            if self._level[stripe] < turn - 1:
                return
            panel = stripe // self._streaming.group == turn + self._early
            passed = not panel and self._level[stripe] >= turn
            if (turn, stripe) not in self._late and not passed:
                self._ahead[turn, stripe] = self._tier.take(stripe)
            self._next = next(self._asked, None)

    # ---- what was done ----------------------------------------------------------------------------------------------

    def _start(self, stripe: int) -> int:
        """The last round of which the stripe is already, and which it will not go through again."""
        level, turn = self._first - 1, stripe // self._streaming.group
        if self._streaming.symmetric:  # columns of every stripe are to be collected once more
            return level
        while level + 1 < self._rounds and self._tier.skip(level + 1, stripe):
            level += 1
        return min(level, turn - 1) if turn in (self._first, self._first + 1) else level

    def _done(self, turn: int, stripe: int, rows: Array) -> None:
        """A stripe is in place after round ``turn``: it goes back, and perhaps completes a round."""
        self._tier.give(turn, stripe, rows)
        with self._change:
            for passed in range(int(self._level[stripe]) + 1, turn + 1):
                self._behind[passed] -= 1
            self._level[stripe] = max(turn, self._level[stripe])
            self._change.notify_all()
        with self._committing:
            floor = self._floor
            while floor + 1 < self._rounds and self._behind[floor + 1] == 0:
                floor += 1
            if floor > self._floor:
                self._floor = floor
                self._tier.commit(floor)

    def _wants(self, turn: int) -> bool:
        with self._change:
            if turn not in self._wanted:
                self._wanted = {turn: self._tier.wants(turn), **self._wanted}
            return self._wanted[turn]

    def _advance(self, amount: int) -> None:
        with self._change:
            self._news += amount
            self._change.notify_all()

    def _check(self) -> None:
        if self._stop:
            raise _Stopped


def _owners(streaming: Streaming, rounds: int, devices: int) -> dict[int, int]:
    """Which device holds the resident stripes of which round, dealt out in turn."""
    most = min(rounds, streaming.resident // streaming.group * devices)
    return {turn: turn % devices for turn in range(most)}
