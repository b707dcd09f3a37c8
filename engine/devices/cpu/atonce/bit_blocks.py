"""Blocks of breadth-first searches: searched one by one as pieces, or all in one compiled call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.atonce import AVAILABLE
from engine.devices.cpu.bfs_bits import LEAST, bit_space, search_bits
from engine.devices.cpu.bit_facts import BITS, PLANES, facts_found
from engine.devices.cpu.bit_levels import LevelSpace, search_levels
from engine.devices.cpu.bit_rows import WORDS
from engine.devices.cpu.search import SearchBatch
from engine.devices.cpu.searches import BlockRun, Done, Spaces, split_evenly
from engine.graph.ordering import ascending
from engine.model.backend import LevelReduction
from engine.model.rows import FoundFacts

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BitBlocks:
    """The blocks of a batch of breadth-first searches.

    Attributes:
        batch: the batch.
        threads: the number of threads of the backend.
        spaces: the work space of these threads.
        levels: what is computed in place of writing rows, such as sums of weights (``LevelReduction``).  Facts, and
            counts of the vertices at each distance, are computed, too.  None to write rows.
    """

    batch: SearchBatch
    threads: int
    spaces: Spaces
    levels: LevelReduction | None = None

    def __post_init__(self) -> None:
        _ = self._form  # computed once, before several threads read it
        if self.levels is not None and self._everywhere:
            _ = self._reducing

    @cached_property
    def _form(self) -> tuple[Any, ...]:
        """The arguments ``arcs``, ``goal`` and ``limits`` of :func:`engine.devices.cpu.bfs_bits.search_bits`."""
        ready, goal, most = self.batch.ready, self.batch.goal, 2**PLANES
        limit = most + 1 if goal.limit > most else math.ceil(goal.limit)
        arcs, columns = (
            (ready.indptr, ready.heads, ready.into, ready.tails),
            (ready.rank, goal.near, self.batch.sentinel),
        )
        return arcs, columns, (min(limit, most), limit <= most)

    @property
    def _everywhere(self) -> bool:
        """Whether rows have a column for every vertex and no target ends searches; facts are gathered only then."""
        goal = self.batch.goal
        return goal.left == 0 and len(goal.near) == len(self.batch.ready.rank)

    def search(self, rows: Indices, worker: int) -> Done:
        """Search one block in the calling thread; if it is given up, the result names pieces that search it in another
        way.

        Args:
            rows: the rows of the batch that the block consists of.
            worker: number of the thread.
        """
        batch, n = self.batch, len(self.batch.ready.rank)
        arcs, columns, limits = self._form
        space = self.spaces.of(worker, ("bits", n), lambda: bit_space(n))
        if self.levels is not None and self._everywhere:
            return self._count(rows, space, self.levels)
        if search_bits(arcs, space, columns, batch.sources, rows, batch.out, limits):
            found = partial(facts_found, len(rows), batch.out.dtype, *space[-3::2])
            return Done(rows, found=found if self._everywhere else None)
        return Done(rows[:0], batch.blocks(rows, self.threads, self.spaces))

    @cached_property
    def _reducing(self) -> LevelSpace:
        """A :class:`LevelSpace` whose weights, by the new numbers of the vertices, all blocks share."""
        assert self.levels is not None
        near = self.batch.goal.near
        return LevelSpace.of(self.levels, near, -(-len(near) // 8) * 8)

    def _count(self, rows: Indices, space: Any, asked: LevelReduction) -> Done:
        """Search one block without writing its rows; the result has facts, counts by distance, and what ``asked``
        wants.
        """
        batch, (arcs, (rank, near, _), limits) = self.batch, self._form
        levels = np.empty((WORDS, 2**PLANES, 64), np.int64)  # entries beyond the last step are never touched
        reducing, starts = self._reducing.empty(), rank[batch.sources[rows]].astype(np.int64)
        both = *limits, asked.dear.is_set()
        done, steps, dear = search_levels(arcs, space, near, starts, both, levels, tuple(reducing))
        if dear:
            asked.dear.set()
        if not done:
            return Done(rows[:0], batch.blocks(rows, self.threads, self.spaces))
        counts, facts = space[-3::2]

        def found() -> FoundFacts:
            reduced = reducing.found(len(rows), asked.nearest)
            return facts_found(len(rows), batch.out.dtype, counts, facts, levels[:, : steps + 1], reduced)

        return Done(rows, found=found)

    def search_all(self, blocks: BlockRun, threads: int, seconds: float, *, facts: bool) -> Done | None:
        """Search blocks in several threads that never enter Python (see ``BlockGroup``).

        Return None where this is impossible.
        """
        if not AVAILABLE or not self._everywhere:
            return None
        from engine.devices.cpu.atonce.bits import search_all_bits
        from engine.devices.cpu.atonce.calls import BlocksAtOnce

        arcs, columns, limits = self._form
        call = BlocksAtOnce.of(self.batch, blocks, min(threads, len(blocks)), facts=facts)
        if not call.run(search_all_bits, (arcs, columns, call.batch, limits, seconds)):
            return None
        left = [piece for rows in call.given_up for piece in self.batch.blocks(rows, self.threads, self.spaces)]
        return call.done(left, self)


def bit_blocks(
    wanted: SearchBatch, left: Indices, threads: int, spaces: Spaces, levels: LevelReduction | None = None
) -> list[BlockRun]:
    """Return the searches of some rows of a batch as blocks of up to ``BITS`` sources.

    Args:
        wanted: the batch.
        left: the rows, int64.
        threads: the number of threads.
        spaces: the work space of these threads.
        levels: what is computed in place of writing rows, as in :class:`BitBlocks`; None to write them.
    """
    count, group = len(left), BitBlocks(wanted, threads, spaces, levels)
    rank = wanted.ready.rank
    order = left[ascending(rank[wanted.sources[left]], len(rank))]  # neighbouring sources share a block
    blocks = max(-(-count // BITS), min(threads, count // LEAST), 1)
    if blocks > threads:  # equally many blocks per thread, so that all threads end at about the same time
        blocks = min(-(-blocks // threads) * threads, count // LEAST)
    return [BlockRun.of(group, split_evenly(order, blocks))] if count else []
