"""The checksum of all files: CRC-32C (Castagnoli), by the C function of google-crc32c where it is found."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, cast

import google_crc32c
import numpy as np
import numpy.typing as npt

#: Checksums of this many bytes or more are computed through ctypes without the GIL.  Such a call takes 2 microseconds
#: longer.
_LONG: Final = 1 << 15


def crc32c(data: bytes | npt.NDArray[np.generic], before: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, continued from ``before``, the checksum of the preceding bytes.

    For at least ``_LONG`` bytes, the GIL is released, so that other threads run Python code meanwhile.

    Args:
        data: bytes, or a C-contiguous array.
        before: the checksum of the preceding bytes; 0 if there are none.
    """
    size = data.nbytes if isinstance(data, np.ndarray) else len(data)
    if size < _LONG or _EXTEND is None:
        return int(google_crc32c.extend(before, data))
    all_bytes = np.frombuffer(data, np.uint8)
    return int(_EXTEND(before, all_bytes.ctypes.data, all_bytes.nbytes))


def _c_function() -> Callable[[int, int, int], int] | None:
    """Return the C function of google_crc32c, to be called through ctypes without the GIL; None if it is not found.

    The Python function of the package holds the GIL while it computes: threads that wrote tiles of 2 MiB reached 2.4
    GB/s together, with 16 threads as well as with 64.
    """
    try:
        from google_crc32c import _crc32c

        extend = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):
        return None
    extend.restype, extend.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    return cast("Callable[[int, int, int], int]", extend)


_EXTEND: Final = _c_function()


def checksum_address() -> int | None:
    """Return the address of a C function that computes CRC-32C, as ``crc32c`` does; None if it is not found.

    Its arguments are the checksum of the preceding bytes (uint32), the address of the data, and their number (size_t).
    """
    return None if _EXTEND is None else address_of(_EXTEND)


def address_of(function: Any) -> int:
    """Return the address of a C function that was found through ctypes."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
