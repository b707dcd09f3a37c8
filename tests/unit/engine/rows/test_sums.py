"""Sums along paths: what decides ties, which graphs and options are refused, and what a wrong row comes to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.api.in_memory import solve as solve_in_memory
from engine.api.measuring import measure
from engine.api.solve import make_plan, solve_to_store
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from engine.rows.summary import SummarySink
from engine.rows.sums import Exactness, PathSums, SumSink, adds_whole, exactness, rows_together, sum_types
from storage.errors import DoesNotFit, InvalidRequest, SolveFailed
from storage.graph.graph import Graph, build_graph

INT32 = WORK_TYPES["int32"]


def graph_of(arcs: list[tuple[int, int, float]], n: int, *, directed: bool = True, **quantities: list[float]) -> Graph:
    tails, heads, weights = zip(*arcs, strict=True)
    return build_graph(list(tails), list(heads), list(weights), n=n, directed=directed, quantities=quantities)[0]


def sums_from(graph: Graph, source: int, row: list[float], kind: str = "int32") -> dict[str, list[float]]:
    sums = PathSums(graph, sum_types(graph, list(graph.quantities)), WORK_TYPES[kind], limited=False, targets=None)
    found = sums.of(np.array([source]), np.array([row], kind))
    return {name: block[0].tolist() for name, block in found.items()}


def test_fewest_arcs_then_the_first_vertex_before():
    arcs = [(0, 1, 1), (1, 4, 1), (0, 2, 1), (2, 4, 1), (0, 3, 0), (3, 1, 1), (0, 4, 2)]
    graph = graph_of(arcs, 5, q=[1, 10, 2, 20, 3, 30, 400])
    assert sums_from(graph, 0, [0, 1, 1, 0, 2]) == {"q": [0, 1, 2, 3, 400]}
    without = graph_of(arcs[:-1], 5, q=[1, 10, 2, 20, 3, 30])
    assert sums_from(without, 0, [0, 1, 1, 0, 2]) == {"q": [0, 1, 2, 3, 11]}


def test_cycles_of_length_zero():
    graph = graph_of([(0, 1, 0), (1, 0, 0), (1, 2, 0), (2, 1, 0)], 4, q=[1, 2, 4, 8])
    assert sums_from(graph, 2, [0, 0, 0, INT32.unreachable]) == {"q": [10, 8, 0, INT32.unreachable]}


def test_parallel_arcs_by_weight_and_then_by_quantities_in_their_order():
    arcs = [(0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 1, 2)]
    graph = graph_of(arcs, 2, a=[5, 3, 3, 0], b=[0, 9, 8, 0])
    assert (graph.quantities["a"].tolist(), graph.quantities["b"].tolist()) == ([3], [8])
    graph = graph_of(arcs, 2, b=[0, 9, 8, 0], a=[5, 3, 3, 0])
    assert (graph.quantities["a"].tolist(), graph.quantities["b"].tolist()) == ([5], [0])
    both = graph_of([(0, 1, 1), (1, 0, 1)], 2, directed=False, a=[5, 3])
    assert both.quantities["a"].tolist() == [3, 3]


def test_no_path_passes_through_a_terminal():
    graph = replace(graph_of([(0, 1, 1), (1, 2, 1), (0, 2, 5), (2, 0, 1)], 3, q=[1, 1, 7, 1]), terminals=2)
    assert sums_from(graph, 0, [0, 1, 5]) == {"q": [0, 1, 7]}
    assert sums_from(graph, 1, [2, 0, 1]) == {"q": [2, 0, 1]}


@pytest.mark.parametrize("row", [[0, 1, 3], [0, 1, 1], [0, 2, 2], [0, 1, INT32.unreachable], [0, 0, 1]])
def test_a_row_that_is_wrong_is_refused(row):
    graph = graph_of([(0, 1, 1), (1, 2, 1)], 3, q=[1, 1])
    assert sums_from(graph, 0, [0, 1, 2]) == {"q": [0, 1, 2]}
    with pytest.raises(SolveFailed, match=r"from 0 to .* is not the shortest distance"):
        sums_from(graph, 0, row)


NONE = INT32.unreachable


@pytest.mark.parametrize("weight", [1, 2])  # sums over hops, and over weights
@pytest.mark.parametrize("row", [[NONE, NONE, 1], [0, NONE, 0], [NONE, 3, 0], [NONE, NONE, NONE], [0, 1, 2]])
def test_a_wrong_row_whose_source_no_arc_leaves_is_refused(row, weight):
    graph = graph_of([(0, 1, weight), (1, 2, weight)], 3, q=[1, 1])
    assert sums_from(graph, 2, [NONE, NONE, 0]) == {"q": [NONE, NONE, 0]}
    with pytest.raises(SolveFailed, match=r"from 2 to .* is not the shortest distance"):
        sums_from(graph, 2, row)


@pytest.mark.parametrize("most", [None, 2])
def test_sources_that_no_arc_leaves_have_sums_of_every_type(most):
    graph = graph_of([(0, 1, 1), (0, 2, 1), (0, 3, 1)], 4, short=[1, 2, 3], long=[0, 0, 0], fraction=[0.5, 0.25, 2])
    types, targets = sum_types(graph, list(graph.quantities), most), np.array([3, 1, 3, 2])
    rows = np.where(np.eye(4, dtype=bool), 0, NONE).astype(np.int32)
    rows[0] = [0, 1, 1, 1]
    sums = PathSums(graph, types, INT32, limited=False, targets=targets)
    found = sums.of(np.array([3, 0, 1]), rows[[3, 0, 1]])
    for name, values in (("short", [3, 1, 3, 2]), ("long", [0, 0, 0, 0]), ("fraction", [2, 0.5, 2, 0.25])):
        none = types[name].sentinel()
        assert found[name].tolist() == [[0, none, 0, none], values, [none, 0, none, none]]


def test_how_tight_arcs_are_recognised():
    def found(*weights: float) -> Exactness:
        return exactness(graph_of([(i, i + 1, w) for i, w in enumerate(weights)], len(weights) + 1))

    assert found(1, 2) == Exactness()
    assert found(0.1, 0.25) == Exactness(100)
    assert found(2.0**-20, 0.5) == Exactness(2**20)
    assert found(0.1, 1 / 3) == Exactness(rounded=True)
    assert found(0.1, 1e14) == Exactness(rounded=True)
    with pytest.raises(InvalidRequest, match="negative fractions"):
        found(0.5, -0.25)


def test_distances_that_rounding_has_moved_are_found_again():
    graph = graph_of([(0, 1, 0.1), (1, 2, 0.2), (0, 2, 0.3)], 3, q=[1, 1, 50])
    for length in (0.3, 0.1 + 0.2, np.nextafter(0.3, 0)):
        assert sums_from(graph, 0, [0, 0.1, length], "float64") == {"q": [0, 1, 50]}


def test_the_type_of_sums_holds_them():
    arcs = [(0, 1, 1), (1, 2, 1)]
    graph = graph_of(arcs, 3, a=[2**29, 2**29], b=[2**29, 2**29 - 2], c=[0.5, 1], d=[-3, 3], e=[2**52, 2**53])
    assert {name: kind.name for name, kind in sum_types(graph, "abcd").items()} == {
        "a": "float64", "b": "int32", "c": "float64", "d": "int32",
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="sums of 'e' may reach"):
        sum_types(graph, "e")
    with pytest.raises(InvalidRequest, match="no quantity 'x'; it has a, b, c, d, e"):
        sum_types(graph, "x")
    assert adds_whole(graph)
    assert not adds_whole(graph_of([(0, 1, 2**52)], 2))


def test_the_sink_writes_sums_before_rows_and_cuts_columns():
    graph = graph_of([(0, 1, 1), (1, 2, 1), (2, 0, 1)], 3, q=[1, 2, 4])
    wanted = Rectangle(3, np.array([2, 0]), np.array([1, 0]), None)
    told: list[tuple[str, int, list[list[int]]]] = []

    class Sums:
        def write(self, row: int, block: np.ndarray) -> None:
            told.append(("sums", row, block.tolist()))

    class Rows(ArraySink):
        def write(self, row: int, column: int, block: np.ndarray) -> None:
            told.append(("rows", row, block.tolist()))

    sums = PathSums(graph, sum_types(graph, ["q"]), INT32, limited=False, targets=wanted.targets)
    sink = SumSink(Rows((2, 2), np.int32), sums, wanted, {"q": Sums()}, first=64)
    sink.write(0, 0, np.array([[1, 2, 0], [0, 1, 2]], np.int32))
    assert told == [("sums", 64, [[5, 4], [1, 0]]), ("rows", 0, [[2, 1], [1, 0]])]
    with pytest.raises(ValueError, match="whole rows"):
        sink.write(0, 1, np.zeros((1, 2), np.int32))


@pytest.mark.parametrize(
    ("n", "sizes", "together"),
    [
        (100, 4, 256),
        (2**25 // 256, 1, 256),
        (2**25 // 256 + 1, 1, 192),
        (2**25 // 64 // 4, 4, 64),
        (10**6, 8, 64),
        (1, 0, 256),
    ],
)
def test_how_many_rows_are_summed_in_a_call(n: int, sizes: int, together: int):
    assert rows_together(64, n, sizes) == together


@pytest.mark.parametrize("weight", [1, 3])
def test_rows_come_together_only_where_they_are_summed_side_by_side(weight: int):
    graph = graph_of([(k, (k + 1) % 300, weight) for k in range(300)], 300, q=list(range(300)))
    crossed = graph_of([(k, (k + 1) % 300, 0 if weight == 3 else 1 / 3) for k in range(300)], 300, q=list(range(300)))
    given = {"limited": False, "targets": None}
    for one, rows in ((graph, 256), (crossed, 64)):
        sums = PathSums(one, sum_types(one, ["q"]), WORK_TYPES["float64"], **given)
        assert sums.together(64) == rows
        sink = SumSink(ArraySink((300, 300), np.float64), sums, Rectangle(300, np.arange(300), None, None), {})
        assert sink.together == rows


@pytest.mark.parametrize("height", [64, 256, 300])
def test_sums_of_rows_that_come_together_are_those_of_each_alone(height: int):
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, 300, (2, 800))
    graph = build_graph(tails, heads, None, n=300, directed=True, quantities={"q": rng.integers(0, 99, 800)})[0]
    found = np.full((300, 300), -7, np.int32)

    class Sums:
        def write(self, row: int, block: np.ndarray) -> None:
            found[row : row + len(block)] = block

    sums = PathSums(graph, sum_types(graph, ["q"]), WORK_TYPES["float64"], limited=False, targets=None)
    rows = solve_in_memory(graph, Options())[0]
    sink = SumSink(ArraySink((300, 300), np.float64), sums, Rectangle(300, np.arange(300), None, None), {"q": Sums()})
    for first in range(0, 300, height):
        sink.write(first, 0, rows[first : first + height])
    alone = [sums.of(np.array([s]), rows[s : s + 1])["q"][0] for s in range(300)]
    assert np.array_equal(found, alone)


@pytest.mark.parametrize("targets", [None, (3, 250, 4)])
@pytest.mark.parametrize("algorithm", ["bfs", "dijkstra"])
def test_searches_tell_the_facts_of_rows_also_where_quantities_are_summed(monkeypatch, tmp_path, algorithm, targets):
    """Reading all rows again takes about as long as a search over hops."""
    told, gather = [], SummarySink.gather

    def spied(self, row, block, some=None, found=None):
        told.append(found is not None)
        gather(self, row, block, some, found)

    monkeypatch.setattr(SummarySink, "gather", spied)
    tails, heads = np.random.default_rng(5).integers(0, 300, (2, 900))
    graph = build_graph(tails, heads, None, n=300, directed=True, quantities={"q": np.arange(900) % 7})[0]
    options = Options(algorithm=algorithm, threads=1, targets=targets)
    plain = solve_to_store(graph, options, tmp_path / "a.zarr").summary
    told.clear()
    summed = solve_to_store(graph, replace(options, also=("q",)), tmp_path / "b.zarr").summary
    assert {name: summed[name] for name in plain} == plain
    assert told
    assert all(told) == (algorithm == "bfs" and targets is None)


@pytest.mark.parametrize(
    ("options", "field", "told"),
    [
        ({"device": "cuda"}, "device", "made by processors"),
        ({"executor": "dask", "scheduler": "tcp://nowhere:1"}, "executor", "not executor dask"),
        ({"max_hops": 3}, "max_hops", "at most K arcs"),
        ({"dtype": "float32"}, "dtype", "without rounding"),
        ({"also": ("q", "q")}, "also", "twice"),
        ({"also": ("nope",)}, "also", "no quantity 'nope'"),
    ],
)
def test_options_that_exclude_sums(options, field, told):
    graph = graph_of([(0, 1, 1)], 2, q=[1])
    with pytest.raises(InvalidRequest, match=told) as refused:
        make_plan(graph, Options(**{"also": ("q",), **options}))
    assert refused.value.field == field


def test_graphs_and_options_that_exclude_sums_together():
    negative = graph_of([(0, 1, -1), (1, 2, 2)], 3, q=[1, 1])
    with pytest.raises(InvalidRequest, match="with negative arcs"):
        make_plan(negative, Options(also=("q",), cutoff=3))
    real = graph_of([(0, 1, 1 / 3), (1, 2, 2.5)], 3, q=[1, 1])
    with pytest.raises(InvalidRequest, match="only dijkstra finds distances"):
        make_plan(real, Options(also=("q",), algorithm="recursive-floyd-warshall"))
    assert make_plan(real, Options(also=("q",))).algorithm == "dijkstra"
    for dtype in ("uint16", "int32"):
        with pytest.raises(InvalidRequest, match=f"dtype {dtype} cannot be used: the weights are not whole numbers"):
            make_plan(real, Options(also=("q",), dtype=dtype))
    with pytest.raises(InvalidRequest, match="float64 would round"):
        make_plan(graph_of([(0, 1, 2**52)], 2, q=[1]), Options(also=("q",), dtype="float64"))
    # with a cutoff, float64 would be chosen
    with pytest.raises(InvalidRequest, match="in a larger unit"):
        make_plan(graph_of([(0, 1, 2**53), (1, 2, 1)], 3, q=[1, 1]), Options(also=("q",), cutoff=2.0**53))
    with pytest.raises(DoesNotFit, match=r"need .* bytes of memory"):
        make_plan(real, Options(also=("q",), memory=1000))


def test_what_sums_nothing_refuses_quantities():
    graph, options = graph_of([(0, 1, 1)], 2, q=[1]), Options(also=("q",))
    for function in (solve_in_memory, measure):
        with pytest.raises(InvalidRequest, match="sums nothing along paths"):
            function(graph, options)


def test_the_plan_counts_the_sums():
    rng = np.random.default_rng(0)
    n, m = 500, 3000
    tails, heads = rng.integers(0, n, m), rng.integers(0, n, m)
    quantities = {"a": rng.integers(0, 9, m), "b": rng.random(m)}
    graph, _ = build_graph(tails, heads, rng.integers(1, 9, m), n=n, directed=True, quantities=quantities)
    plain, both = make_plan(graph, Options(device="cpu")), make_plan(graph, Options(also=("a", "b")))
    tiles = sum(phase.bytes for phase in both.phases if phase.name == "sum")
    assert tiles >= n * n * (4 + 8)
    assert both.disk >= plain.disk + tiles
    assert both.memory > plain.memory
    few = make_plan(graph, Options(also=("a", "b"), targets=(3, 1)))
    assert few.shape == (n, 2)
    assert few.disk < both.disk / 4


def test_a_cutoff_on_which_decimal_paths_end_is_refused_where_arcs_of_length_zero_join_vertices():
    """One of two vertices at 0.3 may be cut off by rounding, although the path to the other leads through it.

    Lengths that int32 holds in whole tenths are not rounded, so nothing is refused.
    """
    arcs = [0, 1, 2, 0, 3, 4, 5], [1, 2, 6, 3, 4, 5, 6]
    more = {"n": 7, "directed": True, "quantities": {"q": [1, 1, 1, 100, 100, 100, 100]}}
    near, _ = build_graph(*arcs, [0.1, 0.2, 0, 0.3, 0, 0, 0], **more)
    make_plan(near, Options(also=("q",), cutoff=0.3))
    far = [*arcs[0], 6], [*arcs[1], 0]
    far_more = more | {"quantities": {"q": [1, 1, 1, 100, 100, 100, 100, 1]}}
    graph, _ = build_graph(*far, [0.1, 0.2, 0, 0.3, 0, 0, 0, 2e8], **far_more)
    with pytest.raises(InvalidRequest, match=r"such as 0\.35") as told:
        make_plan(graph, Options(also=("q",), cutoff=0.3))
    assert told.value.field == "cutoff"
    for cutoff in (0.35, 0.29):
        make_plan(graph, Options(also=("q",), cutoff=cutoff))
    make_plan(graph, Options(cutoff=0.3))
    without, _ = build_graph(*arcs, [0.1, 0.2, 0.1, 0.3, 0.1, 0.1, 0.1], **more)
    make_plan(without, Options(also=("q",), cutoff=0.3))
    whole, _ = build_graph(*arcs, [1, 2, 0, 3, 0, 0, 0], **more)
    make_plan(whole, Options(also=("q",), cutoff=3))


@pytest.mark.parametrize("rows", [1, 6])
def test_a_row_whose_source_is_not_at_distance_zero_is_refused(rows):
    graph, _ = build_graph([0, 1], [1, 2], [1, 1], n=3, directed=True, quantities={"q": [1, 2]})
    sums = PathSums(graph, sum_types(graph, ["q"]), WORK_TYPES["int32"], limited=False, targets=None)
    with pytest.raises(SolveFailed, match="not the shortest"):
        sums.of(np.zeros(rows, np.int64), np.tile(np.array([1, 2, 3], np.int32), (rows, 1)))


@pytest.mark.parametrize("rows", [2, 20])
def test_without_columns_nothing_is_summed(rows):
    graph, _ = build_graph([0, 1], [1, 2], [1, 1], n=3, directed=True, quantities={"q": [1, 2]})
    sums = PathSums(graph, sum_types(graph, ["q"]), WORK_TYPES["int32"], limited=False, targets=np.empty(0, np.int64))
    found = sums.of(np.zeros(rows, np.int64), np.tile(np.array([0, 1, 2], np.int32), (rows, 1)))
    assert found["q"].shape == (rows, 0)
