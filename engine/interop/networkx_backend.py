"""Shared parts of the NetworkX backend: the converted graph, its weights, and the registration of functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, wraps
from inspect import signature
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import networkx as nx
import numpy as np
import numpy.typing as npt

from engine.graph.profile import GraphProfile
from engine.graph.transpose import reverse
from engine.interop.networkx_info import FUNCTIONS
from engine.interop.rows import Floats, RowStatistics, distance_rows, gather
from engine.model.backend import Arcs
from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle
from storage.graph.graph import Graph, build_graph

Node = Hashable
#: For each function, the number of calls that this backend answered in this process.
CALLS: Final[Counter[str]] = Counter()
#: The largest number of matrix entries in memory at the same time while rows are converted to dictionaries.
_ENTRIES: Final = 1 << 24


class BackendGraph:
    """A NetworkX graph, and its arcs in CSR form, which are read when they are first needed."""

    __networkx_backend__ = "apsp"

    def __init__(self, original: Any) -> None:
        self.original = original
        self._graphs: dict[Any, Weighted] = {}

    def is_directed(self) -> bool:
        """Return whether arcs have a direction."""
        return bool(self.original.is_directed())

    def is_multigraph(self) -> bool:
        """Return whether parallel edges are allowed; only the shortest edge between two vertices counts."""
        return bool(self.original.is_multigraph())

    @cached_property
    def nodes(self) -> list[Node]:
        """The vertices in NetworkX's order; their places in this list are the engine's vertex indices."""
        return list(self.original)

    def under(self, weight: Any) -> Weighted:
        """Return the graph with the weights that edges have under the key ``weight``; with None every edge counts 1."""
        if callable(weight):
            raise NotImplementedError("functions of edges are not asked here")
        if weight not in self._graphs:
            self._graphs[weight] = Weighted(self, weight)
        return self._graphs[weight]


class Weighted:
    """A graph of the engine, built from a NetworkX graph and the weights that its edges have under one key.

    This class also converts lengths to the types of numbers that NetworkX returns.
    """

    def __init__(self, backend_graph: BackendGraph, weight: Any) -> None:
        original, self.nodes = backend_graph.original, backend_graph.nodes
        self.names = np.fromiter(self.nodes, np.object_, len(self.nodes))
        if not self.nodes:
            raise NotImplementedError("a graph without vertices")
        self.directed = backend_graph.is_directed()
        tails, heads, values = _columns(original, self.nodes, weight)
        weights = None if values is None else _numbers(values)
        self.whole = weights is None or weights.dtype.kind == "i"
        # NetworkX's adjacency lists an undirected edge at both of its ends
        directed, n = self.directed, len(self.nodes)
        try:
            with exceptions():
                self.graph: Graph = build_graph(tails, heads, weights, n=n, directed=directed, mirrored=not directed)[0]
        except nx.NetworkXUnbounded as error:  # NetworkX finds out whether the paths of this call can reach the loop
            raise NotImplementedError("a negative loop") from error
        if not directed and weights is not None and not _symmetric(self.graph):
            raise NotImplementedError("edges whose weights depend on the side they are seen from")

    @property
    def negative(self) -> bool:
        """Whether some arc is negative."""
        return self.graph.arcs > 0 and bool(self.graph.weights.min() < 0)

    def nonnegative(self) -> Weighted:
        """Return this object, for functions that leave graphs with negative arcs to NetworkX.

        Raises:
            NotImplementedError: some arc is negative.
        """
        if self.negative:
            raise NotImplementedError("negative weights")
        return self

    def numbers(self, lengths: Floats) -> list[Any]:
        """Return finite lengths in the type that NetworkX would return: int if the weights are integers, else float."""
        return (lengths.astype(np.int64) if self.whole else lengths).tolist()  # type: ignore[no-any-return]

    def number(self, length: float) -> Any:
        """Return a finite length in the type that NetworkX returns: int if the weights are integers, else float."""
        return int(length) if self.whole else float(length)

    def reversed(self) -> Graph:
        """Return the graph with every arc reversed."""
        if not self.directed:
            return self.graph
        arcs = _reversed_arcs(self.graph)
        return replace(self.graph, indptr=arcs.indptr, heads=arcs.heads, weights=arcs.weights)  # type: ignore[arg-type]

    def statistics(self, *, inward: bool = False, inverse: bool = False) -> RowStatistics:
        """Return statistics of each row (reached vertices, sums, largest distances), without making the matrix.

        Args:
            inward: whether to return the statistics of each column instead.
            inverse: whether to return the sums of 1 / distance, too.
        """
        with exceptions():
            return gather(self.reversed() if inward else self.graph, inverse=inverse)

    def nearest(self, row: Floats, cutoff: float | None = None) -> tuple[list[int], dict[Node, Any]]:
        """Return the vertices within ``cutoff``, nearest first as in NetworkX.

        Args:
            row: distances, shape (n,).
            cutoff: the largest length; None or infinite for all vertices that are reached.

        Returns:
            The indices of these vertices, and a dictionary from their names to their lengths.

        Raises:
            NotImplementedError: the cutoff is negative or NaN.  Or edges are counted, and the cutoff is not whole:
                NetworkX's functions treat such a cutoff in different ways.
        """
        whole = self.graph.weighted or cutoff is None or np.isinf(cutoff) or cutoff == np.floor(cutoff)
        if not whole or (cutoff is not None and not cutoff >= 0):
            raise NotImplementedError(f"a cutoff of {cutoff}")
        near = np.flatnonzero((row < np.inf) & (row <= (np.inf if cutoff is None else cutoff)))
        near = near[np.argsort(row[near], kind="stable")]
        order: list[int] = near.tolist()
        return order, dict(zip(self.names[near].tolist(), self.numbers(row[near]), strict=True))

    def rows(self, *, trees: bool = False) -> Iterator[tuple[range, Floats, npt.NDArray[np.int32] | None]]:
        """Yield rows of distances, some at a time: their numbers, the distances and, if ``trees``, predecessors."""
        n, profile = self.graph.n, GraphProfile(self.graph)  # one profile, so that planning analyses the graph once
        height = max(1, _ENTRIES // n)
        for first in range(0, n, height):
            some = range(first, min(n, first + height))
            with exceptions():
                block, before = distance_rows(profile, np.arange(some.start, some.stop), trees=trees)
            yield some, block, before


def _columns(
    original: Any, nodes: list[Node], weight: Any
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[Any] | None]:
    """Read the adjacency of a NetworkX graph in few calls, without one call for each edge.

    Args:
        original: the NetworkX graph.
        nodes: its vertices, in the order of the adjacency.
        weight: key of the weights; None for no weights.

    Returns:
        Tails and heads, as indices into ``nodes``, and the weights; None for no weights.
    """
    near = [around for _, around in original.adjacency()]
    listed = list(map(list, near))  # views of edges of multigraphs list fewer neighbors than their length says
    degrees = np.fromiter(map(len, listed), np.int64, len(listed))
    place = dict(zip(nodes, range(len(nodes)), strict=True))
    heads = np.fromiter(map(place.__getitem__, chain.from_iterable(listed)), np.int64, int(degrees.sum()))
    tails = np.repeat(np.arange(len(nodes)), degrees)
    data: Any = chain.from_iterable(around.values() for around in near)
    if original.is_multigraph():
        parallel = list(data)
        counts = np.fromiter(map(len, parallel), np.int64, len(parallel))
        tails, heads = np.repeat(tails, counts), np.repeat(heads, counts)
        data = chain.from_iterable(edges.values() for edges in parallel)
    return tails, heads, None if weight is None else _values(list(data), weight)


def _values(edges: list[dict[Any, Any]], weight: Any) -> list[Any]:
    """Return the weight of each edge, 1 for an edge without a weight; this is fast if all edges have weights."""
    try:
        return list(map(itemgetter(weight), edges))
    except KeyError:
        return [edge.get(weight, 1) for edge in edges]


def _numbers(values: list[Any]) -> npt.NDArray[Any]:
    """Return weights as int64 or float64; leave graphs with other weights to NetworkX."""
    try:
        array = np.array(values) if values else np.zeros(0, np.int64)
    except ValueError as error:
        raise NotImplementedError("weights that are no numbers") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise NotImplementedError("weights that are no finite numbers")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def _reversed_arcs(graph: Graph) -> Arcs:
    return reverse(Arcs(graph.indptr, graph.heads, graph.weights))


def _symmetric(graph: Graph) -> bool:
    """Return whether each arc has the same weight as the arc back.

    In an undirected view of a directed graph (``to_undirected(as_view=True)``) an edge may have another weight at each
    of its ends; NetworkX's functions then read one or the other.
    """
    back = _reversed_arcs(graph)
    return np.array_equal(back.heads, graph.heads) and np.array_equal(back.weights, graph.weights)


@contextmanager
def exceptions() -> Iterator[None]:
    """Context manager: translate the engine's errors into NetworkX's exceptions."""
    try:
        yield
    except NegativeCycle as error:
        raise nx.NetworkXUnbounded("Negative cycle detected.") from error
    except (InvalidGraph, InvalidRequest) as error:
        raise NotImplementedError(str(error)) from error


class NetworkXBackend:
    """The object that NetworkX calls; its methods have NetworkX's names and signatures."""

    @staticmethod
    def convert_from_nx(graph: Any, **_: Any) -> BackendGraph:
        """Return a NetworkX graph in the backend's form."""
        return BackendGraph(graph)

    @staticmethod
    def convert_to_nx(result: Any, **_: Any) -> Any:
        """Return a result of the backend in NetworkX's form."""
        return result.original if isinstance(result, BackendGraph) else result

    @staticmethod
    def can_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
        """Return True if the backend can answer a call, else the reason why not.

        Args:
            name: the function.
            args: positional arguments of the call.
            kwargs: keyword arguments of the call.
        """
        asked = signature(getattr(NetworkXBackend, name)).bind(*args, **kwargs).arguments
        graph = asked["G"]
        if len(getattr(graph, "original", graph)) == 0:
            return "the graph has no vertices"
        if callable(asked.get("weight")) or callable(asked.get("distance")):
            return "weights are functions"
        if name.startswith("shortest_path") and asked.get("source") is not None and asked.get("target") is not None:
            return "a single pair is left to NetworkX"
        left = [key.strip() for key in FUNCTIONS[name].split(",")]
        # 0 counts as given, because it may be a vertex
        given = [key for key in left if asked.get(key) is not None and asked[key] is not False]
        return f"{', '.join(given)} is left to NetworkX" if given else True


def answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: make ``function`` part of the backend, under its own name, and count its calls.

    Name, parameters and defaults of ``function`` are NetworkX's, with NetworkX's meanings: ``weight`` (or ``distance``)
    is the key of the weights, and None counts every edge as 1; lengths beyond ``cutoff`` are not returned.  Calls with
    the arguments in ``engine.interop.networkx_info`` never reach the function, because NetworkX answers them itself.
    """

    @wraps(function)
    def call(G: Any, *args: Any, **kwargs: Any) -> Any:
        found = function(G if isinstance(G, BackendGraph) else BackendGraph(G), *args, **kwargs)
        CALLS[function.__name__] += 1
        return found

    setattr(NetworkXBackend, function.__name__, staticmethod(call))
    return call


def walk(nodes: list[Node], sources: list[int], wanted: list[int], tree: list[int]) -> dict[Node, list[Node]]:
    """Follow a tree of shortest paths back from some vertices.

    Args:
        nodes: names of the vertices.
        sources: indices of the vertices at which paths begin.
        wanted: indices of the vertices at which paths end.
        tree: for each vertex, the previous vertex on its path.

    Returns:
        For each of ``wanted``, by name, the path from the nearest source, as names.
    """
    paths = {source: [nodes[source]] for source in sources}
    for v in wanted:
        back = []
        at = v
        while at not in paths:
            back.append(at)
            at = tree[at]
        for at in reversed(back):
            paths[at] = [*paths[tree[at]], nodes[at]]
    return {nodes[v]: paths[v] for v in wanted}
