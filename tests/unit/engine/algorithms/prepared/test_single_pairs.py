"""Single pairs that are read from files are those that compiled code finds in tables, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.algorithms.prepared import single_pairs
from engine.algorithms.prepared.single_pairs import SinglePairs
from engine.api.from_tables.compacting import prepare_compact
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import Graph, build_graph


def graph_of(seed: int, *, directed: bool, least: int = 0, real: bool = False) -> Graph:
    """A random graph in several pieces; with ``least`` below zero, arcs may be negative, but no cycle is."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    tails, heads = rng.integers(0, n, (2, 2 * n))
    weights = rng.integers(0, 50, 2 * n).astype(float if real else int)
    if real:
        weights = np.round(weights * 0.37, 3)
    if least < 0:
        potential = rng.integers(0, -least, n)
        weights = weights + potential[tails] - potential[heads]
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def compared(graph: Graph, options: Options, path: Path) -> None:
    prepare(graph, path, options)
    with open_result(path) as matrix:
        assert isinstance(matrix, PreparedMatrix)
        pairs, every = SinglePairs.of(matrix), np.arange(graph.n)
        assert pairs is not None
        want = matrix.entries(np.repeat(every, graph.n), np.tile(every, graph.n)).reshape(graph.n, graph.n)
        for u in every.tolist():
            for v in every.tolist():
                found = pairs.read(u, v)
                assert (found, found.dtype) == (want[u, v], matrix.dtype)
                assert pairs.peek(u, v) == found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_every_pair(tmp_path: Path, seed: int, directed: bool, dtype: str):
    compared(graph_of(seed, directed=directed, real=dtype[0] == "f"), Options(dtype=dtype), tmp_path / "p")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cutoff", [0, 20, 60.5])
def test_a_cutoff(tmp_path: Path, seed: int, cutoff: float):
    compared(graph_of(seed, directed=True), Options(cutoff=cutoff), tmp_path / "p")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_negative_arcs(tmp_path: Path, seed: int, dtype: str):
    compared(graph_of(seed, directed=True, least=-30), Options(dtype=dtype), tmp_path / "p")


def test_terminals(tmp_path: Path):
    graph = graph_of(3, directed=True)
    arcs = graph.indptr, graph.heads, graph.weights, graph.labels
    compared(Graph(*arcs, directed=True, weighted=True, terminals=3), Options(), tmp_path / "p")


def test_a_graph_of_one_vertex_and_one_without_arcs(tmp_path: Path):
    for n in (1, 3):
        compared(build_graph([], [], [], n=n, directed=True)[0], Options(), tmp_path / str(n))


def test_long_lines_and_deep_trees_are_left_to_those_who_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    n = 400
    graph = build_graph(np.arange(n - 1), np.arange(1, n), np.ones(n - 1, int), n=n, directed=False)[0]
    prepare(graph, tmp_path / "p", Options())
    with open_result(tmp_path / "p") as matrix:
        for name, most in (("_LINE_BYTES", 1), ("_STEPS", 0)):
            with monkeypatch.context() as patched:
                patched.setattr(single_pairs, name, most)
                pairs = SinglePairs.of(matrix)
                assert pairs is not None
                assert pairs.read(0, n - 1) == n - 1
                assert pairs.peek(0, n - 1) is None


def test_there_are_none_of_a_compact_form(tmp_path: Path):
    prepare_compact(graph_of(1, directed=True), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        assert SinglePairs.of(matrix) is None


def test_a_damaged_description_is_told(tmp_path: Path):
    prepare(graph_of(1, directed=True), tmp_path / "p", Options(dtype="int32"))
    weights = tmp_path / "p/graph/weights/c/0"
    weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    with open_result(tmp_path / "p") as matrix, pytest.raises(StorageFailed, match="graph/weights"):
        SinglePairs.of(matrix)
