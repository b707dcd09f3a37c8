"""Counts shortest paths by searches from all sources, on threads; the sums of all threads are added up at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.numbering import PathArcs
from engine.algorithms.betweenness.rows import HELD_BYTES, HELD_ROWS, RowPasses
from engine.algorithms.betweenness.splitting import TogetherPasses, nothing
from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.betweenness.accumulating import (
    ABSORBED,
    DONE,
    MANY_PATHS,
    MOST_PATHS,
    TOLERANCE,
    UNEQUAL,
    pass_hops,
    pass_packed,
    pass_wide,
)
from engine.devices.cpu.betweenness.vectors import LANES
from engine.devices.cpu.team import Team
from engine.model.progress import Monitor
from storage.errors import InvalidRequest, SolveFailed

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: The sources of each thread are cut into this number of pieces.  Pieces of several sources visit at least SHORT and at
#: most VISITED vertices and arcs; calling the kernel takes 2 % of the time of a piece that visits SHORT.
PIECES: Final = 32
SHORT: Final = 200_000
VISITED: Final = 5_000_000
#: Number of sources of a trial, if sources are searched from at the same time.
SAMPLE: Final = 64
#: Least number of sources for which simultaneous searches are faster than one search after the other.
FEW_ROWS: Final = 32


@dataclass(frozen=True)
class PassingTask:
    """The sources and targets of the paths, as vertex numbers of ``PathArcs``.

    What a vertex *keeps* of a source is the flow from the source that ends at the vertex: 1 at each target for
    betweenness, or the flow of a demand.

    Attributes:
        sources: int64, shape (sources,).
        own: int64, shape (sources,): for each source the vertex at which none of its flow ends (the source itself); -1
            for none.
        kept: float64, shape (n,): what each vertex keeps of every source; all 0 where targets are listed.
        first: int64, shape (sources + 1,): where the listed targets of each source begin; empty without a list.
        targets: int32: the listed targets.
        flows: float64: what each listed target keeps, more than 0.
        ends: whether to count the flow that begins and ends at each vertex.
        arcs: whether to count the flow over each arc.
        times: float64, shape (sources,): the factor by which all flow of each source is multiplied; empty if all are 1.
    """

    sources: Indices
    own: Indices
    kept: Floats
    first: Indices
    targets: npt.NDArray[np.int32]
    flows: Floats
    ends: bool
    arcs: bool
    times: Floats = field(default_factory=lambda: np.zeros(0))

    def factors(self) -> Floats:
        """Return the factor by which all flow of each source is multiplied, shape (sources,)."""
        return self.times if len(self.times) else np.ones(len(self.sources))

    def sums(self, arcs: int) -> tuple[Floats, ...]:
        """Return four arrays of zeros for the sums of one thread: the flow that passes through each vertex, begins
        there and ends there, and the flow over each arc.
        """
        n = len(self.kept)
        few = n if self.ends else 0
        return np.zeros(n), np.zeros(few), np.zeros(few), np.zeros(arcs if self.arcs else 0)


@dataclass(frozen=True)
class Passed:
    """The flow that the searches have counted; vertices and arcs are numbered as in ``PathArcs``.

    Attributes:
        vertices: the flow through each vertex, without the flow that begins or ends there.
        begins, ends: the flow that begins and ends at each vertex; empty where it was not requested.
        over: the flow over each arc; empty where it was not requested.
        lengths: the distance of each listed target in the graph's own weights, +inf where there is no path.
    """

    vertices: Floats
    begins: Floats
    ends: Floats
    over: Floats
    lengths: Floats


def thread_bytes(n: int, arcs: int, task: PassingTask, *, together: bool, hops: bool) -> int:
    """Estimate the bytes of memory that a thread takes.

    Args:
        n: number of vertices.
        arcs: number of arcs.
        task: what is counted.
        together: whether the thread searches from several sources at the same time; otherwise from one at a time.
        hops: whether all arcs weigh the same.
    """
    sums = n * (8 + 16 * task.ends) + 8 * arcs * task.arcs + 56 * n
    if not together:
        return sums
    # The terms: the rows of distances; for each vertex, lists, the counts and lengths of sixteen sources, over hops
    # their shares, too, and sixteen rows that are derived; for each arc, the lists of tight arcs.
    return sums + min(HELD_BYTES, 4 * n * HELD_ROWS) + (540 + 8 * LANES * hops) * n + (6 + 8 * task.arcs) * arcs


class PassingSearches:
    """The searches of one task.

    Args:
        arcs: the arcs.
        task: the sources and targets.
    """

    def __init__(self, arcs: PathArcs, task: PassingTask) -> None:
        self._arcs, self._task = arcs, task
        self._lengths = np.full(len(task.targets), math.inf)
        self._lock = threading.Lock()
        self._sums: list[tuple[Floats, ...]] = []
        self._visits = arcs.visits[task.sources]
        self._few = arcs.few[task.sources]
        self._rows: TogetherPasses | None = None
        self._order: Indices | None = None
        #: Whether a thread may search from several sources at the same time, which is faster and takes more memory.
        self.gather = True

    def run(self, team: Team, monitor: Monitor, rows: Indices | None = None) -> Passed:
        """Search from sources with all threads.

        Args:
            team: the threads.
            monitor: receives the progress in rows.
            rows: indices of the sources in ``PassingTask.sources``; None for all.

        Raises:
            Cancelled: the monitor asked to stop.
            InvalidRequest: some weights are so small beside others that sums of floats lose them.
            SolveFailed: there are too many shortest paths for float64, or the flow that arrives differs from the flow
                that left the source.
        """
        pieces, left = self._pieces(rows, team.threads)
        waiting, stopped, done, told = iter(pieces), threading.Event(), left, 0

        def work(worker: int) -> None:
            nonlocal done, told
            sums = self._task.sums(len(self._arcs.heads))
            search, complete = self._worker(sums, {together for together, _ in pieces})
            try:
                while not stopped.is_set():
                    with self._lock:
                        together, piece = next(waiting, (False, None))
                    if piece is None:
                        break
                    check_verdict(search[together](piece))
                    with self._lock:
                        done += len(piece)
                    if worker == 0:  # only the calling thread calls the monitor
                        told, since = done, told
                        monitor.step(told - since)
                complete()
            except BaseException:
                stopped.set()
                raise
            with self._lock:
                self._sums.append(sums)

        team.run(work, most=len(pieces))
        monitor.step(done - told)
        return self._joined()

    def samples(self, most: int) -> tuple[list[Indices], int]:
        """Return the batches of sources for a trial, and the number of sources to which its time is scaled up.

        If searches are simultaneous, those of the trial are, too, and the time is scaled up to the sources with
        outgoing arcs, because the others take no time.

        Args:
            most: the largest number of sources that are tried one after the other.
        """
        count = len(self._task.sources)
        if not self.together:
            return list(np.unique(np.linspace(0, count - 1, most).astype(np.int64))[:, None]), count
        near = self._near()
        first = max(0, (len(near) - SAMPLE) // 2)
        return [near[first : first + SAMPLE]], len(near)

    @property
    def visits(self) -> tuple[int, int]:
        """A bound on the number of vertices and arcs that searches together visit, and that searches one after the
        other visit; each counts as often as searches visit it.
        """
        all_visits, few = int(self._visits.sum()), int(self._visits[self._few].sum())
        return (all_visits - few, few) if self.together else (0, all_visits)

    @property
    def together(self) -> bool:
        """Whether many sources are searched from at the same time, because that is faster and exact."""
        return self._suits(len(self._few) - int(np.count_nonzero(self._few)))

    def _suits(self, many: int) -> bool:
        """Return whether to search at the same time from ``many`` sources whose searches visit much."""
        exact = self._arcs.longest <= RowPasses.LONGEST
        return self.gather and many >= FEW_ROWS and not len(self._task.first) and exact

    def _by_rows(self) -> TogetherPasses:
        """Return the object that counts paths from many sources; it is made when it is first needed."""
        task = self._task
        if self._rows is None:
            self._rows = TogetherPasses(self._arcs, (task.sources, task.own, task.factors()), task.kept)
        return self._rows

    def _near(self) -> Indices:
        """Return the sources that are searched together, ordered so that sources near each other in the graph are
        adjacent; those without outgoing arcs are left out.
        """
        if self._order is None:
            self._order = self._by_rows().near()
        return self._order

    def _pieces(self, rows: Indices | None, threads: int) -> tuple[list[tuple[bool, Indices]], int]:
        """Cut sources into pieces of work.

        Args:
            rows: the sources; None for all.
            threads: the number of threads.

        Returns:
            The pieces: whether the sources are searched together, and the sources.  Also the number of sources that are
            left out, because nothing can be counted from them.
        """
        asked = np.arange(len(self._few)) if rows is None else rows
        alone, few, pieces = asked, self._few[asked], list[tuple[bool, Indices]]()
        if self._suits(len(asked) - int(np.count_nonzero(few))):
            many, alone = (self._near() if rows is None else asked[~few]), asked[few]
            pieces = [(True, some) for some in self._by_rows().pieces(many, threads)]
        if not len(self._task.first):
            alone = alone[~self._idle()[alone]]
        pieces += [(False, some) for some in self._cut(alone, threads)]
        return pieces or [(False, alone)], len(asked) - sum(len(some) for _, some in pieces)

    def _idle(self) -> npt.NDArray[np.bool_]:
        """Return from which sources nothing can be counted: those without outgoing arcs; and if all arcs have the same
        length, and only the flow through vertices is wanted, those whose paths have a single arc.
        """
        direct: npt.NDArray[np.bool_] = self._arcs.direct[self._task.sources]
        if len(self._arcs.weights) or self._task.ends or self._task.arcs:
            direct = self._visits == 1
        return direct

    def _cut(self, rows: Indices, threads: int) -> list[Indices]:
        """Return sources that are searched from one after the other, cut into pieces of much the same work."""
        if len(rows) == 0:
            return []
        visits = self._visits[rows]
        ends = np.cumsum(visits)
        size = min(VISITED, max(SHORT, int(ends[-1]) // (PIECES * threads)))
        cuts = (np.flatnonzero(np.diff((ends - visits) // size)) + 1).tolist()
        return [rows[first:last] for first, last in pairwise([0, *cuts, len(rows)])]

    def _joined(self) -> Passed:
        """Return the sums of all threads, added up."""
        sums, self._sums = self._sums, []
        total = sums[0]
        for other in sums[1:]:
            for mine, part in zip(total, other, strict=True):
                np.add(mine, part, out=mine)
        vertices, begins, ends, over = total
        return Passed(vertices, begins, ends, over, self._arcs.lengths(self._lengths))

    @property
    def _kind(self) -> np.dtype[Any]:
        weights = self._arcs.weights
        if len(weights) == 0:
            return np.dtype(np.int32)
        return np.dtype(np.float64 if weights.dtype.kind == "f" else np.int64)

    def _space(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the work space of a thread: the arrays of every search, and those of a heap."""
        n, kind, bits = len(self._task.kept), self._kind, self._arcs.bits
        hops = len(self._arcs.weights) == 0
        far = -1 if hops else self._far
        space = np.full(n, far, kind), np.zeros(n), np.zeros(n), np.empty(n, np.int32), self._task.kept.copy()
        if hops:
            return space, ()
        place = np.full(n, -1, np.int32)
        if bits:
            return space, (np.empty(n, np.int64), place, bits)
        return space, (np.empty(n, np.int32), place, np.empty(n, kind))

    @property
    def _far(self) -> Any:
        return self._kind.type(FAR if self._kind.kind == "i" else math.inf)

    def _worker(
        self, sums: tuple[Floats, ...], kinds: set[bool]
    ) -> tuple[dict[bool, Callable[[Indices], int]], Callable[[], None]]:
        """Return the functions with which a thread searches, and a function to call at the end.

        Args:
            sums: the sums to which the functions add what they count; complete once the last function was called.
            kinds: the kinds of searches that are needed: True for searches together, False for one after the other.

        Returns:
            For each kind a function of sources, which returns ``DONE`` or the code of a fault; and the last function.
        """
        searches: dict[bool, Callable[[Indices], int]] = {}
        complete = nothing
        if True in kinds:
            searches[True], complete = self._by_rows().worker(sums)
        if False in kinds:
            searches[False] = self._alone(sums)
        return searches, complete

    def _alone(self, sums: tuple[Floats, ...]) -> Callable[[Indices], int]:
        """Return the function with which a thread searches from some sources, one after the other."""
        arcs, task, space, out = self._arcs, self._task, self._space(), (*sums, self._lengths)
        listed = task.sources, task.own, task.first, task.targets, task.flows, task.factors()

        def search(rows: Indices) -> int:
            given = listed, rows, task.kept, space[0], out
            if len(arcs.weights) == 0:
                return int(pass_hops((arcs.indptr, arcs.heads), *given))
            found = arcs.indptr, arcs.heads, arcs.weights, self._far
            return int((pass_packed if arcs.bits else pass_wide)(found, *given, space[1]))

        return search


