"""One of many workers, on a GPU: its stripes stay on the device; panels come from, and go to, locked host memory.

The verbs of :class:`engine.spread.holder.Holder`.  A stripe here is as high as a pivot block is wide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.backends.base import Array
from engine.backends.cuda_modules import allocate
from engine.backends.cuda_stream import CudaStreamer
from engine.stream.layout import GRAIN
from engine.stream.streamer import Job

_TILE: Final = 128


class CudaHolder(CudaStreamer):
    """Products and closing are those of a streamer; which stripe is here, and which panel, it is told."""

    def __init__(self, job: Job, device: int = 0, *, memory: int | None = None) -> None:
        super().__init__(device, memory=memory)
        # one slot of the least height, which is not used
        job.streaming = replace(job.streaming, height=GRAIN, slots=1, resident=0)
        job.devices = [self]
        self.open(job, 0, [])
        self._turns = [-1] * job.streaming.panels
        self._next = 0
        with self.guard():
            width = min(job.streaming.width, -(-job.n // 64) * 64)
            side = -(-width // _TILE) * _TILE
            self._packs = [allocate(self._cupy, (width, side), self._launcher.word) for _ in range(2)]
            self._out = self._cupy.cuda.Stream(non_blocking=True)

    def hold(self, stripe: int, rows: Array) -> None:
        """Load a stripe."""
        with self.guard():
            own = allocate(self._cupy, (len(rows), self._across), self._job.kind.dtype)
            own[:, self._job.n :] = self._job.kind.sentinel()
            self._cupy.cuda.get_current_stream().synchronize()
            self._copy(own, rows, 0, self._bring)
            self._bring.synchronize()
            self._resident[stripe] = own

    def forget(self, stripe: int) -> None:
        """Free its memory."""
        with self.guard():
            self._resident.pop(stripe, None)

    def copy(self, stripe: int, first: int, out: Array) -> None:
        """Copy rows to the host; entries that change meanwhile are old or new."""
        with self.guard():
            stream = self._cupy.cuda.Stream(non_blocking=True)
            rows = self._resident[stripe][first : first + len(out)]  # keeps the memory until the copy is made
            self._copy(out, rows, 0, stream)
            stream.synchronize()

    def use(self, turn: int, panel: Array) -> None:
        """Load the panel, unless it was closed here."""
        place = turn % len(self._turns)
        if self._turns[place] == turn:
            return
        with self.guard():
            self._turns[place] = -1
            self._copy(self.panel(turn), panel, 0, self._bring)
            self._bring.synchronize()
            self._turns[place] = turn

    def relax_by(self, turn: int, stripe: int) -> None:
        """Queue one product, on two streams in turn."""
        with self.guard():
            stream, packed = self._low[self._next % 2], self._packs[self._next % 2]
            self._next += 1
            with stream:
                self._relax(turn, self._resident[stripe], packed, 0)

    def become(self, turn: int, panel: Array) -> None:
        """The stripe of this number is the panel."""
        with self.guard():
            self._copy(self._resident[turn], panel, 0, self._bring)
            self._bring.synchronize()

    def close_panel(self, turn: int, out: Array) -> None:
        """Close a copy of the stripe on the stream of high priority; it goes back, and to the host."""
        panel, place = self.panel(turn), turn % len(self._turns)
        self._turns[place] = -1
        with self.guard():
            with self._high:
                panel[:] = self._resident[turn]
                self._close(turn, panel)
                if self._job.settles(turn):
                    self._settle(panel)
                self._resident[turn][:] = panel
            self._high.synchronize()
            self._turns[place] = turn
            self._copy(out, panel, 0, self._out)
            self._out.synchronize()

    def wait(self) -> None:
        """All products are made; BelowZero if one carried the diagonal below zero."""
        with self.guard():
            for stream in (*self._low, self._high):
                stream.synchronize()
            self._look_at_flags(wait=True)

    def room(self, height: int) -> Array:
        """Page-locked memory."""
        kind, n = self._job.kind, self._job.n
        with self.guard():
            memory: Any = self._cupy.cuda.alloc_pinned_memory(max(1, height * n * kind.itemsize))
        return np.frombuffer(memory, kind.dtype, height * n).reshape(height, n)
