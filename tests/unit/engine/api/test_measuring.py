"""Measures of whole graphs: rows that are never kept, every way to find them, negative arcs, a real graph, refusals."""

from __future__ import annotations

import csv
import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import bellman_ford, dijkstra

from engine.api import measuring
from engine.api.measuring import HELD_BYTES, Measurement, measure
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, Conflict, DoesNotFit, InvalidRequest, NegativeCycle, NotFound
from storage.graph.graph import build_graph
from storage.readers import read_graph

ROADS = "examples/helsinki_drive.csv"


def matrix_of(graph, function=dijkstra):
    return function(csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n)))


def largest(rows):
    """The largest finite entry of each row; NaN where there is none."""
    found = np.where(np.isfinite(rows), rows, -np.inf).max(1)
    return np.where(np.isinf(found), np.nan, found)


def random_graph(n=400, *, whole=True, seed=1, directed=True):
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, (2, 3 * n))
    weights = rng.integers(0, 100, 3 * n) if whole else rng.random(3 * n)
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def test_a_road_network_has_the_measures_of_its_matrix():
    graph, _ = read_graph(ROADS)
    right, jobs = matrix_of(graph), np.arange(graph.n) % 7
    found = measure(graph, within=[500], quantiles=[0.5], nearest=1, opportunities={"jobs": jobs})
    np.fill_diagonal(right, np.inf)
    finite = np.isfinite(right)
    np.testing.assert_array_equal(found["reached"], finite.sum(1))
    np.testing.assert_allclose(found["sum"], np.where(finite, right, 0).sum(1), rtol=1e-12)
    np.testing.assert_allclose(found["harmonic"], np.where(finite, 1 / right, 0).sum(1), rtol=1e-12)
    np.testing.assert_allclose(found["eccentricity"], largest(right), rtol=1e-12)
    np.testing.assert_array_equal(found["within_500"], (right <= 500).sum(1))
    np.testing.assert_array_equal(found["jobs_500"], ((right <= 500) * jobs).sum(1) + jobs)
    nearest = np.where(finite.any(1), right.min(1), np.nan)
    np.testing.assert_allclose(found["nearest_1_distance"], nearest, rtol=1e-12)
    some = finite.any(1)
    medians = [np.quantile(row[np.isfinite(row)], 0.5, method="inverted_cdf") for row in right[some]]
    np.testing.assert_allclose(found["quantile_0.5"][some], medians, rtol=1e-12)
    assert len(found) == graph.n
    assert found.plan.dtype == "float64"


@pytest.mark.data
def test_a_power_grid_has_networkx_measures(data_dir):
    import networkx as nx

    graph, _ = read_graph(data_dir / "power.graph")
    arcs = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    whole, some = nx.from_scipy_sparse_array(arcs), range(0, graph.n, 97)
    found, right = measure(graph), nx.harmonic_centrality(whole, nbunch=some)
    for v in some:
        assert found["closeness"][v] == pytest.approx(nx.closeness_centrality(whole, u=v), rel=1e-12)
        assert found["harmonic"][v] == pytest.approx(right[v], rel=1e-12)
        assert found["eccentricity"][v] == nx.eccentricity(whole, v=v)


@pytest.mark.parametrize("algorithm", ["dijkstra", "partitioned", "recursive-floyd-warshall", "blocked-floyd-warshall"])
@pytest.mark.parametrize("whole", [True, False])
def test_every_way_to_find_rows_has_the_same_measures(algorithm, whole):
    graph, asked = random_graph(whole=whole), {"within": [40], "quantiles": [0.3], "nearest": 2}
    asked["opportunities"] = {"w": np.arange(400.0)}
    right = measure(graph, Options(algorithm="dijkstra", threads=1), **asked)
    found = measure(graph, Options(algorithm=algorithm, threads=2), **asked)
    assert found.plan.algorithm == algorithm
    for name, column in found.columns.items():
        np.testing.assert_allclose(column, right[name], rtol=1e-12, err_msg=name)


