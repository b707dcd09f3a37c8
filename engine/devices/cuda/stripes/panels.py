"""Passes on a GPU: the device has buffers for two or three panels.  The stripes that relax a panel pass through slots,
or are held on the device.

While the present panel is relaxed, the previous panel is copied to the host.  The rows of the previous panel are still
on the device, and relax the present panel last.  The next panel is loaded into a third buffer; with two buffers, it is
loaded once the previous panel is no longer needed.  Consecutive panels have their products on two streams in turn, so
the products of the next panel keep the device busy while a panel is closed on a stream of high priority.  Loads have a
stream of their own, and so have stores.

Several devices that share a matrix do not communicate: each loads the panels of the other devices from the host.
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
        self._count = -1  # number of the panel begun last, counted in the order in which panels are begun
        self._ended: dict[int, Any] = {}  # by number as in ``_count``: the event after all products of a panel
        self._stored: dict[int, Any] = {}  # by the same number: the event after which a panel is on the host
        self._reading: deque[tuple[Any, int, Array]] = deque()
        self._lowering: deque[tuple[Any, int]] = deque()
        self._to_store: deque[tuple[int, int, int, Any, bool]] = deque()
        self._storing: deque[tuple[Any, int, int, Array]] = deque()
        self._held: dict[int, tuple[Any, Any]] = {}  # by number of a stripe: rows, event of their arrival

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
            take: returns the rows of a stripe, given by number, from the tier (host memory or the store).
        """
        self._count += 1
        old = self._count - len(self.panels)
        while self._to_store and self._to_store[0][0] <= old:
            self._store_some(wait=True)
        # the old panel also relaxes the panel after it, so wait until that panel has ended, too
        self._after(self._load, self._stored.pop(old, None), self._ended.get(old + 1))
        self._ended.pop(old, None)  # all copies of the old panel are queued, so nothing needs its event
        job, panel, start = self._job, self._rows_of(k), self._job.pivot(k)[0]
        for stripe in job.members(k):
            top, bottom = job.rows(stripe)
            self._bring_in(panel[top - start : bottom - start], k, stripe, take(stripe), -1)
        self._lane().wait_event(self._event(self._load))

    def lower(self, k: int, stripe: int, rows: Array | None, *, hold: bool = False) -> None:
        """Wait for the next slot.  Queue the loading of a stripe, into the slot or into memory for held stripes, and
        the product that relaxes panel ``k`` by the stripe.

        Args:
            k: the panel.
            stripe: number of the stripe.
            rows: rows of the stripe, shape (rows of the stripe, n); None if the stripe is held, or belongs to the panel
                of the last :meth:`give`.
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
        """Release all held stripes.  New stripes are loaded into the memory of the released ones only after all
        products queued so far.
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
        """Queue the copies of panel ``k``, whose stripes have reached ``level``, to the tier."""
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
        """Report the stripes that were copied back to the tier; if ``wait`` is set, wait for all copies first."""
        while self._store_some(wait=wait) and wait:
            pass
        self._put_back(0 if wait else len(self._reading))
        while self._lowering and (wait or self._lowering[0][0].done):
            event, updates = self._lowering.popleft()
            event.synchronize()
            self._job.advance(updates)
        self._look_at_flags(wait=wait)

    def _store_some(self, *, wait: bool) -> bool:
        """Queue as many copies of given panels (see :meth:`give`) as the tier accepts, and report completed copies.

        If ``wait`` is set, wait for the panel to copy next, and for all queued copies.  Return whether some copies are
        not queued yet.
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
        """Return the rows of panel ``k``, which must be the panel begun last; padding columns are included."""
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
        """Queue the loading of a stripe.  If the tier has few buffers, wait until at most one load is outstanding."""
        mark = self._begin("load", self._load, k, stripe, lane)
        self._copy(target, rows, 0, self._load)
        self._end(mark, self._load)
        self._reading.append((self._event(self._load), stripe, rows))
        self._put_back(1 if self._job.tier.window > 0 else len(self._reading))

    def _put_back(self, most: int) -> None:
        """Return the host rows of loaded stripes to the tier; wait until at most ``most`` loads are outstanding."""
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
