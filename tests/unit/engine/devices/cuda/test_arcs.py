"""Arcs as a GPU's searches walk them: a sweep over them, written out in NumPy, finds what SciPy's Dijkstra finds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from engine.devices.cuda.arcs import IncomingArcs, incoming
from engine.graph._clusters import cluster_places
from engine.graph.ordering import hop_radius, near_places
from storage.graph.graph import Graph, build_graph

EXAMPLES = {
    "random": graphs.random(300),
    "rmat": graphs.rmat(400),
    "grid": graphs.grid(400),
    "ring": graphs.ring(150),
    "one way": build_graph(np.arange(40), np.arange(1, 41), np.arange(40), n=41, directed=True)[0],
    "no arc": build_graph(*[np.zeros(0, np.int64)] * 3, n=5, directed=True)[0],
}


def sweep(arcs: IncomingArcs, sources: np.ndarray, *, nothing: int = 2**30 - 1) -> tuple[np.ndarray, int]:
    """Labels, shape (vertices, sources), and the number of sweeps: chunk by chunk, only over arcs from what changed."""
    labels = np.full((arcs.vertices, len(sources)), nothing, np.int64)
    labels[arcs.place[sources], np.arange(len(sources))] = 0
    changed, sweeps, chunks = np.zeros(arcs.vertices, np.bool_), 0, arcs.chunks()
    changed[arcs.place[sources]] = True
    while changed.any():
        before, changed, sweeps = changed, np.zeros(arcs.vertices, np.bool_), sweeps + 1
        for begin, end in pairwise(chunks):
            for e in range(begin, end):
                u, v = arcs.tails[e], arcs.heads[e]
                if before[u]:
                    through = np.minimum(labels[v], labels[u] + arcs.weights[e])
                    changed[v] |= bool((through < labels[v]).any())
                    labels[v] = through
    return labels, sweeps


def expected(graph: Graph, sources: np.ndarray, nothing: float) -> np.ndarray:
    # SciPy takes an explicit zero for an arc of weight zero
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    found = dijkstra(matrix, indices=sources)
    return np.where(np.isinf(found), nothing, found)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("cluster", [None, 16])
@pytest.mark.parametrize("split", [None, 4])
def test_sweeping_over_the_arcs_gives_all_distances(name: str, cluster: int | None, split: int | None) -> None:
    graph = EXAMPLES[name]
    arcs = incoming(graph.indptr, graph.heads, graph.weights, cluster=cluster, split=split)
    sources = np.arange(0, graph.n, 7)
    labels, _ = sweep(arcs, sources)
    np.testing.assert_array_equal(labels[arcs.place].T, expected(graph, sources, 2**30 - 1))
    most = np.diff(arcs.into).max(initial=0)
    assert split is None or most <= split


@pytest.mark.parametrize("name", EXAMPLES)
def test_chunks_hold_whole_vertices_and_every_arc(name: str) -> None:
    graph = EXAMPLES[name]
    arcs = incoming(graph.indptr, graph.heads, graph.weights)
    chunks = arcs.chunks(8)
    assert chunks[0] == 0
    assert chunks[-1] == len(arcs.tails)
    assert np.isin(chunks, arcs.into).all()
    assert (np.diff(chunks) > 0).all()
    assert (np.diff(arcs.heads) >= 0).all()


def test_arcs_out_of_a_vertex_are_those_into_others() -> None:
    arcs = incoming(*(getattr(EXAMPLES["rmat"], x) for x in ("indptr", "heads", "weights")), split=8)
    out_of, following = arcs.outgoing()
    tails = np.repeat(np.arange(arcs.vertices), np.diff(out_of))
    assert sorted(zip(tails, following, strict=True)) == sorted(zip(arcs.tails, arcs.heads, strict=True))


def test_labels_that_are_cut_off_show_in_the_largest_that_is_not() -> None:
    """What 16-bit labels rest on: if one was cut off, the largest kept and the heaviest arc reach the limit."""
    graph, limit = EXAMPLES["ring"], 1000
    arcs = incoming(graph.indptr, graph.heads, np.minimum(graph.weights, limit))
    for limit in (200, 1000, 3000, 10_000):
        cut = np.minimum(sweep(arcs, np.arange(20), nothing=limit)[0], limit)
        right = expected(graph, np.arange(20), np.inf).T
        sound = cut[cut < limit].max() + graph.weights.max() < limit
        assert not sound or np.array_equal(cut, right)
        assert sound == (limit == 10_000)


def test_clusters_are_whole_and_close_together() -> None:
    graph = graphs.grid(1024)
    seeds = np.argsort(near_places(graph.indptr, graph.heads)).astype(np.int32)
    place = cluster_places(graph.indptr, graph.heads, seeds, 64)
    assert np.array_equal(np.sort(place), np.arange(1024))
    order = np.argsort(place)
    extents = [np.ptp(c // 32) + np.ptp(c % 32) for c in order.reshape(-1, 64)]
    assert np.median(extents) <= 24  # a run of 64 in the order of the levels spans 60


@pytest.mark.parametrize(("name", "hops"), [("ring", 75), ("no arc", 0), ("one way", 40)])
def test_hops_from_a_vertex_of_highest_degree(name: str, hops: int) -> None:
    assert hop_radius(EXAMPLES[name].indptr, EXAMPLES[name].heads)[0] == hops


def test_hops_of_a_random_graph_are_those_of_its_hub() -> None:
    graph = EXAMPLES["random"]
    hub = int(np.argmax(np.diff(graph.indptr)))
    ones = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    assert hop_radius(graph.indptr, graph.heads)[0] == dijkstra(ones, indices=hub).max()