def test_hops_and_limits_hold_for_measures():
    graph = random_graph()
    arcs = replace(graph, weights=np.ones(graph.arcs, np.int32))
    whole = measure(arcs, Options(algorithm="bfs"), measures=["reached"], within=[3])
    np.testing.assert_array_equal(
        whole["within_3"], measure(graph, Options(max_hops=3), measures=["reached"])["reached"]
    )
    near = measure(graph, Options(cutoff=40.0), measures=["reached"])["reached"]
    np.testing.assert_array_equal(near, measure(graph, measures=["reached"], within=[40])["within_40"])


def test_few_targets_are_searched_from_and_few_rows_are_held(monkeypatch):
    graph, targets = random_graph(1000), (900, 3, 17)
    asked = {"nearest": 3, "within": [50], "measures": ["reached", "farthest", "eccentricity"]}
    options = Options(targets=targets, algorithm="dijkstra")
    found = Measurement(graph, options, **asked)
    assert found.plan.from_targets
    monkeypatch.setattr(measuring, "HELD_BYTES", 1)
    straight = Measurement(graph, options, **asked)
    assert not straight.plan.from_targets
    assert straight.plan.seconds > found.plan.seconds
    one, other = found.run(), straight.run()
    for name, column in one.columns.items():
        np.testing.assert_array_equal(column, other[name])
    right = matrix_of(graph)[:, sorted(targets)]
    right[[3, 17, 900], [0, 1, 2]] = np.inf
    np.testing.assert_array_equal(one["reached"], np.isfinite(right).sum(1))
    assert set(one["nearest_1"].tolist()) <= {-1, *targets}
    assert HELD_BYTES < 2**30


def test_the_matrix_is_at_no_time_in_memory():
    graph = random_graph(6000, seed=3)
    measurement = Measurement(graph, Options(algorithm="dijkstra", threads=1), measures=["sum"])
    itemsize = np.dtype(measurement.plan.dtype).itemsize
    measurement.run()  # what is compiled or loaded for the first time is not counted
    tracemalloc.start()
    measurement.run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < graph.n**2 * itemsize / 2
    assert measurement.plan.batch <= measuring.BATCH_ROWS
    assert measurement.plan.disk == 0
    assert "write" not in [phase.name for phase in measurement.plan.phases]


def test_direction_in_measures_the_reversed_graph_between_the_same_sources_and_targets():
    graph = random_graph()
    right, sources, targets = matrix_of(graph), (5, 2, 300), tuple(range(100, 160))
    found = measure(graph, Options(sources=sources, targets=targets), direction="in", nearest=1)
    assert found.vertices.tolist() == list(targets)
    part = right[np.ix_(sources, targets)].T
    np.testing.assert_array_equal(found["reached"], np.isfinite(part).sum(1))
    np.testing.assert_array_equal(found["eccentricity"], largest(part))
    assert set(found["nearest_1"].tolist()) <= {-1, *sources}
    both = [measure(random_graph(directed=False), direction=way)["sum"] for way in ("out", "in")]
    np.testing.assert_array_equal(*both)


def test_distances_may_be_negative_where_that_has_a_meaning():
    rng, n = np.random.default_rng(4), 60
    tails, heads = rng.integers(0, n, (2, 240))
    height = rng.integers(0, 50, n)
    graph = build_graph(tails, heads, rng.integers(1, 30, 240) + height[heads] - height[tails], n=n, directed=True)[0]
    right = matrix_of(graph, bellman_ford)
    np.fill_diagonal(right, np.inf)
    found = measure(graph, measures=["reached", "sum", "eccentricity"], within=[10], quantiles=[0.5])
    finite = np.isfinite(right)
    assert right.min() < 0
    np.testing.assert_array_equal(found["sum"], np.where(finite, right, 0).sum(1))
    np.testing.assert_array_equal(found["within_10"], (right <= 10).sum(1))
    np.testing.assert_array_equal(found["eccentricity"], largest(right))
    with pytest.raises(InvalidRequest, match="least weight"):
        measure(graph)
    loop = build_graph([0, 1], [1, 0], [-1, -1], directed=True)[0]
    with pytest.raises(NegativeCycle):
        measure(loop, measures=["sum"])


def test_terminals_are_passed_through_by_no_path():
    plain = build_graph([0, 1, 2, 0], [1, 2, 3, 3], [1, 1, 1, 9], n=4, directed=True)[0]
    graph = replace(plain, terminals=2)  # 0 -> 1 -> 2 may not pass through 1
    assert measure(graph)["sum"].tolist() == [1 + 9, 1 + 2, 1, 0]
    assert measure(graph, direction="in")["sum"].tolist() == [0, 1, 1, 9 + 2 + 1]


