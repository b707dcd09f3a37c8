"""Files past the system's page cache (O_DIRECT): half the processors' work of a byte, and nothing to forget afterwards.

The kernel asks for aligned memory and offsets, so bytes go through an aligned room of each thread.  Where the file
system does not know O_DIRECT, or a file is small, the answer says so and the caller goes the usual way.
"""

from __future__ import annotations

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

#: What memory, offsets and lengths are multiples of; no disk asks for more.
_GRAIN: Final = 4096
#: Files from which on it pays, and up to which rooms are made.
_LEAST: Final = 2**16
_MOST: Final = 2**25
_FLAG: Final = getattr(os, "O_DIRECT", 0)

_rooms = threading.local()


def write(handle: int, buffers: Sequence[bytes | Array], size: int) -> bool:
    """Write ``buffers``, ``size`` bytes, from the beginning of an open file; False if that is not to be had here.

    Raises OSError.
    """
    if not _turn(handle, size, on=True):
        return False
    room, at = _room(size), 0
    for buffer in buffers:
        data = np.frombuffer(buffer, np.uint8) if isinstance(buffer, bytes) else buffer.reshape(-1).view(np.uint8)
        room[at : at + len(data)] = data
        at += len(data)
    whole = size // _GRAIN * _GRAIN
    try:
        _write_all(handle, room[:whole].data)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.lseek(handle, 0, os.SEEK_SET)
        _turn(handle, size, on=False)
        return False
    # the rest is no whole block: it goes through the page cache, and the file never changes its size
    _turn(handle, size, on=False)
    _write_all(handle, room[whole:size].data)
    return True


def read(handle: int, buffers: Sequence[Array], size: int) -> bool:
    """Fill ``buffers`` from the beginning of an open file of ``size`` bytes; False if that is not to be had here.

    Raises OSError.
    """
    if not _turn(handle, size, on=True):
        return False
    padded = -(-size // _GRAIN) * _GRAIN
    room, done = _room(padded), 0
    try:
        while done < size and (count := os.preadv(handle, [room[done:padded].data], done)):
            done += count
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _turn(handle, size, on=False)
        return False
    at = 0
    for buffer in buffers:
        part = room[at : min(done, at + buffer.nbytes)]
        buffer.reshape(-1).view(np.uint8)[: len(part)] = part
        at += len(part)
    return True


def _turn(handle: int, size: int, *, on: bool) -> bool:
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


def _room(size: int) -> npt.NDArray[np.uint8]:
    """Aligned memory of this thread."""
    room: npt.NDArray[np.uint8] | None = getattr(_rooms, "room", None)
    if room is None or len(room) < size:
        room = np.frombuffer(mmap.mmap(-1, -(-size // _GRAIN) * _GRAIN), np.uint8)
        _rooms.room = room
    return room
