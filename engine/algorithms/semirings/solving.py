"""Solves rows of a semiring into a sink: cuts rows into batches and pieces, and gathers the facts of finished rows."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.context import SolveContext
from engine.algorithms.dijkstra import RowBatches
from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.searches import Done, Piece, Searches
from engine.devices.cpu.semirings.value_facts import value_facts
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.rows import Sink
from engine.rows.pipeline import RowPipeline, place_of
from storage.graph.graph import Graph
from storage.semirings import DENSE, PARTS, SEMIRINGS, Semiring

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: Names of algorithms in plans; each suits some semirings and graphs (:func:`algorithm_of`).
TREE: Final = "spanning-tree"
MERGED: Final = "merged-components"
PRODUCT: Final = "product-search"
#: The algorithms for products by the names that options may give them: their own names, and the names of the algorithms
#: that find distances in the same way.
OF_PRODUCTS: Final = {
    "dijkstra": PRODUCT, "recursive-floyd-warshall": DENSE, PARTS: PARTS, PRODUCT: PRODUCT, DENSE: DENSE
}  # fmt: skip
REACHED: Final = "components"
#: Most rows that one thread takes at a time.
PIECE: Final = 64


def algorithm_of(semiring: Semiring, graph: Graph) -> str:
    """Return the name of the algorithm for a graph; for products, planning may choose ``PARTS`` or ``DENSE`` instead.

    Bottlenecks of undirected graphs without terminals need no searches.  If all arcs weigh the same, bottlenecks follow
    from reachability.
    """
    if semiring.name == "max-times":
        return PRODUCT
    if semiring.name == "lor-land" or (graph.arcs and graph.weights.min() == graph.weights.max()):
        return REACHED
    return MERGED if graph.directed or graph.terminals else TREE


def rows_bytes(algorithm: str, graph: Graph, itemsize: int) -> int:
    """Return the bytes of the rows that one thread finds at the same time."""
    from engine.algorithms.semirings.bottlenecks import at_once
    from engine.algorithms.semirings.products import lanes_bytes

    size = graph.n + graph.terminals
    if algorithm == MERGED:
        return lanes_bytes(size) + at_once(size, itemsize) * (size + 1040) * itemsize
    return lanes_bytes(size) if algorithm == PRODUCT else 0


def writer_of(context: SolveContext, profile: GraphProfile, targets: Indices) -> RowWriter:
    """Prepare a solve, and return the writer of its rows.

    Args:
        context: the solve.
        profile: the graph, in which no path passes through a terminal.
        targets: vertex index of each column.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    name, threads, monitor = context.plan.algorithm, context.plan.threads, context.monitor
    if name == PARTS:
        from engine.algorithms.semirings.parts import PartRows

        return PartRows(profile, targets, len(context.rectangle.rows), threads, monitor)
    if name == DENSE:
        from engine.algorithms.semirings.dense import DenseRows

        return DenseRows(profile, targets, threads, monitor)
    monitor.begin("prepare", profile.graph.arcs, "arcs")
    writer = _searched(context, profile.graph, targets)
    monitor.step(profile.graph.arcs)
    return writer


def _searched(context: SolveContext, graph: Graph, targets: Indices) -> RowWriter:
    """Return the writer of rows that need no long preparation; the arguments are those of :func:`writer_of`."""
    from engine.algorithms.semirings.bottlenecks import LineRows, MergedRows, Ranks
    from engine.algorithms.semirings.products import ProductRows
    from engine.algorithms.semirings.reaching import ReachedRows

    semiring, name, threads = SEMIRINGS[context.plan.semiring], context.plan.algorithm, context.plan.threads
    if name == REACHED:
        values = (semiring.unreachable, 1 if semiring.name == "lor-land" else context.profile.graph.weights[0].item())
        return ReachedRows(graph, targets, threads, np.array(values, context.plan.dtype))
    if name == PRODUCT:
        return ProductRows(graph, targets, threads)
    if name == MERGED:
        return MergedRows(graph, semiring, context.plan.dtype, targets, threads)
    return LineRows(graph, Ranks.of(graph.weights, semiring, context.plan.dtype), targets)


