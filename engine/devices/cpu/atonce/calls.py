"""One compiled call that searches many blocks: its arguments, and the state of each block afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.atonce.facts import Gathered
from engine.devices.cpu.atonce.lanes import BAD, FINISHED, GIVEN_UP, GOOD, UNTAKEN
from engine.devices.cpu.atonce.pool import KEPT
from engine.devices.cpu.searches import BlockGroup, BlockRun, Done, Piece
from engine.model.progress import NotCompiledError, only_ready
from engine.model.rows import FoundFacts

if TYPE_CHECKING:
    from engine.devices.cpu.search import SearchBatch

Indices = npt.NDArray[np.int64]

#: Kernels, each with the types of its arguments, that were not compiled when this process looked for them; it does not
#: look again.
_NOT_COMPILED: Final = set[tuple[Any, ...]]()


@dataclass(frozen=True)
class BlocksAtOnce:
    """One compiled call that searches several blocks.

    Attributes:
        blocks: the blocks.
        threads: the number of threads.
        shared: int64: the counters that threads share, ``NEXT`` to ``BAD`` of :mod:`engine.devices.cpu.atonce.lanes`.
        states: uint8, shape (blocks,): the state of each block.
        batch: the sources, the rows of all blocks, where each block begins among these rows, the states, and the array
            that receives the rows.
        gathered: the facts of the rows, such as sums and largest distances.
    """

    blocks: BlockRun
    threads: int
    shared: Indices
    states: npt.NDArray[np.uint8]
    batch: tuple[Any, ...]
    gathered: Gathered

    @classmethod
    def of(
        cls, batch: SearchBatch, blocks: BlockRun, threads: int, tally: Sequence[int] = (0, 0), *, facts: bool
    ) -> BlocksAtOnce:
        """Return a call that searches ``blocks`` of ``batch``.

        ``tally`` holds the numbers of blocks that earlier calls have finished and given up.
        """
        states, shared = np.zeros(len(blocks), np.uint8), np.array([0, 0, *tally], np.int64)
        given = (batch.sources, blocks.rows, blocks.starts, states, batch.out)
        gathered = Gathered.of(batch.out, threads, wanted=facts)
        return cls(blocks, threads, shared, states, given, gathered)

    def run(self, kernel: Callable[..., int], given: tuple[Any, ...]) -> bool:
        """Make the call, unless kernels would have to be compiled: compiling takes longer than many short solves.

        Args:
            kernel: takes the number of threads, a pool of threads, and a tuple of ``shared``, the entries of ``given``,
                and the arrays of the facts.
            given: the inputs of the searches.

        Returns:
            Whether the call was made.

        Raises:
            MemoryError: a thread found no memory for its work.
        """
        form = (kernel, self.gathered.largest.dtype, tuple(getattr(each, "dtype", None) for each in given[0]))
        if form in _NOT_COMPILED:
            return False
        try:
            with only_ready(), KEPT.borrow(self.threads - 1) as pool:
                failures = kernel(self.threads, pool, (self.shared, *given, self.gathered.arrays()))
        except NotCompiledError:
            _NOT_COMPILED.add(form)
            return False
        if failures:
            raise MemoryError("a thread that searches found no memory for its work")
        return True

    @property
    def tally(self) -> list[int]:
        """The numbers of blocks that this call and all earlier calls have finished, and given up."""
        found: list[int] = self.shared[[GOOD, BAD]].tolist()
        return found

    @property
    def given_up(self) -> list[Indices]:
        """The rows of each block that was given up."""
        return self._in_state(GIVEN_UP)

    def done(self, left: Sequence[Piece | BlockRun], group: BlockGroup) -> Done:
        """Return the result of the call: the finished rows, their facts, and the pieces that are left to search.

        Args:
            left: the pieces that replace blocks that were given up.
            group: searches the blocks that no thread has taken.
        """
        if np.logical_and.reduce(self.states == FINISHED):
            searched = self.blocks.rows
            every = len(searched) == len(self.batch[-1])
            rows = np.arange(len(searched)) if every else searched
            return Done(rows, left, self._facts_of(None if every else rows))
        finished, untaken = self._in_state(FINISHED), self._in_state(UNTAKEN)
        rows = np.concatenate(finished) if finished else np.empty(0, np.int64)
        others = [BlockRun.of(group, untaken)] if untaken else []
        return Done(rows, [*left, *others], self._facts_of(rows))

    def _in_state(self, state: int) -> list[Indices]:
        """Return the rows of each block that is in a state."""
        return [self.blocks[k] for k in (self.states == state).nonzero()[0].tolist()]

    def _facts_of(self, rows: Indices | None) -> Callable[[], FoundFacts] | None:
        """Return a function that returns the facts of the finished ``rows``; None if no facts are wanted.

        None as ``rows`` stands for all rows in order.
        """
        return partial(self.gathered.found, rows) if len(self.gathered.reached) else None
