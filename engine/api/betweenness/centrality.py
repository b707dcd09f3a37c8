"""Betweenness centrality of vertices and arcs, exact, as NetworkX defines it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.folding import Fold, fold_trees
from engine.algorithms.betweenness.passing import Passed, PassingTask
from engine.api.betweenness.passage import Floats, Indices, Passage, PassageRun, PathPlan, Unfolded, check_options
from engine.api.betweenness.small import SmallRun
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_lengths, check_vertices
from engine.model.problem import Options, given_options
from engine.model.progress import Monitor
from storage.arguments import check_flags
from storage.errors import InvalidRequest
from storage.graph.graph import Graph
from storage.graph.vertex_table import Tabular, arc_frame_of, frame_of

if TYPE_CHECKING:
    import polars

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class BetweennessTable(Tabular):
    """The betweenness of every vertex, or of every arc (of an undirected graph: of every edge).

    Attributes:
        labels: the labels of all vertices, shape (n,).
        tails: vertex indices, int64, shape (rows,): the vertex of each row, or the tail of its arc; ascending.
        heads: vertex indices, int64, shape (rows,): the head of each row's arc, in an undirected graph larger than the
            tail; None in a table of vertices.
        values: float64, shape (rows,): the betweenness.
        plan: the prediction that was made before the searches.
        seconds: wall seconds of each phase.
    """

    labels: Array
    tails: Indices
    heads: Indices | None
    values: Floats
    plan: PathPlan
    seconds: dict[str, float]

    def __len__(self) -> int:
        return len(self.values)

    def to_polars(self) -> polars.DataFrame:
        """Return the table with the columns ``vertex``, or ``source`` and ``target``, and ``betweenness``."""
        columns = {"betweenness": self.values}
        if self.heads is None:
            return frame_of(self.labels, self.tails, columns, frozenset())
        return arc_frame_of(self.labels, self.tails, self.heads, columns)


class Centrality:
    """A request for betweenness: the constructor checks it, :meth:`make_plan` predicts it, :meth:`run` computes it.

    Args:
        graph: the graph.
        options: ``sources`` and ``targets`` of the paths that count, ``memory``, ``threads``, ``device`` and
            ``device_memory``; None for all paths and all resources.
        arcs: whether to find the betweenness of arcs instead of vertices.
        normalized: whether to return shares of all pairs instead of numbers of pairs.
        endpoints: whether a path also counts at its two ends; not together with ``arcs``.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit, so that sums are exact.

    Raises:
        InvalidRequest: the options make no sense, or the weights have no well-defined number of shortest paths.
        DoesNotFit: memory is too small.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options | None = None,
        *,
        arcs: bool = False,
        normalized: bool = True,
        endpoints: bool = False,
        decimal: bool = True,
    ) -> None:
        # most of a profile would not be used
        options, graph = given_options(options), graph if isinstance(graph, Graph) else GraphProfile.of(graph).graph
        check_flags(arcs=arcs, normalized=normalized, endpoints=endpoints)
        check_options(options)
        check_lengths(graph)
        check_vertices("sources", options.sources, graph.labels)
        check_vertices("targets", options.targets, graph.labels)
        if arcs and endpoints:
            raise InvalidRequest("endpoints belong to the betweenness of vertices, and arcs were asked for", field="of")
        self._graph, self._arcs, self._normalized, self._endpoints = graph, arcs, normalized, endpoints
        self._decimal = decimal
        self._fold: Fold | None = None
        self._small: SmallRun | None = None
        every = options.sources is None and options.targets is None
        if options.device != "cuda" and every and not arcs and not endpoints:
            self._small = SmallRun.of(graph, options, decimal=decimal)
            if self._small:
                return
        self._asked = Rectangle.of(options, graph.n)
        if options.device != "cuda" and every:
            self._fold = fold_trees(graph, decimal=decimal)
        if self._fold is None:
            self._run = PassageRun(*self._whole(), options)
        else:
            self._run = PassageRun(*self._folded(self._fold), options, Unfolded(self._fold, self._whole))

    def _whole(self) -> tuple[Passage, PassingTask]:
        """Return the whole graph, and the sources and targets in it."""
        passage = self._passage = Passage(self._graph, decimal=self._decimal)
        kept = np.zeros(passage.size)
        kept[passage.arrivals(self._asked.columns)] = 1.0
        starts = np.zeros(passage.size, np.bool_)
        starts[passage.starts(self._asked.rows)] = True
        rows = np.flatnonzero(starts)  # in ascending order: searches from adjacent numbers visit much the same vertices
        own = rows
        if self._graph.terminals:
            vertices = np.empty(passage.size, np.int64)
            vertices[passage.arcs.rank] = np.arange(passage.size)
            own = passage.arrivals(vertices[rows]).astype(np.int64)
        return passage, _task(rows, own, kept, ends=self._endpoints, arcs=self._arcs)

    def _folded(self, fold: Fold) -> tuple[Passage, PassingTask]:
        """Return the core of the graph, and its vertices as sources and targets, each with the numbers of vertices for
        which it stands.

        Ends of paths are counted in a directed graph, because they tell how many vertices a tree reaches, and how many
        reach it.  In an undirected graph these are the vertices of its component.
        """
        passage = self._core = Passage(fold.core, decimal=self._decimal)
        rows, stands = np.arange(passage.size), np.empty((2, passage.size))
        stands[:, passage.arcs.rank] = fold.stands
        kept, times = stands
        return passage, _task(rows, rows, kept, ends=self._graph.directed, arcs=self._arcs, times=times)

    def make_plan(self, monitor: Monitor | None = None) -> PathPlan:
        """Predict memory and time; ``monitor`` receives the progress of compiling, and is asked whether to stop."""
        return (self._small or self._run).make_plan(monitor)

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return self._graph.m if self._arcs else self._graph.n

    def run(self, monitor: Monitor | None = None) -> BetweennessTable:
        """Find the betweenness.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Raises:
            Cancelled: the monitor asked to stop.
            InvalidRequest: float64 loses small weights beside large ones.
            SolveFailed: two vertices have too many shortest paths for float64.
        """
        graph = self._graph
        if self._small:
            values, plan, seconds = self._small.run(monitor)
        else:
            passed, plan, seconds = self._run.run(monitor)
            values = self._sums(passed, folded=plan.device == "cpu")
        if not self._arcs:
            found, scale = np.arange(graph.n), self.scale
            return BetweennessTable(graph.labels, found, None, values if scale == 1 else values * scale, plan, seconds)
        tails, heads = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), graph.heads.astype(np.int64)
        if not graph.directed:
            # arcs are sorted by tail, then head; sorted by head, then tail, they have the reverse of arc i at index i
            values = (values + values[np.lexsort((tails, heads))])[tails < heads]
            tails, heads = tails[tails < heads], heads[tails < heads]
        return BetweennessTable(graph.labels, tails, heads, values * self.scale, plan, seconds)

    def _sums(self, passed: Passed, *, folded: bool) -> Floats:
        """Return the sums over ordered pairs for each vertex, or each arc, of the graph.

        Args:
            passed: the flow that the searches have counted.
            folded: whether the searches were made in the core of the graph; no effect if no trees are folded.
        """
        if self._fold is not None and folded:
            fold, core = self._fold, self._core
            counted = (passed.begins, passed.ends) if self._graph.directed else ()
            around = fold.around(*(core.by_vertex(flow) for flow in counted))
            if self._arcs:
                return fold.by_arc(core.by_arc(passed.over), around)
            found = fold.by_vertex(core.by_vertex(passed.vertices), around)
            # each vertex is an end of a path to each other vertex that it reaches, and of one from each that reaches it
            return found + (around[0] + around[1] - 2) if self._endpoints else found
        passage = self._passage
        if self._arcs:
            return passage.by_arc(passed.over)
        values = passage.by_vertex(passed.vertices)
        if self._endpoints:
            values += passage.by_vertex(passed.begins) + passage.by_vertex(passed.ends)
        return values

    @property
    def scale(self) -> float:
        """The factor by which sums are multiplied, as in NetworkX.

        For normalized values it is 1 over the number of ordered pairs that may count.  Otherwise it is 1 for a directed
        graph, and 1/2 for an undirected one, in which each pair is counted in both directions.
        """
        n = self._graph.n if self._arcs or self._endpoints else self._graph.n - 1
        if n < 2:
            return 1.0
        if self._normalized:
            return 1 / (n * (n - 1))
        return 1.0 if self._graph.directed else 0.5


