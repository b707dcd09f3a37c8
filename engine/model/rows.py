"""Sinks, which receive finished rows, or results that a device computed from rows; and facts of rows, such as sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Arcs sorted by their tails or by their heads (CSR): where the arcs of each vertex begin, the vertices at their other
#: ends, and their weights.
Side = tuple[Indices, npt.NDArray[np.int32], npt.NDArray[np.int32]]
#: Number of bins of the distance histogram; if a distance lies beyond the last bin, pairs of bins are merged.
BINS: Final = 128
#: The least width of a bin: kernels multiply by its inverse, which must not overflow to infinity (0 * inf is NaN).
NARROWEST: Final = 2.0**-1000
#: Counts the finite distances of some rows in the bins of a histogram.  It is called with the width of a bin and the
#: array of counts, and returns the number of negative distances.
Count = Callable[[float, npt.NDArray[np.int64]], int]


class Sink(Protocol):
    """A receiver of finished blocks of the matrix, such as ``storage.matrix.writer.MatrixWriter``."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the blocks that suit the sink best."""
        ...

    def write(self, row: int, column: int, block: Array) -> None:
        """Take a finished block of the matrix.  Several threads may write different tiles at the same time.

        Args:
            row: matrix row of the block's first entry.
            column: matrix column of the block's first entry.
            block: shape (rows, columns), in the working type.
        """
        ...


class QuantitySink(Protocol):
    """A receiver of sums of one quantity, such as ``storage.quantities.writing.QuantityTiles``."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the sums, one of ``engine.model.dtypes.SUM_TYPES``, in any order of bytes."""
        ...

    def write(self, row: int, block: Array) -> None:
        """Take whole rows, shape (rows, columns); ``row`` is the number of the first row."""
        ...


@runtime_checkable
class FactSink(Protocol):
    """A sink that gathers facts of rows separately from storing rows.  Several threads may call its methods at once."""

    @property
    def place(self) -> Array | None:
        """The array into which searches may write rows directly, instead of calling :meth:`keep`; None if there is
        none.
        """
        ...

    def gather(
        self,
        row: int,
        block: Array,
        some: npt.NDArray[np.int64] | None = None,
        found: FoundFacts | None = None,
    ) -> None:
        """Gather the facts of whole rows.

        Args:
            row: number of the first row of ``block``.
            block: shape (rows, columns).
            some: the rows of ``block`` to look at, int64; None for all.
            found: the facts of these rows if they are known already; the rows are then not read.
        """
        ...

    def keep(self, row: int, block: Array) -> None:
        """Store whole rows, shape (rows, columns); ``row`` is the number of the first row."""
        ...


class ArraySink:
    """A sink that is an array in memory, shape (rows, columns)."""

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.array: Array = np.empty(shape, dtype)
        self.tile = (64, max(1, shape[1]))

    @property
    def place(self) -> Array:
        """The array itself."""
        return self.array

    def write(self, row: int, column: int, block: Array) -> None:
        """Copy ``block``, shape (rows, columns), to matrix entry (``row``, ``column``)."""
        self.array[row : row + block.shape[0], column : column + block.shape[1]] = block


class AnyOrderSink(Sink, Protocol):
    """A sink that keeps no row, and may take rows of distances to all vertices with columns in any order."""

    @property
    def any_order(self) -> bool:
        """Whether the columns may be in any order, in rows that hold the distances to all vertices."""
        ...

    def take(self, first: int, rows: npt.NDArray[np.int64], block: Array, places: npt.NDArray[np.integer]) -> None:
        """Take whole rows.  Several threads may call this, each with its own rows.

        Args:
            first: number of the first row of the batch.
            rows: numbers of the rows within the batch, shape (rows,).
            block: of the working type, shape (rows, at least n); it may be used again after the call.
            places: shape (n,): the column of ``block`` in which each vertex is; all other columns are *unreachable*.
        """
        ...


class NullSink:
    """A sink that discards the rows of a matrix of ``n`` columns."""

    def __init__(self, n: int) -> None:
        self.tile = (64, max(1, n))

    def write(self, row: int, column: int, block: Array) -> None:
        """Discard a block."""


