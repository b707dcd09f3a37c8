"""Folds the trees of a graph, so that searches count shortest paths in the rest of the graph, the core.

If vertices with one neighbour are removed again and again, the vertices that remain are the *core*.  In a directed
graph, arcs may lead to this neighbour, from it, or both.  The removed vertices form trees, each of which hangs on one
vertex of the core.  A shortest path between two vertices of the core enters no tree, and every path that leaves a tree
leads through the vertex on which the tree hangs.  So a search from a vertex of the core stands for the searches from
all vertices of its trees that reach it, and a path to a vertex of the core stands for the paths to all those that it
reaches.  Paths inside trees are counted from the numbers of vertices of branches alone, and of the vertices that the
tree reaches and that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.betweenness.peeling import flow_around, hand_down, peel_trees, sum_components
from engine.devices.cpu.betweenness.preparing import cut_out
from engine.graph.ordering import fixed
from engine.model.decimals import in_units
from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Trees are folded only if they have at least this share of the vertices, because folding takes time to make the core.
LEAST_SHARE: Final = 0.05
#: Trees are folded only if searches from all vertices would visit at least this number of vertices and arcs together:
#: fewer are visited in milliseconds.
LEAST_VISITS: Final = 500_000
#: Bytes of memory that a fold takes for each vertex.
VERTEX_BYTES: Final = 72


@dataclass(frozen=True, eq=False)
class Fold:
    """A graph whose trees are folded; all sums are over ordered pairs of different vertices of the whole graph.

    Attributes:
        graph: the graph.
        core: the graph of the core, without isolated vertices; its labels are those of the whole graph.
        vertices: int64, shape (core.n,): the index of each vertex of the core in the whole graph, ascending.
        arcs: int64, shape (core.arcs,): the index of each arc of the core in the whole graph, ascending.
        removed, parent, ways, out, into, products: the trees, and their sizes row by row, as
            :func:`engine.devices.cpu.betweenness.peeling.peel_trees` returns them.
    """

    graph: Graph
    core: Graph
    vertices: Indices
    arcs: Indices
    removed: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    ways: npt.NDArray[np.uint8]
    out: Indices
    into: Indices
    products: Indices

    @property
    def stands(self) -> tuple[Floats, Floats]:
        """For how many vertices each vertex of the core stands as a target, and as a source; float64, shape (core.n,)
        each.
        """
        return self.out[self.vertices].astype(np.float64), self.into[self.vertices].astype(np.float64)

    def around(self, *flows: Floats) -> tuple[Indices, Indices]:
        """Return how many vertices each vertex reaches, and how many reach it, itself included; int64, shape (n,).

        Args:
            flows: in a directed graph, the flow that begins and the flow that ends at each vertex of the core, of shape
                (core.n,) each; otherwise none.
        """
        tree, sizes = (self.removed, self.parent, self.ways), (self.out, self.into)
        if not flows:
            totals = sum_components(fixed(self.graph.indptr), fixed(self.graph.heads), self.parent, self.out)
            hand_down(tree, sizes, (totals, totals))
            return totals, totals
        found = self.out.copy(), self.into.copy()
        # each vertex for which a vertex of the core stands as a source sends 1 to each vertex that it reaches
        for around, flow, times in zip(found, flows, self.stands[::-1], strict=True):
            around[self.vertices] += np.rint(flow / times).astype(np.int64)
        hand_down(tree, sizes, found)
        return found

    def by_vertex(self, core: Floats, around: tuple[Indices, Indices]) -> Floats:
        """Return the flow through each vertex of the whole graph, shape (n,).

        Args:
            core: shape (core.n,): the flow through each vertex of the core, on paths between vertices that are folded
                into two other vertices of the core.
            around: the result of :meth:`around`.
        """
        found: Floats = flow_around((self.out, self.into, self.products), around)
        found[self.vertices] += core
        return found

    def by_arc(self, core: Floats, around: tuple[Indices, Indices]) -> Floats:
        """Return the flow over each arc of the whole graph, shape (arcs,).

        Args:
            core: the flow over each arc of the core.
            around: the result of :meth:`around`.
        """
        graph, parent, (out, into) = self.graph, self.parent, around
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        up, down = parent[tails] == graph.heads, parent[graph.heads] == tails
        leave, enter = self.into * (out - self.out), self.out * (into - self.into)
        found = np.where(up, leave[tails], np.where(down, enter[graph.heads], 0)).astype(np.float64)
        found[self.arcs] = core
        return found


def fold_trees(graph: Graph, *, decimal: bool) -> Fold | None:
    """Fold the trees of a graph.

    Args:
        graph: the graph.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit.

    Returns:
        The graph with folded trees.  None if the graph has terminals, if too few vertices would be folded, or if
        lengths are sums of floats.  Such sums depend on where a path begins, so two paths in the core may be equally
        long from one vertex of a tree, but not from another vertex of the same tree.
    """
    n = graph.n
    if graph.terminals or n * (n + graph.arcs) < LEAST_VISITS:
        return None
    indptr, heads = fixed(graph.indptr), fixed(graph.heads)
    removed, parent, ways, sizes, left = peel_trees(indptr, heads)
    if len(removed) < max(1, LEAST_SHARE * n) or not _whole(graph, decimal=decimal):
        return None
    return Fold(graph, *_core(graph, left), removed, parent, ways, *sizes)


def _whole(graph: Graph, *, decimal: bool) -> bool:
    """Return whether lengths are sums of whole numbers above 0, so that they do not depend on the order of addition."""
    least, largest = graph.weights.min().item(), graph.weights.max().item()
    if least <= 0:
        return False
    if least == largest or graph.integral:
        return bool(graph.n * largest < FAR)
    return decimal and in_units(graph.indptr, graph.weights) is not None


def _core(graph: Graph, left: npt.NDArray[np.bool_]) -> tuple[Graph, Indices, Indices]:
    """Return the graph of the vertices that are left, and the indices of its vertices and arcs in ``graph``."""
    indptr, heads = fixed(graph.indptr), fixed(graph.heads)
    _, vertices, arcs, (starts, ahead) = cut_out(indptr, heads, left, graph.directed)
    core = Graph(
        starts, ahead, graph.weights[arcs], graph.labels[vertices], directed=graph.directed, weighted=graph.weighted
    )
    return core, vertices, arcs