def _task(
    rows: Indices, own: Indices, kept: Floats, *, ends: bool, arcs: bool, times: Floats | None = None
) -> PassingTask:
    none = np.zeros(0)
    return PassingTask(
        rows,
        own,
        kept,
        none.astype(np.int64),
        none.astype(np.int32),
        none,
        ends=ends,
        arcs=arcs,
        times=none if times is None else times,
    )


def betweenness(
    graph: Graph,
    options: Options | None = None,
    *,
    arcs: bool = False,
    normalized: bool = True,
    endpoints: bool = False,
    monitor: Monitor | None = None,
) -> BetweennessTable:
    """Find the betweenness centrality of every vertex or arc: the share of shortest paths that pass through it.

    Each pair of a source and a target counts as 1, divided equally among its shortest paths.  Numbers of paths are
    float64, so they are exact up to 2^53 and rounded beyond.  Two paths count as equally long if the sums of their
    weights are equal.  Sums are exact for whole weights, and for decimals of up to nine places whose sums fit 31 bits.
    Other floats are added in float64, beginning at the source; sums that should be equal may then differ in the last
    bit.

    Args:
        graph: as from ``read_graph`` or ``build_graph``; no weight may be negative.
        options: ``sources`` and ``targets``: only paths between these count, and values are not scaled up to all pairs;
            ``memory``, ``threads``, ``device`` and ``device_memory``.  Nothing else may be given.  A GPU can count only
            if lengths are whole numbers.  If no device is given, a GPU is used if the processors would take more than
            two seconds and longer than the GPU.
        arcs: whether to find the betweenness of arcs instead of vertices.
        normalized: whether to divide by the number of pairs, as NetworkX does; otherwise pairs are counted, each once
            in an undirected graph.
        endpoints: whether a path also counts at its two ends.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        A row for each vertex, or for each arc (for each edge of an undirected graph).

    Raises:
        InvalidRequest: the options make no sense; a weight is negative; arcs of weight zero form a cycle (as both arcs
            of an edge do); or float64 loses small weights beside large ones.
        DoesNotFit: memory is too small.
        SolveFailed: two vertices have more than 1e300 shortest paths.
        Cancelled: the monitor asked to stop.
    """
    asked = Centrality(graph, options, arcs=arcs, normalized=normalized, endpoints=endpoints)
    asked.make_plan(monitor)
    return asked.run(monitor)
