"""Stacks of small graphs on a GPU: matrices of one size are copied to the GPU, closed (Floyd-Warshall) by one kernel
launch, and copied back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import Modules, allocate, held_device, translated
from engine.devices.cuda.launch import Launcher
from engine.model import traffic
from engine.model.dtypes import settle
from storage.errors import SolveFailed


@contextmanager
def device_stacks(*, memory: int | None = None) -> Iterator[DeviceStacks]:
    """Context manager: yields a :class:`DeviceStacks` on the first device, and frees its memory at the end, also after
    an error.

    Args:
        memory: bytes of device memory that may be used; None for all that is free.

    Raises:
        InvalidRequest: there is no usable device.
    """
    with held_device(memory) as (found, _):
        stacks = DeviceStacks(found)
        try:
            yield stacks
        finally:
            stacks.release()


class DeviceStacks:
    """Runs Floyd-Warshall on stacks of matrices on one device.  Made by :func:`device_stacks`.  Not thread-safe."""

    def __init__(self, found: Modules) -> None:
        self._modules, self._cupy = found, found.cupy
        self._launchers: dict[tuple[str, bool], Launcher] = {}

    def close(self, stack: npt.NDArray[np.generic], *, nonnegative: bool) -> None:
        """Run Floyd-Warshall on each matrix of ``stack``, shape (graphs, side, side), in place, in one launch; return
        when it is done.

        Raises:
            DoesNotFit: the stack does not fit the device's memory.
            SolveFailed: the device failed, or a diagonal entry fell below zero.
        """
        key = stack.dtype.name, nonnegative
        with translated(self._cupy), self._cupy.cuda.Device(self._modules.device):
            if key not in self._launchers:
                self._launchers[key] = Launcher(self._modules, stack.dtype, nonnegative=nonnegative)
            launcher = self._launchers[key]
            there = allocate(self._cupy, stack.shape, stack.dtype)
            there.set(stack)
            launcher.close(there)
            there.get(out=stack)
            traffic.moved("write", int(stack.nbytes))
            traffic.moved("read", int(stack.nbytes))
            if not nonnegative:
                if launcher.found_negative():
                    raise SolveFailed("the GPU found a negative distance of a vertex to itself in one of the graphs")
                settle(stack)

    def release(self) -> None:
        """Free all device memory that was allocated for stacks."""
        for launcher in self._launchers.values():
            launcher.release()
        self._launchers.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()
