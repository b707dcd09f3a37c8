"""The operations that a backend offers to algorithms; they are the same on every device.

Algorithms decide which block is relaxed next and call only these operations.  Every backend inherits the contract suite
in ``tests/contracts/backend.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from engine.model.rows import FoundFacts, KnownRows

Array = npt.NDArray[np.generic]
_Form = TypeVar("_Form")
#: Called with the numbers of finished rows of a batch, int64, and with the facts of these rows; None in place of facts
#: that are not known.
RowsDone = Callable[[npt.NDArray[np.int64], FoundFacts | None], None]
#: Called with the numbers of some rows, int64; the rows themselves, shape (rows, at least n), whose columns may be in
#: any order; and the column of each vertex, shape (n,).  All further columns are *unreachable*.  The caller uses the
#: array of rows again after the call.
TakeRows = Callable[[npt.NDArray[np.int64], Array, npt.NDArray[np.integer]], None]


@dataclass(frozen=True, eq=False)
class Arcs:
    """The arcs that a search follows, in CSR form as in ``storage.graph.graph.Graph``; no weight is negative.

    Attributes:
        indptr: int64, shape (n + 1,): the arcs out of u are those from ``indptr[u]`` up to ``indptr[u + 1]``.
        heads: int32, shape (arcs,).
        weights: shape (arcs,).
        potentials: float64 or int64, shape (n,): h, where ``weights`` are the reduced weights w + h[u] - h[v]; the
            search then writes d - h[source] + h[target] (Johnson 1977).  None if the weights are the graph's own.
        mirrored: promises that the heads of each vertex ascend, and that each arc has a reverse of the same weight;
            False where that is not known.
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    potentials: Array | None = None
    mirrored: bool = field(default=False, kw_only=True)
    _forms: dict[Callable[[Arcs], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def form(self, make: Callable[[Arcs], _Form]) -> _Form:
        """Return ``make(self)``, which is computed at the first call and then cached as long as this object exists."""
        if make not in self._forms:
            self._forms[make] = make(self)
        return self._forms[make]  # type: ignore[no-any-return]


def heaviest_out(arcs: Arcs) -> Array:
    """Return the largest weight of the arcs out of each vertex that has such arcs; at least one vertex must have them.

    Call this function through :meth:`Arcs.form`, which caches the result.
    """
    starts = arcs.indptr[:-1]
    return np.maximum.reduceat(arcs.weights, starts[arcs.indptr[1:] > starts])


class RowSearches(Protocol):
    """The searches of a batch, cut into pieces; all methods may be called by several threads."""

    @property
    def waiting(self) -> bool:
        """Whether there is a piece that no thread has taken."""
        ...

    def take(self, worker: int, then: RowsDone | None = None) -> tuple[int, bool]:
        """Do one piece, if one is waiting.

        Args:
            worker: number of the calling thread.
            then: called with the numbers of the rows that the piece has finished, int64, if there are any, and with
                their facts if these are known.

        Returns:
            The number of rows finished, and whether all searches of the batch are done.  Only the last call gets True.
        """
        ...

    def take_all(self, threads: int, seconds: float, then: RowsDone | None = None) -> tuple[int, bool]:
        """Do all pieces that one compiled call can do, if there are any; one thread calls this before any other thread
        takes a piece.

        Args:
            threads: the number of threads to use.
            seconds: time limit; no piece begins when this number of seconds has passed.
            then: as in :meth:`take`; called once, with all rows that are finished.

        Returns:
            As :meth:`take`.
        """
        ...


#: A :class:`LevelReduction` is requested only of searches that end before this number of hops.
MOST_HOPS: Final = 256


@dataclass(frozen=True, eq=False)
class LevelReduction:
    """What breadth-first searches are to sum, number of hops by number of hops, instead of writing rows of distances.

    Attributes:
        weights: for each kind of opportunity, the weights of the vertices, which are summed: shape (kinds, n), int32
            where int32 holds the sum of all magnitudes, else float64.
        shares: float64, shape (limits, ``MOST_HOPS``): how much of a weight counts at each number of hops.
        nearest: the number of nearest vertices to find, not counting the source itself.
        dear: set by a search that found adding weights by number of hops slower than looking up the factor of each
            distance; later searches then look factors up.
    """

    weights: Array
    shares: npt.NDArray[np.float64]
    nearest: int
    dear: Event = field(default_factory=Event)


@dataclass(frozen=True)
class RowsWanted:
    """Options of the searches of a batch: what the caller promises, and what it wants.

    Attributes:
        unit: promises that all arcs weigh 1.
        targets: vertex indices of the columns; None for all vertices.
        cutoff: entries beyond this distance become unreachable; None for no limit.
        dtype: working type of the distances; None for the type of the receiving array.  That array may also be float64
            for whole numbers, with +inf for *unreachable*.
        known: rows that need not be searched: distances to all vertices, in that working type.
        levels: sums that a search may compute instead of writing rows.  A search that does so must also find the facts
            of the rows and how many targets are at each distance.  None if the rows have to be written.
        take: a function that a search may call with rows of distances to all vertices, their columns in any order,
            instead of writing these rows.  None if the rows have to be written.
    """

    unit: bool = False
    targets: npt.NDArray[np.int64] | None = None
    cutoff: float | None = None
    dtype: npt.DTypeLike | None = None
    known: KnownRows | None = None
    levels: LevelReduction | None = None
    take: TakeRows | None = None


#: The default options: nothing is promised, and all distances are wanted, in the type of the receiving array.
NOTHING_SPECIAL: Final = RowsWanted()


class Backend(Protocol):
    """The operations of a device.  The last axis of every array is contiguous, and all arrays of a call have the same
    working type (``engine.model.dtypes``).
    """

    @property
    def name(self) -> str:
        """The name of the device, such as ``cpu``."""
        ...

    @property
    def threads(self) -> int:
        """The number of processors that share the work."""
        ...

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        """Set C to min(C, A (x) B), the min-plus product, in place.

        Unreachable entries stay unreachable; unreachable integers may end up at any value above ``largest``
        (``engine.model.dtypes.settle`` repairs them).

        Args:
            c: shape (m, n); it may not overlap ``a`` or ``b``.
            a: shape (m, k).
            b: shape (k, n).
            nonnegative: promises that A, B and C hold no entry below zero and no -0.0.
            upper: promises that C is square and that the product is symmetric; only entries on and above the diagonal
                need be right afterwards.
        """
        ...

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:
        """Run Floyd-Warshall inside a square block, in place; afterwards the block equals its own min-plus square.

        Args:
            d: shape (n, n); a diagonal of zeros stays zero.
            nonnegative: promises that no entry is below zero or -0.0.
            symmetric: promises that ``d`` is symmetric.
        """
        ...

    def transpose(self, out: Array, a: Array, *, lower: bool = False) -> None:
        """Write the transpose of ``a`` to ``out``.

        Args:
            out: shape (m, n).
            a: shape (n, m); it does not overlap ``out``, except that with ``lower`` it may be ``out`` itself, a square
                block.
            lower: write only the entries below the diagonal.
        """
        ...

    def search(
        self,
        arcs: Arcs,
        sources: npt.NDArray[np.int64],
        out: Array,
        *,
        unit: bool = False,
        targets: npt.NDArray[np.int64] | None = None,
        cutoff: float | None = None,
    ) -> None:
        """Make one shortest-path search per source; ``out[i]`` becomes the row of ``sources[i]``.

        Sums are held in float64 or int64 and rounded once into ``out``.

        Args:
            arcs: the arcs, none of them negative.
            sources: vertex indices.
            out: shape (sources, n), or (sources, targets) with ``targets``.
            unit: promises that all arcs weigh 1.
            targets: vertex indices of the columns; None for all vertices.
            cutoff: a distance; entries beyond it (``engine.graph.selection``) become unreachable, and the search ends
                there.  None for no limit.
        """
        ...

    def begin_search(
        self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, wanted: RowsWanted = NOTHING_SPECIAL
    ) -> RowSearches:
        """Prepare the searches of :meth:`search`, and return them cut into pieces for the threads of :meth:`share`.

        Args:
            arcs: the arcs, none of them negative.
            sources: vertex indices.
            out: shape (sources, n), or (sources, targets) with targets.
            wanted: what the caller promises, and what it wants.
        """
        ...

    def share(self, work: Callable[[int], None], most: int | None = None) -> None:
        """Call ``work(worker)`` once in each thread, and wait for all calls; the calling thread is number 0.

        Args:
            work: takes the number of the thread.
            most: the number of threads to begin with; None for all.  :meth:`widen` lets the remaining threads take
                part.
        """
        ...

    def widen(self) -> None:
        """Let all threads take part in the current :meth:`share`; only the work of thread 0 may call this."""
        ...

    def shutdown(self) -> None:
        """Release threads and device memory.  The backend cannot be used afterwards."""
        ...
