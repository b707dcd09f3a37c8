"""Stacks of small graphs through a GPU: matrices of one size go down, are closed by one launch, and come back."""

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
    """Closes stacks on the first device; its memory goes back at the end, whatever happens.

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
    """See :func:`device_stacks`, which makes it.  Not thread-safe; a stack is closed when ``close`` returns."""

    def __init__(self, found: Modules) -> None:
        self._modules, self._cupy = found, found.cupy
        self._launchers: dict[tuple[str, bool], Launcher] = {}

    def close(self, stack: npt.NDArray[np.generic], *, nonnegative: bool) -> None:
        """Floyd-Warshall of each matrix of ``stack`` (graphs, side, side), in place, in one launch.

        Raises:
            DoesNotFit: the device has not the memory for the stack.
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
                    raise SolveFailed("the GPU found a vertex at less than zero from itself in one of the graphs")
                settle(stack)

    def release(self) -> None:
        """Give all memory back."""
        for launcher in self._launchers.values():
            launcher.release()
        self._launchers.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()
