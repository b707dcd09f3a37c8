"""One of many workers, on a GPU: its stripes stay on the device; panels come from, and go to, locked host memory.

The verbs of :class:`engine.distributed.stripe_device.Holder`.  A stripe here is as high as a pivot block is wide.
Nothing here waits for the products: panels come in, and rounds overlap, in the order that events say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from engine.devices.cuda.context import allocate
from engine.devices.cuda.pieces import Pieces
from engine.devices.cuda.streaming import CudaStreamer
from engine.model.backend import Array
from engine.model.stripe_device import StripeJob
from engine.model.tiling import GRAIN

_TILE: Final = 128


class CudaHolder(CudaStreamer):
    """Products and closing are those of a streamer; which stripe is here, and which panel, it is told.

    Args:
        places: panels on the device: those that are closed early, the one in use, and the one before, which another
            task may use.  With fewer they are brought in again.
        threads: that get host memory.
    """

    def __init__(
        self, job: StripeJob, device: int = 0, *, memory: int | None = None, places: int = 2, threads: int = 1
    ) -> None:
        super().__init__(device, memory=memory)
        self._pieces = Pieces((min(job.streaming.width, job.n), job.n), job.kind.dtype, threads)
        # one slot of the least height, which is not used
        job.streaming = replace(job.streaming, height=GRAIN, slots=1, resident=0)
        job.devices = [self]
        self.open(job, 0, [])
        # per place: which panel, what must be over before it changes, and since when it is there
        self._turns = [-1] * places
        self._readers: list[dict[int, Any]] = [{} for _ in range(places)]
        self._ready: list[Any] = [None] * places
        self._sources: list[tuple[Any, Array]] = []
        self._touched: dict[int, Any] = {}
        with self.guard():
            width = min(job.streaming.width, -(-job.n // 64) * 64)
            side = -(-width // _TILE) * _TILE
            for _ in range(len(self.panels), places):
                self.panels.append(allocate(self._cupy, (width, self._across), job.kind.dtype))
                self.panels[-1][:] = job.kind.sentinel()
            self._packs = [allocate(self._cupy, (width, side), self._launcher.word) for _ in range(2)]
            self._out = self._cupy.cuda.Stream(non_blocking=True)
            self._cupy.cuda.get_current_stream().synchronize()

    def hold(self, stripe: int, rows: Array) -> None:
        """Load a stripe."""
        with self.guard():
            own = allocate(self._cupy, (len(rows), self._across), self._job.kind.dtype)
            own[:, self._job.n :] = self._job.kind.sentinel()
            self._cupy.cuda.get_current_stream().synchronize()
            self._copy(own, rows, 0, self._load)
            self._load.synchronize()
            self._resident[stripe] = own

    def forget(self, stripe: int) -> None:
        """Free its memory, once nothing is done to it any more."""
        with self.guard():
            self._settled(stripe)
            self._resident.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows to the host; entries that change meanwhile are old or new."""
        with self.guard():
            stream = self._cupy.cuda.Stream(non_blocking=True)
            rows = self._resident[stripe][first : first + len(out)]  # keeps the memory until the copy is made
            self._copy(out, rows, 0, stream)
            stream.synchronize()

    def use(self, turn: int, panel: Array) -> None:
        """Load the panel, unless it is there; products that come later wait for it."""
        place = turn % len(self._turns)
        if self._turns[place] == turn:
            return
        with self.guard():
            self._empty(place, self._bring)
            self._copy(self.panel(turn), panel, 0, self._bring)
            self._ready[place] = self._event(self._bring)
            self._turns[place] = turn
            # its memory must not be anybody else's before it has been read
            self._sources = [(event, rows) for event, rows in self._sources if not event.done]
            self._sources.append((self._ready[place], panel))

    def relax_by(self, turn: int, stripe: int, *, urgent: bool = False) -> None:
        """Queue one product: on one of two streams by the stripe's number, or on that of high priority."""
        place, lane = turn % len(self._turns), stripe % 2
        stream, packed = (self._high, self._packed) if urgent else (self._low[lane], self._packs[lane])
        with self.guard():
            self._after(stream, self._ready[place], self._touched.get(stripe))
            with stream:
                self._relax(turn, self._resident[stripe], packed, 0)
            event = self._event(stream)
            self._touched[stripe] = self._readers[place][stream.ptr] = event

    def become(self, turn: int, panel: Array) -> None:
        """The stripe of this number is the panel."""
        with self.guard():
            self._settled(turn)
            self._copy(self._resident[turn], panel, 0, self._load)
            self._load.synchronize()

    def close_panel(self, turn: int, out: Array) -> None:
        """Close a copy of the stripe on the stream of high priority; it goes back, and to the host."""
        panel, place = self.panel(turn), turn % len(self._turns)
        with self.guard():
            self._empty(place, self._high)
            self._after(self._high, self._touched.get(turn))
            with self._high:
                panel[:] = self._resident[turn]
                self._close(turn, panel)
                if self._job.settles(turn):
                    self._settle(panel)
                self._resident[turn][:] = panel
            self._ready[place] = self._touched[turn] = event = self._event(self._high)
            self._turns[place] = turn
            self._after(self._out, event)
            self._copy(out, panel, 0, self._out)
            self._readers[place][self._out.ptr] = self._event(self._out)

    def mark(self, *, urgent: bool) -> Callable[[], None]:
        """Where the streams stand now; BelowZero if a panel that was closed by then carried the diagonal below zero."""
        with self.guard():
            events = []
            for stream in (self._high, self._out) if urgent else self._low:
                events.append(self._cupy.cuda.Event(block=True, disable_timing=True))
                events[-1].record(stream)

        def wait() -> None:
            with self.guard():
                for event in events:
                    event.synchronize()
                self._look_at_flags(wait=False)

        return wait

    def room(self, height: int) -> Array:
        """Page-locked memory."""
        with self.guard():
            return self._pieces.take(height)

    def release(self) -> None:
        """Give all memory back, the host's, too."""
        super().release()
        self._touched.clear()
        self._sources.clear()
        self._pieces.release()

    def _empty(self, place: int, stream: Any) -> None:
        """``stream`` goes on when nothing reads this panel or brings it in any more."""
        self._turns[place] = -1
        self._after(stream, self._ready[place], *self._readers[place].values())
        self._readers[place] = {}

    def _settled(self, stripe: int) -> None:
        """Wait until all that was asked of a stripe is done."""
        event = self._touched.pop(stripe, None)
        if event is not None:
            event.synchronize()

    def _after(self, stream: Any, *events: Any) -> None:
        for event in events:
            if event is not None:
                stream.wait_event(event)
