"""Files in an *exchange folder*: tiles and panels that worker processes write for the process that makes a store."""

from __future__ import annotations

import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.matrix.format import Array

#: Chunk size, in bytes, in which a panel is read and written; each chunk has its own checksum.
PIECE: Final = 2**24
#: The largest number of files into which a panel is divided.
PARTS: Final = 8


@dataclass(frozen=True)
class TileFile:
    """A durable tile (i, j) in an exchange folder, with the name, the size in bytes and the checksum of its file."""

    i: int
    j: int
    name: str
    size: int
    checksum: int


@dataclass(frozen=True)
class Marks:
    """The sizes in bytes and the checksums of tiles.  Both arrays have the shape (tile rows, tiles across); their first
    row belongs to the tile row ``first`` of the matrix.  The value 0 stands for unknown.
    """

    first: int
    sizes: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]


def write_panel(path: Path, panel: Array, pool: ThreadPoolExecutor) -> None:
    """Write a C-contiguous array into a folder as several files, because threads that write to the same file wait for
    each other.

    Existing files are replaced, not overwritten, so that a reader that has opened an old file can finish.

    Args:
        path: the folder; made if it does not exist, but not its parents.
        panel: the array, of any shape.
        pool: the threads that write.

    Raises:
        StorageFailed: the file system refused.
    """
    flat = panel.reshape(-1).view(np.uint8)

    def _write_part(part: int, begin: int, end: int) -> None:
        new = path / f"{part}.{secrets.token_hex(4)}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            sums = []
            for first in range(begin, end, PIECE):
                piece, done = flat[first : min(end, first + PIECE)], 0
                while done < len(piece):
                    done += os.pwrite(handle, piece[done:].data, first - begin + done)
                sums.append(crc32c(piece))
            os.pwrite(handle, np.array(sums, "<u4").tobytes(), end - begin)
        finally:
            os.close(handle)
        new.replace(path / str(part))

    try:
        path.mkdir(exist_ok=True)
        list(pool.map(_write_part, *_parts(flat.nbytes)))
    except OSError as error:
        raise atomic.failure("write panel", path, error, flat.nbytes) from error


def read_panel(path: Path, panel: Array, pool: ThreadPoolExecutor) -> None:
    """Read the array that ``write_panel`` wrote into a folder.

    Args:
        path: the folder.
        panel: a C-contiguous array of the same shape and type as the written array; filled in place.
        pool: the threads that read.

    Raises:
        StorageFailed: the panel is damaged or does not exist.
    """
    flat = panel.reshape(-1).view(np.uint8)

    def _read_part(part: int, begin: int, end: int) -> bool:
        handle = os.open(path / str(part), os.O_RDONLY | os.O_CLOEXEC)
        try:
            sums = []
            for first in range(begin, end, PIECE):
                piece, done = flat[first : min(end, first + PIECE)], 0
                while done < len(piece) and (count := os.preadv(handle, [piece[done:].data], first - begin + done)):
                    done += count
                sums.append(crc32c(piece))
            found = np.array(sums, "<u4").tobytes()
            return os.pread(handle, len(found) + 1, end - begin) == found
        finally:
            os.close(handle)

    try:
        right = list(pool.map(_read_part, *_parts(flat.nbytes)))
    except OSError as error:
        raise atomic.failure("read panel", path, error) from error
    if not all(right):
        raise StorageFailed(f"panel {path} is damaged: its checksums are wrong")


def remove_panel(path: Path) -> None:
    """Remove the files of a panel; errors are ignored."""
    shutil.rmtree(path, ignore_errors=True)


def _parts(size: int) -> tuple[range, list[int], list[int]]:
    """Divide a panel of ``size`` bytes into files.  Return their numbers, and the offsets of their begins and ends."""
    share = max(PIECE, -(-size // (PARTS * PIECE)) * PIECE)
    begins = list(range(0, size, share))
    return range(len(begins)), begins, [min(size, begin + share) for begin in begins]
