"""Streaming on a GPU: a panel is on the device during its round, and a resident stripe during the whole solve; other
stripes pass through slots.

Each slot has its buffer, its packed columns, its events and its own stream for the kernels, so that the last thread
blocks of one stripe overlap the first thread blocks of the next.  All loads have one stream, and all stores have
another stream, so that both directions of the bus and the kernels work at once.  Panels are closed on a stream of high
priority.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.devices.cuda.context import alike, modules
from engine.devices.cuda.launch import Copy
from engine.devices.cuda.stripes.memory import Slot, StripeMemory
from engine.model.backend import Array
from engine.model.tiling import round_updates

#: Seconds between two checks whether the device has finished a round.
_LOOK: Final = 0.0005


def found_devices() -> int:
    """Return the number of GPUs that share a streamed solve: the first GPU and those after it that are ``alike``."""
    found = modules()
    return alike(found.cupy.cuda.runtime, found.device)


class CudaStreamer(StripeMemory):
    """The operations of :class:`engine.model.stripe_device.Streamer` on one GPU."""

    # ---- panels -----------------------------------------------------------------------------------------------------

    def keep(self, stripe: int, rows: Array) -> None:
        """Copy a resident stripe to the device."""
        job, (top, bottom) = self._job, self._job.rows(stripe)
        k = stripe // job.tiling.group
        start, left = job.pivot(k)[0], job.tiling.left(stripe)
        self._copy(self._resident[k][top - start : bottom - start], rows, left, self._bring)
        self._bring.synchronize()

    def seed(self, k: int, stripe: int, rows: Array) -> None:
        """Copy the columns of a stripe at pivot block ``k``, transposed, into panel ``k``.

        Args:
            k: a round.
            stripe: number of a stripe above the pivot block.
            rows: rows of the stripe, shape (rows, n).
        """
        (start, stop), (top, bottom) = self._job.pivot(k), self._job.rows(stripe)
        with self.guard():
            columns = self._cupy.asarray(np.ascontiguousarray(rows[:, start:stop].T))
            self.panel(k)[:, top:bottom] = columns
            self._cupy.cuda.get_current_stream().synchronize()

    def lead(self, k: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Queue the gathering, relaxing, closing and writing back of a panel, on the stream of high priority.

        Args:
            k: the round of the panel.
            take: returns the rows of a stripe of the tier as they were before round ``k`` - 1; None for a resident
                panel.
            first: whether this is the first panel of the run, which need not be relaxed by an earlier panel.
        """
        job, panel = self._job, self.panel(k)
        for stream in (self._bring, self._high):
            self._wait_left(stream, k - 2)
        self._gather(k, take, panel)
        self._high.wait_event(self._event(self._bring))
        with self._high:
            if not first:
                self._high.wait_event(self.have[k - 1])
            mark = self._begin("close", self._high, k, -1, -1)
            if job.tiling.symmetric:
                if not first:
                    self._collect(k, k - 1, self.panel(k - 1))
                start, stop = job.pivot(k)
                self._launcher.mirror(panel[:, start:stop])
            if not first:
                self._relax(k - 1, panel, self._packed, 0)
            self._close(k, panel)
            if job.settles(k):
                self._settle(panel)
            self._end(mark, self._high)
        self.have[k] = self._event(self._high)
        self._put.wait_event(self.have[k])
        for stripe in job.members(k):
            self._owe(k, k, stripe)
            if not first:
                self._owe(k - 1, k - 1, stripe)
        if take is None:
            with self._put:
                self._resident[k][:] = panel
            self._placed[k] = self._event(self._put)
        else:
            self._writes.extend((k, stripe) for stripe in job.members(k))
        self._pump()

    def _gather(self, k: int, take: Callable[[int], Array] | None, panel: Any) -> None:
        job, start = self._job, self._job.pivot(k)[0]
        if take is None:
            left = start if job.tiling.symmetric else 0
            with self._bring:
                panel[:, left:] = self._resident[k][:, left:]
            return
        reading: deque[tuple[Any, int, Array]] = deque()
        bounded = job.tier.window > 0
        for stripe in job.members(k):
            if bounded and reading:
                event, other, rows = reading.popleft()
                event.synchronize()
                job.tier.drop(other, rows)
            rows = take(stripe)
            top, bottom = job.rows(stripe)
            part = panel[top - start : bottom - start]
            self._copy(part, rows, job.tiling.left(stripe), self._bring)
            reading.append((self._event(self._bring), stripe, rows))
        for event, stripe, rows in reading:
            if bounded:
                event.synchronize()
            job.tier.drop(stripe, rows)

    def follow(self, k: int) -> None:
        """Copy panel ``k`` from its leader, device to device; in undirected graphs, the device that leads panel ``k`` +
        2 also copies the columns of panel ``k`` that panel ``k`` + 2 needs.
        """
        job = self._job
        leader: Any = job.devices[job.leaders[k]]
        if leader is not self:
            self._bring.wait_event(leader.have[k])
            self._wait_left(self._bring, k - job.tiling.panels)
            source, target = leader.panel(k), self.panel(k)
            runtime = self._cupy.cuda.runtime
            mark = self._begin("panel", self._bring, k, -1, -1)
            runtime.memcpyPeerAsync(
                target.data.ptr, self.device, source.data.ptr, leader.device, source.nbytes, self._bring.ptr
            )
            self._end(mark, self._bring)
            self.have[k] = self._event(self._bring)
        if job.tiling.symmetric and k + 2 < job.rounds and job.devices[job.leaders[k + 2]] is self:
            self._wait_left(self._high, k - 1)
            self._high.wait_event(self.have[k])
            with self._high:
                self._collect(k + 2, k, self.panel(k))

    def _collect(self, k: int, other: int, rows: Any) -> None:
        """Copy the columns of pivot block ``k`` in panel ``other``, transposed, into this device's panel ``k``."""
        start, stop = self._job.pivot(k)
        first, last = self._job.pivot(other)
        self._launcher.pack([Copy(rows[:, start:stop], self.panel(k)[:, first:last], transposed=True)])

    # ---- stripes ----------------------------------------------------------------------------------------------------

    def relax(self, k: int, stripe: int, rows: Array) -> None:
        """Wait for the next slot, then queue loading, relaxing and storing of a stripe in this slot.

        Args:
            k: the round.
            stripe: number of the stripe.
            rows: rows of the stripe in the tier, shape (rows, n), changed in place.
        """
        job, (top, bottom) = self._job, self._job.rows(stripe)
        left = job.tiling.left(stripe)
        slot = self._slots[self._next_slot % len(self._slots)]
        self._next_slot += 1
        self._reclaim(slot, wait=True)
        self._pump()
        mine = slot.rows[: bottom - top]
        mark = self._begin("load", self._load, k, stripe, slot.index)
        self._copy(mine, rows, left, self._load)
        self._end(mark, self._load)
        slot.loaded.record(self._load)
        slot.stream.wait_event(slot.loaded)
        slot.stream.wait_event(self.have[k])
        with slot.stream:
            mark = self._begin("relax", slot.stream, k, stripe, slot.index)
            self._relax(k, mine, slot.packed, left, top)
            self._end(mark, slot.stream)
            if job.collected(k, stripe):
                self._hand(k, mine, top, slot.stream)
        slot.relaxed.record(slot.stream)
        self._store.wait_event(slot.relaxed)
        mark = self._begin("store", self._store, k, stripe, slot.index)
        self._copy(rows, mine, left, self._store)
        self._end(mark, self._store)
        slot.stored.record(self._store)
        slot.work = k, stripe, rows

    def _hand(self, k: int, rows: Any, top: int, stream: Any) -> None:
        """In undirected graphs, send the columns that panel ``k`` + 2 needs to the device that leads this panel."""
        job = self._job
        leader: Any = job.devices[job.leaders[k + 2]]
        start, stop = job.pivot(k + 2)
        self._wait_left(stream, k - 1)
        to = leader.panel(k + 2)[:, top : top + len(rows)]
        self._launcher.pack([Copy(rows[:, start:stop], to, transposed=True)])

    def reside(self, k: int, *, out: bool) -> None:
        """Relax the resident stripes by panel ``k``, group by group, alternately on two streams.  If ``out`` is set,
        copy them to the tier.
        """
        job = self._job
        for count, (own, rows) in enumerate(self._resident.items()):
            start = job.pivot(own)[0]
            stream, packed = self._low[count % 2], self._packs[count % 2]
            if own not in (k, k + 1):
                left = start if job.tiling.symmetric else 0
                stream.wait_event(self.have[k])
                if own in self._placed:
                    stream.wait_event(self._placed.pop(own))
                with stream:
                    mark = self._begin("reside", stream, k, own, -1 - count % 2)
                    self._relax(k, rows, packed, left, start)
                    self._end(mark, stream)
                    if job.collected(k, job.members(own).start):
                        self._hand(k, rows, start, stream)
                for stripe in job.members(own):
                    self._owe(k, k, stripe)
            if out:
                self._put.wait_event(self._event(stream))
                self._write_out(k, own)

    def _write_out(self, k: int, own: int) -> None:
        """Copy the resident stripes of pivot block ``own`` to the tier, and report them as their state after round
        ``k``.
        """
        job, start = self._job, self._job.pivot(own)[0]
        for stripe in job.members(own):
            (top, bottom), target = job.rows(stripe), job.tier.blank(stripe)
            part = self._resident[own][top - start : bottom - start]
            self._copy(target, part, job.tiling.left(stripe), self._put)
            self._writing.append((self._event(self._put), k, stripe, target))
            if job.tier.window > 0:
                self._tell(wait=True)

    # ---- finished work ----------------------------------------------------------------------------------------------

    def leave(self, k: int) -> None:
        """End the queueing of round ``k``: record an event on every stream, then wait for the events of round
        ``k`` - 1.

        At most two rounds are queued at any time.
        """
        self._finish_writes(k)
        streams = [self._high, self._bring, self._put, *self._low, *(slot.stream for slot in self._slots)]
        self.left[k] = [self._event(stream) for stream in streams]
        for event in self.left.get(k - 1, []):
            while not event.done:
                self._job.check()
                self.drain(wait=False)
                time.sleep(_LOOK)
        self._pay(k - 1)
        self._look_at_flags(wait=False)
        keep = k - self._job.tiling.panels - 1
        for table in (self.left, self.have):
            for old in [t for t in table if t < keep]:
                del table[old]

    def drain(self, *, wait: bool) -> None:
        """Report the stripes that were copied back to the tier; if ``wait`` is set, wait for all copies first."""
        for step in range(len(self._slots)):
            self._reclaim(self._slots[(self._next_slot + step) % len(self._slots)], wait=wait)
        self._pump()
        if wait:
            self._finish_writes(self._job.rounds)
        self._look_at_flags(wait=wait)

    def hand_over(self) -> None:
        """At the end of the solve, copy the resident stripes to the tier, and report all updates not reported yet."""
        last = self._job.rounds - 1
        for events in self.left.values():
            for event in events:
                event.synchronize()
        for own in self._resident:
            self._write_out(last, own)
        self._tell(wait=True)
        for k in list(self._owed):
            self._pay(k)
        self._look_at_flags(wait=True)

    def _reclaim(self, slot: Slot, *, wait: bool) -> None:
        if slot.work is None:
            return
        if wait:
            slot.stored.synchronize()
        elif not slot.stored.done:
            return
        (k, stripe, rows), slot.work = slot.work, None
        self._job.done(k, stripe, rows)
        self._job.advance(self._updates(k, stripe))

    def _pump(self) -> None:
        """Queue as many writes of stripes of closed panels as the tier accepts, and report the completed writes."""
        self._tell(wait=False)
        job = self._job
        bounded = job.tier.window > 0
        while self._writes and not (bounded and (self._writing or not self.have[self._writes[0][0]].done)):
            k, stripe = self._writes.popleft()
            (top, bottom), start = job.rows(stripe), job.pivot(k)[0]
            target = job.tier.blank(stripe)
            mark = self._begin("write", self._put, k, stripe, -1)
            self._copy(target, self.panel(k)[top - start : bottom - start], job.tiling.left(stripe), self._put)
            self._end(mark, self._put)
            self._writing.append((self._event(self._put), k, stripe, target))

    def _finish_writes(self, k: int) -> None:
        """Write the panels up to panel ``k``; at the end of the solve, also wait until they are written."""
        while self._writes and self._writes[0][0] <= k:
            self.have[self._writes[0][0]].synchronize()
            self._tell(wait=True)
            self._pump()
        if k >= self._job.rounds:
            self._tell(wait=True)

    def _tell(self, *, wait: bool) -> None:
        while self._writing and (wait or self._writing[0][0].done):
            event, k, stripe, rows = self._writing.popleft()
            event.synchronize()
            self._job.done(k, stripe, rows)

    def _updates(self, k: int, stripe: int) -> int:
        return round_updates(self._job.tiling, k, stripe, self._job.n)

    def _owe(self, when: int, k: int, stripe: int) -> None:
        """Add the updates of a stripe in round ``k`` to those that are reported once round ``when`` is done."""
        self._owed[when] = self._owed.get(when, 0) + self._updates(k, stripe)

    def _pay(self, k: int) -> None:
        self._job.advance(self._owed.pop(k, 0))

    def _wait_left(self, stream: Any, k: int) -> None:
        """Let ``stream`` wait until all devices are done with round ``k``."""
        for device in self._job.devices:
            for event in getattr(device, "left", {}).get(k, []):
                stream.wait_event(event)
