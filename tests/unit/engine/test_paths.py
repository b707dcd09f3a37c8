"""Routes from a finished store: real arcs, right sums, no loops."""

from pathlib import Path

import numpy as np
import pytest

from engine.paths import Router, route
from engine.problem import Options
from engine.solve import solve_to_store
from storage.errors import NotFound
from storage.graph import Graph, build_graph
from storage.matrix import Matrix, open_matrix


def store(tmp_path: Path, graph: Graph, **options: object) -> Matrix:
    solve_to_store(graph, Options(**options), tmp_path / "d.zarr")  # type: ignore[arg-type]
    return open_matrix(tmp_path / "d.zarr")


def graph_of(arcs: list[tuple[int, int, float]], n: int, *, directed: bool = True) -> Graph:
    tails, heads, weights = (np.array(c) for c in zip(*arcs, strict=True))
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def check_all_routes(matrix: Matrix, rel: float = 0.0, hops: int | None = None) -> None:
    """Every pair: the route runs over arcs of the graph, visits nobody twice, and is as long as the distance."""
    graph, router = matrix.graph(), Router(matrix)
    arcs = {(u, int(v)): w for u in range(graph.n) for v, w in zip(
        graph.heads[graph.indptr[u] : graph.indptr[u + 1]],
        graph.weights[graph.indptr[u] : graph.indptr[u + 1]].tolist(), strict=True)}  # fmt: skip
    for u in matrix.sources.tolist():
        row = matrix.row(u)
        for v in range(graph.n):
            found = router.route(u, v)
            if row[v] == matrix.unreachable:
                assert found is None
                continue
            assert found is not None
            assert (found.vertices[0], found.vertices[-1]) == (u, v)
            assert len(set(found.vertices)) == len(found.vertices)
            steps = list(zip(found.vertices, found.vertices[1:], strict=False))
            assert [arcs[s] for s in steps] == found.weights
            assert sum(found.weights) == pytest.approx(found.length, abs=1e-9)
            assert found.length == pytest.approx(float(row[v]), rel=rel, abs=rel * 100)
            assert hops is None or len(steps) <= hops


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", ["whole", "zeros", "float"])
def test_every_route_of_random_graphs(tmp_path: Path, directed: bool, kind: str) -> None:
    rng = np.random.default_rng(5)
    weights = {"whole": rng.integers(1, 9, 90), "zeros": rng.integers(0, 2, 90), "float": rng.random(90)}[kind]
    graph = build_graph(*rng.integers(0, 30, (2, 90)), weights, n=30, directed=directed)[0]
    check_all_routes(store(tmp_path, graph), 1e-5 if kind == "float" else 0)


@pytest.mark.parametrize("algorithm", ["johnson", "recursive-floyd-warshall"])
def test_negative_arcs(tmp_path: Path, algorithm: str) -> None:
    rng = np.random.default_rng(6)
    height = rng.integers(0, 40, 25)
    tails, heads = rng.integers(0, 25, (2, 100))
    graph = build_graph(tails, heads, rng.integers(0, 5, 100) + height[tails] - height[heads], n=25, directed=True)[0]
    assert graph.weights.min() < 0
    check_all_routes(store(tmp_path, graph, algorithm=algorithm))


def test_cycles_of_length_zero_do_not_trap_the_walk(tmp_path: Path) -> None:
    """1, 2 and 3 form a cycle of zeros; the greedy walk back from 4 would turn in it for ever."""
    arcs = [(0, 3, 1), (1, 2, 0), (2, 3, 0), (3, 1, 0), (2, 4, 1)]
    found = route(store(tmp_path, graph_of(arcs, 5)), 0, 4)
    assert found is not None
    assert found.vertices == [0, 3, 1, 2, 4]


@pytest.mark.parametrize("hops", [1, 2, 3, 7])
def test_hop_limits_are_kept(tmp_path: Path, hops: int) -> None:
    rng = np.random.default_rng(hops)
    graph = build_graph(*rng.integers(0, 20, (2, 60)), rng.integers(0, 9, 60), n=20, directed=True)[0]
    check_all_routes(store(tmp_path, graph, max_hops=hops), hops=hops)


def test_a_source_that_was_not_solved_is_named(tmp_path: Path) -> None:
    matrix = store(tmp_path, graph_of([(0, 1, 2), (1, 2, 2)], 3), sources=(1,))
    assert route(matrix, 1, 2) is not None
    with pytest.raises(NotFound, match="0"):
        route(matrix, 0, 2)


def test_a_vertex_reaches_itself_without_arcs(tmp_path: Path) -> None:
    found = route(store(tmp_path, graph_of([(0, 1, 2)], 2)), 1, 1)
    assert found is not None
    assert (found.vertices, found.weights, found.length) == ([1], [], 0)