class KnownRows:
    """Rows of distances to all vertices, computed by the trials of a plan and kept for the solve that follows.

    Attributes:
        dtype: the working type of the rows.
        count: the number of rows.
    """

    def __init__(self, n: int, dtype: npt.DTypeLike) -> None:
        self.dtype, self.count = np.dtype(dtype), 0
        self._blocks: list[Array] = []
        self._place = np.full(n, -1, np.int64)

    def add(self, sources: npt.NDArray[np.int64], block: Array) -> None:
        """Keep the rows of some sources.

        Args:
            sources: vertex indices, shape (rows,); their rows have not been added before.
            block: the distances from ``sources``, shape (rows, n); the caller must not change it afterwards.
        """
        self._place[sources] = self.count + np.arange(len(sources))
        self._blocks.append(block)
        self.count += len(sources)

    def knows(self, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each of ``sources``, shape (rows,), whether its row is known."""
        known: npt.NDArray[np.bool_] = self._place[sources] >= 0
        return known

    def parts(
        self, sources: npt.NDArray[np.int64]
    ) -> Iterator[tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield the known rows of some sources, block by block.

        Args:
            sources: vertex indices, shape (rows,).

        Yields:
            A block of rows, the indices of rows in this block, and for each of them the index in ``sources``.
        """
        places, first = self._place[sources], 0
        for block in self._blocks:
            which = np.flatnonzero((places >= first) & (places < first + len(block)))
            if len(which):
                yield block, places[which] - first, which
            first += len(block)


@dataclass(frozen=True)
class RowFacts:
    """Facts of some rows, each of shape (rows,); the distance of a source to itself does not count.

    Attributes:
        reached: number of targets with a finite distance.
        sums: sum of the finite distances, int64 or float64.
        largest: the largest finite distance; meaningless where ``farthest`` is -1.
        farthest: the first column that holds the largest distance; -1 where no target is reached.
    """

    reached: npt.NDArray[np.int64]
    sums: Array
    largest: Array
    farthest: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReducedLevels:
    """What a breadth-first search has computed instead of rows.  Fields of the same names in :class:`ReducedRows` have
    the same meaning.
    """

    weights: Floats
    nearest: Indices
    distances: Floats


@dataclass(frozen=True)
class FoundFacts:
    """Facts of some rows that the search of these rows has found.

    Attributes:
        facts: the facts.
        count: counts the distances of these rows in the bins of a histogram.
        levels: shape (rows, longest + 1): how many targets, not counting the source, are at each number of hops; the
            rows themselves were then not written.  None if the rows were written.
        reduced: the sums and the nearest vertices that were requested; None if none were.
    """

    facts: RowFacts
    count: Count
    levels: npt.NDArray[np.int64] | None = None
    reduced: ReducedLevels | None = None


@dataclass(frozen=True, eq=False)
class RowReduction:
    """A request to a device: what to compute from whole rows, instead of sending the rows to the host.

    Attributes:
        own: int64, shape (rows,): the column of each row's source, which does not count; -1 if it has no column.
        limits: of the working type, ascending: the entries below each limit are counted, and the weights of their
            columns summed.
        inverses: whether 1 / distance is summed.
        shares: int64, shape (quantiles, 2): the numerator and the denominator of each quantile.
        nearest: the number of nearest columns.
        held: int32, ascending: the columns that have weights.
        weights: float64, shape (kinds, columns that have weights).
        levels: whether everything that is asked follows from the numbers of targets at each number of hops.
        decay: how weights count less at larger distances: the number of the decay function, its second parameter, and
            an array of its first parameters (middles), float64, which replace the limits.  None if all weights below a
            limit count fully.
        columns: int32: the wanted columns of rows of distances to all vertices; column numbers in all other attributes
            refer to the wanted columns.  None for all columns.
        cutoff: the least entry that counts as unreachable, of the working type; None without a cutoff.
    """

    own: npt.NDArray[np.int64]
    limits: Array
    inverses: bool
    shares: npt.NDArray[np.int64]
    nearest: int
    held: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float64]
    levels: bool
    decay: tuple[int, float, npt.NDArray[np.float64]] | None
    columns: npt.NDArray[np.int32] | None = None
    cutoff: np.generic | None = None

    @property
    def bytes(self) -> int:
        """Bytes of device memory for the results of all rows and for the arrays of this reduction."""
        results = 5 + len(self.limits) * (1 + len(self.weights)) + len(self.shares) + 2 * self.nearest
        given = self.weights.nbytes + self.held.nbytes + (0 if self.columns is None else self.columns.nbytes)
        return 8 * len(self.own) * (1 + results) + given


