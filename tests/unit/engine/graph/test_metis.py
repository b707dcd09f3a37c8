"""Large dissections run in a process of their own: the same order, and neither signals nor threads wait for METIS."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import networkx as nx
import numpy as np
import psutil
import pytest
from scipy.sparse import coo_array

from engine.graph import metis
from engine.graph._elimination import eliminate, eliminate_low
from storage.errors import SolveFailed

ROOT = Path(__file__).resolve().parents[4]


def grid(side: int) -> tuple[metis.Ints, metis.Ints]:
    """The arcs of a square grid."""
    at = np.arange(side * side, dtype=np.int32).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    ends = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    arcs = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(side * side, side * side)).tocsr()
    return arcs.indptr.astype(np.int32), arcs.indices.astype(np.int32)


def test_the_order_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here = metis.nested_dissection(*grid(40))
    monkeypatch.setattr(metis, "SHORT", 0)
    there = metis.nested_dissection(*grid(40))
    for one, other in zip(here, there, strict=True):
        assert one.dtype == other.dtype == np.int32
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(there[0][there[1]], np.arange(1600))


def test_other_threads_go_on_meanwhile() -> None:
    seen, over = [time.monotonic()], threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            seen.append(time.monotonic())

    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.monotonic()
    try:
        metis.nested_dissection(*grid(400))
    finally:
        over.set()
        ticking.join()
    assert max(np.diff(seen)) < (time.monotonic() - began) / 2


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "SHORT", 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SolveFailed, match="status 1"):
        metis.nested_dissection(*grid(40))


_PARENT = """
import sys
from tests.unit.engine.graph.test_metis import grid
from engine.graph import metis
from engine.graph._elimination import eliminate, eliminate_low
rows = grid(700)
print("begun", flush=True)
metis.nested_dissection(*rows)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_at_once_with_its_process(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "begun\n"
    child = _child(parent.pid)
    time.sleep(0.5)
    assert child.is_running()
    os.kill(parent.pid, number)
    began = time.monotonic()
    assert parent.wait(30) in (-signal.SIGINT, -signal.SIGKILL, 130)
    child.wait(30)
    assert time.monotonic() - began < 10
    parent.communicate()


def _child(number: int) -> psutil.Process:
    """The process that a process has started."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(number).children():
            return child
        time.sleep(0.01)
    raise AssertionError("no process was started")


def arcs_of(graph: nx.Graph) -> tuple[metis.Ints, metis.Ints]:
    found = nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)), dtype=np.int8, format="csr")
    return found.indptr.astype(np.int32), found.indices.astype(np.int32)


def eliminated(graph: nx.Graph, order: list[int]) -> tuple[nx.Graph, list[int]]:
    """The graph without the vertices in ``order``, whose neighbours are joined, and how many neighbours each had."""
    left, degrees = nx.Graph(graph), []
    for v in order:
        near = list(left[v])
        degrees.append(len(near))
        left.remove_node(v)
        left.add_edges_from(itertools.combinations(near, 2))
    return left, degrees


SPARSE = {
    "tree": nx.random_labeled_tree(200, seed=1),
    "star": nx.star_graph(150),
    "chain": nx.path_graph(90),
    "ring": nx.cycle_graph(90),
    "ladder": nx.ladder_graph(40),
    "cubic": nx.random_regular_graph(3, 100, seed=2),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 11)),
    "sparse": nx.gnm_random_graph(200, 260, seed=3),
    "denser": nx.gnm_random_graph(150, 400, seed=4),
    "hub": nx.wheel_graph(100),
    "two hubs": nx.complete_bipartite_graph(2, 100),
    "no arcs": nx.empty_graph(5),
    "one vertex": nx.empty_graph(1),
}


@pytest.mark.parametrize("wide", [4, 1000])
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("name", SPARSE)
def test_what_is_left_is_joined_as_if_each_vertex_had_been_taken_out(name: str, most: int, wide: int) -> None:
    graph = SPARSE[name]
    order, left, indptr, heads = eliminate_low(*arcs_of(graph), most, wide, 1000)
    assert sorted([*order.tolist(), *left.tolist()]) == list(graph)
    rest, degrees = eliminated(graph, order.tolist())
    assert max(degrees, default=0) <= most
    assert left.tolist() == sorted(rest)
    tails = np.repeat(left, np.diff(indptr)).tolist()
    found = sorted(zip(tails, left[heads].tolist(), strict=True))
    assert found == sorted((u, v) for u in rest for v in rest[u])
    assert len(heads) <= 2 * graph.number_of_edges()
    if wide > len(graph):  # else vertices are left whose neighbours were too many when it was their turn
        assert all(degree > most for _, degree in rest.degree)


@pytest.mark.parametrize("name", SPARSE)
def test_an_order_of_elimination_has_each_vertex_once(name: str) -> None:
    order, rank = metis.elimination_order(*arcs_of(SPARSE[name]))
    assert order.dtype == rank.dtype == np.int32
    assert np.array_equal(np.sort(order), np.arange(len(order)))
    assert np.array_equal(order[rank], np.arange(len(order)))


def test_metis_orders_only_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    plain = metis.nested_dissection
    monkeypatch.setattr(metis, "nested_dissection", lambda *arcs: asked.append(len(arcs[0]) - 1) or plain(*arcs))
    metis.elimination_order(*arcs_of(SPARSE["tree"]))
    assert asked == []
    streets = nx.convert_node_labels_to_integers(nx.hexagonal_lattice_graph(20, 20))
    metis.elimination_order(*arcs_of(streets))
    assert asked.pop() < 0.5 * len(streets)
    metis.elimination_order(*arcs_of(nx.random_regular_graph(6, 100, seed=5)))
    assert asked == [100]


@pytest.mark.parametrize("graph", [nx.path_graph(1000), nx.cycle_graph(1000), nx.ladder_graph(500)])
def test_a_chain_becomes_no_deep_tree(graph: nx.Graph) -> None:
    indptr, heads = arcs_of(graph)
    order, rank = metis.elimination_order(indptr, heads)
    parent = eliminate(indptr.astype(np.int64), heads.astype(np.int64), order, rank, 10**6)[2]
    depth = np.zeros(len(parent), int)
    for v in range(len(parent) - 1, -1, -1):
        depth[v] = 1 + (depth[parent[v]] if parent[v] >= 0 else 0)
    assert depth.max() < 100
