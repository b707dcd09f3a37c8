"""Writes the files of tiles in memory, each in one call that holds no GIL: it copies, sums up, opens, writes, closes.

Python does the same in five calls, and each waits for the GIL again.  With 16 threads that takes longer than the work:
a file in memory takes a millisecond (decision 275).
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba import types

from engine.graph.kernels import njit
from engine.model.progress import NotCompiledError, only_ready
from storage.files.checksum import address_of, checksum_address
from storage.files.memory import PutTile
from storage.matrix.grid import CHECKSUM_BYTES

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_MODE: Final = 0o666
_INTERRUPTED: Final = errno.EINTR


def _error_number() -> Any:
    """Return the C function that returns the address of this thread's error number; its name depends on the system."""
    system: Any = ctypes.CDLL(None)
    return getattr(system, "__errno_location", None) or system.__error


def _named(name: str, address: int, signature: Any) -> Any:
    """Return the C function at an address; kernels find it by its name, whose address may differ in each process."""
    binding.add_symbol(name, address)
    return types.ExternalFunction(name, signature)


_open: Any = types.ExternalFunction("open", types.int32(types.intp, types.int32, types.int32))
_write: Any = types.ExternalFunction("write", types.intp(types.int32, types.intp, types.intp))
_close: Any = types.ExternalFunction("close", types.int32(types.int32))
_copy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_errno: Any = _named("apsp_error_number", address_of(_error_number()), types.CPointer(types.int32)())
# Without the C function the kernel is never called, but to load it every name must have an address.
_extend: Any = _named(
    "apsp_crc32c_extend",
    checksum_address() or address_of(_error_number()),
    types.uint32(types.uint32, types.intp, types.intp),
)


@njit(nogil=True)
def _put(  # noqa: PLR0917 - kernels take no keywords
    path: int, part: int, pitch: int, rows: int, used: int, place: npt.NDArray[np.uint8], width: int
) -> int:
    """Copy rows into a tile, add its checksum, and write both into a file.

    Args:
        path: address of the path, which ends with a zero byte.
        part: address of the first row.
        pitch: bytes from one row to the next.
        rows: the number of rows.
        used: bytes of a row.
        place: the bytes of the file, beginning with the tile; its padding is in place.
        width: bytes of a row of the tile.

    Returns:
        The checksum; below zero, the negative number of the system's error.
    """
    begin, size = place.ctypes.data, len(place) - CHECKSUM_BYTES
    for row in range(rows):
        _copy(begin + row * width, part + row * pitch, used)
    checksum: Any = np.int64(_extend(np.uint32(0), begin, size))
    for k in range(CHECKSUM_BYTES):
        place[size + k] = (checksum >> (8 * k)) & 255
    handle = _open(path, _FLAGS, _MODE)
    if handle < 0:
        return -np.int64(_errno()[0])  # type: ignore[return-value]
    done = 0
    while done < len(place):
        count = _write(handle, begin + done, len(place) - done)
        if count >= 0:
            done += count
        elif _errno()[0] != _INTERRUPTED:
            checksum = -np.int64(_errno()[0])
            break
    _close(handle)
    return checksum  # type: ignore[no-any-return]


def put(path: str, part: npt.NDArray[Any], place: npt.NDArray[np.uint8], width: int) -> int:
    """Write the file of a tile, as ``storage.files.memory.PutTile`` says.

    Raises:
        OSError: the system refused.
        NotCompiledError: the kernel is not compiled, and the caller refuses to wait.
    """
    if part.strides[1] != part.itemsize and part.shape[1] > 1:
        part = np.ascontiguousarray(part)
    name = np.frombuffer(os.fsencode(path) + b"\0", np.uint8)
    used = part.shape[1] * part.itemsize
    found = _put(name.ctypes.data, part.ctypes.data, part.strides[0], len(part), used, place, width)
    if found < 0:
        raise OSError(-found, os.strerror(-found), path)
    return int(found)


def ready_put() -> PutTile | None:
    """Return :func:`put` if its kernel is compiled and the functions that it calls are there; otherwise None."""
    if checksum_address() is None:
        return None
    try:
        with only_ready():
            try_put()
    except NotCompiledError:
        return None
    return put


def try_put() -> None:
    """Call the kernel, which writes a tile without entries nowhere.  Raises as :func:`put`."""
    put(os.devnull, np.zeros((0, 0), np.uint8), np.zeros(CHECKSUM_BYTES, np.uint8), 0)