@dataclass(frozen=True, eq=False)
class ReducedRows:
    """The results of a :class:`RowReduction` for some rows; what was not asked for has no entries.

    Attributes:
        facts: the facts of the rows.
        inverses: float64, shape (rows,): the sums of 1 / distance.
        within: int64, shape (rows, limits): the numbers of entries below the limits.
        quantiles: float64, shape (rows, quantiles); NaN where nothing is reached.
        nearest: int64, shape (rows, nearest): the nearest columns, nearest first and, at equal distances, in ascending
            order; -1 where fewer are reached.
        distances: float64, shape (rows, nearest): the distances of these columns; NaN where fewer are reached.
        weights: float64, shape (rows, kinds, limits): the sums of weights.
    """

    facts: RowFacts
    inverses: npt.NDArray[np.float64]
    within: npt.NDArray[np.int64]
    quantiles: npt.NDArray[np.float64]
    nearest: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]


@runtime_checkable
class ReducingSink(Protocol):
    """A sink that takes the results of reductions instead of rows, from a device that can reduce rows."""

    @property
    def reduction(self) -> RowReduction | None:
        """What the device computes; None if it must send the rows."""
        ...

    def take_reduced(self, first: int, reduced: ReducedRows) -> None:
        """Take the results of the rows from number ``first`` on.  Several threads may call this for different rows."""
        ...

    def take_levels(self, first: int, levels: npt.NDArray[np.int64]) -> None:
        """Take the numbers of targets at each number of hops, shape (rows, longest + 1), of the rows from number
        ``first`` on.

        Sources are not counted among the targets.  This is called only if :attr:`RowReduction.levels` is set.
        """
        ...


@dataclass(frozen=True, eq=False)
class PathCounting:
    """What a device counts in whole rows of distances, instead of sending the rows to the host: flow on shortest paths.

    Attributes:
        sources: int64, shape (rows,): the vertex where the flow of each row begins.
        own: int64, shape (rows,): the vertex at which no flow of the row ends; -1 for none.
        kept: float64, shape (n,): the flow that ends at each vertex in every row.
        out: ``indptr``, int64, shape (n + 1,), ``heads``, int32, and weights, int32, of the arcs; no weights where each
            arc counts 1.
        into: the same arcs sorted by their heads: ``indptr``, tails, weights.
        ends: whether to count the flow that begins and ends at vertices.
        over: whether to count the flow over arcs.
        most: the largest number of rows that are counted at the same time, each in a work space of its own.
    """

    sources: Indices
    own: Indices
    kept: Floats
    out: Side
    into: Side
    ends: bool
    over: bool
    most: int

    @property
    def bytes(self) -> int:
        """Bytes of device memory that counting takes."""
        n, arcs, rows = len(self.kept), len(self.out[1]), len(self.sources)
        given = sum(array.nbytes for side in (self.out, self.into) for array in side)
        return given + 8 * n + 40 * rows + 8 * (2 * n + arcs) + self.most * bytes_a_row(n, arcs * self.over, self.ends)


def bytes_a_row(n: int, over: int, ends: bool) -> int:
    """Return the bytes of the work space in which the paths of a row are counted.

    Args:
        n: number of vertices.
        over: number of arcs if the paths over arcs are counted, else 0.
        ends: whether the paths that end at vertices are counted.
    """
    return n * (32 + 8 * ends) + 8 * over


@dataclass(frozen=True, eq=False)
class CountedPaths:
    """The flow that was counted in some rows.  A pair of vertices shares its flow equally among its shortest paths.

    Attributes:
        rows: int64: the numbers of the rows.
        vertices: float64, shape (n,): the flow through each vertex, without the flow that begins or ends there.
        ends: float64, shape (n,): the flow that ends at each vertex; empty where it was not asked for.
        over: float64, shape (arcs,): the flow over each arc; empty where it was not asked for.
        told: float64, shape (rows, 3): for each row, the flow that left the source, the flow that arrived, and the
            largest number of shortest paths to a vertex.  This number is -1 if a vertex that the row reaches was not
            found over tight arcs.
    """

    rows: Indices
    vertices: Floats
    ends: Floats
    over: Floats
    told: Floats


@runtime_checkable
class CountingSink(Protocol):
    """A sink that takes counts of paths instead of rows, from a device that can count paths."""

    @property
    def counting(self) -> PathCounting:
        """What the device has to count."""
        ...

    def take_counted(self, counted: CountedPaths) -> None:
        """Take the flow that was counted in some rows.  Several threads may call this."""
        ...
