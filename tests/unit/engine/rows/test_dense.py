"""The dense weight matrix: every arc in the working type, and none wrapped into it."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import graphs
from engine.api.solve import make_plan, solve
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.rows.dense import weight_matrix
from storage.graph.graph import build_graph


@pytest.mark.parametrize("name", ["uint16", "int32"])
@pytest.mark.parametrize("weight", [2**15, 40_000, 2**16, 2**30, 2**31, 2**40])
def test_an_arc_beyond_the_type_counts_as_no_arc(name, weight):
    kind = WORK_TYPES[name]
    graph, _ = build_graph(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([0, 1, weight]), n=3, directed=True)
    matrix = weight_matrix(graph, kind, Monitor())
    assert matrix.dtype == kind.dtype
    assert matrix[:, 1].tolist() == [0, 0, kind.unreachable]
    assert matrix[1, 2] == min(weight, kind.unreachable)


def test_a_negative_zero_becomes_a_plain_one():
    graph, _ = build_graph(np.array([0]), np.array([1]), np.array([-0.0]), n=2, directed=True)
    matrix = weight_matrix(graph, WORK_TYPES["float32"], Monitor())
    assert not np.signbit(matrix).any()


@pytest.mark.parametrize("algorithm", ["dijkstra", "recursive-floyd-warshall", "repeated-squaring"])
def test_long_distances_of_whole_numbers_without_a_sign_are_no_sunk_sentinels(algorithm: str) -> None:
    """Only with negative arcs does *unreachable* begin at half of int32's sentinel."""
    graph = build_graph(np.array([0]), np.array([1]), np.array([2**30 - 2]), n=2, directed=True)[0]
    plan = make_plan(graph, Options(algorithm=algorithm))
    assert plan.dtype == "int32"
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, Options(algorithm=algorithm), sink)
    assert sink.array.tolist() == [[0, 2**30 - 2], [2**30 - 1, 0]]


@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize("weights", ["int32", "int64", "float64"])
def test_the_weight_matrix_is_that_of_numpy_to_the_last_bit(dtype: str, weights: str) -> None:
    kind, graph = WORK_TYPES[dtype], graphs.random(300)
    if kind.integer and weights == "float64":
        pytest.skip("whole numbers only")
    some = graph.weights.astype(weights)
    some[7] = 2**30 - 1  # longer than every distance of the narrow types
    if weights == "float64":
        some = some * 0.3
        some[3] = -0.0  # its bits sort below every number
    graph = replace(graph, weights=some)
    wanted = np.full((300, 300), kind.sentinel(), kind.dtype)
    values = np.minimum(some, int(kind.unreachable)) if kind.integer else some + 0
    wanted[np.repeat(np.arange(300), np.diff(graph.indptr)), graph.heads] = values
    np.fill_diagonal(wanted, 0)
    assert weight_matrix(graph, kind, Monitor(), 2).tobytes() == wanted.tobytes()
