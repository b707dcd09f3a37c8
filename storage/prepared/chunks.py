"""A table of a prepared graph that is read in chunks, each once, when a question first needs entries of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from storage.matrix.format import Array, IntArray
from storage.threads import in_threads


class CheckedTable:
    """The entries of a table. A chunk is read when a question first needs it. Safe to use from many threads.

    Args:
        entries: how many the table has.
        chunk: how many are in a chunk.
        dtype: their type.
        read: reads the chunk of a number into an array of little-endian entries, and compares it with the seal.
        threads: threads that read.

    Attributes:
        values: the entries, shape (entries,); use only those that were asked for by :meth:`need`.
        read_bytes: bytes of entries that have been read.
    """

    def __init__(
        self, entries: int, chunk: int, dtype: np.dtype[Any], read: Callable[[int, Array], None], threads: int
    ) -> None:
        self.values: Array = np.empty(entries, dtype)
        self.read_bytes = 0
        self._chunk, self._read, self._threads = chunk, read, threads
        self._there, self._lock = np.zeros(-(-entries // chunk), np.bool_), threading.Lock()
        self.complete = not entries

    def need(self, begins: IntArray, ends: IntArray, admit: Callable[[int], None] = lambda _bytes: None) -> None:
        """Read the chunks that hold some spans of entries, except those that were read before.

        Args:
            begins, ends: of the spans; none is empty.
            admit: called with the bytes that will be read; an exception that it raises ends the reading.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names it.  It counts as unread.
        """
        if self.complete or not len(begins):
            return
        count = len(self._there)
        changes = np.bincount(begins // self._chunk, minlength=count + 1)
        changes -= np.bincount((ends - 1) // self._chunk + 1, minlength=count + 1)
        self._bring(np.cumsum(changes[:-1]) > 0, admit)

    def whole(self, admit: Callable[[int], None] = lambda _bytes: None) -> Array:
        """Read the chunks that are missing, and return all entries; arguments and errors are those of :meth:`need`."""
        if not self.complete:
            self._bring(np.ones(len(self._there), np.bool_), admit)
        return self.values

    def _bring(self, wanted: np.ndarray[Any, np.dtype[np.bool_]], admit: Callable[[int], None]) -> None:
        if not (wanted & ~self._there).any():
            return
        with self._lock:
            missing = np.flatnonzero(wanted & ~self._there).tolist()
            pieces = [self.values[k * self._chunk : (k + 1) * self._chunk] for k in missing]
            admit(sum(piece.nbytes for piece in pieces))
            if len(missing) == 1:
                self._bring_one(missing[0], pieces[0])
            else:
                in_threads(self._threads, self._bring_one, missing, pieces)
            self.complete = bool(self._there.all())
            self.read_bytes = sum(
                len(self.values[k * self._chunk : (k + 1) * self._chunk]) for k in np.flatnonzero(self._there).tolist()
            ) * self.values.itemsize  # fmt: skip

    def _bring_one(self, k: int, piece: Array) -> None:
        self._read(k, piece.view(piece.dtype.newbyteorder("<")))
        if sys.byteorder == "big":
            piece.byteswap(inplace=True)
        self._there[k] = True  # from now on, threads use the entries without the lock
