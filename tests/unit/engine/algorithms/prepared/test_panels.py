"""Blocks as products of panels: the entries of merging pairs, to the last bit, and the choice among the ways."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.prepared import panels
from engine.algorithms.prepared.panels import PanelProduct, cheapest
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from tests.unit.engine.api.test_prepared import grid_graph


@pytest.fixture(scope="module", params=["uint16", "int32", "float32", "float64"])
def matrix(request, tmp_path_factory):
    graph = grid_graph(23)
    if request.param.startswith("float"):
        graph = type(graph)(graph.indptr, graph.heads, graph.weights / 7, graph.labels, graph.directed, graph.weighted)
    path = tmp_path_factory.mktemp("panels") / "p"
    prepare(graph, path, Options(dtype=request.param, threads=2))
    with open_result(path) as found:
        yield found


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 529), (529, 1), (40, 13), (13, 40), (529, 529), (3, 700)])
@pytest.mark.parametrize("band", [(8, 64), (1024, 1 << 22)])
def test_every_entry_is_that_of_its_pair(matrix, monkeypatch, rows, columns, band):
    monkeypatch.setattr(panels, "BAND_ROWS", band[0])
    monkeypatch.setattr(panels, "BAND", band[1])
    rng = np.random.default_rng(rows)
    u, v = rng.integers(0, matrix.n, rows), rng.integers(0, matrix.n, columns)  # some twice, in no order
    out = np.zeros((rows, columns), matrix.dtype)
    with matrix._tables_here.whole():
        pass
    product = PanelProduct(matrix._kernels, matrix._walk, u, v, nonnegative=True, out=out)
    for made in reversed(product.bands):
        product.make(made)
    np.testing.assert_array_equal(out.ravel(), matrix.entries(np.repeat(u, columns), np.tile(v, rows)))


@pytest.mark.parametrize("way", ["merge", "multiply", "rows", "columns"])
def test_a_block_is_the_same_whichever_way_it_is_made(matrix, monkeypatch, way):
    if way in ("rows", "columns") and not matrix.exact:
        pytest.skip("rows of these floats are not swept")
    rng = np.random.default_rng(5)
    u, v = rng.integers(0, matrix.n, 90), rng.integers(0, matrix.n, 70)
    monkeypatch.setattr(panels, "cheapest", lambda *_, **__: (way, 0.0))
    found = matrix.block(u, v)
    np.testing.assert_array_equal(found.ravel(), matrix.entries(np.repeat(u, 70), np.tile(v, 90)))


def test_the_cheapest_way_depends_on_the_shape():
    n, width = 231_161, 903.0  # the roads of Delhi
    assert cheapest(2, 2, n, width, sweeps=True)[0] == "merge"
    assert cheapest(1000, 1000, n, width, sweeps=True)[0] == "multiply"
    assert cheapest(10_000, 10_000, n, width, sweeps=True)[0] == "multiply"
    assert cheapest(64, n, n, width, sweeps=True)[0] == "rows"
    assert cheapest(n, 64, n, width, sweeps=True)[0] == "columns"
    assert cheapest(64, n, n, width, sweeps=False)[0] == "multiply"
    assert cheapest(0, 0, 0, 0.0, sweeps=True)[0] in ("merge", "rows", "columns")
