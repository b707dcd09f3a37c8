"""Makes seeded random graphs of shapes on which programs for shortest paths differ in speed.  Needs NumPy only.

Every generator returns a :class:`storage.graph.graph.Graph` without loops and parallel edges, with int32 weights and
vertices 0 … n - 1.  The graph is undirected unless the generator says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.graph.graph import Graph, build_graph

Ints = npt.NDArray[np.int64]


def from_edges(n: int, u: Ints, v: Ints, weights: Ints, *, weighted: bool = True) -> Graph:
    """Return the undirected graph of the edges {u, v}, without loops; of parallel edges the first one is kept."""
    low, high = np.minimum(u, v), np.maximum(u, v)
    _, first = np.unique(low * n + high, return_index=True)
    first = first[low[first] != high[first]]
    low, high, weights = low[first], high[first], weights[first]
    tails, heads = np.concatenate((low, high)), np.concatenate((high, low))
    order = np.lexsort((heads, tails))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(tails, minlength=n))))
    both = np.concatenate((weights, weights))[order].astype(np.int32)
    return Graph(indptr, heads[order].astype(np.int32), both, np.arange(n), directed=False, weighted=weighted)


def random(n: int, m: int | None = None, *, seed: int = 1) -> Graph:
    """About ``m`` (4 n unless given) edges between vertices drawn evenly; weights 1 … n."""
    rng = np.random.default_rng(seed)
    m = 4 * n if m is None else m
    return from_edges(n, rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(1, n + 1, m))


def rmat(n: int, m: int | None = None, *, seed: int = 1) -> Graph:
    """A graph of very uneven degrees: recursive matrix, probabilities .57, .19, .19, .05 (Chakrabarti et al. 2004)."""
    rng = np.random.default_rng(seed)
    levels = max(1, (n - 1).bit_length())
    m = 4 * n if m is None else m
    u, v = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for _ in range(levels):
        draw = rng.random(m)
        u = 2 * u + (draw >= 0.76)
        v = 2 * v + (((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95))
    return from_edges(n, u % n, v % n, rng.integers(1, n + 1, m))


def _lattice(side: int, keep: npt.NDArray[np.bool_], weights: Ints) -> Graph:
    at = np.arange(side * side).reshape(side, side)
    u = np.concatenate((at[:, :-1].ravel(), at[:-1].ravel()))
    v = np.concatenate((at[:, 1:].ravel(), at[1:].ravel()))
    return from_edges(side * side, u[keep], v[keep], weights[keep])


def grid(n: int, *, seed: int = 1) -> Graph:
    """A square lattice of about ``n`` vertices; weights 1 … 100."""
    side = round(n**0.5)
    edges = 2 * side * (side - 1)
    return _lattice(side, np.ones(edges, bool), np.random.default_rng(seed).integers(1, 101, edges))


def road(n: int, *, seed: int = 1) -> Graph:
    """A lattice without 3 of 10 edges, and with lengths that vary a hundredfold: sparse and wide like roads."""
    side = round(n**0.5)
    edges = 2 * side * (side - 1)
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.normal(5.0, 1.0, edges)).astype(np.int64) + 1
    return _lattice(side, rng.random(edges) > 0.3, lengths)


def ring(n: int, *, seed: int = 1) -> Graph:
    """One cycle whose vertices are numbered at random; weights 1 … 100."""
    rng = np.random.default_rng(seed)
    name = rng.permutation(n)
    return from_edges(n, name, np.roll(name, 1), rng.integers(1, 101, n))


def chords(n: int, *, seed: int = 1) -> Graph:
    """A path of arcs of length 1 with 3 n chords, each longer than its stretch of the path.

    Chords lead everywhere in few arcs, but shortest paths use none of them.  So label-correcting searches first find
    long ways over chords, and correct these distances again and again.
    """
    rng = np.random.default_rng(seed)
    u, v = rng.integers(0, n, (2, 3 * n))
    at = np.arange(n - 1)
    lengths = np.abs(u - v) * 2 + rng.integers(1, n, 3 * n)
    return from_edges(
        n, np.concatenate((at, u)), np.concatenate((at + 1, v)), np.concatenate((np.ones(n - 1, np.int64), lengths))
    )


def tails(n: int, *, seed: int = 1) -> Graph:
    """Edges as in :func:`random`, with heavy-tailed weights: most are small, some a hundred thousand times larger."""
    rng = np.random.default_rng(seed)
    weights = np.minimum(rng.pareto(0.5, 4 * n) * 10, 1e6).astype(np.int64) + 1
    return from_edges(n, rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n), weights)


def dense(n: int, *, seed: int = 1) -> Graph:
    """All edges; weights 1 … n."""
    u, v = np.triu_indices(n, 1)
    return from_edges(n, u.astype(np.int64), v.astype(np.int64), np.random.default_rng(seed).integers(1, n + 1, len(u)))


def one_way(n: int, *, seed: int = 1) -> Graph:
    """A directed graph: 4 n arcs between vertices drawn evenly; weights 1 … 1,000."""
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.integers(1, 1001, 4 * n), n=n, directed=True)[0]


def hops(graph: Graph) -> Graph:
    """The same arcs, all of weight 1."""
    ones = np.ones(graph.arcs, np.int32)
    return Graph(graph.indptr, graph.heads, ones, graph.labels, directed=graph.directed, weighted=False)


GENERATORS: Final = MappingProxyType[str, Callable[[int], Graph]](
    {
        "random": random,
        "rmat": rmat,
        "grid": grid,
        "road": road,
        "ring": ring,
        "dense": dense,
        "chords": chords,
        "tails": tails,
    }
)
