"""Prepared graphs that a GPU answers: every entry is that of the processors, bit for bit, and that of searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from engine.api.from_tables.on_device import DevicePreparedMatrix
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.solve import solve_to_store
from engine.devices.cuda.tables import layout, resident
from engine.model.problem import Options
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph, build_graph
from tests.gpu.test_sweep import directed
from tests.unit.engine.graph.test_terminals import network

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


def fractions(graph: Graph, *, exact: bool) -> Graph:
    """The graph with weights that are not whole: quarters, whose sums are exact, or others."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    more = 0.25 if exact else 1 / 3
    weights = graph.weights + more * ((tails + graph.heads) % 4)
    return build_graph(tails, graph.heads, weights, n=graph.n, directed=graph.directed)[0]


def zeros(n: int) -> Graph:
    """Two thirds of all arcs weigh nothing."""
    rng = np.random.default_rng(n)
    tails = rng.integers(0, n, 3 * n)
    heads = np.clip(tails + rng.integers(-5, 6, 3 * n), 0, n - 1)
    return build_graph(tails, heads, rng.integers(0, 9, 3 * n) // 6, n=n, directed=True)[0]


def stars() -> Graph:
    """Many small trees, and vertices without any arc: the parts are a forest."""
    tails = np.arange(900)
    keep = tails % 9 > 1
    return build_graph(tails[keep], tails[keep] // 9 * 9, tails[keep] % 7 + 1, n=1000, directed=False)[0]


CASES = {
    "road": lambda: graphs.road(2500),
    "grid": lambda: graphs.grid(1600),
    "one way, disconnected": lambda: directed(3000),
    "signed": lambda: directed(2500, signed=True),
    "zeros": lambda: zeros(1500),
    "forest": stars,
    "dense": lambda: graphs.random(150),
    "terminals": lambda: network(200, 30, seed=6),
    "one vertex": lambda: build_graph([], [], [], n=1, directed=True)[0],
    "no arcs": lambda: build_graph([], [], [], n=5, directed=True)[0],
}


def opened(graph: Graph, place: Path, **options: Any) -> tuple[DevicePreparedMatrix, PreparedMatrix]:
    """Prepare a graph, and open it twice."""
    prepare(graph, place, Options(**options), overwrite=True)
    there, here = open_result(place, device="cuda"), open_result(place)
    assert isinstance(there, DevicePreparedMatrix)
    assert isinstance(here, PreparedMatrix)
    return there, here


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the GPU the smallest questions, too."""
    monkeypatch.setattr("engine.api.from_tables.on_device._FEW", 1)


def compare(there: DevicePreparedMatrix, here: PreparedMatrix) -> None:
    """Compare all kinds of questions."""
    n, rng = here.n, np.random.default_rng(here.n)
    everything = np.arange(n)
    whole = here.rows(everything)
    np.testing.assert_array_equal(there.rows(everything).view(np.uint8), whole.view(np.uint8))
    assert there.device_bytes > 0
    u, v = rng.integers(0, n, (2, 5000))
    pairs = there.entries(u, v)
    assert pairs.dtype == whole.dtype
    np.testing.assert_array_equal(pairs, whole[u, v])
    np.testing.assert_array_equal(there.columns(v[:70]), whole[:, v[:70]])
    np.testing.assert_array_equal(there.rows_towards(v[:7]), whole[:, v[:7]].T)
    tables = there._resident()
    for rows, columns in ((1, 1), (3, 700), (65, 64), (400, 333)):
        some = np.ix_(u[:rows], v[:columns])
        np.testing.assert_array_equal(there.block(u[:rows], v[:columns]), whole[some])
        np.testing.assert_array_equal(tables.block(u[:rows], v[:columns]), whole[some])
        if there.exact:
            np.testing.assert_array_equal(tables.rows(u[:rows], others=v[:columns]), whole[some])
    np.testing.assert_array_equal(tables.block(everything, everything), whole)


@pytest.mark.parametrize("dtype", ["auto", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_the_processors(name: str, dtype: str, tmp_path: Path) -> None:
    there, here = opened(CASES[name](), tmp_path / "p", dtype=dtype)
    with there, here:
        compare(there, here)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["road", "one way, disconnected", "forest"])
def test_fractions(name: str, exact: bool, dtype: str, tmp_path: Path) -> None:
    there, here = opened(fractions(CASES[name](), exact=exact), tmp_path / "p", dtype=dtype)
    with there, here:
        assert there.exact == here.exact
        compare(there, here)


@pytest.mark.parametrize("dtype", ["auto", "float64"])
@pytest.mark.parametrize("cutoff", [0, 40, 333.5])
def test_cutoffs(cutoff: float, dtype: str, tmp_path: Path) -> None:
    for name in ("road", "zeros"):
        there, here = opened(CASES[name](), tmp_path / "p", cutoff=cutoff, dtype=dtype)
        with there, here:
            compare(there, here)


def test_uint16(tmp_path: Path) -> None:
    there, here = opened(graphs.grid(2500), tmp_path / "p", dtype="uint16")
    with there, here:
        assert here.dtype == np.uint16
        compare(there, here)


def test_searches_and_solved_stores_find_the_same(tmp_path: Path) -> None:
    graph = directed(3000)
    there, here = opened(graph, tmp_path / "p")
    solve_to_store(graph, Options(device="cpu"), tmp_path / "s.zarr")
    with there, here, open_result(tmp_path / "s.zarr") as solved:
        found = there.rows(np.arange(graph.n))
        np.testing.assert_array_equal(found, solved.rows(np.arange(graph.n)))
        csr = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        want = dijkstra(csr, indices=range(0, 3000, 50))
        want = np.where(np.isinf(want), float(there.unreachable), want)
        np.testing.assert_array_equal(found[::50], want)


def test_many_batches_and_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BATCH", 96)
    monkeypatch.setattr(resident, "_BAND_BYTES", 1 << 20)
    monkeypatch.setattr(resident, "_PAIRS", 777)
    there, here = opened(graphs.road(2500), tmp_path / "p")
    with there, here:
        compare(there, here)


def test_memory_is_freed_and_taken_again(tmp_path: Path, cupy: Any) -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    there, here = opened(graphs.road(2500), tmp_path / "p")
    with there, here:
        want = here.rows([5, 9])
        np.testing.assert_array_equal(there.rows([5, 9]), want)
        assert pool.used_bytes() >= before + there.table_bytes
        there.release()
        assert (there.device_bytes, pool.used_bytes()) == (0, before)
        np.testing.assert_array_equal(there.rows([5, 9]), want)
    assert pool.used_bytes() == before


def test_tables_larger_than_the_budget_are_refused_or_stay(tmp_path: Path) -> None:
    prepare(graphs.road(2500), tmp_path / "p")
    with pytest.raises(DoesNotFit, match=r"do not fit on the GPU: [\d,]+ bytes are needed, 1,000 may be used"):
        open_result(tmp_path / "p", device="cuda", device_memory=1000)
    with open_result(tmp_path / "p", device="auto", device_memory=1000) as stays:
        assert not isinstance(stays, DevicePreparedMatrix)
    with open_result(tmp_path / "p", device="auto") as there:
        assert isinstance(there, DevicePreparedMatrix)


def test_a_solved_store_is_not_computed(tmp_path: Path) -> None:
    solve_to_store(graphs.grid(25), Options(device="cpu"), tmp_path / "s.zarr")
    with pytest.raises(InvalidRequest, match="is a solved store"):
        open_result(tmp_path / "s.zarr", device="cuda")
