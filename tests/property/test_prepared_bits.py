"""Tests that every chunk of a prepared graph equals that of a solved store bit for bit if sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.routes import rounding
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.graph.graph import build_graph

#: Type, what weights are divided by, and whether all sums are exact then.
TYPES = {
    "uint16": ("uint16", 1, True),
    "int32": ("int32", 1, True),
    "float32 whole": ("float32", 1, True),
    "float64 whole": ("float64", 1, True),
    "float32 quarters": ("float32", 4, True),
    "float64 quarters": ("float64", 4, True),
    "float32": ("float32", 7, False),
    "float64": ("float64", 7, False),
}
SHAPES = ("directed", "undirected", "zero", "parallel", "disconnected", "single")


def graph_of(shape, divisor, rng):
    """A small random graph whose weights are whole numbers divided by ``divisor``."""
    n = 1 if shape == "single" else int(rng.integers(2, 40))
    arcs = 0 if shape == "single" else int(rng.integers(0, 4 * n))
    tails, heads = rng.integers(0, n, (2, arcs))
    weights = rng.integers(0 if shape == "zero" else 1, 3 if shape == "zero" else 200, arcs)
    if shape == "disconnected":
        same = (tails < n // 2) == (heads < n // 2)
        tails, heads, weights = tails[same], heads[same], weights[same]
    if shape == "parallel":
        tails, heads, weights = np.tile(tails, 3), np.tile(heads, 3), rng.integers(1, 200, 3 * arcs)
    weights = weights.astype(np.int64) if divisor == 1 else weights / divisor
    return build_graph(tails, heads, weights, n=n, directed=shape != "undirected")[0]


def compare(folder, kind, seed, cutoff):
    """Compare every chunk, and pairs, of both kinds of result of one graph."""
    dtype, divisor, exact = TYPES[kind]
    shape = SHAPES[seed % len(SHAPES)]
    graph = graph_of(shape, divisor, np.random.default_rng((seed, list(TYPES).index(kind))))
    options = Options(dtype=dtype, threads=1, cutoff=cutoff)
    prepare(graph, folder / "p", options, overwrite=True)
    solve_to_store(graph, Options(dtype=dtype, threads=1, device="cpu", cutoff=cutoff), folder / "s", overwrite=True)
    with open_result(folder / "p") as prepared, open_result(folder / "s") as solved:
        assert (prepared.dtype, prepared.attributes["cutoff"]) == (solved.dtype, solved.attributes["cutoff"])
        theirs, chunks = solved.rows(range(graph.n)), 0
        ours = prepared.rows(range(graph.n))
        u, v = np.divmod(np.arange(graph.n**2), graph.n)
        np.testing.assert_array_equal(prepared.entries(u, v), ours.ravel())
        np.testing.assert_array_equal(prepared.columns(range(graph.n)), ours)
        if exact:
            assert prepared.exact
            for chunk in sorted((folder / "s" / "distances" / "c").glob("*/*")):
                assert prepared.zarr_store.read(str(chunk.relative_to(folder / "s"))) == chunk.read_bytes(), (
                    kind,
                    seed,
                )
                chunks += 1
            assert chunks > 0
            return
        if cutoff is None:
            reached = np.isfinite(theirs)
            np.testing.assert_array_equal(np.isfinite(ours), reached)
            far = np.abs(ours[reached].astype(float) - theirs[reached])
            assert (far <= rounding(graph.n, theirs[reached].astype(float), dtype)).all()


@pytest.mark.parametrize("kind", TYPES)
def test_chunks_are_those_of_a_solved_store(tmp_path, kind):
    for seed in range(2 * len(SHAPES)):
        compare(tmp_path, kind, seed, None)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("cutoff", [0.0, 20.5, 60.0])
def test_chunks_are_those_of_a_solved_store_up_to_a_cutoff(tmp_path, kind, cutoff):
    for seed in range(3):
        compare(tmp_path, kind, seed, cutoff)


@pytest.mark.long
@pytest.mark.parametrize("kind", TYPES)
def test_chunks_of_a_thousand_graphs(tmp_path, kind):
    for seed in range(2000, 3000):
        compare(tmp_path, kind, seed, None if seed % 2 else float(seed % 150))
