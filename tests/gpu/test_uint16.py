"""Where only the bound over hubs proves 16 bits, searches and rounds on the GPU work with them, against SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.api.solve import solve_to_store
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.stores import verify_matrix

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
LARGEST = WORK_TYPES["uint16"].largest


def islands(n: int, *, directed: bool = True) -> Graph:
    """Three strongly connected parts, some single vertices between them; (n - 1) times the largest weight passes
    the type by far.
    """
    rng = np.random.default_rng(n)
    part = np.sort(rng.integers(0, 3, n))
    tails, heads = rng.integers(0, n, (2, 6 * n))
    keep = part[tails] == part[heads]
    ring = np.arange(n)
    after = np.roll(ring, -1)
    around = part[ring] == part[after]
    bridges = np.flatnonzero(~around)[:2]
    tails = np.concatenate([tails[keep], ring[around], bridges])
    heads = np.concatenate([heads[keep], after[around], after[bridges]])
    graph, _ = build_graph(tails, heads, rng.integers(1, 900, len(tails)), n=n, directed=directed)
    assert (n - 1) * graph.weights.max() > 10 * LARGEST
    return graph


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "n", "budget"),
    [
        ("auto", 3000, None),
        ("bellman-ford", 3000, None),
        ("partitioned", 3000, None),
        ("recursive-floyd-warshall", 3000, None),
        ("blocked-floyd-warshall", 3000, None),
        ("blocked-floyd-warshall", 5000, None),
        ("blocked-floyd-warshall", 6000, 130 * 2**20),
    ],
)
def test_proven_by_hubs(algorithm: str, n: int, budget: int | None, directed: bool, tmp_path: Path) -> None:
    graph = islands(n, directed=directed)
    options = Options(device="cuda", algorithm=algorithm, device_memory=budget)
    plan = solve_to_store(graph, options, tmp_path / "d.zarr").plan
    assert (plan.device, plan.dtype) == ("cuda", "uint16")
    assert "hub of each strongly connected component" in plan.dtype_reason or not directed
    assert (plan.streaming is not None) == (budget is not None)
    verify_matrix(tmp_path / "d.zarr")
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(n, n))
    sources = np.random.default_rng(0).permutation(n)[:400]
    right = dijkstra(arcs, indices=sources)
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.dtype == np.dtype("uint16")
        found = matrix.rows(sources).astype(float)
    found[found == WORK_TYPES["uint16"].unreachable] = np.inf
    np.testing.assert_array_equal(found, right)
