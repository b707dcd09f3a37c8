"""The selected part of the matrix: rows are sources, columns are targets, and the cutoff limits the entries.

The cutoff is rounded to the type of the distances, and an entry is kept if its distance, rounded to the same type, is
not greater.  So every algorithm keeps the same entries, except where the rounding of sums differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import work_type
from engine.model.problem import Options
from engine.model.rows import ReducedRows, ReducingSink, RowReduction, Sink
from storage.errors import InvalidRequest
from storage.graph.graph import Graph

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rectangle:
    """Rows and columns of a result.

    Attributes:
        n: number of vertices of the graph.
        sources: vertex indices of the rows; None for all vertices, in order.
        targets: vertex indices of the columns; None for all vertices, in order.
        cutoff: the largest distance wanted; None for no limit.
    """

    n: int
    sources: Indices | None
    targets: Indices | None
    cutoff: float | None

    @classmethod
    def of(cls, options: Options, n: int) -> Rectangle:
        """Return the rectangle that ``options`` select in the matrix of a graph of ``n`` vertices."""
        sources, targets = (
            None if side is None else np.array(side, np.int64) for side in (options.sources, options.targets)
        )
        return cls(n, sources, targets, options.cutoff)

    @property
    def permuted(self) -> bool:
        """Whether all vertices are selected, as sources or as targets, but not in ascending order."""
        sides = [side for side in (self.sources, self.targets) if side is not None and len(side) == self.n]
        return any(bool((side != np.arange(self.n)).any()) for side in sides)

    @property
    def rows(self) -> Indices:
        """The vertex index of each row, shape (rows,)."""
        return np.arange(self.n) if self.sources is None else self.sources

    @property
    def columns(self) -> Indices:
        """The vertex index of each column, shape (columns,)."""
        return np.arange(self.n) if self.targets is None else self.targets

    @property
    def transposed(self) -> Rectangle:
        """The rectangle of the reversed graph's matrix: sources and targets change places."""
        return Rectangle(self.n, self.targets, self.sources, self.cutoff)

    @property
    def narrow(self) -> bool:
        """Whether complete rows must be reduced: to the target columns, or to entries within the cutoff."""
        return self.targets is not None or self.cutoff is not None


class Narrow:
    """A sink that takes rows of all ``n`` distances and passes on only the targets' columns and distances within the
    cutoff.

    It is thread-safe if the inner sink is.
    """

    def __init__(self, sink: Sink, rectangle: Rectangle) -> None:
        self._sink, self._wanted = sink, rectangle
        self.tile = (sink.tile[0], max(1, rectangle.n))

    def write(self, row: int, column: int, block: Array) -> None:
        """Reduce whole rows and pass them on; ``block`` itself stays unchanged.

        Args:
            row: matrix row of the block's first entry.
            column: always 0.
            block: shape (rows, n).

        Raises:
            ValueError: the rows are not whole.
        """
        wanted = self._wanted
        if column != 0 or block.shape[1] != wanted.n:
            raise ValueError(f"whole rows are expected, found columns {column} to {column + block.shape[1]}")
        part = block if wanted.targets is None else block[:, wanted.targets]
        self._sink.write(row, 0, part if wanted.cutoff is None else end_at(part, wanted.cutoff))

    @property
    def reduction(self) -> RowReduction | None:
        """What a device must compute from whole rows; None if the inner sink needs the rows themselves."""
        inner, wanted = self._sink, self._wanted
        asked = inner.reduction if isinstance(inner, ReducingSink) else None
        if asked is None:
            return None
        columns = None if wanted.targets is None else wanted.targets.astype(np.int32)
        cutoff = None if wanted.cutoff is None else first_beyond(wanted.cutoff, asked.limits.dtype)
        return replace(asked, columns=columns, cutoff=cutoff, levels=False)

    def take_reduced(self, first: int, reduced: ReducedRows) -> None:
        """Pass on the results of consecutive rows, from row ``first`` on."""
        assert isinstance(self._sink, ReducingSink)
        self._sink.take_reduced(first, reduced)

    def take_levels(self, first: int, levels: Indices) -> None:
        """Raise NotImplementedError: levels cannot be limited to targets or to a cutoff."""
        raise NotImplementedError


def end_at(block: Array, cutoff: float) -> Array:
    """Return a copy of ``block`` in which the entries beyond ``cutoff`` are unreachable."""
    kind = work_type(block.dtype)
    return np.where(np.greater_equal(block, first_beyond(cutoff, block.dtype)), kind.sentinel(), block)


def first_beyond(cutoff: float, dtype: npt.DTypeLike) -> np.generic:
    """Return the smallest value of a working type that is greater than the rounded ``cutoff``; at most *unreachable*.

    The cutoff may be any number, also an infinity.
    """
    kind = work_type(dtype)
    if kind.integer:
        last, least = int(kind.unreachable), int(np.iinfo(kind.dtype.name).min)
        return kind.dtype.type(last if cutoff >= last else least if cutoff < least else math.floor(cutoff) + 1)
    with np.errstate(over="ignore"):  # a cutoff beyond the type becomes infinite
        return np.nextafter(kind.dtype.type(cutoff), kind.dtype.type(np.inf))  # type: ignore[no-any-return]


def first_sum_beyond(cutoff: float, dtype: npt.DTypeLike) -> float:
    """Return the smallest float64 that, rounded to a working type, is greater than the rounded ``cutoff``."""
    beyond = first_beyond(cutoff, dtype)
    if beyond.dtype != np.float32:
        return float(beyond)
    last = np.nextafter(beyond, np.float32(0)) if np.isinf(beyond) else np.nextafter(beyond, np.float32(-np.inf))
    middle = float(last) + (float(beyond) - float(last)) / 2
    return middle if np.float32(middle) > last else float(np.nextafter(middle, np.inf))


def check_lengths(graph: Graph) -> None:
    """Raise an error if distances are requested of a graph that was read for widest paths.

    Such a graph may lack the shortest of parallel arcs.  It may also lack a negative loop, which is a negative cycle.

    Raises:
        InvalidRequest: the graph has weights, and was not read with the least of parallel arcs.
    """
    if graph.weighted and graph.parallel != "least":
        raise InvalidRequest(
            f"distances (min-plus) need the least of parallel arcs, and the graph was read with the {graph.parallel} "
            "of them; read it again with parallel least (--parallel least; read_graph, build_graph and uploads: "
            "parallel='least')",
            field="parallel",
        )


def check_vertices(name: str, vertices: Sequence[int] | None, labels: Array) -> None:
    """Check the sources or the targets of a request.

    Args:
        name: ``sources`` or ``targets``, for messages.
        vertices: vertex indices; None for all vertices.
        labels: shape (n,), the labels of all vertices, for messages.

    Raises:
        InvalidRequest: ``vertices`` is empty, an index is out of range, or an index occurs twice.
    """
    if vertices is None:
        return
    if not vertices:
        raise InvalidRequest(f"{name} names no vertex", field=name)
    if not 0 <= min(vertices) <= max(vertices) < len(labels):
        raise InvalidRequest(f"{name} must be vertex indices from 0 to {len(labels) - 1}", field=name)
    seen: set[int] = set()
    for vertex in vertices:
        if vertex in seen:
            raise InvalidRequest(f"{name} names vertex {labels[vertex]} twice", field=name)
        seen.add(vertex)
