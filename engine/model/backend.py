"""What algorithms give to searches, and what searches give back: arcs, options, and calls for finished rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from engine.model.rows import FoundFacts, KnownRows

Array = npt.NDArray[np.generic]
_Form = TypeVar("_Form")
#: What is known about the entries of blocks that are relaxed: True if none is below zero, False if some may be.  None
#: says that entries are products of probabilities: they are multiplied in place of added, and the greatest is kept.
Signs = bool | None
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
        ordered: promises that the vertices are in an order that suits searches, so that they need no other numbers.
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    potentials: Array | None = None
    mirrored: bool = field(default=False, kw_only=True)
    ordered: bool = field(default=False, kw_only=True)
    _forms: dict[Callable[[Arcs], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def form(self, make: Callable[[Arcs], _Form]) -> _Form:
        """Return ``make(self)``, which is computed at the first call and then cached as long as this object exists."""
        if make not in self._forms:
            self._forms[make] = make(self)
        return self._forms[make]  # type: ignore[no-any-return]

    def keep(self, make: Callable[[Arcs], _Form], found: _Form) -> None:
        """Cache ``found``, which equals ``make(self)``, so that :meth:`form` returns it."""
        self._forms[make] = found

    def has(self, make: Callable[[Arcs], _Form]) -> bool:
        """Return whether ``make(self)`` is cached."""
        return make in self._forms


def heaviest_out(arcs: Arcs) -> Array:
    """Return the largest weight of the arcs out of each vertex that has such arcs; at least one vertex must have them.

    Call this function through :meth:`Arcs.form`, which caches the result.
    """
    starts = arcs.indptr[:-1]
    return np.maximum.reduceat(arcs.weights, starts[arcs.indptr[1:] > starts])


#: A :class:`LevelReduction` is requested only of searches that end before this number of hops.
MOST_HOPS: Final = 256


@dataclass(frozen=True, eq=False)
class LevelReduction:
    """What breadth-first searches sum, separately for each number of hops, instead of writing rows of distances.

    Attributes:
        weights: for each kind of opportunity, the weights of the vertices, which are summed: shape (kinds, n), int32
            where int32 holds the sum of all magnitudes, else float64.
        shares: float64, shape (limits, ``MOST_HOPS``): how much of a weight counts at each number of hops.
        nearest: the number of nearest vertices to find, not counting the source itself.
        dear: an event that a search sets if it finds that adding weights by number of hops is slower than looking up
            the factor of each distance; later searches then look factors up.
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
