"""Processors and memory that this process may use, limits of control groups included."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

_OWN_GROUP: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")
#: The beginning of the error message if the system refuses to start a thread that the work cannot do without.
THREADS_REFUSED: Final = "the system refused to start a thread; allow more of them (ulimit -u, pids.max)"
#: Bytes of one read from a file of the system.
_READ: Final = 65536


#: Features of the levels of x86-64 processors: for each level, the features that it adds to the previous level.
LEVELS: Final = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
#: For each block of :func:`rare_collections` that has not ended: the thresholds of Python's garbage collector when the
#: block began.
_RARE: Final = list[tuple[int, int, int]]()
_RARE_LOCK: Final = threading.Lock()
LEVEL_VARIABLE: Final = "APSP_CPU_LEVEL"
#: Signals whose handlers may raise an exception.  Python's own handler of SIGINT (Ctrl-C) does.
INTERRUPTS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")


@contextlib.contextmanager
def signals_postponed() -> Iterator[None]:
    """Context manager: delay the handlers of signals until the block has ended.

    A handler may raise an exception anywhere.  If it does so while a C library, such as a compiler, calls back into
    Python, the exception is printed and lost, and the library's work is left half done.  Python calls handlers in the
    main thread only, so blocks of other threads run as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    for number in (getattr(signal, name) for name in INTERRUPTS if hasattr(signal, name)):
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
            signal.signal(number, lambda which, frame: came.append((which, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in came:
            handlers[number](number, frame)


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Context manager: let Python's garbage collector run rarely, until no thread is in such a block any more.

    A compiler makes many objects that live until it ends; examining these objects took 7 % of its processor time.
    """
    with _RARE_LOCK:
        _RARE.append(gc.get_threshold())
        if _RARE[0][0]:  # a threshold of 0 means that the collector is switched off
            gc.set_threshold(max(_RARE[0][0], 100_000), 50, 50)
    try:
        yield
    finally:
        with _RARE_LOCK:
            usual = _RARE[0]
            _RARE.pop()
            if not _RARE:
                gc.set_threshold(*usual)


def usable_processors(groups: Sequence[str] | None = None) -> int:
    """Return the number of processors that this process may use, quotas of its control groups included.

    Args:
        groups: from :func:`control_groups`, if it was called already.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in control_groups() if groups is None else groups:
        quota = _words(f"{group}/cpu.max")
        if quota and quota[0] != "max":
            count = min(count, max(1, int(quota[0]) // int(quota[1])))
    return count


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now; 0 where the system does not report them."""
    try:
        return int(_content("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def available_memory(groups: Sequence[str] | None = None) -> int:
    """Return the bytes that this process can still allocate without swapping, within the limits of its control
    groups.

    Args:
        groups: from :func:`control_groups`, if it was called already.
    """
    try:
        free = int(_content("/proc/meminfo").partition("MemAvailable:")[2].split(None, 1)[0]) * 1024
    except (OSError, IndexError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in control_groups() if groups is None else groups:
        limit = _words(f"{group}/memory.max")
        used = _words(f"{group}/memory.current") if limit and limit[0] != "max" else []
        if used:
            free = min(free, max(0, int(limit[0]) - int(used[0]) + _reclaimable(group)))
    return free


def with_quota(groups: Sequence[str]) -> tuple[str, ...]:
    """Return those of the control groups that limit the processor time of their processes."""
    return tuple(group for group in groups if _words(f"{group}/cpu.max")[:1] not in ([], ["max"]))


def control_groups() -> tuple[str, ...]:
    """Return the folders of this process's control group (version 2) and of its parents, whose limits hold as well."""
    try:
        lines = _content(_OWN_GROUP).splitlines()
    except OSError:
        return ()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    return () if own is None else _tree(_GROUPS, own.strip("/"))


@cache
def _tree(top: Path, own: str) -> tuple[str, ...]:
    """Return the folder of a control group and the folders of its parents, up to ``top``."""
    here = top / own
    if ".." in here.parts:  # the group lies outside of the part of the tree that this process sees
        return (str(top),)
    found = [str(here)]
    while here != top:
        here = here.parent
        found.append(str(here))
    return tuple(found)


def _content(file: Path | str) -> str:
    """Return the text of a small system file.  Reading ends with the first read of fewer than ``_READ`` bytes.

    Planning reads several such files, and ``read_text`` takes four times as long.
    """
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        parts = list[bytes]()
        while len(part := os.read(handle, _READ)) == _READ:
            parts.append(part)
        parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(handle)


def _words(file: str) -> list[str]:
    """Return the words of a control group's file; an empty list where the file does not exist."""
    try:
        return _content(file).split()
    except OSError:
        return []


def _reclaimable(group: str) -> int:
    """Return the bytes of a control group's file pages that the kernel can reclaim on demand."""
    words = _words(f"{group}/memory.stat")
    return int(words[words.index("inactive_file") + 1]) if "inactive_file" in words else 0


def level_settings(wanted: str, present: Mapping[str, bool]) -> dict[str, str]:
    """Return numba's settings for a level of x86-64 processors.

    The settings are empty if ``wanted`` is empty or no level fits, so that numba compiles for this processor.

    Args:
        wanted: name of a level; ``auto`` for the highest that the processor has, empty for the processor itself.
        present: for each feature, by name, whether the processor has it.
    """
    names, features, found = list(LEVELS), list[str](), dict[str, str]()
    for name in names if wanted in ("auto", *names) else ():
        features += [feature for feature in LEVELS[name] if feature not in features]
        if wanted == "auto" and not all(present.get(feature, False) for feature in features):
            break
        found = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in features)}
        if name == wanted:
            break
    return found


def use_level() -> None:
    """Let numba compile for the level that ``APSP_CPU_LEVEL`` names, in this process and in those that it starts.

    It has an effect only if it is called before numba is imported.
    """
    wanted = os.environ.get(LEVEL_VARIABLE, "")
    if wanted and "NUMBA_CPU_NAME" not in os.environ and "numba" not in sys.modules:
        from llvmlite import binding

        os.environ.update(level_settings(wanted, binding.get_host_cpu_features()))