def run(context: SolveContext) -> None:
    """Compute the rows of a solve and write them to its sink; facts of the values are gathered only if the sink is a
    :class:`ValueFacts`.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
        SolveFailed: a product is too small for float64.
    """
    plan, asked, sink = context.plan, context.rectangle, context.sink
    profile, opened = context.profile.open(asked)
    writer = writer_of(context, profile, opened.columns)
    sources, own = asked.rows, own_columns(asked)
    itself = SEMIRINGS[plan.semiring].itself
    shape = len(sources), len(opened.columns)
    place, most = place_of(sink, plan.dtype), writer.piece or PIECE
    if place is None:
        filled = -(-writer.at_once // sink.tile[0]) * sink.tile[0]  # rows of whole tiles that fill the lanes of a block
        whole = filled if filled <= plan.batch else sink.tile[0]
        batches = RowBatches(len(sources), whole, plan.batch, plan.threads * most, most * plan.threads)
        buffers = [np.empty((batches.most, shape[1]), plan.dtype) for _ in range(2 if batches.most < shape[0] else 1)]
    else:
        batches, buffers = RowBatches(len(sources), 1, len(sources), first=len(sources)), [place]

    def piece_of(rows: range, some: Indices, block: Array) -> Piece:
        def write(worker: int) -> Done:
            numbers = some + rows.start
            writer.write(worker, sources[numbers], some, block)
            with_own = some[own[numbers] >= 0]
            block[with_own, own[with_own + rows.start]] = itself
            return Done(some)

        return write

    def begin(rows: range, block: Array) -> Searches:
        order = writer.together(sources[rows.start : rows.stop])
        return Searches(piece_of(rows, order[first : first + most], block) for first in range(0, len(rows), most))

    context.monitor.begin("search", shape[0], "rows")
    backend = CpuBackend(plan.threads)
    try:
        RowPipeline(begin, batches, sink, context.monitor, buffers, in_place=place is not None).run(backend)
    finally:
        backend.shutdown()


def own_columns(asked: Rectangle) -> Indices:
    """Return, for each row, the column that belongs to its own source, shape (rows,); -1 if the source is no target."""
    if asked.targets is None:
        return asked.rows
    place = np.full(asked.n, -1, np.int64)
    place[asked.targets] = np.arange(len(asked.targets))
    return place[asked.rows]


@dataclass
class _Facts:
    """The number of pairs with a path, and the least and the greatest value, of the rows added so far."""

    reached: int = 0
    least: float | None = None
    greatest: float | None = None


class ValueFacts:
    """A sink that passes rows on, and gathers the number of pairs with a path and the least and the greatest value.

    The two vertices of a pair are different.  Several threads may write different rows.

    Args:
        sink: receives the rows.
        rectangle: the rows and columns of the result.
        unreachable: the value of a pair without a path.
        first: number, in the result, of the first row that is written.
    """

    def __init__(self, sink: Sink, rectangle: Rectangle, unreachable: float, first: int = 0) -> None:
        self.tile, self._sink, self._first = sink.tile, sink, first
        self._rectangle, self._unreachable = rectangle, unreachable
        self._own, self._lock, self._found = own_columns(rectangle), threading.Lock(), _Facts()

    @property
    def place(self) -> Array | None:
        """The array into which rows may be written directly; None if the sink has none."""
        place: Array | None = getattr(self._sink, "place", None)
        return place

    def write(self, row: int, column: int, block: Array) -> None:  # noqa: ARG002 - rows are whole
        """Gather the facts of whole rows, then pass the rows on.

        Args:
            row: number of the first row, counted from ``first``.
            column: always 0.
            block: shape (rows, columns).
        """
        self.gather(row, block, np.arange(len(block)))
        self.keep(row, block)

    def keep(self, row: int, block: Array) -> None:
        """Pass on whole rows whose facts have been gathered; ``row``, the first of them, is counted from ``first``."""
        self._sink.write(row + self._first, 0, block)

    def gather(self, first: int, block: Array, rows: Indices, found: object = None) -> None:  # noqa: ARG002
        """Gather the facts of some whole rows.

        Args:
            first: number of the first row of ``block``, counted from where the solve begins.
            block: shape (block's rows, columns).
            rows: the rows of ``block`` to look at.
            found: facts that searches of distances have found about the rows; not used.
        """
        self.add(first + self._first, block, rows)

    def add(self, row: int, block: Array, rows: Indices | None = None) -> None:
        """Gather the facts of the rows of ``block`` that ``rows`` lists, or of all rows if it is None.

        ``row`` is the number of the first row of ``block`` in the result.
        """
        rows = np.arange(len(block)) if rows is None else rows
        unreachable, ends = block.dtype.type(self._unreachable), _ends(block)
        reached, least, greatest = value_facts(block, rows, self._own[row + rows], unreachable, ends)
        if not reached:
            return
        low, high = float(str(least)), float(str(greatest))  # ``str`` writes the fewest digits that identify a float32
        with self._lock:
            known = self._found
            known.reached += reached
            known.least = low if known.least is None else min(known.least, low)
            known.greatest = high if known.greatest is None else max(known.greatest, high)

    def summary(self) -> dict[str, object]:
        """Return the facts of all rows, in JSON types."""
        wanted, known = self._rectangle, self._found
        rows, columns = len(wanted.rows), len(wanted.columns)
        pairs = rows * columns - int(np.count_nonzero(self._own >= 0))
        about: dict[str, object] = {"vertices": wanted.n, "sources": rows, "targets": columns, "pairs": pairs}
        return {**about, "reached": known.reached, "least": known.least, "greatest": known.greatest}


def _ends(block: Array) -> tuple[np.generic, np.generic]:
    """Return the largest and the smallest number of the type of ``block``."""
    kind = block.dtype.type
    if block.dtype.kind == "f":
        return kind(np.inf), kind(-np.inf)
    limits = np.iinfo(block.dtype)
    return kind(limits.max), kind(limits.min)
