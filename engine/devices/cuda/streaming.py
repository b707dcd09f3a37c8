"""Streaming on a GPU: panels stay on the device for their round, stripes pass through slots, resident ones stay.

Each slot has its buffer, its packed columns, its events and its own stream for the kernels, so that the last thread
blocks of one stripe overlap the first ones of the next.  Loads have one stream and stores another, so that both
directions of the bus and the kernels work at once.  Panels are closed on a stream of high priority.
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

#: Priorities of streams; the lowest number comes first.
_HIGH: Final = -5
_MIDDLE: Final = -2
#: Seconds between two checks of a round that is to finish on the device.
_LOOK: Final = 0.0005
_TILE: Final = 128
_STEP: Final = 16


def _round_up(x: int, to: int) -> int:
    return -(-x // to) * to


def found_devices() -> int:
    """Return how many GPUs share a streamed solve: those that ``alike`` counts from the first one."""
    found = modules()
    return alike(found.cupy.cuda.runtime, found.device)


class Slot:
    """A stripe in flight: its buffer, its packed columns, its stream and events.

    Args:
        index: number of the slot.
        cupy: the module.
        shape: rows and columns of the buffer.
        packed: rows and columns of the packed columns.
        types: types of entries and of packed words.
    """

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
        device: index of the device.
        memory: bytes of its memory that may be used; None for all.  ``tiling.device_bytes`` says what a layout needs.
        trace: records the times of all work; None for none.
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
        self._next_slot = 0
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
        """Allocate all memory.

        Args:
            job: the solve.
            index: number of this device among those of the job.
            resident: rounds whose stripes stay on this device.

        Raises:
            DoesNotFit: the memory does not suffice.
            SolveFailed: the device failed, or devices do not reach each other's memory.
        """
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
        cupy, tiling, types = self._cupy, job.tiling, (job.kind.dtype, self._launcher.word)
        self._across = pitch(job.n, job.kind.itemsize)
        width = min(tiling.width, _round_up(job.n, 64))
        height, side = min(tiling.height, width), _round_up(width, _TILE)
        nothing = job.kind.sentinel()
        for _ in range(tiling.panels):
            self.panels.append(allocate(cupy, (width, self._across), types[0]))
            self.panels[-1][:] = nothing
        self._chunk = allocate(cupy, (width, min(CHUNK, self._across)), types[0])
        self._packed = allocate(cupy, (width, side), types[1])
        block = padded_side(width, job.kind.itemsize)
        self._block = allocate(cupy, (block, block), types[0])
        for slot in range(tiling.slots):
            shape, packed = (height, self._across), (width, _round_up(height, _TILE))
            self._slots.append(Slot(slot, cupy, shape, packed, types))
            self._slots[-1].rows[:] = nothing
        for k in resident:
            start, stop = job.pivot(k)
            self._resident[k] = allocate(cupy, (stop - start, self._across), types[0])
            self._resident[k][:, job.n :] = nothing
        if resident:
            self._packs = [allocate(cupy, (width, side), types[1]) for _ in range(2)]
        self._flag = self._pinned_flags(job.rounds)

    def _pinned_flags(self, rounds: int) -> Array:
        memory = self._cupy.cuda.alloc_pinned_memory(4 * max(1, rounds))
        flags = np.frombuffer(memory, np.int32, max(1, rounds))
        flags[:] = 0
        return flags

    def _reach(self, job: StripeJob) -> None:
        """Let this device read and write the memory of the others, where the hardware allows it."""
        runtime = self._cupy.cuda.runtime
        for other in {d.device for d in job.devices if isinstance(d, CudaStreamer)} - {self.device}:
            if runtime.deviceCanAccessPeer(self.device, other):
                try:
                    runtime.deviceEnablePeerAccess(other)
                except runtime.CUDARuntimeError as error:
                    if "AlreadyEnabled" not in str(error):
                        raise
            elif job.tiling.symmetric:
                raise SolveFailed(f"CUDA devices {self.device} and {other} do not reach each other's memory")

    def release(self) -> None:
        """Free all memory; errors of a failed device are ignored."""
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
        """Context manager: makes the device current and translates its errors into those of ``storage.errors``."""
        with translated(self._cupy), self._cupy.cuda.Device(self.device):
            yield

    # ---- panels -----------------------------------------------------------------------------------------------------

    def keep(self, stripe: int, rows: Array) -> None:
        """Copy a resident stripe to the device."""
        job, (top, bottom) = self._job, self._job.rows(stripe)
        k = stripe // job.tiling.group
        start, left = job.pivot(k)[0], job.tiling.left(stripe)
        self._copy(self._resident[k][top - start : bottom - start], rows, left, self._bring)
        self._bring.synchronize()

    def seed(self, k: int, stripe: int, rows: Array) -> None:
        """Transpose the columns of pivot block ``k`` into its panel.

        Args:
            k: a round.
            stripe: a stripe above that pivot block.
            rows: its rows, shape (rows, n).
        """
        (start, stop), (top, bottom) = self._job.pivot(k), self._job.rows(stripe)
        with self.guard():
            columns = self._cupy.asarray(np.ascontiguousarray(rows[:, start:stop].T))
            self.panel(k)[:, top:bottom] = columns
            self._cupy.cuda.get_current_stream().synchronize()

    def panel(self, k: int) -> Any:
        """Return the rows of panel ``k``, padding columns included."""
        start, stop = self._job.pivot(k)
        return self.panels[k % len(self.panels)][: stop - start]

    def lead(self, k: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Queue the gathering, relaxing, closing and writing back of a panel, on the stream of high priority.

        Args:
            k: the round of the panel.
            take: returns the rows of a stripe of the tier as round ``k`` - 1 found them; None for a resident panel.
            first: whether this is the first panel, which no panel relaxes.
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

    def _close(self, k: int, panel: Any) -> None:
        """Close the pivot block C in a separate block, then P <- C (x) P over copies of P; C (x) C = C, so P gets C."""
        job, (start, stop), launcher = self._job, self._job.pivot(k), self._launcher
        width, depth = stop - start, _round_up(stop - start, _STEP)
        side = width if width <= SINGLE else padded_side(width, job.kind.itemsize)
        block = self._block[:side, :side]
        launcher.pack([Copy(panel[:, start:stop], block)])
        if width <= SINGLE:
            launcher.close(block)
        else:
            self._solver.close(block)
        if self._signed:
            self._read_flag(k)
        closed = self._packed[:depth, : _round_up(width, _TILE)]
        launcher.pack([Copy(block[:width, :width], closed, transposed=True, spread=True)])
        for first in range(0, self._across, CHUNK):
            part = panel[:, first : first + CHUNK]
            copy = self._chunk[:depth, : part.shape[1]]
            launcher.pack([Copy(part, copy)])
            launcher.products([Product(part, closed, copy)])

    def _read_flag(self, k: int) -> None:
        """Queue a copy of the flag for a negative diagonal; ``_look_at_flags`` reads it after the round."""
        runtime = self._cupy.cuda.runtime
        at = self._flag.ctypes.data + 4 * k
        runtime.memcpyAsync(at, self._launcher.negative.data.ptr, 4, runtime.memcpyDeviceToHost, self._high.ptr)
        self._flags[k] = self._event(self._high)

    def _look_at_flags(self, *, wait: bool) -> None:
        for k, event in list(self._flags.items()):
            if wait:
                event.synchronize()
            if event.done:
                self._flags.pop(k, None)
                if self._flag[k]:
                    raise below_zero(k)

    def follow(self, k: int) -> None:
        """Copy the panel from its leader, device to device."""
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
        """Queue load, relax and store of a stripe in the next slot, after waiting for that slot.

        Args:
            k: the round.
            stripe: the stripe to relax.
            rows: its rows in the tier, shape (rows, n), changed in place.
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

    def _relax(self, k: int, rows: Any, packed: Any, left: int, top: int = 0) -> None:
        """Rows <- min(rows, A (x) P) on the current stream, from column ``left`` on; ``top`` is their first row.

        Columns before ``left`` are not kept (undirected); A is then a part of P.
        """
        job, (start, stop), panel = self._job, self._job.pivot(k), self.panels[k % len(self.panels)]
        depth, tall = _round_up(stop - start, _STEP), len(rows)
        a = packed[:depth, : _round_up(tall, _TILE)]
        if left:
            source = panel[: stop - start, top : top + tall]
            self._launcher.pack([Copy(source, a, spread=True)])
        else:
            self._launcher.pack([Copy(rows[:, start:stop], a, transposed=True, spread=True)])
        self._launcher.products([Product(rows[:, left:], a, panel[:depth, left:])])
        if job.settles(k):
            self._settle(rows)

    def _settle(self, rows: Any) -> None:
        kernel = self._found.get("settle", self._launcher.arithmetic)
        limit = np.int32(self._job.kind.largest_signed)
        kernel((len(rows),), (256,), (rows, np.int64(self._across), np.int32(self._across), limit))

    def _hand(self, k: int, rows: Any, top: int, stream: Any) -> None:
        """Undirected: send the columns that panel ``k`` + 2 needs to the device of its leader."""
        job = self._job
        leader: Any = job.devices[job.leaders[k + 2]]
        start, stop = job.pivot(k + 2)
        self._wait_left(stream, k - 1)
        to = leader.panel(k + 2)[:, top : top + len(rows)]
        self._launcher.pack([Copy(rows[:, start:stop], to, transposed=True)])

    def reside(self, k: int, *, out: bool) -> None:
        """Relax the resident stripes by groups, alternately on two streams; with ``out`` copy them to the tier."""
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
        """Copy the resident stripes of round ``own`` to the tier, as those of round ``k``."""
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
        """Record where all streams stand, and wait for round ``k`` - 1, so that at most two rounds are queued."""
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
        """Report the stripes that are stored; ``wait``: after waiting for all of them."""
        for step in range(len(self._slots)):
            self._reclaim(self._slots[(self._next_slot + step) % len(self._slots)], wait=wait)
        self._pump()
        if wait:
            self._finish_writes(self._job.rounds)
        self._look_at_flags(wait=wait)

    def hand_over(self) -> None:
        """Copy the resident stripes to the tier."""
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
        """Queue writes of stripes of closed panels, as many as the tier accepts; report those that arrived."""
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
        """Write panels up to that of round ``k``; at the end of the solve, also wait until they have arrived."""
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
        start, stop = self._job.pivot(k)
        return (stop - start) * stripe_entries(self._job.tiling, stripe, self._job.n)

    def _owe(self, when: int, k: int, stripe: int) -> None:
        """Count the updates of a stripe, to be reported when round ``when`` is done."""
        self._owed[when] = self._owed.get(when, 0) + self._updates(k, stripe)

    def _pay(self, k: int) -> None:
        self._job.advance(self._owed.pop(k, 0))

    # ---- events and copies ------------------------------------------------------------------------------------------

    def _event(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def _wait_left(self, stream: Any, k: int) -> None:
        """Let ``stream`` wait until all devices are done with round ``k``."""
        for device in self._job.devices:
            for event in getattr(device, "left", {}).get(k, []):
                stream.wait_event(event)

    def _begin(self, kind: str, stream: Any, k: int, stripe: int, lane: int) -> Any:
        return self._trace and self._trace.begin(stream, kind, (self.device, k, stripe, lane))

    def _end(self, mark: Any, stream: Any) -> None:
        if self._trace is not None:
            self._trace.end(mark, stream)

    def _copy(self, target: Any, source: Any, left: int, stream: Any) -> None:
        """Queue a copy of columns ``left`` to n to or from the host, as one run of bytes if the rows are contiguous."""
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
