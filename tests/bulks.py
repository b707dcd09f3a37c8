"""Graphs for tests of many at once, and the comparison with each one solved alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.api.bulk import BulkResult, Entry, make_bulk_plan, run
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.stores import verify_matrix


def graph_of(n: int, seed: int, *, degree: int = 3, negative: bool = False, share: float = 1, **kwargs: Any) -> Graph:
    rng = np.random.default_rng(seed)
    tails, heads = np.repeat(np.arange(n), degree), rng.integers(0, n, degree * n)
    weights = rng.integers(1, 1000, degree * n).astype(np.int64)
    if negative:
        h = rng.integers(0, 5000, n)
        weights += h[tails] - h[heads]
    return build_graph(tails, heads, weights * share if share != 1 else weights, n=n, **{"directed": True, **kwargs})[0]


def mixed() -> list[Graph]:
    """Sizes, types, signs and directions in a jumble, some of them empty."""
    graphs = [graph_of(n, n) for n in (1, 2, 31, 32, 33, 64, 65, 100, 129, 200)]
    graphs += [graph_of(n, n, negative=True) for n in (5, 64, 130)]
    graphs += [graph_of(n, n, share=0.37) for n in (20, 90)]
    graphs += [graph_of(n, n, share=0.1, negative=True) for n in (40, 70)]
    graphs += [graph_of(n, n, directed=False) for n in (50, 110)]
    graphs += [graph_of(70, 1, directed=False, share=0.3)]
    empty = np.zeros(0, np.int64)
    return [*graphs, build_graph(empty, empty, empty, n=0, directed=True)[0]]


def cycle() -> Graph:
    arcs = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([1, -5, 1])
    return build_graph(*arcs, n=3, directed=True)[0]


def solved(
    graphs: list[Graph],
    folder: Path,
    options: Options = Options(device="cpu"),  # noqa: B008
    **kwargs: Any,
) -> list[BulkResult]:
    folder.mkdir(exist_ok=True)
    entries = {i: Entry(graph, folder / f"{i}.zarr") for i, graph in enumerate(graphs)}
    plan = kwargs.pop("plan", None) or make_bulk_plan(dict(enumerate(graphs)), options, stores=True, out=folder)
    return sorted(run(entries, plan, options, **kwargs), key=lambda result: result.index)


def facts(summary: Any) -> dict[str, object]:
    """A summary without its histogram, whose bins depend on which rows came first."""
    return {name: value for name, value in summary.items() if name != "histogram"}


def same_as_alone(graphs: list[Graph], folder: Path, results: list[BulkResult]) -> None:
    for graph, result in zip(graphs, results, strict=True):
        assert result.failure is None
        alone = folder / "alone.zarr"
        outcome = solve_to_store(graph, Options(device="cpu"), alone, overwrite=True)
        verify_matrix(folder / f"{result.index}.zarr")
        with open_matrix(alone) as one, open_matrix(folder / f"{result.index}.zarr") as two:
            assert one.dtype == two.dtype
            rows = np.arange(graph.n)
            if graph.integral:
                np.testing.assert_array_equal(two.rows(rows), one.rows(rows))
                assert facts(two.summary) == facts(outcome.summary)
            else:
                np.testing.assert_allclose(two.rows(rows), one.rows(rows), rtol=1e-6, atol=1e-4)
