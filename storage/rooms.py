"""What lies in a *room*, the folder in which processes leave files for the owner of a store in the making."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage import atomic
from storage.errors import StorageFailed
from storage.matrix_format import Array, crc32c

#: Bytes of a panel that one thread reads or writes at a time; each has its own checksum.
PIECE: Final = 2**24


@dataclass(frozen=True)
class TileFile:
    """A tile (i, j) in a room, durable: the name of its file, its bytes and its checksum."""

    i: int
    j: int
    name: str
    size: int
    checksum: int


@dataclass(frozen=True)
class Marks:
    """Bytes and checksums of some rows of tiles, from tile row ``first`` on; 0 where they are not known."""

    first: int
    sizes: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]


def write_panel(path: Path, panel: Array, pool: ThreadPoolExecutor) -> None:
    """Write a C-contiguous array and the checksums of its pieces.  StorageFailed."""
    flat = panel.reshape(-1).view(np.uint8)
    pieces = list(_pieces(flat.nbytes))
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:

            def write(begin: int, end: int) -> int:
                part = flat[begin:end]
                done = 0
                while done < len(part):
                    done += os.pwrite(handle, part[done:].data, begin + done)
                return crc32c(part)

            sums = np.array(list(pool.map(write, *zip(*pieces, strict=True))), "<u4")
            os.pwrite(handle, sums.tobytes(), flat.nbytes)
        finally:
            os.close(handle)
    except OSError as error:
        raise atomic.failure("write panel", path, error, flat.nbytes) from error


def read_panel(path: Path, panel: Array, pool: ThreadPoolExecutor) -> None:
    """Fill a C-contiguous array from such a file.  StorageFailed if it is damaged or gone."""
    flat = panel.reshape(-1).view(np.uint8)
    pieces = list(_pieces(flat.nbytes))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:

            def read(begin: int, end: int) -> int:
                part = flat[begin:end]
                done = 0
                while done < len(part) and (count := os.preadv(handle, [part[done:].data], begin + done)):
                    done += count
                return crc32c(part)

            found = np.array(list(pool.map(read, *zip(*pieces, strict=True))), "<u4")
            stated = os.pread(handle, found.nbytes + 1, flat.nbytes)
        finally:
            os.close(handle)
    except OSError as error:
        raise atomic.failure("read panel", path, error) from error
    if stated != found.tobytes():
        raise StorageFailed(f"panel {path} is damaged: its checksums are wrong")


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(size, begin + PIECE)) for begin in range(0, size, PIECE))
