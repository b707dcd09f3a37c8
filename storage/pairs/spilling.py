"""Writes near pairs that do not fit in memory to unnamed temporary files while the pairs are found."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import DoesNotFit
from storage.files import atomic

Array = npt.NDArray[np.generic]

#: Bytes of a pair in the files: 4 for the target, and 8 for the distance.  Only at the end is it known whether 4 bytes
#: suffice for all distances.
SPILLED_BYTES: Final = 4 + 8
#: Number of distances that are converted to 32 bits at a time.
_BLOCK: Final = 1 << 20


class PairSpill:
    """Targets and distances, appended in their final order to two files.

    The files have no names, so the system frees them when no array reads them any more, or when the process ends.

    Args:
        folder: a folder on the disk that the files are written to.
        kind: the type of the distances, int64 or float64.
        likely: the number of pairs that is predicted.

    Raises:
        DoesNotFit: the disk has too little space for ``likely`` pairs in these files and again in the result that is
            made from them.
        StorageFailed: the file system refused.
    """

    def __init__(self, folder: Path, kind: np.dtype[Any], likely: int) -> None:
        needed, free = 2 * likely * SPILLED_BYTES, shutil.disk_usage(folder).free
        if needed > free:
            raise DoesNotFit(
                f"near pairs: about {likely:,} are predicted, more than fit in memory; on the disk they need "
                f"{needed} bytes together with the result, and {free} are free in {folder}; take a smaller cutoff, "
                "fewer sources, or more memory",
                resource="disk",
                needed=needed,
                available=free,
            )
        self._folder, self._kind = folder, kind
        self.entries, self._longest = 0, 0.0
        try:
            self._indices: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by result and discard
            self._lengths: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        except OSError as error:
            raise atomic.failure("write to", folder, error) from error

    def append(self, indices: npt.NDArray[np.int32], lengths: Array) -> None:
        """Append pairs: targets and distances, shape (pairs,).  Raises StorageFailed."""
        try:
            self._indices.write(np.ascontiguousarray(indices).data)
            self._lengths.write(np.ascontiguousarray(lengths).data)
        except OSError as error:
            raise atomic.failure("write to", self._folder, error, self.entries * SPILLED_BYTES) from error
        self.entries += len(indices)
        self._longest = max(self._longest, float(lengths.max(initial=0)))

    def result(self) -> tuple[npt.NDArray[np.int32], Array]:
        """Return all targets and distances as arrays that are read from the files; nothing can be appended afterwards.

        Whole distances are int32 if that type holds all of them.

        Raises:
            StorageFailed: the file system refused.
        """
        kind = np.dtype(np.int32) if self._kind.kind == "i" and self._longest < 2**31 else self._kind
        try:
            self._indices.flush()
            self._lengths.flush()
            if self.entries == 0:
                return np.empty(0, np.int32), np.empty(0, kind)
            if kind != self._kind:
                self._narrow(kind)
            return (
                np.memmap(self._indices, np.int32, "r", shape=(self.entries,)),
                np.memmap(self._lengths, kind, "r", shape=(self.entries,)),
            )
        except OSError as error:
            raise atomic.failure("read from", self._folder, error) from error
        finally:
            self.discard()

    def _narrow(self, kind: np.dtype[Any]) -> None:
        """Rewrite the distances in place as a smaller type; no distance is overwritten before it has been read."""
        wide, narrow = (np.memmap(self._lengths, each, "r+", shape=(self.entries,)) for each in (self._kind, kind))
        for first in range(0, self.entries, _BLOCK):
            narrow[first : first + _BLOCK] = wide[first : first + _BLOCK].astype(kind)

    def discard(self) -> None:
        """Close the files; arrays that :meth:`result` returned can still be read."""
        self._indices.close()
        self._lengths.close()
