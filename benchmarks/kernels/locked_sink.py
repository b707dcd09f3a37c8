"""A sink in page-locked memory: how fast rows leave a device when nothing but the bus bounds them."""

from __future__ import annotations

from engine.devices.cuda.pinned import HostMemory
from engine.model.rows import ArraySink


class LockedSink(ArraySink):
    """A sink that is memory from ``host_matrix``: a device copies whole rows straight into it."""

    def __init__(self, memory: HostMemory) -> None:
        self.memory, self.array = memory, memory.array
        self.tile = (64, max(1, memory.array.shape[1]))
