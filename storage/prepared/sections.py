"""Sections of the chunks of a table: the units that are read and compared with a checksum.

A query for few vertices needs lines of some kilobytes, and a chunk has megabytes.  For each table, a prepared graph has
an array of *running checksums*: for each section of a chunk, the CRC-32C of the chunk up to the end of that section.
So a section is checked by continuing from the checksum of the previous section.  The running checksums take no
additional pass over a chunk, because they are the intermediate results of the file's own checksum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import StorageFailed
from storage.files.checksum import crc32c
from storage.matrix.format import Array
from storage.matrix.grid import CHECKSUM_BYTES

Checksums = npt.NDArray[np.uint32]

#: Maximum size of a section in bytes (decision 243).
SECTION_BYTES: Final = 1 << 15
#: The name of the group of the running checksums, which has an array for each table.
SECTIONS: Final = "sections"


def section_entries(chunk: int, itemsize: int) -> int:
    """Return the number of entries in a section of a chunk.

    Args:
        chunk: number of entries of the chunk.
        itemsize: bytes of an entry.
    """
    most = max(1, SECTION_BYTES // itemsize)
    return -(-chunk // -(-chunk // most))


def running_checksums(data: Array, section: int) -> Checksums:
    """Return the CRC-32C of a chunk up to the end of each of its sections, shape (sections,).

    Args:
        data: the entries of the chunk, as they are stored in its file.
        section: number of entries of a section; the last one may have fewer.
    """
    found = np.empty(-(-len(data) // section), np.uint32)
    checksum = 0
    for k in range(len(found)):
        checksum = crc32c(data[k * section : (k + 1) * section], checksum)
        found[k] = checksum
    return found


def checksums_of_file(path: Path, chunk: int, dtype: np.dtype[Any]) -> Checksums:
    """Return the running checksums of a chunk that is a file already.

    Args:
        path: the file.
        chunk: number of entries of the chunk.
        dtype: type of the entries.

    Raises:
        OSError: the file cannot be read.
        StorageFailed: the file is too short, or its own checksum is wrong.
    """
    with path.open("rb") as file:
        data = np.fromfile(file, dtype.newbyteorder("<"), chunk)
        own = file.read(CHECKSUM_BYTES)
    if len(data) < chunk or len(own) < CHECKSUM_BYTES:
        raise StorageFailed(f"{path} is damaged: it is too short")
    found = running_checksums(data, section_entries(chunk, dtype.itemsize))
    if int(found[-1]) != int.from_bytes(own, "little"):
        raise StorageFailed(f"{path} is damaged: its checksum is wrong")
    return found


class SectionChecks:
    """The running checksums of a table.

    Args:
        running: the running checksums as stored, shape (chunks, sections of a chunk).
        chunk: number of entries of a chunk.

    Attributes:
        running: the argument ``running``.
        section: number of entries of a section; the last section of a chunk may have fewer.
        together: number of sections of a chunk.
    """

    def __init__(self, running: Checksums, chunk: int) -> None:
        self.running, self.together = running, running.shape[1]
        self.section = -(-chunk // self.together)

    def agree(self, first: int, data: Array) -> bool:
        """Return whether sections of one chunk agree with their checksums.

        Args:
            first: the number of the first section, counted from the first section of the table, across chunks.
            data: the entries of the sections, as they are stored in the file, padding included.
        """
        chunk, k = divmod(first, self.together)
        running = self.running[chunk]
        checksum = int(running[k - 1]) if k else 0
        for begin in range(0, len(data), self.section):
            checksum = crc32c(data[begin : begin + self.section], checksum)
            if checksum != running[k]:
                return False
            k += 1
        return True
