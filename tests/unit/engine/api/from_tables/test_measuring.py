"""Measures of a prepared graph are those of the graph, in every column; to the last bit where sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

import apsp
from engine.api.from_tables import shares
from engine.api.from_tables.measuring import PreparedMeasurement
from engine.api.measuring import measure
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from storage.errors import Cancelled, DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph
from tests.unit.engine.api.test_prepared import grid_graph

GRAPHS = 40


def random_graph(rng, kind):
    """Several pieces, parallel arcs, arcs of length 0; both directions or one."""
    n, count = int(rng.integers(1, 60)), int(rng.integers(0, 150))
    tails, heads = rng.integers(0, n, (2, count))
    whole = rng.integers(0, 50, count)
    weights = {"hops": None, "whole": whole, "halves": whole / 2, "fractions": np.round(whole / 7, 3)}[kind]
    return build_graph(tails, heads, weights, n=n, directed=bool(rng.integers(2)))[0]


def request_of(rng, graph):
    request = {"direction": str(rng.choice(["out", "in"])), "within": [3, 20.5], "quantiles": [0.25, 0.9]}
    request["nearest"] = int(rng.integers(3))
    request["opportunities"] = {"jobs": rng.integers(0, 9, graph.n)}
    options = {}
    for side in ("sources", "targets"):
        if rng.random() < 0.4:
            options[side] = tuple(rng.permutation(graph.n)[: int(rng.integers(1, graph.n + 1))].tolist())
    if rng.random() < 0.3:
        options["cutoff"] = 30.0
    return request, options


@pytest.mark.parametrize("kind", ["hops", "whole", "halves", "fractions"])
def test_every_column_is_that_of_the_graph(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(shares, "BAND_BYTES", 1)  # many bands
    for seed in range(GRAPHS // 4):
        rng = np.random.default_rng([seed, len(kind)])
        graph = random_graph(rng, kind)
        request, options = request_of(rng, graph)
        prepare(graph, tmp_path / str(seed), Options(dtype="float64" if kind == "fractions" else "auto"))
        with open_result(tmp_path / str(seed)) as matrix:
            found = measure(matrix, Options(**options), **request)
        dtype = "float64" if kind == "fractions" else found.plan.dtype
        want = measure(graph, Options(dtype=dtype, **options), **request)
        assert list(found.columns) == list(want.columns)
        np.testing.assert_array_equal(found.vertices, want.vertices)
        for name in want.columns:
            if kind == "fractions" or name == "harmonic":  # sums of fractions depend on the order of addition
                if name not in want.vertex_columns:
                    np.testing.assert_allclose(found[name], want[name], rtol=1e-12, err_msg=name)
            else:
                np.testing.assert_array_equal(found[name], want[name], err_msg=f"{seed} {name}")


def test_a_cutoff_of_the_tables_is_kept_in_mind(tmp_path):
    graph = grid_graph(9)
    prepare(graph, tmp_path / "p", Options(cutoff=12.0))
    with open_result(tmp_path / "p") as matrix:
        found = apsp.measure(matrix, within=[5, 12])
        want = apsp.measure(graph, Options(cutoff=12.0), within=[5, 12])
        for name in want.columns:
            np.testing.assert_array_equal(found[name], want[name])
        assert found.plan.cutoff == 12.0
        with pytest.raises(InvalidRequest, match=r"cutoff 12 and knows no longer distances; 12\.5"):
            measure(matrix, within=[5, 12.5])
        with pytest.raises(InvalidRequest, match=r"; 12\.00000001 was"):  # numbers that differ are told apart
            measure(matrix, within=[5, 12.00000001])
        with pytest.raises(InvalidRequest, match="13 was asked for") as caught:
            measure(matrix, Options(cutoff=13.0), within=[5])
        assert caught.value.field == "cutoff"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_hops": 2}, "max_hops"),
        ({"device": "cuda"}, "device"),
        ({"executor": "dask"}, "executor"),
        ({"algorithm": "dijkstra"}, "algorithm"),
        ({"dtype": "float64"}, "dtype"),
        ({"cutoff": -1.0}, "cutoff"),
    ],
)
def test_what_tables_do_not_answer_is_refused(tmp_path, options, field):
    prepare(grid_graph(3), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        with pytest.raises(InvalidRequest) as caught:
            PreparedMeasurement(matrix, Options(**options))
        assert caught.value.field == field


def test_memory_is_refused_with_the_numbers_and_a_wish_to_stop_is_heard(tmp_path):
    class Stopping(apsp.Monitor):
        def cancelled(self):
            return True

    prepare(grid_graph(3), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        with pytest.raises(DoesNotFit, match="1 may be used") as caught:
            measure(matrix, Options(memory=1))
        assert caught.value.needed > matrix.table_bytes
        with pytest.raises(Cancelled):
            measure(matrix, monitor=Stopping())
