"""The validated graph: compressed sparse rows, vertex labels, and a receipt of what cleaning changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Graph:
    """A clean graph in compressed sparse rows (CSR).

    No self loops, no parallel arcs, no NaN or infinite weight.  An undirected graph holds both arcs of each edge.

    Attributes:
        indptr: int64, shape (n + 1,); the arcs out of vertex u are ``indptr[u]:indptr[u + 1]``.
        heads: int32, shape (arcs,); ascending within each row.
        weights: int32, int64 or float64, shape (arcs,); integer exactly when every weight is a whole number.
        labels: int64 or ``StringDType``, shape (n,), strictly ascending (numbers by value, names by code point).
        directed: False when the arcs mirror each other.
        weighted: False when every arc weighs 1 because the file has no weights (distances are then hops).
    """

    indptr: IntArray
    heads: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
    labels: npt.NDArray[np.generic]
    directed: bool
    weighted: bool

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def arcs(self) -> int:
        """Number of stored arcs; an undirected edge counts twice."""
        return len(self.heads)

    @property
    def m(self) -> int:
        """Number of arcs of a directed graph, of edges of an undirected one."""
        return self.arcs if self.directed else self.arcs // 2

    @property
    def integral(self) -> bool:
        """Whether every weight is a whole number, so that distances are exact integers."""
        return self.weights.dtype.kind == "i"


@dataclass(frozen=True)
class Receipt:
    """What a reader understood and what cleaning changed; shown by ``apsp inspect`` and ``POST /v1/graphs``."""

    format: str
    compression: str | None
    entries: int
    self_loops: int
    parallel_arcs: int
    infinite_arcs: int
    weight_column: str | None
    notes: tuple[str, ...] = field(default=())
