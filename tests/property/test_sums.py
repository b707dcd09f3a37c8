"""Compares sums along shortest paths with a search of all simple paths, on small graphs with many ties and zeros."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.api.verify import verify_store
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.rows import lane_sums
from engine.rows.sums import PathSums, exactness, sum_types, units_counted
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import Matrix, open_matrix
from tests.path_sums import arcs_of, expected

KINDS = ("zeros", "whole", "decimal", "halves", "real", "hops")


class Case:
    """A random graph of up to seven vertices, and what is expected of it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.kind, directed = KINDS[seed % len(KINDS)], bool(rng.integers(2))
        n = self.n = int(rng.integers(2, 8))
        m = int(rng.integers(1, 3 * n))
        tails, heads = rng.integers(0, n, m), rng.integers(0, n, m)
        weights = {
            "zeros": rng.integers(0, 2, m),
            "whole": rng.integers(0, 5, m),
            "decimal": rng.integers(0, 4, m) / 10,
            "halves": rng.integers(0, 4, m) / 2,
            "real": rng.random(m).round(15) + 1,
            "hops": np.ones(m, np.int64),
        }[self.kind]
        self.quantities = {"toll": rng.integers(-2, 3, m), "length": rng.integers(0, 30, m) / 8, "far": tails * 2**40}
        self.graph, _ = build_graph(
            tails,
            heads,
            None if self.kind == "hops" else weights,
            n=n,
            directed=directed,
            quantities=self.quantities,
        )
        self.terminals = int(rng.integers(0, n)) if seed % 5 == 0 else 0
        self.graph = replace(self.graph, terminals=self.terminals)
        arcs = arcs_of(tails, heads, weights, self.quantities, directed=directed)
        self.distances, sums = expected(arcs, n, 3, self.terminals)
        self.sums = dict(zip(self.quantities, sums, strict=True))


def floats(block: np.ndarray, unreachable: float) -> np.ndarray:
    return np.where(block == unreachable, np.inf, block.astype(np.float64))


@pytest.mark.parametrize("least", [1, 100])
@pytest.mark.parametrize("first", range(0, 360, 60))
def test_of_rows_as_of_every_path(first, least, monkeypatch):
    """Side by side, however few rows there are, and one by one."""
    monkeypatch.setattr(lane_sums, "LEAST_ROWS", least)
    for seed in range(first, first + 60):
        case = Case(seed)
        kind = WORK_TYPES["float64" if not case.graph.integral else ("uint16", "int32", "float64")[seed % 3]]
        rows = np.where(np.isinf(case.distances), kind.unreachable, case.distances).astype(kind.dtype)
        if exactness(case.graph).rounded:
            rows = _added_from_the_source(case)
        targets = None if seed % 2 else np.random.default_rng(seed).permutation(case.n)[: 1 + seed % case.n]
        sums = PathSums(case.graph, sum_types(case.graph, list(case.quantities)), kind, limited=False, targets=targets)
        sources = np.random.default_rng(seed).permutation(case.n)
        for name, found in sums.of(sources, rows[sources]).items():
            wanted = case.sums[name][sources]
            wanted = wanted if targets is None else wanted[:, targets]
            none = WORK_TYPES[found.dtype.name].unreachable
            assert np.array_equal(floats(found, none), wanted), (seed, name)


def _added_from_the_source(case: Case) -> np.ndarray:
    """Bellman and Ford in float64: the least rounded sum of any path, added from the source."""
    graph, rows = case.graph, np.full((case.n, case.n), np.inf)
    tails = np.repeat(np.arange(case.n), np.diff(graph.indptr))
    for source, row in enumerate(rows):
        row[source] = 0
        own = (tails >= case.terminals) | (tails == source)
        for _ in range(case.n):
            np.minimum.at(row, graph.heads[own], row[tails[own]] + graph.weights[own])
    return rows


def _check(matrix: Matrix, case: Case, sources: list[int], targets: list[int]) -> None:
    place = np.ix_(sources, targets)
    rounded = 1e-7 if matrix.dtype == np.float32 else 1e-14
    assert np.allclose(floats(matrix.rows(sources), matrix.unreachable), case.distances[place], rtol=rounded, atol=0)
    for name, quantity in matrix.also.items():
        assert np.array_equal(floats(quantity.rows(sources), quantity.unreachable), case.sums[name][place]), name
        assert np.array_equal(quantity.block(sources, targets), quantity.rows(sources))
        pairs = np.repeat(sources, len(targets)), np.tile(targets, len(sources))
        assert np.array_equal(quantity.entries(*pairs), quantity.rows(sources).ravel())


