"""Files past the system's page cache (O_DIRECT): half the processors' work of a byte, and nothing to forget afterwards.

The kernel asks for aligned memory and offsets, so bytes lie in an aligned *buffer* of each thread, in large pages where
the system has them: a tile is put together, checked and taken apart there, while it is in the processor's cache.  Where
the file system does not know O_DIRECT, or a file is small, the answer says so and the caller goes the usual way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]

#: What memory, offsets and lengths are multiples of; no disk asks for more.
_GRAIN: Final = 4096
#: Files from which on it pays, and up to which buffers are made.
_LEAST: Final = 2**16
_MOST: Final = 2**25
_FLAG: Final = getattr(os, "O_DIRECT", 0)
#: Bytes of a large page: the kernel handles a tile as one piece, not as 512.
_LARGE: Final = 2**21

_buffers = threading.local()


def write(handle: int, buffers: Sequence[bytes | Array], size: int) -> bool:
    """Write ``buffers``, ``size`` bytes, from the beginning of an open file; False if that is not to be had here.

    The first one may be the buffer's own beginning.  Raises OSError.
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
        _write_all(handle, place[:whole].data)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.lseek(handle, 0, os.SEEK_SET)
        _set_direct(handle, size, on=False)
        return False
    # the rest is no whole block: it goes through the page cache, and the file never changes its size
    _set_direct(handle, size, on=False)
    _write_all(handle, place[whole:size].data)
    return True


def read(handle: int, size: int) -> Bytes | None:
    """The bytes of an open file of ``size`` bytes, in the buffer; None if that is not to be had here.

    Fewer where the file ends sooner.  Raises OSError.
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
    """Aligned memory of this thread, ``size`` bytes or more; the same every time unless more is asked for."""
    place: Bytes | None = getattr(_buffers, "place", None)
    if place is None or len(place) < size:
        # the old one must go before the new one comes, or a thread would hold both
        _buffers.place = place = None
        _buffers.place = place = _aligned(-(-size // _GRAIN) * _GRAIN)
    return place


def _aligned(size: int) -> Bytes:
    """``size`` bytes at a multiple of a large page, with whole large pages behind those that are filled."""
    memory = mmap.mmap(-1, size + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    skip = -whole.ctypes.data % _LARGE
    if hasattr(mmap, "MADV_HUGEPAGE") and size >= _LARGE:
        with contextlib.suppress(OSError):  # a kernel without them: small pages serve
            memory.madvise(mmap.MADV_HUGEPAGE, skip, size // _LARGE * _LARGE)
    return whole[skip : skip + size]


def _set_direct(handle: int, size: int, *, on: bool) -> bool:
    """Turn O_DIRECT on or off for an open file of ``size`` bytes; False where it is not known or does not pay."""
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


def _write_all(handle: int, data: memoryview) -> None:
    while len(data):
        data = data[os.writev(handle, [data]) :]
