"""Reads and writes files without the page cache (O_DIRECT), which takes half the processor time and leaves at most one
cached page of a file.

The kernel requires aligned memory and offsets, so each thread has an aligned *buffer*, in large pages where the system
has them: a tile is assembled, checked and unpacked there, while it is in the processor's cache.  Where the file system
does not support O_DIRECT, or a file is small, functions return False or None, and the caller uses the page cache.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]
Buffer = bytes | Array

#: Memory addresses, offsets and lengths are multiples of this many bytes; no disk requires more.
_GRAIN: Final = 4096
#: Files of ``_LEAST`` to ``_MOST`` bytes are read and written with O_DIRECT: smaller files do not gain from it, and
#: larger files do not fit into a buffer.
_LEAST: Final = 2**16
_MOST: Final = 2**25
_FLAG: Final = getattr(os, "O_DIRECT", 0)
#: Bytes of a large page; in large pages, the kernel handles a tile of 2 MiB as one page, not as 512.
_LARGE: Final = 2**21

_buffers = threading.local()


def write(handle: int, buffers: Sequence[Buffer], size: int) -> bool:
    """Write ``buffers`` at the beginning of an open file, without the page cache.

    Args:
        handle: descriptor of the file, open for writing, at offset 0.
        buffers: the content, C-contiguous; the first may already be in place, in this thread's buffer (``buffer_for``).
        size: bytes of all buffers together.

    Returns:
        False if O_DIRECT cannot be used here; nothing was written then.

    Raises:
        OSError: the file system refused.
    """
    if not _set_direct(handle, size, on=True):
        return False
    place, at = buffer_for(size), 0
    for buffer in buffers:
        data = np.frombuffer(buffer, np.uint8) if isinstance(buffer, bytes) else buffer.reshape(-1).view(np.uint8)
        if at or data.ctypes.data != place.ctypes.data:
            place[at : at + len(data)] = data
        at += len(data)
    whole = size // _GRAIN * _GRAIN
    try:
        write_all(handle, [place[:whole]])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.lseek(handle, 0, os.SEEK_SET)
        _set_direct(handle, size, on=False)
        return False
    # the rest, less than a block, is written through the page cache, because O_DIRECT writes whole blocks only
    _set_direct(handle, size, on=False)
    write_all(handle, [place[whole:size]])
    return True


def read(handle: int, size: int) -> Bytes | None:
    """Read an open file of ``size`` bytes into this thread's buffer, and return the bytes that were read.

    Fewer than ``size`` bytes are returned if the file is shorter, and None if O_DIRECT cannot be used for this file.
    Raises OSError.
    """
    if not _set_direct(handle, size, on=True):
        return None
    padded = -(-size // _GRAIN) * _GRAIN
    place, done = buffer_for(padded), 0
    try:
        while done < size and (count := os.preadv(handle, [place[done:padded].data], done)):
            done += count
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _set_direct(handle, size, on=False)
        return None
    return place[: min(done, size)]


def buffer_for(size: int) -> Bytes:
    """Return this thread's aligned buffer, at least ``size`` bytes.  It is replaced only if it is too small."""
    place: Bytes | None = getattr(_buffers, "place", None)
    if place is None or len(place) < size:
        # free the old buffer before allocating the new one, or the thread would hold both
        _buffers.place = place = None
        _buffers.place = place = _aligned(-(-size // _GRAIN) * _GRAIN)
    return place


def padded(part: Array, shape: tuple[int, int], fill: np.generic, spare: int) -> Array:
    """Return an array in this thread's buffer (``buffer_for``): ``part`` in its upper left corner, ``fill`` elsewhere.

    Args:
        part: shape (rows, columns).
        shape: the shape of the array.
        fill: an entry of the same type.
        spare: the number of bytes that the buffer shall have behind the array.
    """
    found = padding(part, shape, fill, spare)
    found[: part.shape[0], : part.shape[1]] = part
    return found


def padding(part: Array, shape: tuple[int, int], fill: np.generic, spare: int) -> Array:
    """Return the array of :func:`padded` before ``part`` is copied into it, with any entries in its place."""
    size, (rows, columns) = shape[0] * shape[1] * part.itemsize, part.shape
    found: Array = buffer_for(size + spare)[:size].view(part.dtype).reshape(shape)
    found[rows:] = found[:rows, columns:] = fill
    return found


def _aligned(size: int) -> Bytes:
    """Allocate ``size`` bytes aligned to a large page; the kernel is advised to use large pages where they fit."""
    memory = mmap.mmap(-1, size + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    skip = -whole.ctypes.data % _LARGE
    if hasattr(mmap, "MADV_HUGEPAGE") and size >= _LARGE:
        with contextlib.suppress(OSError):  # without large pages in the kernel, small pages are used
            memory.madvise(mmap.MADV_HUGEPAGE, skip, size // _LARGE * _LARGE)
    return whole[skip : skip + size]


def _set_direct(handle: int, size: int, *, on: bool) -> bool:
    """Switch O_DIRECT on or off for an open file of ``size`` bytes; return False if it is unsupported or useless."""
    if not _FLAG or not _LEAST <= size <= _MOST:
        return False
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | _FLAG if on else flags & ~_FLAG)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def bytes_of(buffers: Sequence[Buffer]) -> int:
    """Return the number of bytes of all buffers together."""
    return sum(len(buffer) if isinstance(buffer, bytes) else buffer.nbytes for buffer in buffers)


def write_all(handle: int, buffers: Sequence[Buffer]) -> None:
    """Write all buffers (at most IOV_MAX of them), C-contiguous, one after the other.  Raises OSError."""
    rest = [memoryview(buffer) if isinstance(buffer, bytes) else buffer.data for buffer in buffers]
    while rest:
        # The system may write only a part, for example after a signal or on a nearly full disk.
        rest = _remaining(rest, os.writev(handle, rest))


def _remaining(buffers: list[memoryview], done: int) -> list[memoryview]:
    """Return the parts of ``buffers`` that follow their first ``done`` bytes."""
    first = 0
    while first < len(buffers) and done >= buffers[first].nbytes:
        done -= buffers[first].nbytes
        first += 1
    rest = buffers[first:]
    if done:
        rest[0] = rest[0].cast("B")[done:]
    return rest


def load_file(path: Path, *, in_memory: bool = False) -> npt.NDArray[np.uint8]:
    """Read a whole file and keep none of it in the page cache.

    The array is a buffer of this thread, valid until the thread loads or writes another file.  Raises OSError.

    Args:
        path: the file.
        in_memory: whether the file is in memory alone (``storage.files.memory``), so that the page cache is its place.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        if in_memory:
            return _load(handle, size)
        found = read(handle, size)
        if found is not None:
            return found
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, size, os.POSIX_FADV_WILLNEED)
        found = _load(handle, size)
        forget(handle)
        return found
    finally:
        os.close(handle)


def _load(handle: int, size: int) -> Bytes:
    place, done = buffer_for(size), 0
    while done < size and (count := os.preadv(handle, [place[done:size].data], done)):
        done += count
    return place[:done]


def settle_file(path: Path | str) -> None:
    """Make a file's bytes durable, and let the system drop its pages from the page cache.  Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        forget(handle)
    finally:
        os.close(handle)


def forget(handle: int) -> None:
    """Advise the system to drop an open file's clean pages from the page cache; a system may ignore this."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
