"""Several devices without a GPU: streamed solves on the processors, each device with a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from engine.devices.cpu.backend import CpuBackend
from engine.model.plan import Plan
from engine.streaming.cpu_device import CpuStreamer
from engine.streaming.cpu_panels import CpuPanels


def several(count: int) -> Callable[[Plan], AbstractContextManager[list[Any]]]:
    """Stands for ``engine.execution.streamed._devices``: it opens ``count`` devices."""

    @contextmanager
    def opened(plan: Plan) -> Iterator[list[Any]]:
        kind = CpuPanels if plan.streaming is not None and plan.streaming.passes else CpuStreamer
        with ExitStack() as stack:
            backends = [CpuBackend(1) for _ in range(count)]
            for backend in backends:
                stack.callback(backend.shutdown)
            yield [kind(backend) for backend in backends]

    return opened
