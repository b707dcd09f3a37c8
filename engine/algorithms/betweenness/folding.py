"""Folds the trees of an undirected graph, so that searches count shortest paths in the rest of the graph, the core.

If vertices with one neighbour are removed again and again, the vertices that remain are the *core*.  The removed
vertices form trees, each of which hangs on one vertex of the core.  A shortest path between two vertices of the core
enters no tree, and every path that leaves a tree leads through the vertex on which the tree hangs.  So a search from a
vertex of the core stands for the searches from all vertices that are folded into it, and a path to a vertex of the core
stands for the paths to all of them.  Paths inside trees are counted from the numbers of vertices of branches alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.betweenness.peeling import peel_trees, sum_components
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
LEAST_VISITS: Final = 1_000_000
#: Bytes of memory that a fold takes for each vertex.
VERTEX_BYTES: Final = 48


@dataclass(frozen=True, eq=False)
class Fold:
    """A graph whose trees are folded; all sums are over ordered pairs of different vertices of the whole graph.

    Attributes:
        graph: the graph.
        core: the graph of the core, without isolated vertices; its labels are those of the whole graph.
        vertices: int64, shape (core.n,): the index of each vertex of the core in the whole graph, ascending.
        arcs: int64, shape (core.arcs,): the index of each arc of the core in the whole graph, ascending.
        folded: float64, shape (core.n,): the number of vertices that each vertex of the core stands for.
        others: int64, shape (n,): the number of other vertices in the component of each vertex.
        through: int64, shape (n,): the number of pairs whose paths pass through each vertex, and begin or end in one of
            the branches that hang on it.
        over: int64, shape (arcs,): the number of pairs whose path leads over each arc of the trees; 0 for arcs of the
            core.
    """

    graph: Graph
    core: Graph
    vertices: Indices
    arcs: Indices
    folded: Floats
    others: Indices
    through: Indices
    over: Indices

    def by_vertex(self, core: Floats) -> Floats:
        """Return the flow through each vertex of the whole graph, shape (n,).

        Args:
            core: shape (core.n,): the flow through each vertex of the core, on paths between vertices that are folded
                into two other vertices of the core.
        """
        found = self.through.astype(np.float64)
        found[self.vertices] += core
        return found

    def by_arc(self, core: Floats) -> Floats:
        """Return the flow over each arc of the whole graph; ``core`` is the flow over each arc of the core."""
        found = self.over.astype(np.float64)
        found[self.arcs] = core
        return found


def fold_trees(graph: Graph, *, decimal: bool, arcs: bool) -> Fold | None:
    """Fold the trees of a graph.

    Args:
        graph: the graph.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit.
        arcs: whether to count also the pairs whose path leads over each arc of the trees.

    Returns:
        The graph with folded trees.  None if the graph is directed or has terminals, if too few vertices would be
        folded, or if lengths are sums of floats.  Such sums depend on where a path begins, so two paths in the core may
        be equally long from one vertex of a tree, but not from another vertex of the same tree.
    """
    n = graph.n
    if graph.directed or graph.terminals or n * (n + graph.arcs) < LEAST_VISITS:
        return None
    indptr, heads = fixed(graph.indptr), fixed(graph.heads)
    removed, parent, sizes, squares = peel_trees(indptr, heads)
    if len(removed) < max(1, LEAST_SHARE * n) or not _whole(graph, decimal=decimal):
        return None
    totals = sum_components(indptr, heads, removed, parent, sizes)
    # If a vertex is removed, its component falls into the branches on the vertex and a remainder.  Counted are the
    # pairs between two branches, and those between a branch and the remainder.
    through = (sizes - 1) * (2 * (totals - sizes) + sizes - 1) - squares
    core, vertices, inside = _core(graph, parent)
    over = _over(graph, parent, sizes * (totals - sizes)) if arcs else np.zeros(0, np.int64)
    return Fold(graph, core, vertices, inside, sizes[vertices].astype(np.float64), totals - 1, through, over)


def _whole(graph: Graph, *, decimal: bool) -> bool:
    """Return whether lengths are sums of whole numbers above 0, so that they do not depend on the order of addition."""
    least, largest = graph.weights.min().item(), graph.weights.max().item()
    if least <= 0:
        return False
    if least == largest or graph.integral:
        return bool(graph.n * largest < FAR)
    return decimal and in_units(graph.indptr, graph.weights) is not None


def _core(graph: Graph, parent: npt.NDArray[np.int32]) -> tuple[Graph, Indices, Indices]:
    """Return the graph of the core without isolated vertices, and the indices of its vertices and arcs in ``graph``."""
    _, vertices, arcs, (indptr, heads) = cut_out(fixed(graph.indptr), fixed(graph.heads), parent < 0, False)
    core = Graph(indptr, heads, graph.weights[arcs], graph.labels[vertices], directed=False, weighted=graph.weighted)
    return core, vertices, arcs


def _over(graph: Graph, parent: npt.NDArray[np.int32], pairs: Indices) -> Indices:
    """Return, for each arc of the trees, the number of pairs whose path leads over the arc in its direction.

    Args:
        graph: the graph.
        parent: the parent of each removed vertex, -1 for other vertices.
        pairs: for each vertex, the number of pairs of a vertex in its branch and a vertex outside this branch.
    """
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    up, down = parent[tails] == graph.heads, parent[graph.heads] == tails
    return np.where(up, pairs[tails], np.where(down, pairs[graph.heads], 0))
