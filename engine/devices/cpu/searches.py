"""Distributes the searches of a batch: they are cut into pieces, and each thread takes a piece when it is free.

A piece is a block of sources that are searched together.  A piece is given up if its labels do not fit their type or it
takes too many relaxations; other pieces, which any thread may take, then replace it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.model.backend import RowsDone
from engine.model.rows import FoundFacts

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Done:
    """The result of a piece.

    Attributes:
        rows: the rows of the batch that are finished, int64.
        left: pieces that replace this one if it was given up.
        found: the facts of the rows (such as sums), if the search computes them faster than by reading the rows.
        taken: whether the sink has already taken the rows (``RowsWanted.take``); if so, the search did not write them.
    """

    rows: Indices
    left: Sequence[Piece | BlockRun] = ()
    found: Callable[[], FoundFacts] | None = None
    taken: bool = False


#: A function that searches some rows; it takes the number of the thread.
Piece = Callable[[int], Done]


class BlockGroup(Protocol):
    """Blocks of sources that one compiled call can search in several threads."""

    def search(self, rows: Indices, worker: int) -> Done:
        """Search some rows of the batch as one block, in the calling thread, which has number ``worker``."""
        ...

    def search_all(self, blocks: BlockRun, threads: int, seconds: float, *, facts: bool) -> Done | None:
        """Search blocks in several threads that never enter Python; return None where that cannot be done.

        Args:
            blocks: the blocks.
            threads: the number of threads, the calling one included.
            seconds: the number of seconds after which no further block is begun.
            facts: whether to gather facts of the rows, such as sums and largest distances.

        Raises:
            MemoryError: a thread found no memory for its work.
        """
        ...


class BlockRun:
    """Blocks of one group, each of which is a piece; one object holds them all, because a compiled call takes them all.

    Attributes:
        group: the group that searches these blocks.
        rows: the rows of the batch, one block after the other, int64.
        starts: int64, shape (blocks + 1,): where each block begins in ``rows``, and where the last one ends.
    """

    __slots__ = ("group", "rows", "starts")

    def __init__(self, group: BlockGroup, rows: Indices, starts: Indices) -> None:
        self.group, self.rows, self.starts = group, rows, starts

    @classmethod
    def of(cls, group: BlockGroup, blocks: Sequence[Indices]) -> BlockRun:
        """Return the run of ``blocks``; there must be at least one block."""
        starts = np.zeros(len(blocks) + 1, np.int64)
        np.cumsum([len(rows) for rows in blocks], out=starts[1:])
        return cls(group, np.concatenate(blocks), starts)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.starts) - 1

    def __getitem__(self, k: int) -> Indices:
        """Return the rows of block number ``k``, counted from 0."""
        return self.rows[self.starts[k] : self.starts[k + 1]]

    def __iter__(self) -> Iterator[Indices]:
        """Yield the rows of each block."""
        return (self[k] for k in range(len(self)))

    def take(self) -> Piece:
        """Remove the first block from this object, and return it as a piece of its own."""
        piece = partial(self.group.search, self[0])
        self.starts = self.starts[1:]
        return piece


def split_evenly(rows: Indices, parts: int) -> list[Indices]:
    """Return rows cut into parts as ``np.array_split`` cuts them, in a fraction of its time; empty parts are left out.

    Args:
        rows: the rows.
        parts: the number of parts, at least 1.
    """
    size, longer = divmod(len(rows), parts)
    cuts = [k * size + min(k, longer) for k in range(min(parts, len(rows)) + 1)]
    return [rows[first:last] for first, last in pairwise(cuts)]


class Searches:
    """The searches of one batch, cut into pieces; several threads may call all methods.

    Args:
        pieces: the searches.
    """

    def __init__(self, pieces: Iterable[Piece | BlockRun]) -> None:
        self._lock = threading.Lock()
        self._pieces = deque(pieces)
        self._running = 0

    @property
    def waiting(self) -> bool:
        """Whether there is a piece that no thread has taken."""
        return bool(self._pieces)

    @property
    def count(self) -> int:
        """The number of pieces that no thread has taken."""
        with self._lock:
            return sum(len(piece) if isinstance(piece, BlockRun) else 1 for piece in self._pieces)

    def take(self, worker: int, then: RowsDone | None = None) -> tuple[int, bool]:
        """Do one piece, if one is waiting.

        Args:
            worker: number of the calling thread.
            then: called with the numbers of the rows that the piece has finished, int64, if there are any, and with
                their facts if these are known.

        Returns:
            The number of rows finished, and whether all searches of the batch are done, which is True for exactly one
            call.
        """
        with self._lock:
            if not self._pieces:
                return 0, False
            first = self._pieces[0]
            piece = first.take() if isinstance(first, BlockRun) else first
            if piece is first or not len(first):  # type: ignore[arg-type]  # then it is a run
                self._pieces.popleft()
            self._running += 1
        done = piece(worker)
        if then is not None and len(done.rows) and not done.taken:
            then(done.rows, None if done.found is None else done.found())
        with self._lock:
            self._running -= 1
            self._pieces.extendleft(done.left)
            return len(done.rows), not self._pieces and self._running == 0

    def take_all(self, threads: int, seconds: float, then: RowsDone | None = None) -> tuple[int, bool]:
        """Do all pieces that one compiled call can do in several threads, if there are some; one thread calls this
        before any other thread takes a piece.

        Args:
            threads: the number of threads to use.
            seconds: time limit; no piece begins when this number of seconds has passed.
            then: as in :meth:`take`; called once, with all rows that are finished.

        Returns:
            As :meth:`take`.
        """
        with self._lock:
            waiting = list(self._pieces)
        runs, others = list[BlockRun](), list[Piece | BlockRun]()
        for piece in waiting:
            if isinstance(piece, BlockRun) and (not runs or piece.group is runs[0].group):
                runs.append(piece)
            else:
                others.append(piece)
        if not runs:
            return 0, False
        whole = runs[0]
        if len(runs) > 1 or whole.starts[0] > 0:
            whole = BlockRun.of(whole.group, [rows for run in runs for rows in run])
        done = whole.group.search_all(whole, threads, seconds, facts=then is not None)
        if done is None:
            return 0, False
        if then is not None and len(done.rows):
            then(done.rows, None if done.found is None else done.found())
        with self._lock:
            self._pieces = deque([*done.left, *others])
            return len(done.rows), not self._pieces and self._running == 0


class Spaces:
    """The work space of each thread, reused for the next piece as long as pieces are of one kind.

    Args:
        threads: the number of threads.
    """

    def __init__(self, threads: int) -> None:
        self._found: list[tuple[Hashable, Any]] = [(None, None)] * threads

    def of(self, worker: int, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the work space of a thread.

        Args:
            worker: number of the thread.
            key: identifies the kind of space; if it differs from the key of the last call, the old space is freed.
            make: makes the space.
        """
        known, space = self._found[worker]
        if known != key:
            self._found[worker] = (None, None)
            space = make()
            self._found[worker] = (key, space)
        return space
