"""The tables of both directions from one elimination against those of two graphs, each eliminated on its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from engine.algorithms import elimination
from engine.algorithms.both_ways import find_tables
from engine.algorithms.part_lengths import PartWork, find_lengths
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from storage.errors import Cancelled
from storage.graph.graph import build_graph


def sparse_graph(n, seed, *, directed=True, negative=False):
    """A lattice of about ``n`` vertices with random weights and a few arcs left out."""
    rng, side = np.random.default_rng(seed), int(n**0.5)
    at = np.arange(side * side).reshape(side, side)
    tails, heads = (
        np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()]),
        np.concatenate([at[:, 1:].ravel(), at[1:].ravel()]),
    )
    if directed:
        tails, heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    kept = rng.random(len(tails)) < 0.9
    weights = rng.integers(1, 100, len(tails))
    if negative:
        height = rng.integers(0, 50, side * side)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails[kept], heads[kept], weights[kept], n=side * side, directed=directed)[0]


def transposed(graph):
    arcs = csr_array((np.arange(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n)).tocoo()
    return build_graph(arcs.col, arcs.row, graph.weights[arcs.data], n=graph.n, directed=True)[0]


@pytest.fixture(scope="module")
def backend():
    found = CpuBackend(2)
    yield found
    found.shutdown()


@pytest.mark.parametrize(
    ("dtype", "negative"), [("int32", False), ("int32", True), ("uint16", False), ("float64", False)]
)
@pytest.mark.parametrize("n", [1, 4, 300, 2500])
def test_backward_tables_are_those_of_the_reversed_graph(backend, dtype, negative, n):
    graph = sparse_graph(n, n, negative=negative)
    parts, kind = GraphProfile(graph).parts(CPU_GRAIN), WORK_TYPES[dtype]
    asked = {"nonnegative": not negative, "monitor": Monitor()}
    found = find_tables(PartWork(backend, graph, parts, kind, **asked))
    for table, other in ((found.forward, graph), (found.backward, transposed(graph))):
        want = find_lengths(backend, other, parts, kind, **asked).flat
        far = kind.largest_signed if negative else kind.largest
        np.testing.assert_array_equal(table, np.where(want > far, kind.sentinel(), want) if kind.integer else want)


def test_undirected_graphs_have_one_table(backend):
    graph = sparse_graph(100, 3, directed=False)
    parts = GraphProfile(graph).parts(CPU_GRAIN)
    assert find_tables(PartWork(backend, graph, parts, WORK_TYPES["int32"], True, Monitor())).backward is None


class Counts(Monitor):
    """Counts the updates of each phase, and may stop the second."""

    def __init__(self, stop=False):
        self.phases, self.stop = [], stop

    def begin(self, phase, total, unit):
        self.phases.append([phase, total, 0])

    def advance(self, amount):
        self.phases[-1][2] += amount

    def cancelled(self):
        return self.stop and len(self.phases) == 2


def test_progress_adds_up_and_both_phases_stop(backend):
    graph = sparse_graph(2500, 1)
    parts, monitor = GraphProfile(graph).parts(CPU_GRAIN), Counts()
    find_tables(PartWork(backend, graph, parts, WORK_TYPES["int32"], True, monitor))
    assert [phase for phase, *_ in monitor.phases] == ["prepare", "prepare backward"]
    assert all(total == done for _, total, done in monitor.phases)
    with pytest.raises(Cancelled):
        find_tables(PartWork(backend, graph, parts, WORK_TYPES["int32"], True, Counts(stop=True)))


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_small_parts_have_the_tables_that_large_ones_have(backend, dtype, monkeypatch):
    """Compiled code extends small parts, and the operations of a backend extend large ones."""
    graph = sparse_graph(2500, 7)
    parts = GraphProfile(graph).parts(CPU_GRAIN)
    work = PartWork(backend, graph, parts, WORK_TYPES[dtype], nonnegative=True, monitor=Monitor())
    found = []
    for most in (0, int(np.median(parts.updates()[0])), 2**62):
        monkeypatch.setattr(elimination, "PART_UPDATES", most)
        found.append(find_tables(work))
    assert elimination.small_parts(parts).sum() > 0
    for tables in found[1:]:
        np.testing.assert_array_equal(tables.forward, found[0].forward)
        np.testing.assert_array_equal(tables.backward, found[0].backward)
