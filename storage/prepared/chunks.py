"""Tables of a prepared graph that are read in sections, when a *question* (a query for distances) first needs them.

If the tables do not all fit in memory, sections that no running question needs are dropped to make space for others.
"""

from __future__ import annotations

import contextlib
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

#: A table, and the spans of entries that a question needs, as two arrays: the beginnings and the ends of the spans.
#: None stands for all entries.
Need = tuple["CheckedTable", tuple[IntArray, IntArray] | None]
Mask = npt.NDArray[np.bool_]
#: For each table, a mask of the sections that a question needs.
Masks = Sequence[tuple["CheckedTable", Mask]]

#: Flag of ``mmap`` on Linux (MAP_NORESERVE): pages that were never written do not count as memory.  Python 3.11 has no
#: name for it.
_UNCOUNTED: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if platform.machine() in ("x86_64", "aarch64") else 0)
#: The sections of up to this number of spans are marked one span after the other, which is faster for few spans.
_FEW: Final = 64
NOTHING: Final = nullcontext()


class CheckedTable:
    """The entries of a table.  A section is read when a question first needs it.  Safe to use from many threads.

    Args:
        entries: number of entries of the table.
        section: number of entries of a section, the unit that is read and checked; it may be a whole chunk.
        dtype: type of the entries.
        read: called with the number of a section and an array of little-endian entries; fills the array with entries
            from that section on, and checks them.
        threads: threads that read.
        passing: whether sections may be dropped, so that the table may be larger than the memory.
        together: number of sections of a chunk; ``read`` is called for at most one chunk at a time.

    Attributes:
        values: the entries, shape (entries,); only those that ``TableMemory.using`` was called for may be used.
        read_bytes: bytes of entries that are in memory.
        section: number of entries of a section.
    """

    def __init__(  # noqa: PLR0917
        self, entries: int, section: int, dtype: np.dtype[Any], read: Callable[[int, Array], None], threads: int,
        passing: bool = False, together: int = 1,
    ) -> None:  # fmt: skip
        self._pages: mmap.mmap | None = None
        if passing and entries:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNCOUNTED
            try:
                self._pages = mmap.mmap(-1, entries * dtype.itemsize, flags=flags)
            except OSError as error:
                raise MemoryError(str(error)) from error
            if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a huge page would also take memory for neighbours of a section
                with contextlib.suppress(OSError):  # a system without huge pages refuses
                    self._pages.madvise(mmap.MADV_NOHUGEPAGE)
        self.values: Array = np.empty(entries, dtype) if self._pages is None else np.frombuffer(self._pages, dtype)
        self.read_bytes, self.section = 0, section
        self._read, self._threads, self._together = read, threads, together
        count = -(-entries // section)
        self._there, self._lock = np.zeros(count, np.bool_), threading.Lock()
        self._used, self._questions = np.zeros(count, np.int64), 0
        self.complete = not entries

    @property
    def sections(self) -> int:
        """The number of sections."""
        return len(self._there)

    @property
    def passing(self) -> bool:
        """Whether sections may be dropped."""
        return self._pages is not None

    def wanted(self, spans: tuple[IntArray, IntArray] | None) -> Mask:
        """Return a mask of the sections that hold at least one entry of some spans, shape (sections,).

        Args:
            spans: the beginnings and the ends of the spans; no span is empty.  None for all entries.
        """
        count = len(self._there)
        if spans is None:
            return np.ones(count, np.bool_)
        begins, ends = spans[0] // self.section, (spans[1] - 1) // self.section + 1
        if len(begins) <= _FEW:
            found = np.zeros(count, np.bool_)
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                found[begin:end] = True
            return found
        changes = np.bincount(begins, minlength=count + 1)
        changes -= np.bincount(ends, minlength=count + 1)
        return np.asarray(np.cumsum(changes[:-1]) > 0)

    def lacking(self, wanted: Mask) -> int:
        """Return the bytes of those sections of a mask that are not in memory."""
        return self._bytes(np.flatnonzero(wanted & ~self._there))

    def bring(self, wanted: Mask) -> None:
        """Read the sections of a mask that are not in memory.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names it.  Its sections count as unread.
        """
        self._questions += 1
        self._used[wanted] = self._questions
        if self.complete or not (wanted & ~self._there).any():
            return
        with self._lock:
            firsts, lasts = self._runs(np.flatnonzero(wanted & ~self._there))
            try:
                if len(firsts) == 1:
                    self._bring_run(firsts[0], lasts[0])
                else:
                    in_threads(self._threads, self._bring_run, firsts, lasts)
            finally:
                self._count()

    def drop(self, wanted: Mask, count: int) -> int:
        """Free the memory of sections, least recently used first; no question may use the table meanwhile.

        Args:
            wanted: a mask of the sections that stay.
            count: bytes to free.

        Returns:
            The bytes of the sections that were dropped, which may be fewer than ``count``.
        """
        if self._pages is None:
            return 0
        idle, done = np.flatnonzero(self._there & ~wanted), 0
        with self._lock:
            try:
                for k in idle[np.argsort(self._used[idle], kind="stable")].tolist():
                    if done >= count:
                        break
                    self.complete = False  # set this first: an interrupt must not leave it true by mistake
                    self._there[k] = False
                    done += self._release(k)
            finally:
                self._count()
        return done

    def whole(self) -> Array:
        """Read all sections that are not in memory, and return all entries; no section may be dropped meanwhile.

        Raises:
            StorageFailed: a chunk is missing or damaged.
        """
        if not self.complete:
            self.bring(self.wanted(None))
        return self.values

    def _runs(self, some: npt.NDArray[np.intp]) -> tuple[list[int], list[int]]:
        """Cut ascending section numbers into runs of consecutive numbers within one chunk; return the beginnings and
        the ends of the runs.
        """
        if not len(some):  # another thread has read these sections meanwhile
            return [], []
        begins = np.flatnonzero((np.diff(some, prepend=-2) != 1) | (some % self._together == 0))
        ends = np.append(begins[1:], len(some)) - 1
        return some[begins].tolist(), (some[ends] + 1).tolist()

    def _bytes(self, some: npt.NDArray[np.intp]) -> int:
        """Return the size of some sections in bytes; the last section of the table may be shorter."""
        if not len(some):
            return 0
        last = len(self._there) - 1
        short = (last + 1) * self.section - len(self.values) if some[-1] == last else 0
        return (len(some) * self.section - short) * self.values.itemsize

    def _count(self) -> None:
        self.complete = bool(self._there.all())
        self.read_bytes = self._bytes(np.flatnonzero(self._there))

    def _release(self, k: int) -> int:
        """Free the memory pages of section ``k``, except pages that also hold a part of a section that stays in memory;
        return the bytes of the section.
        """
        assert self._pages is not None
        size, page = self.section * self.values.itemsize, mmap.PAGESIZE
        begin, end = k * size, min((k + 1) * size, self.values.nbytes)
        first, last = begin // page, -(-end // page)
        # the first and the last page may hold parts of other sections, and even whole sections if pages are large
        if self._there[first * page // size : k].any():
            first = -(-begin // page)
        if self._there[k + 1 : -(-last * page // size)].any():
            last = end // page
        if last > first:
            self._pages.madvise(mmap.MADV_DONTNEED, first * page, (last - first) * page)
        return end - begin

    def _bring_run(self, first: int, last: int) -> None:
        piece = self.values[first * self.section : last * self.section]
        self._read(first, piece.view(piece.dtype.newbyteorder("<")))
        if sys.byteorder == "big":
            piece.byteswap(inplace=True)
        self._there[first:last] = True  # from now on, threads use the entries without the lock


class TableMemory:
    """The memory that the tables of a prepared graph share.  Safe to use from many threads.

    A question states which entries it needs, and these stay in memory until it ends.  If there is too little memory,
    the question waits until no other question runs, and then the least recently used sections are dropped.

    Args:
        tables: the tables.
        free: returns the number of bytes of memory that may be filled now.
        refuse: raises the error for a question whose entries do not fit; called with the number of missing bytes.
    """

    def __init__(self, tables: Sequence[CheckedTable], free: Callable[[], int], refuse: Callable[[int], None]) -> None:
        self._tables, self._free, self._refuse = tables, free, refuse
        # ``with`` is used on the lock, never on the condition, whose methods are Python code: an interrupt in them
        # could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        # weak references: a question that does not call ``end``, because of an interrupt, counts until it is freed
        self._asking, self._coming = WeakSet[_Question](), WeakKeyDictionary[_Question, int]()
        self._clearing = False

    @property
    def complete(self) -> bool:
        """Whether all tables are in memory; then nothing is dropped any more."""
        with self._lock:  # only under this lock are sections dropped, and none once all are there: True stays True
            return all(table.complete for table in self._tables)

    def using(self, needs: Sequence[Need]) -> AbstractContextManager[None]:
        """Context manager: keep the entries that a question needs in memory.

        Args:
            needs: tables, each with the spans of its needed entries.

        Raises:
            DoesNotFit: the entries do not fit in memory.
            StorageFailed: a chunk is missing or damaged; the message names it.
        """
        if self.complete:
            return NOTHING
        wanted = {id(table): np.zeros(table.sections, np.bool_) for table in self._tables}
        for table, spans in needs:
            if spans is None or len(spans[0]):
                wanted[id(table)] |= table.wanted(spans)
        return _Question(self, [(table, wanted[id(table)]) for table in self._tables])

    def drop_beyond(self, most: int) -> None:
        """Wait until no question uses the tables, then drop sections until at most ``most`` bytes are in memory.
        Nothing is dropped if all tables are in memory completely.
        """
        with self._lock:
            if self.complete or self._held() <= most:
                return
            self._wait(lambda: not self._clearing)
            self._clearing = True
            try:
                self._wait(lambda: not self._asking)
                for table in () if self.complete else self._tables:
                    if (beyond := self._held() - most) > 0:
                        table.drop(np.zeros(table.sections, np.bool_), beyond)
            finally:
                self._clearing = False
                self._change.notify_all()

    def _held(self) -> int:
        return sum(table.read_bytes for table in self._tables)

    def begin(self, question: _Question, masks: Masks) -> None:
        """Let a question begin once the sections that it needs are in memory.  Raises the errors of :meth:`using`."""
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
        """End a question, so that its sections may be dropped."""
        self._asking.discard(question)  # do this first: an interrupt may come while this thread waits for the lock
        with self._lock:
            self._coming.pop(question, None)
            self._change.notify_all()

    def _clear_for(self, masks: Masks) -> int:
        """Wait until a question may begin, and drop sections for it; the caller holds the lock.

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
            if not lacking:  # other questions have read the sections; nothing may be dropped from complete tables
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
        """Wait until ``happened`` returns True; the lock, which the caller holds, is released while waiting."""
        while not happened():
            self._change.wait(1.0)  # 1 s at most: a question that an interrupt ended sends no notification

    def _left(self) -> int:
        """Return the bytes of memory that may still be filled, minus the bytes that questions which have begun will
        still read.
        """
        return self._free() - sum(self._coming.values())


class _Question:
    """A running question, as a context manager."""

    def __init__(self, memory: TableMemory, masks: Masks) -> None:
        self._memory, self._masks = memory, masks

    def __enter__(self) -> None:
        self._memory.begin(self, self._masks)

    def __exit__(self, *_: object) -> None:
        self._memory.end(self)


def _lacking(masks: Masks) -> int:
    """Return the bytes of some sections that are not in memory."""
    return sum(table.lacking(mask) for table, mask in masks)
