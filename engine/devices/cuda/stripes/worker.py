"""The GPU of one of many workers: stripes stay on the device; panels are copied from and to page-locked host memory.

The device has the operations of :class:`engine.distributed.dense.stripe_device.WorkerDevice`.  A stripe here is as high
as a pivot block is wide.  Calls that queue products, copies of panels and closings do not wait for them: events put
them in order, also across overlapping rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from engine.devices.cuda.context import allocate
from engine.devices.cuda.launch import blank
from engine.devices.cuda.pinned import PinnedPool
from engine.devices.cuda.stripes.memory import StripeMemory
from engine.model.backend import Array
from engine.model.stripe_device import Streamer, StripeJob
from engine.model.tiling import GRAIN

_TILE: Final = 128


class CudaWorkerDevice(StripeMemory):
    """The device of a worker, which holds its stripes and some panels.

    Args:
        job: the solve; its tiling and devices are changed.
        device: index of the device.
        memory: bytes of device memory that may be used; None for all.
        places: the number of panels on the device: those that are closed early, the panel in use, and the previous one,
            which another task may still use.  With fewer places, some panels are copied to the device repeatedly.
        threads: the number of threads that touch host memory.
    """

    def __init__(
        self, job: StripeJob, device: int = 0, *, memory: int | None = None, places: int = 2, threads: int = 1
    ) -> None:
        super().__init__(device, memory=memory)
        self._pieces = PinnedPool((min(job.tiling.width, job.n), job.n), job.kind.dtype, threads)
        # one slot of the least height, which stays unused
        job.tiling = replace(job.tiling, height=GRAIN, slots=1, resident=0)
        job.devices = [cast(Streamer, self)]  # ``open`` counts the devices to limit the memory; no round uses the list
        self.open(job, 0, [])
        # _panel_at, _readers and _ready hold for each place: the round of its panel, the events that must occur before
        # the panel is overwritten, and the event that the panel is complete
        self._panel_at = [-1] * places
        self._readers: list[dict[int, Any]] = [{} for _ in range(places)]
        self._ready: list[Any] = [None] * places
        self._sources: list[tuple[Any, Array]] = []
        self._touched: dict[int, Any] = {}
        with self.guard():
            width = min(job.tiling.width, -(-job.n // 64) * 64)
            side = -(-width // _TILE) * _TILE
            for _ in range(len(self.panels), places):
                self.panels.append(allocate(self._cupy, (width, self._across), job.kind.dtype))
                blank(self._found, self.panels[-1])
            self._packs = [allocate(self._cupy, (width, side), self._launcher.word) for _ in range(2)]
            self._out = self._cupy.cuda.Stream(non_blocking=True)
            self._cupy.cuda.get_current_stream().synchronize()

    def hold(self, stripe: int, rows: Array) -> None:
        """Copy a stripe to the device."""
        with self.guard():
            own = allocate(self._cupy, (len(rows), self._across), self._job.kind.dtype)
            blank(self._found, own[:, self._job.n :])
            self._cupy.cuda.get_current_stream().synchronize()
            self._copy(own, rows, 0, self._load)
            self._load.synchronize()
            self._resident[stripe] = own

    def forget(self, stripe: int) -> None:
        """Free the memory of a stripe, after all work on it."""
        with self.guard():
            self._settled(stripe)
            self._resident.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows of a stripe to the host; if a product changes an entry meanwhile, its copy is the old or the new
        value.

        Args:
            stripe: number of the stripe.
            first: the row of the stripe to begin at.
            out: shape (rows, n).
        """
        with self.guard():
            stream = self._cupy.cuda.Stream(non_blocking=True)
            rows = self._resident[stripe][first : first + len(out)]  # keeps the stripe's memory until the copy is made
            self._copy(out, rows, 0, stream)
            stream.synchronize()

    def use(self, k: int, panel: Array) -> None:
        """Queue the copy of panel ``k`` to the device, unless the panel is on the device; later products wait for the
        copy.
        """
        place = k % len(self._panel_at)
        if self._panel_at[place] == k:
            return
        with self.guard():
            self._empty(place, self._bring)
            self._copy(self.panel(k), panel, 0, self._bring)
            self._ready[place] = self._event(self._bring)
            self._panel_at[place] = k
            # the list keeps the memory of ``panel`` until the device has read the panel
            self._sources = [(event, rows) for event, rows in self._sources if not event.done]
            self._sources.append((self._ready[place], panel))

    def relax_by(self, k: int, stripe: int, *, urgent: bool = False) -> None:
        """Queue the product that relaxes a stripe by panel ``k``.  There is one stream for stripes of even number, one
        for stripes of odd number, and one of high priority for urgent products.

        Args:
            k: the round, for whose panel :meth:`use` was called.
            stripe: number of the stripe to relax.
            urgent: whether the product runs before products that were queued earlier.
        """
        place, lane = k % len(self._panel_at), stripe % 2
        stream, packed = (self._high, self._packed) if urgent else (self._low[lane], self._packs[lane])
        with self.guard():
            self._after(stream, self._ready[place], self._touched.get(stripe))
            with stream:
                self._relax(k, self._resident[stripe], packed, 0)
            event = self._event(stream)
            self._touched[stripe] = self._readers[place][stream.ptr] = event

    def become(self, k: int, panel: Array) -> None:
        """Overwrite stripe ``k`` with the closed panel ``k``."""
        with self.guard():
            self._settled(k)
            self._copy(self._resident[k], panel, 0, self._load)
            self._load.synchronize()

    def close_panel(self, k: int, out: Array) -> None:
        """Close a copy of stripe ``k`` on the stream of high priority, and copy the result to the stripe and to
        ``out``.
        """
        panel, place = self.panel(k), k % len(self._panel_at)
        with self.guard():
            self._empty(place, self._high)
            self._after(self._high, self._touched.get(k))
            with self._high:
                panel[:] = self._resident[k]
                self._close(k, panel)
                if self._job.settles(k):
                    self._settle(panel)
                self._resident[k][:] = panel
            self._ready[place] = self._touched[k] = event = self._event(self._high)
            self._panel_at[place] = k
            self._after(self._out, event)
            self._copy(out, panel, 0, self._out)
            self._readers[place][self._out.ptr] = self._event(self._out)

    def mark(self, *, urgent: bool) -> Callable[[], None]:
        """Record an event on each stream of urgent work, or of all other work; return a function that waits for these
        events, in any thread.

        The function raises BelowZero if closing a panel made a diagonal entry negative.
        """
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

    def buffer(self, height: int) -> Array:
        """Return page-locked memory of ``height`` rows."""
        with self.guard():
            return self._pieces.take(height)

    def release(self) -> None:
        """Free all memory, on the device and on the host."""
        super().release()
        self._touched.clear()
        self._sources.clear()
        self._pieces.release()

    def _empty(self, place: int, stream: Any) -> None:
        """Mark a place as empty; let ``stream`` wait until the panel there is complete and all work that reads it is
        done.
        """
        self._panel_at[place] = -1
        self._after(stream, self._ready[place], *self._readers[place].values())
        self._readers[place] = {}

    def _settled(self, stripe: int) -> None:
        """Wait for all work queued on a stripe."""
        event = self._touched.pop(stripe, None)
        if event is not None:
            event.synchronize()