def check_rows(told: Floats) -> None:
    """Raise an error if the sums of some rows cannot be trusted.

    Args:
        told: float64, shape (rows, 3): for each row the flow that left its source, the flow that arrived, and the
            largest number of shortest paths to a vertex (-1 if the row contradicts the arcs).

    Raises:
        SolveFailed: there are too many shortest paths for float64, or the flow that left a source and the flow that
            arrived differ.
    """
    passed, arrived, most = told.T
    if np.any(most < 0):
        check_verdict(UNEQUAL)
    if not np.all(most <= MOST_PATHS):
        check_verdict(MANY_PATHS)
    if not np.all(np.abs(passed - arrived) <= TOLERANCE * arrived):
        check_verdict(UNEQUAL)


def check_verdict(verdict: int) -> None:
    """Raise the error that ``verdict``, the code that searches returned, stands for; do nothing for ``DONE``."""
    if verdict == DONE:
        return
    if verdict == MANY_PATHS:
        raise SolveFailed(
            f"there are more than {MOST_PATHS:g} shortest paths between two vertices, which float64 cannot count; "
            "give arcs weights that differ"
        )
    if verdict == ABSORBED:
        raise InvalidRequest(
            "some weights are so small that float64 loses them in the length of a path, so shortest paths cannot be "
            "counted; give whole numbers, or weights that differ less",
            field="weight",
        )
    raise SolveFailed("what left a source and what arrived from it differ: the sums cannot be trusted")
