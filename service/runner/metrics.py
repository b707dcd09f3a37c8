"""Collects the metrics that a runner sends with its heartbeats: seconds of tiles, bytes moved, memory of its device.

Counters start at zero in each new process, which Prometheus takes for a restart.
"""

from __future__ import annotations

import platform
import sys
import threading
from pathlib import Path
from typing import Any, Final

from engine.model import traffic
from service.runner.gpus import numbers

_IO: Final = Path("/proc/self/io")
_PROCESSORS: Final = Path("/proc/cpuinfo")
_GPUS: Final = Path("/proc/driver/nvidia/gpus")


class RunnerMetrics:
    """The metrics of one runner, collected by the solving thread and read by the heartbeat thread."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._phases: dict[str, tuple[int, float]] = {}
        self._name = _gpu_name() if numbers(device) else processor_name()

    def step(self, phase: str, seconds: float) -> None:
        """Count one tile, batch or round of a phase, which took ``seconds``."""
        with self._lock:
            count, total = self._phases.get(phase, (0, 0.0))
            self._phases[phase] = (count + 1, total + seconds)

    def read(self) -> dict[str, Any]:
        """Return all metrics as JSON: ``name``, ``memory`` (used, limit), ``phases`` (steps, seconds), ``bytes``."""
        with self._lock:
            phases = {phase: list(found) for phase, found in self._phases.items()}
        used, limit = self._memory()
        return {"name": self._name, "memory": {"used": used, "limit": limit}, "phases": phases, "bytes": _moved()}

    def _memory(self) -> tuple[int | None, int | None]:
        if not numbers(self._device):
            from engine.model.system import available_memory, resident_bytes

            held = resident_bytes()
            return held, available_memory() + held
        # reading metrics must not initialize CUDA
        modules = sys.modules.get("engine.devices.cuda.context")
        found: tuple[int, int] | None = None if modules is None else modules.memory_in_use()
        return (None, None) if found is None else found


def _moved() -> dict[str, dict[str, int]]:
    """Return the bytes that this process has read from and written to disks and devices, by tier and direction."""
    found: dict[str, dict[str, int]] = {}
    try:
        lines = dict(line.split(": ") for line in _IO.read_text().splitlines())
        found["disk"] = {"read": int(lines["read_bytes"]), "write": int(lines["write_bytes"])}
    except (OSError, ValueError, KeyError):  # the system is not Linux, or reading is not allowed
        pass
    found["device"] = traffic.totals()
    return found


def processor_name() -> str:
    """Return the name of the processors."""
    try:
        for line in _PROCESSORS.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    """Return the name of the GPUs of this machine; None if their names differ, because only CUDA knows which GPU a
    runner uses.
    """
    found = set()
    try:
        for path in _GPUS.glob("*/information"):
            lines = path.read_text().splitlines()
            found |= {line.partition(":")[2].strip() for line in lines if line.startswith("Model")}
    except OSError:
        pass
    return found.pop() if len(found) == 1 else None
