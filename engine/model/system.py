"""Processors and memory that this process may use, limits of control groups included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OWN_GROUP: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """Return the number of processors that this process may use, quotas of its control groups included."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups():
        quota = _words(group / "cpu.max")
        if quota and quota[0] != "max":
            count = min(count, max(1, int(quota[0]) // int(quota[1])))
    return count


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now; 0 where the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def available_memory() -> int:
    """Return the bytes that this process can still take without swapping, limits of its control groups included."""
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
    """Yield the folders of this process's control group (version 2) and of its parents, whose limits hold as well."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return
    here = _GROUPS / own.strip("/")
    if ".." in here.parts:  # the group lies outside of the part of the tree that this process sees
        here = _GROUPS
    yield here
    while here != _GROUPS:
        here = here.parent
        yield here


def _words(file: Path) -> list[str]:
    """Return the words of a control group's file; an empty list where the file does not exist."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def _reclaimable(group: Path) -> int:
    """Return the bytes of a control group's file pages that the kernel can reclaim on demand."""
    words = _words(group / "memory.stat")
    return int(words[words.index("inactive_file") + 1]) if "inactive_file" in words else 0