@pytest.mark.parametrize("n", [0, 1])
def test_the_smallest_graphs(n):
    found = measure(build_graph([], [], None, n=n, directed=True)[0], nearest=1, quantiles=[0.5], within=[1])
    assert len(found) == n
    assert found["sum"].tolist() == found["closeness"].tolist() == found["within_1"].tolist() == [0] * n
    assert found["farthest"].tolist() == found["nearest_1"].tolist() == [-1] * n
    assert np.isnan(found["eccentricity"]).all()


def test_tables_have_labels_and_say_what_is_missing(tmp_path):
    (tmp_path / "g.csv").write_text("from,to,km\nb,a,2\na,c,3\n")
    graph, _ = read_graph(tmp_path / "g.csv", directed=True)
    found = measure(graph, measures=["mean", "farthest"], nearest=2)
    frame = found.to_polars()
    assert frame["vertex"].to_list() == ["a", "b", "c"]
    assert frame["farthest"].to_list() == ["c", "c", None]
    assert frame["nearest_2"].to_list() == [None, "c", None]
    assert frame["mean"].to_list() == [3.0, 3.5, None]
    assert found.to_arrow().column_names == frame.columns
    assert found.to_pandas()["farthest"].isna().tolist() == [False, False, True]
    found.write(tmp_path / "t.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").equals(frame)
    found.write(tmp_path / "t.csv")
    rows = list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))
    assert rows[3] == ["c", "", "", "", "", "", ""]
    with pytest.raises(Conflict, match="overwrite"):
        found.write(tmp_path / "t.csv")
    with pytest.raises(InvalidRequest, match=r"\.parquet or \.csv"):
        found.write(tmp_path / "t.xlsx")
    with pytest.raises(NotFound, match="does not exist"):
        found.write(tmp_path / "away" / "t.csv")


def test_numbers_stay_numbers_in_tables():
    graph = build_graph([0, 1], [1, 2], [1, 1], n=4, directed=True)[0]
    frame = measure(graph, measures=["farthest"]).to_polars()
    assert frame.dtypes == [pl.Int64(), pl.Int64()]
    assert frame["farthest"].to_list() == [2, 2, None, None]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (Options(executor="dask", scheduler="tcp://x:1"), InvalidRequest, "executor dask"),
        (Options(memory=100), DoesNotFit, "a table of 400 rows"),
        (Options(targets=(1, 1)), InvalidRequest, "twice"),
        (Options(targets=(400,)), InvalidRequest, "0 to 399"),
    ],
)
def test_refusals_come_before_any_work(options, error, said):
    with pytest.raises(error, match=said):
        measure(random_graph(), options)


def test_a_monitor_stops_it():
    class Stopping(Monitor):
        def cancelled(self):
            return self.searching

        def begin(self, phase, total, unit):
            self.searching = phase == "search"

        searching = False

    with pytest.raises(Cancelled):
        measure(random_graph(3000), Options(algorithm="dijkstra"), monitor=Stopping())


@pytest.mark.parametrize("targets", [None, (2, 0), (3,)])
def test_measures_stores_and_prepared_graphs_have_the_same_eccentricities(tmp_path, targets):
    """All arcs are negative, and two vertices reach no other one: a vertex is not one of its own targets."""
    graph, _ = build_graph([0, 1, 2, 0], [1, 2, 3, 4], [-5, -2, -1, -9], n=5, directed=True)
    options = Options(targets=targets)
    found = measure(graph, options, measures=["eccentricity"])["eccentricity"]
    summary = solve_to_store(graph, options, tmp_path / "store").summary
    paths = [tmp_path / "store"]
    if targets is None:
        paths.append(tmp_path / "prepared")
        prepare(graph, paths[1])
    for path in paths:
        with open_result(path) as matrix:
            largest = matrix.eccentricities(range(graph.n))
            values = np.where(largest == matrix.unreachable, np.nan, largest.astype(float))
        np.testing.assert_array_equal(values, found)
        assert np.nanmax(values) == summary["diameter"]
