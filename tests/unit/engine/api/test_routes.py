"""Routes from a finished store: real arcs, right sums, no loops."""

from pathlib import Path

import numpy as np
import pytest

from engine.api.routes import Router
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import DoesNotFit, NotFound, StorageFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import Matrix, open_matrix
from tests.wrong import sealed


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


@pytest.mark.parametrize("hops", [None, 4])
@pytest.mark.parametrize(("dtype", "large"), [("float64", 2**52), ("float32", 2**23)])
def test_routes_of_whole_weights_that_floats_hold_are_exact(tmp_path: Path, dtype: str, large: int, hops: int) -> None:
    """Arcs out of vertex 0 are so long that the rounding error of a sum of floats could be 1; other paths are longer by
    1.
    """
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tails, heads = np.append(np.zeros(4, np.int64), rng.integers(1, 30, 86)), rng.integers(1, 30, 90)
        weights = np.append(np.full(4, large), rng.choice([0, 1, 2], 86))
        graph, folder = build_graph(tails, heads, weights, n=30, directed=True)[0], tmp_path / str(seed)
        folder.mkdir()
        check_all_routes(store(folder, graph, dtype=dtype, max_hops=hops), hops=hops)


def test_a_path_that_is_longer_by_less_than_rounding_is_no_route_of_whole_weights(tmp_path: Path) -> None:
    far, more = 2**52, 2**31
    arcs = [(0, 5, far), (0, 7, 0), (0, 8, 0), (0, 9, 3), (1, 4, far), (1, 6, more - 1), (2, 4, more - 1), (2, 5, more)]
    arcs += [(3, 4, far), (4, 6, 32767), (4, 7, 0), (4, 8, 1), (5, 7, more), (7, 9, far)]
    check_all_routes(store(tmp_path, graph_of(arcs, 10, directed=False), dtype="float64"))


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
    found = Router(store(tmp_path, graph_of(arcs, 5))).route(0, 4)
    assert found is not None
    assert found.vertices == [0, 3, 1, 2, 4]


@pytest.mark.parametrize("hops", [1, 2, 3, 7])
def test_hop_limits_are_kept(tmp_path: Path, hops: int) -> None:
    rng = np.random.default_rng(hops)
    graph = build_graph(*rng.integers(0, 20, (2, 60)), rng.integers(0, 9, 60), n=20, directed=True)[0]
    check_all_routes(store(tmp_path, graph, max_hops=hops), hops=hops)


def test_a_source_that_was_not_solved_is_named(tmp_path: Path) -> None:
    matrix = store(tmp_path, graph_of([(0, 1, 2), (1, 2, 2)], 3), sources=(1,))
    assert Router(matrix).route(1, 2) is not None
    with pytest.raises(NotFound, match="0"):
        Router(matrix).route(0, 2)


def test_a_vertex_reaches_itself_without_arcs(tmp_path: Path) -> None:
    found = Router(store(tmp_path, graph_of([(0, 1, 2)], 2))).route(1, 1)
    assert found is not None
    assert (found.vertices, found.weights, found.length) == ([1], [], 0)


def test_a_hop_limit_beside_a_far_vertex_takes_no_longer_path(tmp_path: Path) -> None:
    """The largest distance of the row, 1000, once said how far from 0.00002 the path of length 0.1 might be."""
    graph = graph_of([(0, 1, 0.1), (0, 2, 0.00001), (2, 1, 0.00001), (0, 3, 1000)], 4)
    matrix = store(tmp_path, graph, max_hops=2)
    assert matrix.dtype == np.float32
    found = Router(matrix).route(0, 1)
    assert found is not None
    assert found.vertices == [0, 2, 1]


def test_a_plateau_of_rounding_is_no_way_out(tmp_path: Path) -> None:
    """Vertices 1 and 2 are equally far for float32, but the way round through 2 is longer by 0.05."""
    arcs = [(0, 1, 9.1), (1, 2, 1e-8), (0, 3, 9), (3, 2, 0.15), (0, 4, 1e6)]
    matrix = store(tmp_path, graph_of(arcs, 5, directed=False))
    assert matrix.dtype == np.float32
    found = Router(matrix).route(0, 1)
    assert found is not None
    assert found.vertices == [0, 1]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"max_hops": 3}, {"targets": (2, 1)}])
@pytest.mark.parametrize(("wrong", "why"), [(5, "the shortest path has the length 4"), (3, "no path is that short")])
def test_a_wrong_distance_is_refused_and_not_explained(
    tmp_path: Path, dtype: str, options: dict, wrong: int, why: str
) -> None:
    def change(array: np.ndarray) -> None:
        array[0, 0 if "targets" in options else 2] = wrong

    graph = graph_of([(0, 1, 2), (1, 2, 2), (0, 2, 7)], 3)
    matrix = sealed(tmp_path / "d.zarr", graph, change, dtype=dtype, **options)
    with pytest.raises(StorageFailed, match=rf"distance {wrong}(\.0)? from 0 to 2: {why}"):
        Router(matrix).route(0, 2)


def test_a_distance_that_floats_have_lost_behind_large_arcs_is_refused(tmp_path: Path) -> None:
    def change(array: np.ndarray) -> None:
        array[1, 2] = 0

    graph = graph_of([(0, 1, -1e17), (1, 2, 1.5)], 3)
    with pytest.raises(StorageFailed, match=r"length 1\.5"):
        Router(sealed(tmp_path / "d.zarr", graph, change, dtype="float64")).route(1, 2)


def test_sums_of_many_arcs_may_be_off_by_the_rounding_of_each(tmp_path: Path) -> None:
    """A thousand times 0.1, added one by one in float32, is 99.99905."""
    added = np.cumsum(np.full(1001, 0.1, np.float32), dtype=np.float32) - np.float32(0.1)

    def change(array: np.ndarray) -> None:
        array[0] = added

    graph = graph_of([(v, v + 1, 0.1) for v in range(1000)], 1001)
    found = Router(sealed(tmp_path / "d.zarr", graph, change, dtype="float32", sources=(0,))).route(0, 1000)
    assert found is not None
    assert found.length == pytest.approx(100)


def test_hop_layers_keep_to_their_budget(tmp_path: Path) -> None:
    """A path of 97 arcs in 17 layers of 100 numbers; in 4 that is refused, with numbers."""
    matrix = store(tmp_path, graph_of([(v, v + 1, 3) for v in range(99)], 100), max_hops=97)
    found = Router(matrix, memory=17 * 800).route(1, 98)
    assert found is not None
    assert found.vertices == list(range(1, 99))
    with pytest.raises(DoesNotFit, match=r"up to 97 arcs.* bytes, and 3,200 may be used") as refused:
        Router(matrix, memory=4 * 800).route(1, 98)
    assert Router(matrix, memory=refused.value.needed).route(1, 98) == found
