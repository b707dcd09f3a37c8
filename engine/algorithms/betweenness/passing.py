"""Counts shortest paths by searches from all sources, on threads; the sums of all threads are added up at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.acyclic import ForwardPasses
from engine.algorithms.betweenness.numbering import PathArcs
from engine.algorithms.betweenness.rows import HELD_BYTES, HELD_ROWS, RowPasses
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

#: Most sources that a thread takes at once.
PIECE: Final = 64
#: If a thread takes several sources at once, it visits at most this number of vertices and arcs for all of them.
VISITED: Final = 5_000_000
#: Least number of pieces into which the sources of each thread are cut.
PIECES: Final = 32
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
    sums = n * (8 + 16 * task.ends) + 8 * arcs * task.arcs
    if not together:
        return sums + 56 * n
    # The terms: the rows of distances; for each vertex, lists, and the counts and lengths of sixteen sources, over hops
    # their shares, too; for each arc, the lists of tight arcs.
    return sums + min(HELD_BYTES, 4 * n * HELD_ROWS) + (470 + 8 * LANES * hops) * n + (6 + 8 * task.arcs) * arcs


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
        self._rows: RowPasses | ForwardPasses | None = None
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
        count = len(self._task.sources) if rows is None else len(rows)
        by_rows = self._by_rows(count)
        if rows is None:
            rows = self._near(by_rows) if by_rows else np.arange(count)
        size = self._piece(len(rows), team.threads)
        pieces = [rows[at : at + size] for at in range(0, len(rows), size)]
        waiting, stopped, done, told = iter(pieces), threading.Event(), count - len(rows), 0

        def work(worker: int) -> None:
            nonlocal done, told
            sums = self._task.sums(len(self._arcs.heads))
            search = by_rows.worker(sums) if by_rows else self._worker(sums)
            try:
                while not stopped.is_set():
                    with self._lock:
                        piece = next(waiting, None)
                    if piece is None:
                        break
                    _check(search(piece))
                    with self._lock:
                        done += len(piece)
                    if worker == 0:  # only the calling thread calls the monitor
                        told, since = done, told
                        monitor.step(told - since)
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
        if (by_rows := self._by_rows(count)) is None:
            return list(np.unique(np.linspace(0, count - 1, most).astype(np.int64))[:, None]), count
        near = self._near(by_rows)
        first = max(0, (len(near) - SAMPLE) // 2)
        return [near[first : first + SAMPLE]], len(near)

    def _near(self, by_rows: RowPasses | ForwardPasses) -> Indices:
        """Return the sources with outgoing arcs, ordered so that sources near each other in the graph are adjacent."""
        if self._order is None:
            self._order = by_rows.near()
        return self._order

    def _piece(self, rows: int, threads: int) -> int:
        """Return the number of sources that a thread takes at once, if ``rows`` sources are searched in all."""
        n, arcs = len(self._task.kept), len(self._arcs.heads)
        if (by_rows := self._by_rows(rows)) is not None:
            return by_rows.piece(-(-rows // threads))
        return max(1, min(PIECE, VISITED // max(1, n + arcs), -(-rows // (PIECES * threads))))

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

    def _worker(self, sums: tuple[Floats, ...]) -> Callable[[Indices], int]:
        """Return the function with which a thread searches from some sources and adds what it counts to ``sums``."""
        arcs, task, space, out = self._arcs, self._task, self._space(), (*sums, self._lengths)
        listed = task.sources, task.own, task.first, task.targets, task.flows, task.factors()

        def search(rows: Indices) -> int:
            given = listed, rows, task.kept, space[0], out
            if len(arcs.weights) == 0:
                return int(pass_hops((arcs.indptr, arcs.heads), *given))
            found = arcs.indptr, arcs.heads, arcs.weights, self._far
            return int((pass_packed if arcs.bits else pass_wide)(found, *given, space[1]))

        return search

    def together(self, count: int) -> bool:
        """Return whether ``count`` sources are searched from at the same time, because that is faster and exact."""
        exact = self._arcs.longest <= RowPasses.LONGEST
        return self.gather and count >= FEW_ROWS and not len(self._task.first) and exact

    def _by_rows(self, count: int) -> RowPasses | ForwardPasses | None:
        """Return the object that counts paths from many sources; None if it is not faster or would not be exact."""
        arcs, task = self._arcs, self._task
        if not self.together(count):
            return None
        if self._rows is None:
            passes = ForwardPasses if arcs.forward else RowPasses
            self._rows = passes(arcs, (task.sources, task.own, task.factors()), task.kept)
        return self._rows


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
        _check(UNEQUAL)
    if not np.all(most <= MOST_PATHS):
        _check(MANY_PATHS)
    if not np.all(np.abs(passed - arrived) <= TOLERANCE * arrived):
        _check(UNEQUAL)


def _check(verdict: int) -> None:
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
