"""Tests that prepared graphs in the compact form answer as in the full form, bit for bit, and as SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.prepared import compact as tables
from engine.algorithms.prepared import pieces
from engine.api.from_tables.compact import CompactMatrix
from engine.api.from_tables.compacting import prepare_compact
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.model.problem import Options
from tests.property.test_prepared import KINDS, check_entries, expected, random_graph
from tests.unit.engine.api.test_prepared import grid_graph

#: Random graphs of each kind in every run, and by hand: 63, and 1,008.
EACH, ALL = 7, 112


def compared(graph, where, options):
    """Compare all answers of both forms; return how many parts there are."""
    prepare(graph, where / "full", options, overwrite=True)
    outcome = prepare_compact(graph, where / "compact", options, overwrite=True)
    with open_result(where / "full") as full, open_result(where / "compact") as matrix:
        assert isinstance(matrix, CompactMatrix)
        assert (matrix.dtype, matrix.shape, matrix.exact) == (full.dtype, full.shape, full.exact)
        want = full.rows(range(graph.n))
        check_entries(matrix, want)
        np.testing.assert_array_equal(matrix.rows_towards(range(graph.n)), want.T)
        np.testing.assert_array_equal(matrix.block(range(graph.n), range(graph.n)), want)
        if matrix.dtype.kind != "f" and options.cutoff is None:
            np.testing.assert_array_equal(want, expected(graph, matrix.dtype, matrix.unreachable))
        here, there = Router(matrix), Router(full)
        for v in range(min(graph.n, 5)):
            assert here.route(0, v) == there.route(0, v)
        key = "distances/c/0/0"
        assert matrix.zarr_store.read(key) == full.zarr_store.read(key)
    return outcome.summary["parts"]


def compare_some(kind, seeds, tmp_path, monkeypatch):
    for seed in seeds:
        monkeypatch.setattr(tables, "KEPT", (0, 2000, 1 << 28)[seed % 3])
        monkeypatch.setattr(pieces, "PIECE", (1 << 28, 1, 500)[seed % 3])
        cutoff = 60.0 if seed % 4 == 3 else None
        compared(random_graph(kind, seed), tmp_path, Options(threads=1, cutoff=cutoff))


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_that_of_the_full_form(tmp_path, monkeypatch, kind):
    compare_some(kind, range(EACH), tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_that_of_the_full_form_for_a_thousand(tmp_path, monkeypatch, kind):
    compare_some(kind, range(EACH, ALL), tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("directed", [True, False])
def test_lattices_of_many_parts(tmp_path, monkeypatch, kind, directed):
    graph = grid_graph(16, directed=directed)
    if kind.startswith("float"):
        graph = type(graph)(graph.indptr, graph.heads, graph.weights / 7, graph.labels, directed, graph.weighted)
    monkeypatch.setattr(pieces, "PIECE", 20_000)
    monkeypatch.setattr(tables, "KEPT", 30_000)
    assert compared(graph, tmp_path, Options(dtype=kind, threads=2)) > 5
