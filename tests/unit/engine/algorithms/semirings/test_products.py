"""Products of blocks of sources are those of single searches, to the last bit, and too small ones are never lost."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.semirings.products import ProductRows, ProductSearch
from engine.api.in_memory import solve
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import SolveFailed
from storage.graph.graph import Graph, build_graph


def chances(n: int, degree: float, least: float, *, directed: bool) -> Graph:
    rng = np.random.default_rng(n)
    tails, heads = rng.integers(0, n, (2, int(degree * n)))
    weights = least ** rng.random(len(tails))
    return build_graph(tails, heads, weights, n=n, directed=directed, parallel="greatest")[0]


def rows_of(graph: Graph, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    out = np.full((len(sources), len(targets)), np.nan)
    ProductRows(graph, targets, 1).write(0, sources, np.arange(len(sources)), out)
    return out


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("n", "degree"), [(40, 1.2), (90, 3), (130, 40), (500, 2)])
def test_blocks_are_single_searches(n: int, degree: float, directed: bool):
    graph = chances(n, degree, 0.01, directed=directed)
    rng = np.random.default_rng(1)
    sources, targets = rng.permutation(n)[:39], rng.permutation(n)[: n // 2]
    out, search = rows_of(graph, sources, targets), ProductSearch(graph)
    for row, source in zip(out, sources.tolist(), strict=True):
        search.run(source)
        np.testing.assert_array_equal(row, -search.found[targets])


def test_blocks_that_reach_few_columns_write_all_of_them():
    n = 400
    rng = np.random.default_rng(3)
    tails = rng.integers(0, n - 1, 2 * n)
    heads = np.minimum(tails + rng.integers(1, 9, 2 * n), n - 1)  # every arc leads to a higher number
    graph = build_graph(tails, heads, 0.5 ** rng.random(2 * n), n=n, directed=True, parallel="greatest")[0]
    targets, search = rng.permutation(n), ProductSearch(graph)
    for sources in (np.arange(n - 32, n), np.arange(n - 60, n - 28), rng.permutation(n)[:32]):
        for row, source in zip(rows_of(graph, sources, targets), sources.tolist(), strict=True):
            search.run(source)
            np.testing.assert_array_equal(row, -search.found[targets])


def test_rows_are_the_same_in_any_order_of_sources_and_into_any_sink(tmp_path):
    graph = chances(300, 2, 0.01, directed=True)
    sources = np.random.default_rng(5).permutation(300)[:150]
    search = ProductSearch(graph)
    options = Options(semiring="max-times", sources=tuple(sources.tolist()), device="cpu", threads=2)
    result, outcome = solve(graph, options)
    solve_to_store(graph, options, tmp_path / "products.zarr")
    with open_result(tmp_path / "products.zarr", semiring="max-times") as stored:
        kept = stored.rows(sources)
    reached, least = 0, 1.0
    for i, source in enumerate(sources.tolist()):
        search.run(source)
        np.testing.assert_array_equal(result[i], -search.found)
        np.testing.assert_array_equal(kept[i], -search.found)
        others = np.delete(-search.found, source)
        reached, least = reached + np.count_nonzero(others), min(least, others[others > 0].min(initial=1.0))
    assert outcome.summary["reached"] == reached
    assert outcome.summary["least"] == least


def test_products_near_the_least_number_are_kept_or_refused():
    n = 32
    chain = build_graph(np.arange(n - 1), np.arange(1, n), np.full(n - 1, 1e-10), n=n, directed=True,
                        parallel="greatest")[0]  # fmt: skip
    every = np.arange(n)
    last = rows_of(chain, every[1:], every)[0]
    assert 0 < last[-1] < 1e-299  # 30 arcs: too near the least number to be sure, but not below it
    with pytest.raises(SolveFailed, match="every path from 0 to 31"):
        rows_of(chain, every, every)
    lost = build_graph([0, 1], [1, 2], [1e-300, 1e-300], n=n, directed=True, parallel="greatest")[0]
    with pytest.raises(SolveFailed, match="every path from 0 to 2"):  # the product is 0 in float64
        rows_of(lost, every, every)


def test_graphs_without_arcs():
    graph = build_graph([], [], [], n=20, directed=True, parallel="greatest")[0]
    np.testing.assert_array_equal(rows_of(graph, np.arange(20), np.arange(20)), np.eye(20))
