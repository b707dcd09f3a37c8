"""The verbs of a backend over the kernels of one GPU, so that the contract of backends holds for them, too.

The product calls ``Launcher`` and ``Solver`` themselves; only tests need the verbs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import allocate, modules
from engine.devices.cuda.floyd_warshall import Solver, padded
from engine.devices.cuda.launch import Launcher
from engine.model.backend import Arcs, Array
from engine.model.device_layout import SINGLE
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.model.system import usable_processors


class CudaBackend:
    """The verbs of :class:`engine.devices.cpu.backend.CpuBackend` on one GPU.

    Arrays may be NumPy's, which are copied to the device and back, or cupy's, which stay there; one call does not mix
    them.  Work is queued on the current stream of the device; calls with NumPy arrays return when the result is there.
    Not re-entrant: one call at a time.  Searches run on the host.
    """

    name = "cuda"

    def __init__(self, device: int = 0, threads: int | None = None) -> None:
        self._modules = modules(device)
        self._cupy: Any = self._modules.cupy
        self._device: Any = self._cupy.cuda.Device(device)
        self.threads = threads or usable_processors()
        self._launchers: dict[tuple[str, bool], Launcher] = {}
        self._solvers: dict[tuple[str, bool], Solver] = {}
        self._host: Any = None

    def relax(self, c: Any, a: Any, b: Any, *, nonnegative: bool, upper: bool = False) -> None:
        """C <- min(C, A (x) B)."""
        if c.shape != (a.shape[0], b.shape[1]) or a.shape[1] != b.shape[0] or not c.dtype == a.dtype == b.dtype:
            shapes = ", ".join(f"{name} {x.dtype}{x.shape}" for name, x in (("C", c), ("A", a), ("B", b)))
            raise ValueError(f"shapes or types do not match: {shapes}")
        _check_rows(c, a, b)
        if 0 in (*c.shape, a.shape[1]):
            return
        launcher = self._launcher(c.dtype, nonnegative)
        with self._device:
            on_device = self._down(c)
            launcher.relax(on_device, self._down(a), self._down(b), upper=upper)
            self._up(on_device, c)

    def close(self, d: Any, *, nonnegative: bool, symmetric: bool = False) -> None:
        """Floyd-Warshall of ``d`` in place, of any size that fits the device's memory."""
        self.floyd_warshall(d, nonnegative=nonnegative, symmetric=symmetric)

    def floyd_warshall(
        self, d: Any, *, nonnegative: bool, symmetric: bool = False, monitor: Monitor | None = None
    ) -> None:
        """Close ``d`` on the device; the monitor is told of updates and asked whether to stop.

        Raises:
            Cancelled: the monitor asked to stop.
            DoesNotFit: the device has not the memory for the matrix and the panels of a round.
        """
        if d.ndim != 2 or d.shape[0] != d.shape[1]:
            raise ValueError(f"a block to close must be square, not {d.shape}")
        _check_rows(d)
        key = (np.dtype(d.dtype).name, nonnegative)
        with self._device:
            if key not in self._solvers:
                self._solvers[key] = Solver(self._modules, d.dtype, nonnegative=nonnegative)
            solver, n = self._solvers[key], d.shape[0]
            solver.forget_negative()
            if n <= SINGLE:
                on_device = self._down(d)
                solver.close(on_device)
                if symmetric:  # blocks work side by side, so the halves may differ in the last bit
                    solver.bulk.mirror(on_device)
            else:
                whole = padded(self._modules, n, d.dtype)
                on_device = whole[:n, :n]
                self._copy(on_device, d)
                with suppress(BelowZero):  # with a negative cycle there are no distances, and any entries will do
                    solver.close(whole, symmetric=symmetric, monitor=monitor)
            if not nonnegative:  # rounding may carry a zero diagonal below zero
                diagonal = self._cupy.arange(n)
                on_device[diagonal, diagonal] = self._cupy.maximum(on_device[diagonal, diagonal], 0)
            self._copy(d, on_device)

    def transpose(self, out: Any, a: Any, *, lower: bool = False) -> None:
        """``out`` <- the transpose of ``a``; with ``lower`` only below the diagonal, in place if they are the same."""
        if out.shape != a.shape[::-1]:
            raise ValueError(f"the transpose of {a.shape} does not fit {out.shape}")
        if not lower:
            out[:] = a.T
        elif isinstance(out, np.ndarray):
            below = np.tri(len(out), out.shape[1], -1, dtype=bool)
            np.copyto(out, a.T.copy() if np.shares_memory(out, a) else a.T, where=below)
        elif out.data.ptr == a.data.ptr:
            with self._device:
                self._launcher(out.dtype, True).mirror(out)
        else:
            out[:] = self._cupy.where(self._cupy.tri(*out.shape, -1, dtype=bool), a.T, out)

    def search(
        self,
        arcs: Arcs,
        sources: npt.NDArray[np.int64],
        out: Array,
        *,
        unit: bool = False,
        targets: npt.NDArray[np.int64] | None = None,
        cutoff: float | None = None,
    ) -> None:
        """One shortest-path search per source, on the host."""
        if self._host is None:
            from engine.devices.cpu.backend import CpuBackend

            self._host = CpuBackend(self.threads)
        self._host.search(arcs, sources, out, unit=unit, targets=targets, cutoff=cutoff)

    def shutdown(self) -> None:
        """Release device memory, and the threads of host searches."""
        for launcher in self._launchers.values():
            launcher.release()
        for solver in self._solvers.values():
            solver.release()
        self._launchers.clear()
        self._solvers.clear()
        with self._device:
            self._cupy.cuda.runtime.deviceSynchronize()
            self._cupy.get_default_memory_pool().free_all_blocks()
        if self._host is not None:
            self._host.shutdown()

    def _launcher(self, dtype: npt.DTypeLike, nonnegative: bool) -> Launcher:
        key = (np.dtype(dtype).name, nonnegative)
        if key not in self._launchers:
            self._launchers[key] = Launcher(self._modules, dtype, nonnegative=nonnegative)
        return self._launchers[key]

    def _down(self, x: Any) -> Any:
        """``x`` as an array of the device."""
        if not isinstance(x, np.ndarray):
            return x
        there = allocate(self._cupy, x.shape, x.dtype)
        there.set(np.ascontiguousarray(x))
        return there

    def _up(self, source: Any, target: Any) -> None:
        """Bring a result back, if ``target`` is not on the device itself."""
        if source is not target:
            self._copy(target, source)

    def _copy(self, target: Any, source: Any) -> None:
        """``target`` <- ``source``, whichever side they are on, row by row where they are not contiguous."""
        if target is source:
            return
        if not isinstance(target, np.ndarray) and not isinstance(source, np.ndarray):
            target[:] = source
            return
        runtime = self._cupy.cuda.runtime
        rows, width = target.shape[0], target.shape[1] * target.itemsize
        address = [x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr for x in (target, source)]
        kind = runtime.memcpyDeviceToHost if isinstance(target, np.ndarray) else runtime.memcpyHostToDevice
        stream = self._cupy.cuda.get_current_stream()
        if rows and width:
            pitches = [max(x.strides[0], width) for x in (target, source)]
            runtime.memcpy2DAsync(address[0], pitches[0], address[1], pitches[1], width, rows, kind, stream.ptr)
        stream.synchronize()


def _check_rows(*arrays: Any) -> None:
    for x in arrays:
        if x.size and x.shape[1] > 1 and x.strides[1] != x.itemsize:
            raise ValueError(f"rows must be contiguous; an array of shape {x.shape} has strides {x.strides}")
