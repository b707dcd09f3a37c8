"""Blocks of sources in lanes: searched one by one as pieces, or all in one compiled call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.atonce import AVAILABLE
from engine.devices.cpu.lanes import PASSES, ROW_BYTES, search_lanes
from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.devices.cpu.searches import BlockRun, Done, Piece, Spaces
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import FoundFacts, RowFacts

if TYPE_CHECKING:
    from engine.devices.cpu.search import SearchBatch

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LaneBlocks:
    """The blocks of a batch, with one type for all labels (tentative distances).

    A block in which a label may not fit that type is searched again, unless ``heaviest`` is 0.

    Attributes:
        batch: the batch.
        kind: the type of the labels.
        heaviest: the largest weight; 0 if all labels are known to fit.
        threads: the number of threads of the backend.
        spaces: the work space of these threads.
    """

    batch: SearchBatch
    kind: str
    heaviest: float
    threads: int
    spaces: Spaces

    def __post_init__(self) -> None:
        _ = self._form  # computed once, before several threads read it

    @cached_property
    def _far(self) -> Any:
        return self.batch.goal.far(WORK_TYPES[self.kind].unreachable, self.kind)[0]

    @cached_property
    def _form(self) -> tuple[Any, ...]:
        """The arguments ``arcs``, ``ends``, ``goal`` and ``bounds`` of ``search_lanes``."""
        ready, goal, kind = self.batch.ready, self.batch.goal, self.kind
        arcs = (ready.indptr, ready.heads, ready.into, ready.tails, ready.weights_into(kind))
        unit = ready.decimal[1] if ready.decimal is not None and kind != "float64" else None
        ends, columns = (
            (self._far, self.batch.sentinel, goal.beyond, unit),
            (ready.rank, goal.near, goal.shift, goal.onto),
        )
        return arcs, ends, columns, (PASSES * (ready.arcs + 4 * len(ready.rank)), int(self.heaviest))

    @cached_property
    def _wider(self) -> LaneBlocks:
        """The group that searches again, with a wider type of label, the blocks in which a label did not fit."""
        return replace(self, kind=self.batch.kind or self.kind, heaviest=0)

    @property
    def _tally(self) -> list[int]:
        return self.batch.ready.tally.setdefault(self.kind, [0, 0])

    def search(self, rows: Indices, worker: int) -> Done:
        """Search one block in the calling thread; if it is given up, the result names pieces that search it in another
        way.

        Args:
            rows: the rows of the batch that the block consists of.
            worker: number of the thread.
        """
        batch, n, tally = self.batch, len(self.batch.ready.rank), self._tally
        if tally[1] > 1 + tally[0] // 4:
            return Done(rows[:0], self._otherwise(rows))
        space = self.spaces.of(worker, ("lanes", self.kind, n, self._far), lambda: lane_space(n, self._far))
        arcs, ends, columns, bounds = self._form
        finished, few = search_lanes(arcs, space, ends, columns, (batch.sources, rows), batch.out, bounds)
        tally[0 if finished else 1] += 1
        if not finished:
            return Done(rows[:0], self._otherwise(rows))
        whole = batch.goal.left == 0  # facts are gathered only if no target ends a search early
        return Done(rows, found=partial(self._facts_of, rows, few) if whole and len(few) else None)

    def search_all(self, blocks: BlockRun, threads: int, seconds: float, *, facts: bool) -> Done | None:
        """Search blocks in several threads that never enter Python (see ``BlockGroup``).

        Return None where this is impossible.
        """
        batch = self.batch
        if not AVAILABLE or len(batch.goal.near) != len(batch.ready.rank) or batch.goal.left:
            return None
        from engine.devices.cpu.atonce.calls import BlocksAtOnce
        from engine.devices.cpu.atonce.lanes import search_all_lanes

        arcs, ends, columns, bounds = self._form
        call = BlocksAtOnce.of(batch, blocks, min(threads, len(blocks)), self._tally, facts=facts)
        if not call.run(search_all_lanes, (arcs, ends, columns, call.batch, bounds, seconds)):
            return None
        self._tally[:] = call.tally
        left = [piece for rows in call.given_up for piece in self._otherwise(rows)]
        return call.done(left, self)

    def _otherwise(self, rows: Indices) -> list[Piece | BlockRun]:
        """Return the pieces that search the rows of an abandoned block: with wider labels, or one source at a time."""
        return self.batch.cut(rows, self._wider) if self.heaviest else [*self.batch.single(rows, self.threads)]

    def _facts_of(self, rows: Indices, columns: npt.NDArray[np.int32]) -> FoundFacts:
        """Return the facts of finished rows whose distances all lie in a few columns; column k is vertex k here."""
        out = self.batch.out
        own = np.searchsorted(columns, self.batch.sources[rows])
        reached, sums, largest, farthest = row_facts(out, own, rows, columns)
        farthest = np.where(farthest < 0, -1, columns[farthest].astype(np.int64))

        def count(width: float, counts: Indices) -> int:
            return count_rows(out, own, width, counts, rows, columns)

        return FoundFacts(RowFacts(reached, sums, largest, farthest), count)


def lane_space(n: int, far: np.generic) -> tuple[Array, Array, Array]:
    """Return the work space of a thread for :func:`engine.devices.cpu.lanes.search_lanes`."""
    lanes = ROW_BYTES // far.itemsize
    memory = np.empty(n * ROW_BYTES + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    labels = memory[skip : skip + n * ROW_BYTES].view(far.dtype).reshape(n, lanes)
    labels[:] = far
    return labels, np.zeros((n + 7) // 8 * 8, np.uint8), np.zeros((n + 7) // 8 * 8, np.uint8)
