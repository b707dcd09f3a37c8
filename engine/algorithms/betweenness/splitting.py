"""Splits the sources: searches that visit little are made alone, all others together, in the part that they can visit.

Sixteen searches that are made together cost time for every vertex and arc, because vectors have no means to leave out
what is not reached.  Where a search reaches only some vertices, as in small components or from the lower end of a graph
with few cycles, it is faster alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.acyclic import ForwardPasses
from engine.algorithms.betweenness.numbering import PathArcs
from engine.algorithms.betweenness.rows import RowPasses
from engine.devices.cpu.betweenness.preparing import cut_out
from engine.graph.ordering import fixed

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VisitedPart:
    """The part of a graph that searches together can visit; no arc leads out of it.

    Attributes:
        arcs: the arcs of the part, in the order of those of the graph; vertices keep their order, too.
        vertices: int64, shape (part,): the number of each vertex of the part in the graph, ascending.
        places: int64, shape (arcs of the part,): the index of each arc in the graph.
        number: int64, shape (n + 1,): the number of each vertex in the part; -1 for all others, and as the last entry.
    """

    arcs: PathArcs
    vertices: Indices
    places: Indices
    number: Indices

    @classmethod
    def of(cls, arcs: PathArcs) -> VisitedPart:
        """Return the part of a graph that searches from vertices can visit whose searches visit much."""
        number, vertices, places, (indptr, heads) = cut_out(fixed(arcs.indptr), fixed(arcs.heads), arcs.inside, True)
        weights = arcs.weights[places] if len(arcs.weights) else arcs.weights
        return cls(replace(arcs, indptr=indptr, heads=heads, weights=weights), vertices, places, number)


class TogetherPasses:
    """Counts paths from the sources whose searches visit much; several threads may use it at the same time.

    Args:
        arcs: the arcs; distances over them are whole numbers up to ``RowPasses.LONGEST``.
        sources: three arrays of shape (sources,), as ``RowPasses`` takes them.  Sources whose searches are made alone
            are never asked for.
        kept: float64, shape (n,), as ``RowPasses`` takes it.
    """

    def __init__(self, arcs: PathArcs, sources: tuple[Indices, Indices, Floats], kept: Floats) -> None:
        part = self._part = None if arcs.inside.all() else VisitedPart.of(arcs)
        few, (places, own, factors) = arcs.few[sources[0]], sources
        if part is not None:
            arcs, kept, places, own = part.arcs, kept[part.vertices], part.number[places], part.number[own]
        places = np.where(few, len(kept), places)  # no vertex, so these sources are left out of the order
        self._passes = (ForwardPasses if arcs.forward else RowPasses)(arcs, (places, own, factors), kept)

    def pieces(self, rows: Indices, threads: int) -> list[Indices]:
        """Cut the positions ``rows`` into pieces, each of which a thread takes at once; sources without outgoing arcs
        may be left out.
        """
        return self._passes.pieces(rows, threads)

    def near(self) -> Indices:
        """Return the positions of the sources that have outgoing arcs, ordered so that sources near each other in the
        graph are adjacent.
        """
        return self._passes.near()

    def worker(self, sums: tuple[Floats, ...]) -> tuple[Callable[[Indices], int], Callable[[], None]]:
        """Return a function that counts the paths from some sources in one thread, and a function to call at the end.

        Args:
            sums: the sums of this thread, as ``PassingTask`` makes them; complete after the last call.

        Returns:
            A function of positions in ``sources``, which returns ``DONE`` or the code of the fault that it found; and
            the function to call at the end.
        """
        if self._part is None:
            return self._passes.worker(sums), nothing
        vertices, places = self._part.vertices, self._part.places
        inner = tuple(
            np.zeros(len(at) if len(total) else 0)
            for total, at in zip(sums, (vertices, vertices, vertices, places), strict=True)
        )

        def add() -> None:
            for total, found, at in zip(sums, inner, (vertices, vertices, vertices, places), strict=True):
                if len(total):
                    total[at] += found

        return self._passes.worker(inner), add


def nothing() -> None:
    """Do nothing, where sums are complete already."""
