"""Tells folders whose files are in memory alone from folders on a disk, and writes tiles into the former."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.files import direct

Array = npt.NDArray[np.generic]

#: Types of file systems that are in memory.
KINDS = (b"tmpfs", b"ramfs")
_MOUNTS: Final = Path("/proc/self/mountinfo")


def in_memory(folder: Path) -> bool:
    """Return whether files of ``folder`` are in memory alone (tmpfs, ramfs).

    Such files are lost when the machine stops, so nothing makes them durable, and they cannot be kept out of the page
    cache, where they live.  The answer is looked up each time, because another file system may be mounted later.

    Returns:
        True if the system says so; False on a disk, and where the folder or the list of mounts cannot be examined.
    """
    try:
        status = os.stat(folder)  # noqa: PTH116 - the number of the device is what matters
        device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}".encode()
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        if fields.split()[2:3] == [device]:
            return rest.split(b" ", 1)[0] in KINDS
    return False


#: Copies a part of a matrix into the upper left corner of a tile, and writes the tile and its checksum into a file.
#: Takes the path, the part, the bytes of the file, where the tile's padding is already in place, and the bytes of a row
#: of the tile.  Returns the checksum; raises OSError.
PutTile = Callable[[str, Array, npt.NDArray[np.uint8], int], int]


def put_tile(  # noqa: PLR0917 - as direct.padding
    put: PutTile, path: str, part: Array, shape: tuple[int, int], fill: np.generic, spare: int
) -> tuple[int, int]:
    """Write a tile and its checksum by ``put``; a missing parent folder is made.

    Args:
        put: writes the file.
        path: the file.
        part, shape, fill: as for :func:`storage.files.direct.padded`.
        spare: bytes of the checksum.

    Returns:
        The checksum, and the bytes of the file.

    Raises:
        OSError: the file system refused.
    """
    size = direct.padding(part, shape, fill, spare).nbytes + spare
    place, width = direct.buffer_for(size)[:size], shape[1] * part.itemsize
    try:
        return put(path, part, place, width), size
    except FileNotFoundError:
        Path(path).parent.mkdir(exist_ok=True)
        return put(path, part, place, width), size
