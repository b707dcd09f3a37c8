"""Tells folders whose files are in memory alone from folders on a disk, and writes tiles into the former."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

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


class PutTile(Protocol):
    """A function that writes a part of a matrix as a tile, with its checksum, in one call without the GIL."""

    def __call__(self, path: str, part: Array, place: npt.NDArray[np.uint8], width: int, *, still: bool = False) -> int:
        """Write the file and return the checksum.

        Args:
            path: the file.
            part: the upper left corner of the tile, or all of it.
            place: space for all bytes of the file; the padding of the tile is in place.
            width: bytes of a row of the tile.
            still: whether no entry of ``part`` changes during the call; a whole tile is then not copied.

        Raises:
            OSError: the file system refused.
        """
        ...


def put_tile(  # noqa: PLR0917 - as direct.padding
    put: PutTile, path: str, part: Array, shape: tuple[int, int], fill: np.generic, spare: int, *, still: bool
) -> tuple[int, int]:
    """Write a tile and its checksum by ``put``; a missing parent folder is made.

    Args:
        put: writes the file.
        path: the file.
        part, shape, fill: as for :func:`storage.files.direct.padded`.
        spare: bytes of the checksum.
        still: as for :class:`PutTile`.

    Returns:
        The checksum, and the bytes of the file.

    Raises:
        OSError: the file system refused.
    """
    size = direct.padding(part, shape, fill, spare).nbytes + spare
    place, width = direct.buffer_for(size)[:size], shape[1] * part.itemsize
    try:
        return put(path, part, place, width, still=still), size
    except FileNotFoundError:
        Path(path).parent.mkdir(exist_ok=True)
        return put(path, part, place, width, still=still), size
