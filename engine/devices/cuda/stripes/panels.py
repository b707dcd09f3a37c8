"""Passes on a GPU: the device has two or three panels, and the stripes that relax them pass through slots or are held.

While one panel is relaxed, the panel before it is copied to the host; the rows of that panel, still on the device,
relax the present panel last.  The next panel is loaded into a third buffer; with two buffers it is loaded once the
panel before is no longer needed.  The products of alternate panels have two streams, so the products of the next panel
keep the device busy while a panel is closed on a stream of high priority.  Loads and stores have a stream each.

Several devices that share a matrix do not communicate: each loads from the host the panels that other devices have
copied there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.devices.cuda.stripes.memory import Slot, StripeMemory
from engine.model.backend import Array
from engine.model.stripe_device import StripeJob
from engine.model.tiling import FINISHED

#: The least and the most seconds between two checks whether the device has finished with a slot.  Between these limits,
#: the seconds are the time of a product at ``_USUAL`` updates per second, divided by ``_LOOKS``.  More checks would
#: hold up the Python threads that write.
_LOOK: Final = (0.0002, 0.002)
_LOOKS: Final = 4
_USUAL: Final = 1.6e13


class CudaPanels(StripeMemory):
    """The operations of :class:`engine.model.stripe_device.PanelDevice` on one GPU."""

    keeps = True

    def _clear(self) -> None:
        super()._clear()
        self._count = -1  # number of the present panel, counted in the order in which panels are begun
        self._ended: dict[int, Any] = {}  # by count: the event that marks a panel as relaxed and closed
        self._stored: dict[int, Any] = {}  # by count: the event that marks a panel as copied to the host
        self._reading: deque[tuple[Any, int, Array]] = deque()
        self._lowering: deque[tuple[Any, int]] = deque()
        self._to_store: deque[tuple[int, int, int, Any, bool]] = deque()
        self._storing: deque[tuple[Any, int, int, Array]] = deque()
        self._held: dict[int, tuple[Any, Any]] = {}  # by stripe: its rows, and the event of their arrival

    def _allocate(self, job: StripeJob, resident: Sequence[int]) -> None:
        super()._allocate(job, resident)
        self.most_held = len(self._spare_stripes)
        product = job.tiling.height * job.tiling.width * job.n / _USUAL
        self._look = min(max(_LOOK[0], product / _LOOKS), _LOOK[1])

    # ---- a panel ----------------------------------------------------------------------------------------------------

    def begin(self, k: int, take: Callable[[int], Array]) -> None:
        """Queue the loading of panel ``k`` into the buffer of the panel that was begun two or three panels earlier.

        Args:
            k: the panel.
            take: returns the rows of a stripe of the tier.
        """
        self._count += 1
        old = self._count - len(self.panels)
        while self._to_store and self._to_store[0][0] <= old:
            self._store_some(wait=True)
        # the old panel also relaxes the panel after it, so wait until that panel has ended, too
        self._after(self._load, self._stored.pop(old, None), self._ended.get(old + 1))
        self._ended.pop(old, None)  # the old panel is stored; later panels may not be stored yet
        job, panel, start = self._job, self._rows_of(k), self._job.pivot(k)[0]
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            self._bring_in(panel[top - start : bottom - start], k, stripe, take(stripe), -1)
        self._lane().wait_event(self._event(self._load))

    def lower(self, k: int, stripe: int, rows: Array | None, *, hold: bool = False) -> None:
        """Wait for the next slot; queue the loading of a stripe, into this slot or where it is held, and the product
        that relaxes panel ``k`` by it.

        Args:
            k: the panel.
            stripe: the stripe.
            rows: its rows, shape (rows of the stripe, n); None if the stripe is held, or is one of the panel given
                last.
            hold: whether to hold the stripe from now on.
        """
        job, (top, bottom), lane, panel = self._job, self._job.rows(stripe), self._lane(), self._rows_of(k)
        slot = self._slot() if rows is not None or not self._queue else self._queued()
        self._wait_for(slot)
        if rows is not None:
            source = self._spare_stripes.pop() if hold else slot.rows
            self._bring_in(source[: bottom - top], k, stripe, rows, slot.index)
            arrived = self._event(self._load)
            if hold:
                self._held[stripe] = source, arrived
        elif stripe in self._held:
            source, arrived = self._held[stripe]
        else:
            before = self.panels[(self._count - 1) % len(self.panels)]
            source = before[top - job.pivot(stripe // job.tiling.group)[0] :]
            arrived = self._ended[self._count - 1]
        self._after(lane, arrived)
        with lane:
            mark = self._begin("lower", lane, k, stripe, slot.index)
            self._lower(panel, (top, bottom), source, slot.packed)
            self._end(mark, lane)
        slot.relaxed.record(lane)
        slot.work = k, stripe, panel
        self._lowering.append((self._event(lane), (bottom - top) * len(panel) * job.n))

    def forget(self) -> None:
        """Hold no stripe any more; stripes are loaded into their memory only after all products queued so far, which
        read it.
        """
        self._after(self._load, *(self._event(lane) for lane in self._low))
        self._spare_stripes.extend(rows for rows, _ in self._held.values())
        self._held = {}

    def close(self, k: int) -> None:
        """Queue the closing of panel ``k`` on the stream of high priority."""
        lane, panel = self._lane(), self._rows_of(k)
        self._after(self._high, self._event(lane))
        with self._high:
            mark = self._begin("close", self._high, k, -1, -1)
            self._close(k, panel)
            self._end(mark, self._high)
        closed = self._event(self._high)
        self._after(lane, closed)
        self._lowering.append((closed, len(panel) ** 2 * self._job.n))

    def give(self, k: int, level: int) -> None:
        """Queue the copies of panel ``k`` to the tier."""
        job, lane, panel, start = self._job, self._lane(), self._rows_of(k), self._job.pivot(k)[0]
        if level == FINISHED and self._signed:
            with lane:
                self._settle(panel)
        self._ended[self._count] = self._event(lane)
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            last = bottom == start + len(panel)
            self._to_store.append((self._count, level, stripe, panel[top - start : bottom - start], last))
        self._store_some(wait=False)

    # ---- finished work ----------------------------------------------------------------------------------------------

    def drain(self, *, wait: bool) -> None:
        """Report the stripes that are back in the tier; with ``wait``, first wait for all of them."""
        while self._store_some(wait=wait) and wait:
            pass
        self._put_back(0 if wait else len(self._reading))
        while self._lowering and (wait or self._lowering[0][0].done):
            event, updates = self._lowering.popleft()
            event.synchronize()
            self._job.advance(updates)
        self._look_at_flags(wait=wait)

    def _store_some(self, *, wait: bool) -> bool:
        """Queue copies of panels that :meth:`give` was called for, as many as the tier accepts, and report the copies
        that have arrived.

        With ``wait``, wait until the next panel has ended, and for the copies that are queued.  Return whether copies
        are still to be queued.
        """
        bounded = self._job.tier.window > 0
        while self._to_store and not (bounded and self._storing):
            count, level, stripe, source, last = self._to_store[0]
            ended = self._ended[count]
            if bounded and not ended.done:
                if not wait:
                    break
                ended.synchronize()
            self._to_store.popleft()
            rows = self._job.tier.blank(stripe)
            self._after(self._put, ended)
            mark = self._begin("store", self._put, stripe // self._job.tiling.group, stripe, -1)
            self._copy(rows, source, 0, self._put)
            self._end(mark, self._put)
            arrived = self._event(self._put)
            self._storing.append((arrived, level, stripe, rows))
            if last:
                self._stored[count] = arrived
        while self._storing and (wait or self._storing[0][0].done):
            event, level, stripe, rows = self._storing.popleft()
            event.synchronize()
            self._job.done(level, stripe, rows)
        return bool(self._to_store)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _rows_of(self, k: int) -> Any:
        """Return the rows of the present panel, padding columns included; ``k``, its number, gives its height."""
        start, stop = self._job.pivot(k)
        return self.panels[self._count % len(self.panels)][: stop - start]

    def _slot(self) -> Slot:
        self._next_slot += 1
        return self._slots[(self._next_slot - 1) % len(self._slots)]

    def _queued(self) -> Slot:
        self._next_queued += 1
        return self._queue[(self._next_queued - 1) % len(self._queue)]

    def _lane(self) -> Any:
        return self._low[self._count % 2]

    def _bring_in(self, target: Any, k: int, stripe: int, rows: Array, lane: int) -> None:
        """Queue the loading of a stripe; if the tier has few buffers, hold at most two stripes that are still being
        read.
        """
        mark = self._begin("load", self._load, k, stripe, lane)
        self._copy(target, rows, 0, self._load)
        self._end(mark, self._load)
        self._reading.append((self._event(self._load), stripe, rows))
        self._put_back(1 if self._job.tier.window > 0 else len(self._reading))

    def _put_back(self, most: int) -> None:
        """Give the rows of stripes that have been read back to the tier; wait until at most ``most`` stripes are being
        read.
        """
        while self._reading and (len(self._reading) > most or self._reading[0][0].done):
            event, stripe, rows = self._reading.popleft()
            event.synchronize()
            self._job.tier.drop(stripe, rows)

    def _wait_for(self, slot: Slot) -> None:
        while slot.work is not None:
            self._job.check()
            self.drain(wait=False)
            if slot.relaxed.done:
                slot.work = None
            else:
                time.sleep(self._look)
