"""What this machine has to give: processors, memory, disk, and the rates that predictions rest on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine.model.problem import Device, Machine
from storage.errors import ApspError, InvalidRequest

_OWN_GROUP: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")

#: Updates a second of one thread, conservative for a core with 256-bit vectors; see benchmarks/kernels.
RELAX_RATE = {"uint16": 6.0e10, "int32": 3.4e10, "float32": 2.2e10, "float64": 1.0e10}

#: Arcs a second that one thread scans in searches, heap work included.
SEARCH_RATE = 6.0e7

#: Memory that kernels and their compiler take once they are loaded.
KERNELS = 104 * 2**20

#: Bytes a second that reach the store, summary and checksums included.
WRITE_RATE = 8.0e8


def survey(
    *,
    out: Path | None = None,
    memory: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    device_memory: int | None = None,
) -> Machine:
    """Look at the machine as this process may use it.

    Args:
        out: where the store will go (its nearest existing parent is asked for free space); None for no disk.
        memory: the user's budget in bytes for the whole process; less than what is free, or it changes nothing.
        threads: processors to use; None for all that the process may run on.
        device: ``cpu`` looks for no GPU.
        device_memory: the user's budget in bytes of the GPU's memory.

    Raises:
        InvalidRequest: more threads than processors.
    """
    most = usable_processors()
    count = threads or most
    if count > most:
        raise InvalidRequest(f"threads is {count}, but the process may use {most} processors", field="threads")
    cuda, no_cuda = (None, "no GPU was looked for") if device == "cpu" else find_cuda(device_memory)
    held = resident_bytes()
    free = available_memory() + held
    # every estimate counts the kernels: those that this process has loaded already are not to be counted twice
    resident = max(0, held - KERNELS) if "engine.devices.cpu.relax" in sys.modules else held
    return Machine(
        threads=count,
        memory=free if memory is None else min(memory, free),
        resident=resident,
        disk=None if out is None else shutil.disk_usage(_existing(out)).free,
        relax_rate={name: rate * count for name, rate in RELAX_RATE.items()},
        search_rate=SEARCH_RATE * count,
        write_rate=WRITE_RATE,
        cuda=cuda,
        no_cuda=no_cuda,
    )


def find_cuda(budget: int | None) -> tuple[Device | None, str]:
    """The GPU that may be used, or why there is none; what the driver or a broken installation throws is told."""
    try:
        from engine.devices.cuda.context import find_device

        return find_device(budget), ""
    except ApspError as error:
        return None, str(error)
    except Exception as error:  # a driver and a package that do not fit each other fail in many ways
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return None, f"the CUDA installation cannot be used ({what})"


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def usable_processors() -> int:
    """Processors this process may run on, quotas of its control groups included."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups():
        quota = _words(group / "cpu.max")
        if quota and quota[0] != "max":
            count = min(count, max(1, int(quota[0]) // int(quota[1])))
    return count


def resident_bytes() -> int:
    """Bytes of memory that this process holds now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def available_memory() -> int:
    """Bytes that can still be had without swapping: the machine's, or what the control group leaves if that is less."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    for group in _groups():
        limit, used = _words(group / "memory.max"), _words(group / "memory.current")
        if limit and used and limit[0] != "max":
            free = min(free, max(0, int(limit[0]) - int(used[0]) + _reclaimable(group)))
    return free


def _groups() -> Iterator[Path]:
    """Folders of this process's control group (version 2) and of those around it, whose limits hold as well."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return
    here = _GROUPS / own.strip("/")
    if ".." in here.parts:  # a group outside of what this process sees
        here = _GROUPS
    yield here
    while here != _GROUPS:
        here = here.parent
        yield here


def _words(file: Path) -> list[str]:
    """Words of a control group's file; none where there is none."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def _reclaimable(group: Path) -> int:
    """File pages of a control group that the kernel gives up on demand."""
    words = _words(group / "memory.stat")
    return int(words[words.index("inactive_file") + 1]) if "inactive_file" in words else 0
