"""The memory of a GPU for stripes and panels, and products over them, in streamed solves and on workers.

A panel is on the device during its round, and a resident stripe during the whole solve; any other stripe passes through
a slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from engine.devices.cuda.budgets import lift_limit, limit_memory
from engine.devices.cuda.context import Modules, allocate, modules, translated
from engine.devices.cuda.floyd_warshall import Solver
from engine.devices.cuda.launch import Copy, Launcher, Product, blank
from engine.devices.cuda.pinned import parts
from engine.devices.cuda.stripes.trace import Trace
from engine.model import traffic
from engine.model.backend import Array
from engine.model.device_layout import SINGLE, padded_side
from engine.model.stripe_device import StripeJob, below_zero
from engine.model.tiling import CHUNK, QUEUED, pitch
from storage.errors import SolveFailed

#: Priorities of streams; work of the lowest number runs first.
_HIGH: Final = -5
_MIDDLE: Final = -2
#: Bytes of a device that are left free where stripes are held: the driver takes memory when it locks host memory.
_RESERVE: Final = 2**30
_TILE: Final = 128
_STEP: Final = 16


def _round_up(x: int, to: int) -> int:
    return -(-x // to) * to


class Slot:
    """What one product needs: a buffer for the stripe, memory for packed columns, a stream and events.

    Args:
        index: number of the slot; -1 for a slot that serves only stripes already on the device.
        cupy: the module.
        shape: rows and columns of the buffer; None for a slot without a buffer, for stripes already on the device.
        packed: shape of the memory for packed columns.
        types: types of entries and of packed words.
    """

    def __init__(
        self, index: int, cupy: Any, shape: tuple[int, int] | None, packed: tuple[int, int], types: Any
    ) -> None:
        self.index = index
        self.rows: Any = None if shape is None else allocate(cupy, shape, types[0])
        self.packed = allocate(cupy, packed, types[1])
        self.stream = cupy.cuda.Stream(non_blocking=True, priority=_MIDDLE)
        self.loaded, self.relaxed, self.stored = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        self.work: tuple[int, int, Array] | None = None


class StripeMemory:
    """The part of a matrix in stripes that a GPU holds, and products over it.

    Args:
        device: index of the device.
        memory: bytes of device memory that may be used; None for all.  ``tiling.device_bytes`` computes what a layout
            needs.
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
        self._allowed: int | None = None  # bytes that this object has added to the limit of cupy's pool
        self._job: StripeJob
        self._clear()

    def _clear(self) -> None:
        self.have, self.left, self.panels = {}, {}, []
        self._slots: list[Slot] = []
        self._resident: dict[int, Any] = {}
        self._spare_stripes: list[Any] = []  # free buffers for held stripes; only in passes
        self._queue: list[Slot] = []  # slots without a buffer, for products by held stripes; only in passes
        self._writes: deque[tuple[int, int]] = deque()
        self._writing: deque[tuple[Any, int, int, Array]] = deque()
        self._owed: dict[int, int] = {}
        self._next_slot = self._next_queued = 0
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
            index: number of this device among the devices of the job.
            resident: rounds whose stripes (the rows of their pivot blocks) stay on this device.

        Raises:
            DoesNotFit: the memory does not suffice.
            SolveFailed: the device failed, or devices do not reach each other's memory.
        """
        self._clear()
        self._job, cupy = job, self._cupy
        self._signed = not job.nonnegative and job.kind.integer
        with self.guard():
            here = [d for d in job.devices if isinstance(d, StripeMemory) and d.device == self.device]
            if self._memory is not None and here[0] is self:  # the first sets the limit of all that share the device
                limit_memory(cupy, self.device, allowed := self._memory * len(here))
                self._allowed = allowed
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
        for _ in range(tiling.panels):
            self.panels.append(allocate(cupy, (width, self._across), types[0]))
            blank(self._found, self.panels[-1])
        self._chunk = allocate(cupy, (width, min(CHUNK, self._across)), types[0])
        self._packed = allocate(cupy, (width, side), types[1])
        block = padded_side(width, job.kind.itemsize)
        self._block = allocate(cupy, (block, block), types[0])
        # the shape of the columns that are packed: in rounds, the columns of a stripe at the pivot block; in passes,
        # the columns of a panel that correspond to the rows of a stripe
        deep, wide = (height, width) if tiling.passes else (width, height)
        shape, packed = (height, self._across), (deep, _round_up(wide, _TILE))
        for slot in range(tiling.slots):
            self._slots.append(Slot(slot, cupy, shape, packed, types))
            blank(self._found, self._slots[-1].rows)
        for k in resident:
            start, stop = job.pivot(k)
            self._resident[k] = allocate(cupy, (stop - start, self._across), types[0])
            blank(self._found, self._resident[k][:, job.n :])
        for _ in range(self._holdable(height * self._across * job.kind.itemsize) if tiling.passes else 0):
            self._spare_stripes.append(allocate(cupy, (height, self._across), types[0]))
            blank(self._found, self._spare_stripes[-1])
        if self._spare_stripes:
            self._queue = [Slot(-1, cupy, None, packed, types) for _ in range(QUEUED)]
        if resident:
            self._packs = [allocate(cupy, (width, side), types[1]) for _ in range(2)]
        self._flag = self._pinned_flags(job.rounds)

    def _holdable(self, size: int) -> int:
        """Return the number of stripes of ``size`` bytes to hold in passes.

        It is less than planned if another program uses memory of this device: the plan knows only the free memory of
        the first device.
        """
        wanted = min(self._job.tiling.resident, self._job.tiling.stripes(self._job.n))
        if not wanted:
            return 0
        free = int(self._cupy.cuda.runtime.memGetInfo()[0] + self._cupy.get_default_memory_pool().free_bytes())
        return max(0, min(wanted, (free - _RESERVE) // max(1, size)))

    def _pinned_flags(self, rounds: int) -> Array:
        memory = self._cupy.cuda.alloc_pinned_memory(4 * max(1, rounds))
        flags = np.frombuffer(memory, np.int32, max(1, rounds))
        flags[:] = 0
        return flags

    def _reach(self, job: StripeJob) -> None:
        """Let this device read and write the memory of the other devices, where the hardware allows it.  In passes do
        nothing, because devices then exchange panels through the host.
        """
        if job.tiling.passes:
            return
        runtime = self._cupy.cuda.runtime
        for other in {d.device for d in job.devices if isinstance(d, StripeMemory)} - {self.device}:
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
            self._cupy.get_default_memory_pool().free_all_blocks()
            lift_limit(self._cupy, self.device, self._allowed)
            self._allowed = None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Context manager: makes the device current, and translates its errors to exceptions of ``storage.errors``."""
        with translated(self._cupy), self._cupy.cuda.Device(self.device):
            yield

    # ---- panels and products ----------------------------------------------------------------------------------------

    def panel(self, k: int) -> Any:
        """Return the rows of panel ``k``, padding columns included."""
        start, stop = self._job.pivot(k)
        return self.panels[k % len(self.panels)][: stop - start]

    def _close(self, k: int, panel: Any) -> None:
        """Close a copy C of the pivot block of panel P, then set P <- C (x) P, reading from a copy of P.

        This also writes the closed block into P, because C (x) C = C.
        """
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

    def _relax(self, k: int, rows: Any, packed: Any, left: int, top: int = 0) -> None:
        """Queue rows <- min(rows, A (x) P) on the current stream.  P is panel ``k``, and A are the pivot columns of
        ``rows``, copied in packed form to ``packed``.

        ``top`` is the matrix row at which ``rows`` begin.  Columns before ``left`` are not computed; if ``left`` is
        positive, the graph is undirected, and A is taken from P by symmetry.
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

    def _lower(self, target: Any, span: tuple[int, int], source: Any, packed: Any) -> None:
        """Queue C <- min(C, A (x) B) on the current stream, where A are the columns ``span`` of C.

        Args:
            target: C, rows of the matrix.
            span: the first and the last column of A, the last exclusive; B has the matrix rows of the same numbers.
            source: B; it may have further rows after those of ``span``.
            packed: memory for a packed copy of A.
        """
        start, stop = span
        depth = _round_up(stop - start, _STEP)
        a = packed[:depth, : _round_up(len(target), _TILE)]
        self._launcher.pack([Copy(target[:, start:stop], a, transposed=True, spread=True)])
        self._launcher.products([Product(target, a, source[:depth])])

    def _settle(self, rows: Any) -> None:
        kernel = self._found.get("settle", self._launcher.arithmetic)
        limit = np.int32(self._job.kind.largest_signed)
        kernel((len(rows),), (256,), (rows, np.int64(self._across), np.int32(self._across), limit))

    # ---- events and copies ------------------------------------------------------------------------------------------

    def _event(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def _after(self, stream: Any, *events: Any) -> None:
        for event in events:
            if event is not None:
                stream.wait_event(event)

    def _begin(self, kind: str, stream: Any, k: int, stripe: int, lane: int) -> Any:
        return self._trace and self._trace.begin(stream, kind, (self.device, k, stripe, lane))

    def _end(self, mark: Any, stream: Any) -> None:
        if self._trace is not None:
            self._trace.end(mark, stream)

    def _copy(self, target: Any, source: Any, left: int, stream: Any) -> None:
        """Queue a copy of columns ``left`` to n of some rows to or from the host.  Whole contiguous rows are copied as
        runs of bytes.
        """
        runtime, size, n = self._cupy.cuda.runtime, self._job.kind.itemsize, self._job.n
        outward = isinstance(target, np.ndarray)
        to, begin = (x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr for x in (target, source))
        kind = runtime.memcpyDeviceToHost if outward else runtime.memcpyHostToDevice
        offset, width, count = left * size, (n - left) * size, len(source)
        pitches = [x.shape[1] * size for x in (target, source)]
        traffic.moved("read" if outward else "write", width * count)
        if left == 0 and pitches[0] == pitches[1] == width:
            for _, _, first, run in parts(to if outward else begin, (1, width * count), width * count):
                runtime.memcpyAsync(to + first, begin + first, run, kind, stream.ptr)
            return
        there, stride = (to, pitches[0]) if outward else (begin, pitches[1])
        for row, rows, first, run in parts(there + offset, (count, width), stride):
            at = [place + row * pitch + offset + first for place, pitch in zip((to, begin), pitches, strict=True)]
            runtime.memcpy2DAsync(at[0], pitches[0], at[1], pitches[1], run, rows, kind, stream.ptr)
