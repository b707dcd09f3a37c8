"""Verifies that a store holds the distances of its graph, by checksums of files and by searching some rows again.

Checksums detect damage, but they do not detect a matrix that was computed wrongly and then sealed.  So the rows of some
sources are compared with new searches in the store's graph, by code that no solve uses (``engine.api.reference``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.reference import Floats, Reference, sums_again
from engine.api.routes import rounding
from engine.api.semirings.verifying import ValuesAgain
from engine.graph.terminals import arrivals, opened
from engine.model.progress import Monitor, given_monitor
from engine.rows.sums import exactness
from storage.arguments import check_whole
from storage.errors import StorageFailed
from storage.graph.graph import graph_digest
from storage.matrix.sealed import SealedResult
from storage.semirings import EVERY, MIN_PLUS

Indices = npt.NDArray[np.int64]

#: Most work of the searches that are made by default; it takes about half a second.  One unit is the work for one arc
#: or vertex in a round of Bellman-Ford.
FREE_WORK: Final = 60_000_000
#: Work of a search by SciPy's Dijkstra for each arc and vertex, in the unit of ``FREE_WORK``.
_SEARCH: Final = 16
#: Most entries of the rows that are searched together; at least one row is searched.
_AT_A_TIME: Final = 1 << 21


@dataclass(frozen=True)
class Verified:
    """The result of a verification without faults.

    Attributes:
        sources: number of rows of the matrix.
        searched: number of rows that were compared with a new search, and agree.
    """

    sources: int
    searched: int


def verify_store(
    path: str | Path, sample: int | Literal["all"] | None = None, *, monitor: Monitor | None = None
) -> Verified:
    """Read every file, compare the arcs and labels with the digest of the graph, then search ``sample`` sources and
    compare their rows.

    Args:
        path: a folder, or an address in an object store.
        sample: number of sources, evenly spaced over the rows; None for as many as take about half a second.  If a
            single search takes longer than that, no source is searched.
        monitor: receives the progress, in rows.

    Returns:
        The number of sources, and the number of sources whose rows were compared with a new search and agree.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: a tile or file is damaged, or an entry differs from the new search; the message names the first
            one.
        Cancelled: the monitor asked to stop.
    """
    if sample is not None and not (isinstance(sample, str) and sample == "all"):
        sample = check_whole("sample", sample, 0)
    monitor = given_monitor(monitor)
    with open_result(path, semiring=EVERY) as matrix:
        matrix.check()
        check_graph(matrix)
        return verify_rows(matrix, sample, monitor=monitor)


def check_graph(matrix: SealedResult) -> None:
    """Compare the stored graph with the digest, in the seal, of the graph that was solved.

    This is needed for stores of earlier versions: their seals do not detect arcs or labels copied from another store.

    Raises:
        StorageFailed: the graphs differ.
    """
    named = (matrix.source_labels, matrix.sources), (matrix.target_labels, matrix.targets)
    same = all(np.array_equal(labels, matrix.labels[vertices]) for labels, vertices in named)
    if not same or graph_digest(matrix.graph()) != matrix.attributes["graph"]:
        raise StorageFailed(
            f"{matrix.path} is damaged: its arcs, labels or coordinates are not those of the graph that was solved; "
            "solve it again"
        )


def verify_rows(
    matrix: SealedResult, sample: int | Literal["all"] | None = None, *, monitor: Monitor | None = None
) -> Verified:
    """Search sources again and compare their rows.

    Args:
        matrix: an open matrix.
        sample: number of sources, evenly spaced over the rows; None for as many as take about half a second.
        monitor: receives the progress, in rows.

    Raises:
        StorageFailed: an entry differs from the new search; the message names the first one.
        Cancelled: the monitor asked to stop.
    """
    monitor = given_monitor(monitor)
    rows = matrix.shape[0]
    if sample == 0 or 0 in matrix.shape:
        return Verified(rows, 0)
    again = _Again(matrix) if matrix.semiring == MIN_PLUS else ValuesAgain(matrix)
    count = min(rows, FREE_WORK // again.cost) if sample is None else rows if sample == "all" else min(rows, sample)
    positions = (2 * np.arange(count) + 1) * rows // (2 * max(1, count))
    monitor.begin("search again", count, "rows")
    step = max(1, _AT_A_TIME // matrix.n)
    for first in range(0, count, step):
        sources = matrix.sources[positions[first : first + step]]
        again.compare(sources)
        monitor.step(len(sources))
    return Verified(rows, count)


class _Again:
    """Searches the graph of one store again, with the options that the store records.

    Attributes:
        cost: work of a search from one source, in the unit of ``FREE_WORK``.
    """

    def __init__(self, matrix: SealedResult) -> None:
        self._matrix, graph = matrix, opened(matrix.graph())
        self._targets = arrivals(matrix.targets, matrix.n, graph.n - matrix.n)
        self._reference = Reference(graph)
        self._hops: int | None = matrix.attributes.get("max_hops")
        cutoff = matrix.attributes["cutoff"]
        with np.errstate(over="ignore"):  # every distance of the type is within a cutoff that the type does not hold
            self._cutoff = np.inf if cutoff is None else float(matrix.dtype.type(cutoff) if self._floats else cutoff)
        self._depth = 0.0  # size of the most negative length of any walk; the rounding of lengths depends on it
        self._search: Callable[[Indices], tuple[Floats, Indices]] = self._reference.trees
        rounds = _SEARCH
        if self._reference.negative:
            lowest, rounds = self._reference.settled(np.zeros(graph.n))
            self._depth = -float(lowest.min())
        if self._hops is not None:
            rounds = min(self._hops, graph.n)
        if self._hops is not None or self._reference.negative:
            self._search = self._rounds
        self.cost = max(1, rounds) * (graph.n + graph.arcs)

    @property
    def _floats(self) -> bool:
        return bool(self._matrix.dtype.kind == "f")

    def compare(self, sources: Indices) -> None:
        """Compare the rows of ``sources`` with a new search.

        Raises:
            StorageFailed: an entry is not the distance; the message names the first one.
        """
        matrix = self._matrix
        lengths, arcs = self._search(sources)
        stored: npt.NDArray[Any] = matrix.rows(sources)
        if isinstance(matrix, PreparedMatrix):
            self._compare_pairs(sources, stored)
        allowed = self._allowed(lengths, arcs)[:, self._targets] if self._floats else np.float64(0)
        every, lengths = lengths, lengths[:, self._targets]
        there, reached = np.not_equal(stored, matrix.unreachable), np.isfinite(lengths)
        with np.errstate(invalid="ignore"):
            near = (np.abs(stored - lengths) <= allowed) & (stored <= self._cutoff)
            beyond = ~reached | (lengths + allowed > self._cutoff)
        wrong = np.argwhere(~np.where(there, reached & near, beyond))
        if len(wrong):
            i, j = wrong[0].tolist()
            raise self._differs(int(sources[i]), int(matrix.targets[j]), stored[i, j], float(lengths[i, j]))
        if matrix.also:
            self._compare_sums(sources, there, every)

    def _compare_sums(self, sources: Indices, there: npt.NDArray[np.bool_], lengths: Floats) -> None:
        """Compare the stored sums of quantities along paths with newly computed sums.

        Args:
            sources: vertex indices, shape (rows,).
            there: which entries are distances, shape (rows, columns).
            lengths: distances to all vertices of the opened graph, shape (rows, vertices of the opened graph).
        """
        matrix, graph = self._matrix, self._matrix.graph()
        places, per = arrivals(np.arange(graph.n), graph.n, graph.terminals), exactness(graph).per
        stored = {name: quantity.rows(sources) for name, quantity in matrix.also.items()}
        for i, source in enumerate(sources.tolist()):
            for name, sums in sums_again(graph, source, lengths[i, places], per).items():
                row, none = stored[name][i], matrix.also[name].unreachable
                wanted = np.where(there[i], sums[matrix.targets], none)
                wrong = np.flatnonzero(row != wanted)
                if len(wrong):
                    j = int(wrong[0])
                    ends = f"{matrix.labels[source]} to {matrix.labels[matrix.targets[j]]}"
                    raise StorageFailed(
                        f"{matrix.path} is wrong: {name} from {ends} is {row[j]}, and a new sum along the path is "
                        f"{wanted[j]}; solve it again"
                    )

    def _compare_pairs(self, sources: Indices, rows: npt.NDArray[Any]) -> None:
        """Compare the answers of a prepared graph for single pairs with its rows, which may be computed differently."""
        matrix = self._matrix
        for source, row in zip(sources.tolist(), rows, strict=True):
            pairs = matrix.entries(np.full(len(row), source), matrix.targets)
            wrong = np.flatnonzero(pairs != row)
            if len(wrong):
                j = int(wrong[0])
                names = f"{matrix.labels[source]} to {matrix.labels[matrix.targets[j]]}"
                found = f"the row holds {row[j]}, and the pair {pairs[j]}"
                raise StorageFailed(f"{matrix.path} is wrong: from {names} {found}; prepare it again")

    def _differs(self, source: int, target: int, stored: Any, length: float) -> StorageFailed:
        matrix = self._matrix
        found = f"{length:.15g}" if np.isfinite(length) else "no path"
        if length > self._cutoff:
            found += f", beyond the cutoff {self._cutoff:.15g}"
        holds = "no path" if stored == matrix.unreachable else str(stored)
        limit = "" if self._hops is None else f" within {self._hops:,} arcs"
        return StorageFailed(
            f"{matrix.path} is wrong: from {matrix.labels[source]} to {matrix.labels[target]} it holds {holds}, "
            f"and a new search of its graph{limit} finds {found}; solve it again"
        )

    def _allowed(self, lengths: Floats, arcs: Indices) -> Floats:
        """Return the largest rounding errors that float entries may have, in the shape of ``lengths``.

        The stored sum may belong to a different path, which is equally short except for rounding.  So the bound is for
        the largest number of arcs of any path in the row.  If negative arcs cancel positive ones, the size of the terms
        that cancel determines the rounding.
        """
        magnitude = np.abs(np.where(np.isfinite(lengths), lengths, 0))
        if self._reference.negative:
            magnitude = np.broadcast_to(magnitude.max(1, keepdims=True) + 2 * self._depth, lengths.shape)
        return np.asarray(rounding(arcs[:, None] + _SEARCH, magnitude, self._matrix.dtype))

    def _rounds(self, sources: Indices) -> tuple[Floats, Indices]:
        found = [self._reference.settled(self._reference.start(int(source)), self._hops) for source in sources]
        return np.array([layer for layer, _ in found]), np.array([steps for _, steps in found])
