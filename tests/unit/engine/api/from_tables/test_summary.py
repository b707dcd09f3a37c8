"""The summary of all rows of a prepared graph is that of a solve; that of some rows says so."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api.from_tables import summary
from engine.api.from_tables.summary import summarize, summary_seconds
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import InvalidRequest
from storage.graph.graph import build_graph
from tests.unit.engine.api.test_prepared import grid_graph

FACTS = {"diameter", "radius", "center", "diameter_pair", "central_sources", "central_reach"}


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_all_rows_have_the_summary_of_a_solve(tmp_path, dtype):
    rng = np.random.default_rng(3)
    for n in (1, 2, 30):
        tails, heads = rng.integers(0, n, (2, 2 * n))
        graph = build_graph(tails, heads, rng.integers(0, 20, 2 * n), n=n, directed=True)[0]
        want = solve_to_store(graph, Options(dtype=dtype), tmp_path / f"s{n}").summary
        prepare(graph, tmp_path / f"p{n}", Options(dtype=dtype))
        with open_result(tmp_path / f"p{n}") as matrix:
            assert summarize(matrix) == want
            assert summarize(matrix, n) == want


def test_some_rows_say_that_they_are_some(tmp_path):
    graph = grid_graph(9)
    prepare(graph, tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        found, rows = summarize(matrix, 10), matrix.rows(np.arange(10) * 81 // 10)
        assert found["sampled"] is True
        assert (found["vertices"], found["sources"], found["pairs"]) == (81, 10, 10 * 80)
        assert found["sum"] == rows[rows != matrix.unreachable].astype(np.int64).sum()
        assert found["mean"] == found["sum"] / found["reached"]
        assert sum(found["histogram"]["counts"]) == found["reached"]
        assert FACTS.isdisjoint(found)
        assert "sampled" not in summarize(matrix, 1000)
        with pytest.raises(InvalidRequest, match="at least one row"):
            summarize(matrix, 0)


def test_seconds_are_predicted_of_large_graphs_only(tmp_path, monkeypatch):
    prepare(grid_graph(9), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        assert summary_seconds(matrix) == 0
        monkeypatch.setattr(summary, "_ENTRIES", 80)
        ticks = iter([0.0, 100.0, 103.0])  # the first time kernels are loaded
        monkeypatch.setattr(summary.time, "process_time", lambda: next(ticks))
        assert summary_seconds(matrix) == 3 * 81 / 64
