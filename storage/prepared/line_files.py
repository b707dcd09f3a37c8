"""Reads single lines of a table of a prepared graph from its files; no entry stays in memory.

A question about one pair needs two lines of some kilobytes.  Reading them takes microseconds if the page cache has
them, and the process needs no memory for tables.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

import numpy as np

from storage.errors import StorageFailed
from storage.files.checksum import crc32c
from storage.matrix.format import Array, FileMark
from storage.matrix.grid import CHECKSUM_BYTES
from storage.matrix.tiles import NO_WAIT, StoreFolder
from storage.prepared.sections import SectionChecks

#: Bytes that are read at a time when a whole chunk is checked, so that no buffer of the chunk's size is needed.
_PIECE: Final = 1 << 20


class LineFiles:
    """The files of a table.  A section of a chunk is checked before its entries are used for the first time.

    Safe to use from many threads.

    Args:
        folder: the folder of the prepared graph.
        where: the name of the table, such as ``tables/forward``.
        chunk: number of entries in a chunk.
        dtype: type of the entries.
        marks: size and checksum of each chunk, from the seal.
        checks: the checksums of sections; None if chunks can only be checked as a whole.
    """

    def __init__(
        self, folder: StoreFolder, where: str, chunk: int, dtype: np.dtype[Any], marks: list[FileMark],
        *, checks: SectionChecks | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._where, self._chunk, self._marks = folder, where, chunk, marks
        self._dtype, self._checks = dtype.newbyteorder("<"), checks
        self._section = chunk if checks is None else checks.section
        self._together = 1 if checks is None else checks.together
        self._sound, self._lock = bytearray(len(marks) * self._together), threading.Lock()

    def read(self, begin: int, end: int) -> Array:
        """Return the entries ``begin:end``, waiting for the disk if necessary.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names the first one.
        """
        for k in range(begin // self._section, (end - 1) // self._section + 1):
            if not self._sound[k]:
                with self._lock:
                    if not self._sound[k]:
                        self._check(k)
                        self._sound[k] = 1
        return self._filled(begin, end, 0)

    def peek(self, begin: int, end: int) -> Array | None:
        """Return the entries ``begin:end`` without waiting for the disk.

        Returns:
            None if some section was never checked or cannot be read; :meth:`read` then checks it, or raises the reason.

        Raises:
            BlockingIOError: entries are not in memory; the kernel was asked to read them.
        """
        first, last = begin // self._section, (end - 1) // self._section + 1
        if self._sound.find(0, first, last) >= 0:
            return None
        try:
            return self._filled(begin, end, NO_WAIT)
        except StorageFailed:
            return None

    def _filled(self, begin: int, end: int, flags: int) -> Array:
        first, last = begin // self._chunk, (end - 1) // self._chunk
        if first == last:
            return self._part(first, begin - first * self._chunk, end - begin, flags)
        cuts = [begin, *range((first + 1) * self._chunk, end, self._chunk), end]
        parts = [self._part(k, cuts[k - first] - k * self._chunk, cuts[k - first + 1] - cuts[k - first], flags)
                 for k in range(first, last + 1)]  # fmt: skip
        return np.concatenate(parts)

    def _part(self, k: int, first: int, count: int, flags: int) -> Array:
        """Return ``count`` entries of chunk ``k``, from its entry ``first`` on."""
        size = self._dtype.itemsize
        place, data = first * size, bytearray(count * size)
        handle = self._open(k)
        try:
            found = os.preadv(handle, [data], place, flags)
            if found < len(data) and flags:  # only the first of these pages are in the page cache
                raise BlockingIOError
        except BlockingIOError:
            os.posix_fadvise(handle, place, len(data), os.POSIX_FADV_WILLNEED)
            raise
        except OSError as error:
            raise self._damaged(k, f": {error.strerror}") from error
        finally:
            os.close(handle)
        if found < len(data):
            raise self._damaged(k, ": it is too short")
        return np.frombuffer(data, self._dtype)

    def _check(self, k: int) -> None:
        """Compare a section with its checksum, or a whole chunk with the seal.  Raises StorageFailed."""
        if self._checks is not None:
            number, first = divmod(k, self._together)
            first *= self._section
            data = self._part(number, first, min(self._section, self._chunk - first), 0)
            if not self._checks.agree(k, data):
                raise self._damaged(number, " does not agree with the seal")
            return
        handle, checksum, done, last = self._open(k), 0, 0, b""
        try:
            while piece := os.pread(handle, _PIECE, done):
                checksum, done, last = crc32c(piece, checksum), done + len(piece), (last + piece)[-CHECKSUM_BYTES:]
        except OSError as error:
            raise self._damaged(k, f": {error.strerror}") from error
        finally:
            os.close(handle)
        if not FileMark.of(done, checksum, last).agrees(self._marks[k]):
            raise self._damaged(k, " does not agree with the seal")

    def _open(self, k: int) -> int:
        try:
            return self._folder.open(f"{self._where}/c/{k}")
        except OSError as error:
            raise self._damaged(k, f": {error.strerror}") from error

    def _damaged(self, k: int, why: str) -> StorageFailed:
        return StorageFailed(f"{self._folder.path} is damaged: {self._where}/c/{k}{why}")
