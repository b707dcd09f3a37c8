"""Files of flat arrays, each array with its own checksum.  A run that prepares a graph commits its progress in such
files.

A file is written once, durably, and never changes.  Each array of a file can be read separately.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.matrix.format import Array

#: Types of the arrays of a file.
KINDS: Final = ("int32", "int64", "uint16", "float32", "float64")


@dataclass(frozen=True)
class ArraysFile:
    """The description of a file of arrays.

    Attributes:
        name: the name of the file in its folder.
        arrays: type and length (entries) of each array, in the order of the file.
        checksums: CRC-32C of each array.
        checksum: CRC-32C of the whole file.
    """

    name: str
    arrays: tuple[tuple[str, int], ...]
    checksums: tuple[int, ...]
    checksum: int

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(np.dtype(kind).itemsize * count for kind, count in self.arrays)

    def entry(self) -> dict[str, Any]:
        """Return this description for a record, in JSON types."""
        arrays = [list(each) for each in self.arrays]
        return {"file": self.name, "arrays": arrays, "checksums": list(self.checksums), "crc32c": self.checksum}

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> ArraysFile:
        """Return the file that a record describes.  Raises KeyError, TypeError or ValueError if it is malformed."""
        arrays = tuple((str(kind), int(count)) for kind, count in entry["arrays"])
        return cls(entry["file"], arrays, tuple(entry["checksums"]), entry["crc32c"])


def write_arrays(folder: Path, name: str, arrays: Sequence[Array]) -> ArraysFile:
    """Write arrays into a new file, durably.

    Args:
        folder: the folder.
        name: the name of the file.
        arrays: one-dimensional arrays of the types in ``KINDS``.

    Raises:
        StorageFailed: the file system refused.
    """
    parts = [np.ascontiguousarray(array) for array in arrays]
    whole, path = 0, folder / name
    for part in parts:
        whole = crc32c(part, whole)
    try:
        atomic.write_file(path, parts)
        atomic.sync_path(path)
    except OSError as error:
        raise atomic.failure("write", path, error, sum(part.nbytes for part in parts)) from error
    kinds = tuple((part.dtype.name, len(part)) for part in parts)
    return ArraysFile(name, kinds, tuple(crc32c(part) for part in parts), whole)


def read_arrays(folder: Path, file: ArraysFile, numbers: Sequence[int] | None = None) -> list[Array]:
    """Return some arrays of a file, each compared with its checksum.

    Args:
        folder: the folder of the file.
        file: the description of the file.
        numbers: the positions of the arrays to read; None for all arrays.

    Raises:
        StorageFailed: the file is missing or damaged.
    """
    sizes = [np.dtype(kind).itemsize * count for kind, count in file.arrays]
    begins = np.cumsum([0, *sizes]).tolist()
    path, found = folder / file.name, []
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for k in range(len(sizes)) if numbers is None else numbers:
                data: npt.NDArray[np.uint8] = np.empty(sizes[k], np.uint8)
                done = 0
                while done < sizes[k] and (part := os.preadv(handle, [data[done:].data], begins[k] + done)):
                    done += part
                if done < sizes[k] or crc32c(data) != file.checksums[k]:
                    raise StorageFailed(f"{path} is damaged; remove {folder} to begin anew")
                found.append(data.view(file.arrays[k][0]))
        finally:
            os.close(handle)
    except OSError as error:
        raise atomic.failure("read", path, error) from error
    return found


def new_name(stem: str) -> str:
    """Return a name for a file that no other file has."""
    return f"{stem}-{secrets.token_hex(8)}.bin"
