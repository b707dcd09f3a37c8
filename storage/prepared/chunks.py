"""Tables of a prepared graph that are read in chunks, when a question first needs entries of them.

Where all tables do not fit in memory, chunks that no question uses make room for others.
"""

from __future__ import annotations

import mmap
import platform
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt

from storage.matrix.format import Array, IntArray
from storage.threads import in_threads

#: A table, and where the spans of its entries begin and end that a question needs; None for all entries.
Need = tuple["CheckedTable", tuple[IntArray, IntArray] | None]
Mask = npt.NDArray[np.bool_]
#: For each table, the chunks that a question needs.
Masks = Sequence[tuple["CheckedTable", Mask]]

#: The system counts no memory for pages that were never written; Python 3.11 has no name for this flag of Linux.
_UNCOUNTED: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if platform.machine() in ("x86_64", "aarch64") else 0)
#: A context manager that does nothing.
NOTHING: Final = nullcontext()


class CheckedTable:
    """The entries of a table. A chunk is read when a question first needs it. Safe to use from many threads.

    Args:
        entries: how many the table has.
        chunk: how many are in a chunk.
        dtype: their type.
        read: reads the chunk of a number into an array of little-endian entries, and compares it with the seal.
        threads: threads that read.
        passing: whether chunks may be dropped; the table may then be larger than the memory.

    Attributes:
        values: the entries, shape (entries,); use only those that were asked for by ``TableMemory.using``.
        read_bytes: bytes of entries that are in memory.
        chunk: as above.
    """

    def __init__(  # noqa: PLR0917
        self, entries: int, chunk: int, dtype: np.dtype[Any], read: Callable[[int, Array], None], threads: int,
        passing: bool = False,
    ) -> None:  # fmt: skip
        self._pages: mmap.mmap | None = None
        if passing and entries:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNCOUNTED
            try:
                self._pages = mmap.mmap(-1, entries * dtype.itemsize, flags=flags)
            except OSError as error:
                raise MemoryError(str(error)) from error
        self.values: Array = np.empty(entries, dtype) if self._pages is None else np.frombuffer(self._pages, dtype)
        self.read_bytes, self.chunk = 0, chunk
        self._read, self._threads = read, threads
        count = -(-entries // chunk)
        self._there, self._lock = np.zeros(count, np.bool_), threading.Lock()
        self._used, self._questions = np.zeros(count, np.int64), 0
        self.complete = not entries

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self._there)

    @property
    def passing(self) -> bool:
        """Whether chunks may be dropped."""
        return self._pages is not None

    def wanted(self, spans: tuple[IntArray, IntArray] | None) -> Mask:
        """Return which chunks hold some spans of entries.

        Args:
            spans: where they begin and end, none is empty; None for all entries.
        """
        count = len(self._there)
        if spans is None:
            return np.ones(count, np.bool_)
        begins, ends = spans
        changes = np.bincount(begins // self.chunk, minlength=count + 1)
        changes -= np.bincount((ends - 1) // self.chunk + 1, minlength=count + 1)
        return np.asarray(np.cumsum(changes[:-1]) > 0)

    def lacking(self, wanted: Mask) -> int:
        """Return the bytes of those chunks of a mask that are not in memory."""
        return self._bytes(np.flatnonzero(wanted & ~self._there))

    def bring(self, wanted: Mask) -> None:
        """Read the chunks of a mask that are not in memory.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names it.  It counts as unread.
        """
        self._questions += 1
        self._used[wanted] = self._questions
        if self.complete or not (wanted & ~self._there).any():
            return
        with self._lock:
            missing = np.flatnonzero(wanted & ~self._there).tolist()
            pieces = [self._piece(k) for k in missing]
            try:
                if len(missing) == 1:
                    self._bring_one(missing[0], pieces[0])
                else:
                    in_threads(self._threads, self._bring_one, missing, pieces)
            finally:
                self._count()

    def drop(self, wanted: Mask, count: int) -> int:
        """Give back the memory of chunks that were not used for longest; no question may use the table meanwhile.

        Args:
            wanted: chunks that stay.
            count: bytes to give back.

        Returns:
            The bytes that were given back, which may be fewer.
        """
        if self._pages is None:
            return 0
        idle, done = np.flatnonzero(self._there & ~wanted), 0
        with self._lock:
            try:
                for k in idle[np.argsort(self._used[idle], kind="stable")].tolist():
                    if done >= count:
                        break
                    self.complete = False  # first, because an interrupt may come after any step
                    self._there[k] = False
                    done += self._release(k)
            finally:
                self._count()
        return done

    def whole(self) -> Array:
        """Read all chunks that are not in memory, and return all entries; none may be dropped meanwhile.

        Raises:
            StorageFailed: as :meth:`bring`.
        """
        if not self.complete:
            self.bring(self.wanted(None))
        return self.values

    def _piece(self, k: int) -> Array:
        return self.values[k * self.chunk : (k + 1) * self.chunk]

    def _bytes(self, some: npt.NDArray[np.intp]) -> int:
        """Return the bytes of some chunks; the last chunk may be shorter than the others."""
        if not len(some):
            return 0
        last = len(self._there) - 1
        short = (last + 1) * self.chunk - len(self.values) if some[-1] == last else 0
        return (len(some) * self.chunk - short) * self.values.itemsize

    def _count(self) -> None:
        self.complete = bool(self._there.all())
        self.read_bytes = self._bytes(np.flatnonzero(self._there))

    def _release(self, k: int) -> int:
        """Give the pages back that hold nothing but chunk ``k``."""
        assert self._pages is not None
        size, page = self.values.itemsize, mmap.PAGESIZE
        begin, end = k * self.chunk * size, min((k + 1) * self.chunk, len(self.values)) * size
        first, last = -(-begin // page) * page, end // page * page
        if last > first:
            self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)
        return end - begin

    def _bring_one(self, k: int, piece: Array) -> None:
        self._read(k, piece.view(piece.dtype.newbyteorder("<")))
        if sys.byteorder == "big":
            piece.byteswap(inplace=True)
        self._there[k] = True  # from now on, threads use the entries without the lock


class TableMemory:
    """The memory that the tables of a prepared graph share.  Safe to use from many threads.

    A question says which entries it needs, and they stay in memory until it ends.  If there is no room for them, it
    waits until no other question is under way, and chunks make room that were not used for longest.

    Args:
        tables: the tables.
        free: returns the bytes that may be read now.
        refuse: called with the bytes that a question lacks if there is no room for them; raises.
    """

    def __init__(self, tables: Sequence[CheckedTable], free: Callable[[], int], refuse: Callable[[int], None]) -> None:
        self._tables, self._free, self._refuse = tables, free, refuse
        # entered itself, not its condition: an interrupt may end the methods of that with the lock held (decision 166)
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        # weak: a question that an interrupt has ended between two steps counts no longer than its frame lives
        self._asking, self._coming = WeakSet[_Question](), WeakKeyDictionary[_Question, int]()
        self._clearing = False

    @property
    def complete(self) -> bool:
        """Whether all tables are in memory; then nothing is dropped any more."""
        with self._lock:  # chunks are dropped with it, so what is true here stays true
            return all(table.complete for table in self._tables)

    def using(self, needs: Sequence[Need]) -> AbstractContextManager[None]:
        """Context manager: the entries that a question needs are in memory.

        Args:
            needs: the entries.

        Raises:
            DoesNotFit: there is no room for them.
            StorageFailed: a chunk is missing or damaged; the message names it.
        """
        if self.complete:
            return NOTHING
        wanted = {id(table): np.zeros(table.chunks, np.bool_) for table in self._tables}
        for table, spans in needs:
            if spans is None or len(spans[0]):
                wanted[id(table)] |= table.wanted(spans)
        return _Question(self, [(table, wanted[id(table)]) for table in self._tables])

    def begin(self, question: _Question, masks: Masks) -> None:
        """Let a question begin once the chunks that it needs are in memory.  Raises as :meth:`using`."""
        try:
            with self._lock:
                self._coming[question] = self._clear_for(masks)
                self._asking.add(question)
            for table, mask in masks:
                table.bring(mask)
            with self._lock:
                self._coming.pop(question, None)
                self._change.notify_all()
        except BaseException:
            self.end(question)
            raise

    def end(self, question: _Question) -> None:
        """Let the chunks of a question go."""
        self._asking.discard(question)  # first, because an interrupt may come while the lock is waited for
        with self._lock:
            self._coming.pop(question, None)
            self._change.notify_all()

    def _clear_for(self, masks: Masks) -> int:
        """Wait until a question may begin, and drop chunks for it; the caller holds the lock.

        Returns:
            The bytes that the question will read.
        """
        self._wait(lambda: not self._clearing)
        lacking = _lacking(masks)
        if not lacking or lacking <= self._left():
            return lacking
        passing = any(table.passing for table in self._tables)
        self._clearing = True  # no other question begins
        try:
            self._wait(lambda: not (self._asking if passing else self._coming))
            lacking = _lacking(masks)
            if not lacking:  # others have brought it; nothing may be dropped from tables that are complete now
                return 0
            for table, mask in masks:
                while (short := lacking - self._left()) > 0 and table.drop(mask, short):
                    pass
        finally:
            self._clearing = False
            self._change.notify_all()
        if lacking > self._left():
            self._refuse(lacking)
        return lacking

    def _wait(self, happened: Callable[[], bool]) -> None:
        """Wait for something that other questions do; the caller holds the lock, which is free meanwhile."""
        while not happened():
            self._change.wait(1.0)  # not for ever: a question that an interrupt has ended does not tell

    def _left(self) -> int:
        """Return the bytes that may be read, without those that other questions are about to read."""
        return self._free() - sum(self._coming.values())


class _Question:
    """A question under way, as a context manager."""

    def __init__(self, memory: TableMemory, masks: Masks) -> None:
        self._memory, self._masks = memory, masks

    def __enter__(self) -> None:
        self._memory.begin(self, self._masks)

    def __exit__(self, *_: object) -> None:
        self._memory.end(self)


def _lacking(masks: Masks) -> int:
    """Return the bytes of some chunks that are not in memory."""
    return sum(table.lacking(mask) for table, mask in masks)