def _solved(case: Case, path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = [
        None if rng.integers(2) else tuple(rng.permutation(case.n)[: rng.integers(1, case.n + 1)].tolist())
        for _ in range(2)
    ]
    names = tuple(rng.permutation(list(case.quantities)[: rng.integers(1, 4)]).tolist())
    types = ["auto", "float32", "float64"] if units_counted(case.graph) else ["auto"]
    options = Options(
        sources=sides[0], targets=sides[1], also=names, threads=int(rng.integers(1, 3)), dtype=str(rng.choice(types))
    )
    fitting = [
        one.algorithm
        for one in make_plan(GraphProfile(case.graph), options).candidates
        if one.feasible and one.device == "cpu"
    ]
    if exactness(case.graph).rounded:
        fitting = ["dijkstra"]
    for algorithm in sorted(set(fitting)):
        solve_to_store(case.graph, replace(options, algorithm=algorithm), path, overwrite=True)
        with open_matrix(path) as matrix:
            assert list(matrix.also) == list(names)
            _check(matrix, case, *(list(range(case.n)) if side is None else list(side) for side in sides))
            assert list(matrix.graph().quantities) == list(names)
        assert verify_store(path, "all").searched == (case.n if sides[0] is None else len(sides[0]))


def test_of_a_store_by_every_algorithm(tmp_path):
    for seed in range(6):
        _solved(Case(seed), tmp_path / "m.zarr", seed)


@pytest.mark.long
def test_of_many_stores_by_every_algorithm(tmp_path):
    for seed in range(6, 360):
        _solved(Case(seed), tmp_path / "m.zarr", seed)


def _random_graph(n: int, *, seed: int, decimals: bool) -> Graph:
    rng = np.random.default_rng(seed)
    m = 5 * n
    weights = rng.integers(0, 3, m) / (10 if decimals else 1)
    quantities = {"a": rng.integers(0, 1000, m), "b": rng.random(m)}
    graph, _ = build_graph(
        rng.integers(0, n, m), rng.integers(0, n, m), weights, n=n, directed=True, quantities=quantities
    )
    return graph


@pytest.mark.parametrize("decimals", [False, True])
def test_sums_do_not_depend_on_algorithm_threads_sources_or_form(tmp_path, decimals):
    graph = _random_graph(300, seed=4, decimals=decimals)
    path, first = tmp_path / "m.zarr", None
    for algorithm, threads, compression in (
        ("dijkstra", 1, "none"),
        ("dijkstra", 2, "zstd"),
        ("recursive-floyd-warshall", 2, "none"),
        ("repeated-squaring", 1, "none"),
        ("partitioned", 2, "none"),
    ):
        options = Options(also=("a", "b"), algorithm=algorithm, threads=threads)
        solve_to_store(graph, options, path, overwrite=True, compression=compression)
        with open_matrix(path) as matrix:
            found = [quantity.rows(range(300)) for quantity in matrix.also.values()]
        first = first or found
        assert all(np.array_equal(one, other) for one, other in zip(first, found, strict=True)), algorithm
    some = tuple(np.random.default_rng(1).permutation(300)[:70].tolist())
    solve_to_store(graph, Options(also=("a", "b"), sources=some, targets=some[::-1]), path, overwrite=True)
    with open_matrix(path) as matrix:
        for whole, quantity in zip(first, matrix.also.values(), strict=True):
            assert np.array_equal(quantity.rows(some), whole[np.ix_(some, some[::-1])])


def test_beyond_a_cutoff_nothing_is_summed(tmp_path):
    graph = _random_graph(200, seed=7, decimals=True)
    whole, cut = tmp_path / "whole.zarr", tmp_path / "cut.zarr"
    solve_to_store(graph, Options(also=("b",)), whole)
    for algorithm in ("dijkstra", "recursive-floyd-warshall"):
        solve_to_store(graph, Options(also=("b",), cutoff=0.15, algorithm=algorithm), cut, overwrite=True)
        with open_matrix(whole) as every, open_matrix(cut) as near:
            reached = every.rows(range(200)) <= 0.15
            assert 0.05 < reached.mean() < 0.95
            wanted = np.where(reached, every.also["b"].rows(range(200)), np.inf)
            assert np.array_equal(near.also["b"].rows(range(200)), wanted)


def test_negative_whole_weights(tmp_path):
    rng = np.random.default_rng(3)
    n, m = 80, 300
    tails, heads, height = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(0, 20, n)
    weights = rng.integers(0, 4, m) + height[tails] - height[heads]
    keep = tails != heads
    tails, heads, weights = tails[keep], heads[keep], weights[keep]
    crossed = {"arcs": np.ones(len(tails), np.int64), "climb": height[tails] - height[heads]}
    graph, _ = build_graph(tails, heads, weights, n=n, directed=True, quantities=crossed)
    plain, _ = build_graph(
        tails, heads, weights - height[tails] + height[heads], n=n, directed=True, quantities=crossed
    )
    found = []
    for k, one in enumerate((graph, plain)):
        solve_to_store(one, Options(also=("arcs", "climb")), tmp_path / f"{k}.zarr")
        with open_matrix(tmp_path / f"{k}.zarr") as matrix:
            found.append([matrix.also[name].rows(range(n)) for name in ("arcs", "climb")])
    reached = found[0][0] != 2**30 - 1
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert np.array_equal(found[0][1][reached], np.broadcast_to(height[:, None] - height, (n, n))[reached])
