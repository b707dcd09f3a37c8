"""Streaming on a GPU: panels stay on the device for their round, stripes pass through slots, some never leave.

Each slot has its buffer, its packed columns, its events and its own stream for the kernels, so that the last blocks of
one stripe share the device with the first ones of the next.  Loads go through one stream and stores through another:
both directions of the bus and the kernels are busy at once.  Panels are closed on a stream of high priority.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from engine.devices.cuda.context import Modules, alike, allocate, modules, translated
from engine.devices.cuda.floyd_warshall import Solver
from engine.devices.cuda.launch import Copy, Launcher, Product
from engine.devices.cuda.trace import Trace
from engine.model import traffic
from engine.model.backend import Array
from engine.model.device_layout import SINGLE, padded_side
from engine.model.stripe_device import StripeJob, below_zero
from engine.model.tiling import CHUNK, pitch, stripe_entries
from storage.errors import SolveFailed

#: Priorities of streams: lower is sooner.
_HIGH: Final = -5
_MIDDLE: Final = -2
#: Seconds between two looks at a round that is to finish on the device.
_LOOK: Final = 0.0005
_TILE: Final = 128
_STEP: Final = 16


def _round_up(x: int, to: int) -> int:
    return -(-x // to) * to


def found_devices() -> int:
    """How many GPUs share a streamed solve: those like the first one."""
    found = modules()
    return alike(found.cupy.cuda.runtime, found.device)


class Slot:
    """A stripe in flight: its buffer, its packed columns, its stream and events."""

    def __init__(self, index: int, cupy: Any, shape: tuple[int, int], packed: tuple[int, int], types: Any) -> None:
        self.index = index
        self.rows = allocate(cupy, shape, types[0])
        self.packed = allocate(cupy, packed, types[1])
        self.stream = cupy.cuda.Stream(non_blocking=True, priority=_MIDDLE)
        self.loaded, self.relaxed, self.stored = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        self.work: tuple[int, int, Array] | None = None


class CudaStreamer:
    """The verbs of :class:`engine.model.stripe_device.Streamer` on one GPU.

    Args:
        device: which.
        memory: bytes of its memory that may be used; None for all.  What a layout takes: ``layout.device_bytes``.
        trace: records when what ran.
    """

    def __init__(self, device: int = 0, *, memory: int | None = None, trace: Trace | None = None) -> None:
        self.device, self.name = device, f"cuda{device}"
        self._memory, self._trace = memory, trace
        self._found: Modules = modules(device)
        self._cupy: Any = self._found.cupy
        self.have: dict[int, Any] = {}
        self.left: dict[int, list[Any]] = {}
        self.panels: list[Any] = []
        self._job: StripeJob
        self._clear()

    def _clear(self) -> None:
        self.have, self.left, self.panels = {}, {}, []
        self._slots: list[Slot] = []
        self._resident: dict[int, Any] = {}
        self._writes: deque[tuple[int, int]] = deque()
        self._writing: deque[tuple[Any, int, int, Array]] = deque()
        self._owed: dict[int, int] = {}
        self._turn = 0
        self._solver: Any = None
        self._chunk: Any = None
        self._packed: Any = None
        self._block: Any = None
        self._flag: Any = None
        self._placed: dict[int, Any] = {}
        self._packs: list[Any] = []
        self._flags: dict[int, Any] = {}

    # ---- memory -----------------------------------------------------------------------------------------------------

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:  # noqa: ARG002
        """Take all the memory there will be."""
        self._clear()
        self._job, cupy = job, self._cupy
        self._signed = not job.nonnegative and job.kind.integer
        with self.guard():
            pool = cupy.get_default_memory_pool()
            here = [d for d in job.devices if isinstance(d, CudaStreamer) and d.device == self.device]
            pool.set_limit(size=(self._memory or 0) * len(here))
            self._reach(job)
            self._solver = Solver(self._found, job.kind.dtype, nonnegative=job.nonnegative)
            self._launcher: Launcher = self._solver.ahead
            self._allocate(job, resident)
            stream = cupy.cuda.Stream
            self._load, self._store, self._bring, self._put = (stream(non_blocking=True) for _ in range(4))
            self._high = stream(non_blocking=True, priority=_HIGH)
            self._low = [stream(non_blocking=True, priority=0) for _ in range(2)]
            if self._trace is not None:
                self._trace.start(cupy, self.device)
            cupy.cuda.runtime.deviceSynchronize()

    def _allocate(self, job: StripeJob, resident: Sequence[int]) -> None:
        cupy, streaming, types = self._cupy, job.streaming, (job.kind.dtype, self._launcher.word)
        self._across = pitch(job.n, job.kind.itemsize)
        width = min(streaming.width, _round_up(job.n, 64))
        height, side = min(streaming.height, width), _round_up(width, _TILE)
        nothing = job.kind.sentinel()
        for _ in range(streaming.panels):
            self.panels.append(allocate(cupy, (width, self._across), types[0]))
            self.panels[-1][:] = nothing
        self._chunk = allocate(cupy, (width, min(CHUNK, self._across)), types[0])
        self._packed = allocate(cupy, (width, side), types[1])
        block = padded_side(width, job.kind.itemsize)
        self._block = allocate(cupy, (block, block), types[0])
        for slot in range(streaming.slots):
            shape, packed = (height, self._across), (width, _round_up(height, _TILE))
            self._slots.append(Slot(slot, cupy, shape, packed, types))
            self._slots[-1].rows[:] = nothing
        for turn in resident:
            start, stop = job.pivot(turn)
            self._resident[turn] = allocate(cupy, (stop - start, self._across), types[0])
            self._resident[turn][:, job.n :] = nothing
        if resident:
            self._packs = [allocate(cupy, (width, side), types[1]) for _ in range(2)]
        self._flag = self._pinned_flags(job.rounds)

    def _pinned_flags(self, rounds: int) -> Array:
        memory = self._cupy.cuda.alloc_pinned_memory(4 * max(1, rounds))
        flags = np.frombuffer(memory, np.int32, max(1, rounds))
        flags[:] = 0
        return flags

    def _reach(self, job: StripeJob) -> None:
        """Let this device read and write the memory of the others, where it can."""
        runtime = self._cupy.cuda.runtime
        for other in {d.device for d in job.devices if isinstance(d, CudaStreamer)} - {self.device}:
            if runtime.deviceCanAccessPeer(self.device, other):
                try:
                    runtime.deviceEnablePeerAccess(other)
                except runtime.CUDARuntimeError as error:
                    if "AlreadyEnabled" not in str(error):
                        raise
            elif job.streaming.symmetric:
                raise SolveFailed(f"CUDA devices {self.device} and {other} do not reach each other's memory")

    def release(self) -> None:
        """Give all memory back; a device that has failed is not asked to wait."""
        with self._cupy.cuda.Device(self.device):
            with suppress(self._cupy.cuda.runtime.CUDARuntimeError):
                self._cupy.cuda.runtime.deviceSynchronize()
            if self._solver is not None:
                self._solver.release()
            self._clear()
            pool = self._cupy.get_default_memory_pool()
            pool.free_all_blocks()
            pool.set_limit(size=0)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """The device is current, and its errors are those of ``storage.errors``."""
        with translated(self._cupy), self._cupy.cuda.Device(self.device):
            yield

    # ---- panels -----------------------------------------------------------------------------------------------------

    def keep(self, stripe: int, rows: Array) -> None:
        """Load a resident stripe."""
        job, (top, bottom) = self._job, self._job.rows(stripe)
        turn = stripe // job.streaming.group
        start, left = job.pivot(turn)[0], job.streaming.left(stripe)
        self._copy(self._resident[turn][top - start : bottom - start], rows, left, self._bring)
        self._bring.synchronize()

    def seed(self, turn: int, stripe: int, rows: Array) -> None:
        """Transpose the columns of pivot block ``turn`` into its panel."""
        (start, stop), (top, bottom) = self._job.pivot(turn), self._job.rows(stripe)
        with self.guard():
            columns = self._cupy.asarray(np.ascontiguousarray(rows[:, start:stop].T))
            self.panel(turn)[:, top:bottom] = columns
            self._cupy.cuda.get_current_stream().synchronize()

    def panel(self, turn: int) -> Any:
        """The rows of panel ``turn``, all of the pitch."""
        start, stop = self._job.pivot(turn)
        return self.panels[turn % len(self.panels)][: stop - start]

    def lead(self, turn: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Gather, relax, close and write back a panel, on the stream of high priority."""
        job, panel = self._job, self.panel(turn)
        for stream in (self._bring, self._high):
            self._wait_left(stream, turn - 2)
        self._gather(turn, take, panel)
        self._high.wait_event(self._event(self._bring))
        with self._high:
            if not first:
                self._high.wait_event(self.have[turn - 1])
            mark = self._begin("close", self._high, turn, -1, -1)
            if job.streaming.symmetric:
                if not first:
                    self._collect(turn, turn - 1, self.panel(turn - 1))
                start, stop = job.pivot(turn)
                self._launcher.mirror(panel[:, start:stop])
            if not first:
                self._relax(turn - 1, panel, self._packed, 0)
            self._close(turn, panel)
            if job.settles(turn):
                self._settle(panel)
            self._end(mark, self._high)
        self.have[turn] = self._event(self._high)
        self._put.wait_event(self.have[turn])
        for stripe in job.members(turn):
            self._owe(turn, turn, stripe)
            if not first:
                self._owe(turn - 1, turn - 1, stripe)
        if take is None:
            with self._put:
                self._resident[turn][:] = panel
            self._placed[turn] = self._event(self._put)
        else:
            self._writes.extend((turn, stripe) for stripe in job.members(turn))
        self._pump()

    def _gather(self, turn: int, take: Callable[[int], Array] | None, panel: Any) -> None:
        job, start = self._job, self._job.pivot(turn)[0]
        if take is None:
            left = start if job.streaming.symmetric else 0
            with self._bring:
                panel[:, left:] = self._resident[turn][:, left:]
            return
        reading: deque[tuple[Any, int, Array]] = deque()
        bounded = job.tier.window > 0
        for stripe in job.members(turn):
            if bounded and reading:
                event, other, rows = reading.popleft()
                event.synchronize()
                job.tier.drop(other, rows)
            rows = take(stripe)
            top, bottom = job.rows(stripe)
            part = panel[top - start : bottom - start]
            self._copy(part, rows, job.streaming.left(stripe), self._bring)
            reading.append((self._event(self._bring), stripe, rows))
        for event, stripe, rows in reading:
            if bounded:
                event.synchronize()
            job.tier.drop(stripe, rows)

    def _close(self, turn: int, panel: Any) -> None:
        """C closed in a place of its own, then P <- C (x) P over copies of P; C (x) C = C puts it into P, too."""
        job, (start, stop), launcher = self._job, self._job.pivot(turn), self._launcher
        width, depth = stop - start, _round_up(stop - start, _STEP)
        side = width if width <= SINGLE else padded_side(width, job.kind.itemsize)
        block = self._block[:side, :side]
        launcher.pack([Copy(panel[:, start:stop], block)])
        if width <= SINGLE:
            launcher.close(block)
        else:
            self._solver.close(block)
        if self._signed:
            self._read_flag(turn)
        closed = self._packed[:depth, : _round_up(width, _TILE)]
        launcher.pack([Copy(block[:width, :width], closed, transposed=True, spread=True)])
        for first in range(0, self._across, CHUNK):
            part = panel[:, first : first + CHUNK]
            copy = self._chunk[:depth, : part.shape[1]]
            launcher.pack([Copy(part, copy)])
            launcher.products([Product(part, closed, copy)])

    def _read_flag(self, turn: int) -> None:
        """Whether the diagonal fell below zero is read on the way, and looked at when the round is left."""
        runtime = self._cupy.cuda.runtime
        at = self._flag.ctypes.data + 4 * turn
        runtime.memcpyAsync(at, self._launcher.negative.data.ptr, 4, runtime.memcpyDeviceToHost, self._high.ptr)
        self._flags[turn] = self._event(self._high)

    def _look_at_flags(self, *, wait: bool) -> None:
        for turn, event in list(self._flags.items()):
            if wait:
                event.synchronize()
            if event.done:
                self._flags.pop(turn, None)
                if self._flag[turn]:
                    raise below_zero(turn)

    def follow(self, turn: int) -> None:
        """Copy the panel from its leader, device to device."""
        job = self._job
        leader: Any = job.devices[job.leaders[turn]]
        if leader is not self:
            self._bring.wait_event(leader.have[turn])
            self._wait_left(self._bring, turn - job.streaming.panels)
            source, target = leader.panel(turn), self.panel(turn)
            runtime = self._cupy.cuda.runtime
            mark = self._begin("panel", self._bring, turn, -1, -1)
            runtime.memcpyPeerAsync(
                target.data.ptr, self.device, source.data.ptr, leader.device, source.nbytes, self._bring.ptr
            )
            self._end(mark, self._bring)
            self.have[turn] = self._event(self._bring)
        if job.streaming.symmetric and turn + 2 < job.rounds and job.devices[job.leaders[turn + 2]] is self:
            self._wait_left(self._high, turn - 1)
            self._high.wait_event(self.have[turn])
            with self._high:
                self._collect(turn + 2, turn, self.panel(turn))

    def _collect(self, turn: int, other: int, rows: Any) -> None:
        """Columns of pivot block ``turn`` of panel ``other``, transposed into this device's panel ``turn``."""
        start, stop = self._job.pivot(turn)
        first, last = self._job.pivot(other)
        self._launcher.pack([Copy(rows[:, start:stop], self.panel(turn)[:, first:last], transposed=True)])

    # ---- stripes ----------------------------------------------------------------------------------------------------

    def relax(self, turn: int, stripe: int, rows: Array) -> None:
        """Queue load, relax and store of a stripe in the next slot, once that is free."""
        job, (top, bottom) = self._job, self._job.rows(stripe)
        left = job.streaming.left(stripe)
        slot = self._slots[self._turn % len(self._slots)]
        self._turn += 1
        self._reclaim(slot, wait=True)
        self._pump()
        mine = slot.rows[: bottom - top]
        mark = self._begin("load", self._load, turn, stripe, slot.index)
        self._copy(mine, rows, left, self._load)
        self._end(mark, self._load)
        slot.loaded.record(self._load)
        slot.stream.wait_event(slot.loaded)
        slot.stream.wait_event(self.have[turn])
        with slot.stream:
            mark = self._begin("relax", slot.stream, turn, stripe, slot.index)
            self._relax(turn, mine, slot.packed, left, top)
            self._end(mark, slot.stream)
            if job.collected(turn, stripe):
                self._hand(turn, mine, top, slot.stream)
        slot.relaxed.record(slot.stream)
        self._store.wait_event(slot.relaxed)
        mark = self._begin("store", self._store, turn, stripe, slot.index)
        self._copy(rows, mine, left, self._store)
        self._end(mark, self._store)
        slot.stored.record(self._store)
        slot.work = turn, stripe, rows

    def _relax(self, turn: int, rows: Any, packed: Any, left: int, top: int = 0) -> None:
        """Rows <- min(rows, A (x) P) on the current stream, from column ``left`` on; ``top`` is their first row.

        Below ``left`` there is nothing: A is then a part of P.
        """
        job, (start, stop), panel = self._job, self._job.pivot(turn), self.panels[turn % len(self.panels)]
        depth, tall = _round_up(stop - start, _STEP), len(rows)
        a = packed[:depth, : _round_up(tall, _TILE)]
        if left:
            source = panel[: stop - start, top : top + tall]
            self._launcher.pack([Copy(source, a, spread=True)])
        else:
            self._launcher.pack([Copy(rows[:, start:stop], a, transposed=True, spread=True)])
        self._launcher.products([Product(rows[:, left:], a, panel[:depth, left:])])
        if job.settles(turn):
            self._settle(rows)

    def _settle(self, rows: Any) -> None:
        kernel = self._found.get("settle", self._launcher.arithmetic)
        limit = np.int32(self._job.kind.largest_signed)
        kernel((len(rows),), (256,), (rows, np.int64(self._across), np.int32(self._across), limit))

    def _hand(self, turn: int, rows: Any, top: int, stream: Any) -> None:
        """Undirected: columns that the panel after the next needs go to the device of its leader."""
        job = self._job
        leader: Any = job.devices[job.leaders[turn + 2]]
        start, stop = job.pivot(turn + 2)
        self._wait_left(stream, turn - 1)
        to = leader.panel(turn + 2)[:, top : top + len(rows)]
        self._launcher.pack([Copy(rows[:, start:stop], to, transposed=True)])

    def reside(self, turn: int, *, out: bool) -> None:
        """Relax the resident stripes by whole groups, on two streams in turn."""
        job = self._job
        for count, (own, rows) in enumerate(self._resident.items()):
            start = job.pivot(own)[0]
            stream, packed = self._low[count % 2], self._packs[count % 2]
            if own not in (turn, turn + 1):
                left = start if job.streaming.symmetric else 0
                stream.wait_event(self.have[turn])
                if own in self._placed:
                    stream.wait_event(self._placed.pop(own))
                with stream:
                    mark = self._begin("reside", stream, turn, own, -1 - count % 2)
                    self._relax(turn, rows, packed, left, start)
                    self._end(mark, stream)
                    if job.collected(turn, job.members(own).start):
                        self._hand(turn, rows, start, stream)
                for stripe in job.members(own):
                    self._owe(turn, turn, stripe)
            if out:
                self._put.wait_event(self._event(stream))
                self._write_out(turn, own)

    def _write_out(self, turn: int, own: int) -> None:
        """Copy the resident stripes of round ``own`` to the tier, as those of round ``turn``."""
        job, start = self._job, self._job.pivot(own)[0]
        for stripe in job.members(own):
            (top, bottom), target = job.rows(stripe), job.tier.blank(stripe)
            part = self._resident[own][top - start : bottom - start]
            self._copy(target, part, job.streaming.left(stripe), self._put)
            self._writing.append((self._event(self._put), turn, stripe, target))
            if job.tier.window > 0:
                self._tell(wait=True)

    # ---- what has arrived -------------------------------------------------------------------------------------------

    def leave(self, turn: int) -> None:
        """Note where all streams stand, and wait until the round before is done: two are queued at most."""
        self._finish_writes(turn)
        streams = [self._high, self._bring, self._put, *self._low, *(slot.stream for slot in self._slots)]
        self.left[turn] = [self._event(stream) for stream in streams]
        for event in self.left.get(turn - 1, []):
            while not event.done:
                self._job.check()
                self.drain(wait=False)
                time.sleep(_LOOK)
        self._pay(turn - 1)
        self._look_at_flags(wait=False)
        keep = turn - self._job.streaming.panels - 1
        for table in (self.left, self.have):
            for old in [t for t in table if t < keep]:
                del table[old]

    def drain(self, *, wait: bool) -> None:
        """Tell of the stripes that are stored."""
        for step in range(len(self._slots)):
            self._reclaim(self._slots[(self._turn + step) % len(self._slots)], wait=wait)
        self._pump()
        if wait:
            self._finish_writes(self._job.rounds)
        self._look_at_flags(wait=wait)

    def hand_over(self) -> None:
        """Write the resident stripes."""
        last = self._job.rounds - 1
        for events in self.left.values():
            for event in events:
                event.synchronize()
        for own in self._resident:
            self._write_out(last, own)
        self._tell(wait=True)
        for turn in list(self._owed):
            self._pay(turn)
        self._look_at_flags(wait=True)

    def _reclaim(self, slot: Slot, *, wait: bool) -> None:
        if slot.work is None:
            return
        if wait:
            slot.stored.synchronize()
        elif not slot.stored.done:
            return
        (turn, stripe, rows), slot.work = slot.work, None
        self._job.done(turn, stripe, rows)
        self._job.advance(self._updates(turn, stripe))

    def _pump(self) -> None:
        """Begin to write stripes of closed panels, as many as the tier has room for; tell of those that arrived."""
        self._tell(wait=False)
        job = self._job
        bounded = job.tier.window > 0
        while self._writes and not (bounded and (self._writing or not self.have[self._writes[0][0]].done)):
            turn, stripe = self._writes.popleft()
            (top, bottom), start = job.rows(stripe), job.pivot(turn)[0]
            target = job.tier.blank(stripe)
            mark = self._begin("write", self._put, turn, stripe, -1)
            self._copy(target, self.panel(turn)[top - start : bottom - start], job.streaming.left(stripe), self._put)
            self._end(mark, self._put)
            self._writing.append((self._event(self._put), turn, stripe, target))

    def _finish_writes(self, turn: int) -> None:
        """Panels up to that of round ``turn`` are written, or on their way, when this returns."""
        while self._writes and self._writes[0][0] <= turn:
            self.have[self._writes[0][0]].synchronize()
            self._tell(wait=True)
            self._pump()
        if turn >= self._job.rounds:
            self._tell(wait=True)

    def _tell(self, *, wait: bool) -> None:
        while self._writing and (wait or self._writing[0][0].done):
            event, turn, stripe, rows = self._writing.popleft()
            event.synchronize()
            self._job.done(turn, stripe, rows)

    def _updates(self, turn: int, stripe: int) -> int:
        start, stop = self._job.pivot(turn)
        return (stop - start) * stripe_entries(self._job.streaming, stripe, self._job.n)

    def _owe(self, when: int, turn: int, stripe: int) -> None:
        """Updates to be told of once round ``when`` is done."""
        self._owed[when] = self._owed.get(when, 0) + self._updates(turn, stripe)

    def _pay(self, turn: int) -> None:
        self._job.advance(self._owed.pop(turn, 0))

    # ---- events and copies ------------------------------------------------------------------------------------------

    def _event(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def _wait_left(self, stream: Any, turn: int) -> None:
        """``stream`` goes on when all devices are done with round ``turn``."""
        for device in self._job.devices:
            for event in getattr(device, "left", {}).get(turn, []):
                stream.wait_event(event)

    def _begin(self, kind: str, stream: Any, turn: int, stripe: int, lane: int) -> Any:
        return self._trace and self._trace.begin(stream, kind, (self.device, turn, stripe, lane))

    def _end(self, mark: Any, stream: Any) -> None:
        if self._trace is not None:
            self._trace.end(mark, stream)

    def _copy(self, target: Any, source: Any, left: int, stream: Any) -> None:
        """Rows from column ``left`` to n, to or from the host; one run of bytes where nothing lies between them."""
        runtime, size, n = self._cupy.cuda.runtime, self._job.kind.itemsize, self._job.n
        to, begin = (x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr for x in (target, source))
        kind = runtime.memcpyDeviceToHost if isinstance(target, np.ndarray) else runtime.memcpyHostToDevice
        offset, width, count = left * size, (n - left) * size, len(source)
        pitches = [x.shape[1] * size for x in (target, source)]
        traffic.moved("read" if isinstance(target, np.ndarray) else "write", width * count)
        if left == 0 and pitches[0] == pitches[1] == width:
            runtime.memcpyAsync(to, begin, width * count, kind, stream.ptr)
        else:
            runtime.memcpy2DAsync(
                to + offset, pitches[0], begin + offset, pitches[1], width, count, kind, stream.ptr
            )  # fmt: skip
