"""Tests routes of random graphs: a route is as long as its distance, up to the rounding of its sum, or is refused."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.api.routes import Router
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import Graph, build_graph
from tests.property.test_algorithms import suitable, types_for, within_hops
from tests.wrong import solved

Array = npt.NDArray[Any]


def weights_of(kind: str, rng: np.random.Generator, count: int) -> Array:
    decades = 10.0 ** rng.uniform(-6, 3, count)
    made: dict[str, Array] = {
        "whole": rng.integers(0, 9, count),
        "zeros": rng.integers(0, 2, count),
        "whole decades": (10.0 ** rng.uniform(0, 6, count)).astype(np.int64),
        "few decimals": rng.integers(0, 400, count) / 100,
        "decades": decades,
        "decades and zeros": np.where(rng.random(count) < 0.3, 0.0, decades),
        "one far arc": np.where(rng.random(count) < 0.1, 1e6, rng.choice([9.1, 9.0, 0.15, 1e-8, 1e-5], count)),
    }
    return made[kind]


KINDS = ("whole", "zeros", "whole decades", "few decimals", "decades", "decades and zeros", "one far arc")


def random_graph(rng: np.random.Generator, kind: str) -> Graph:
    n = int(rng.integers(2, 22))
    count = int(rng.integers(0, 5 * n))
    tails, heads = rng.integers(0, n, (2, count))
    away = tails != heads
    tails, heads, weights = tails[away], heads[away], weights_of(kind, rng, int(away.sum()))
    directed = bool(rng.random() < 0.6)
    if directed and rng.random() < 0.4:  # negative arcs, and cycles of length zero where the reduced arc is zero
        height = weights_of(kind, rng, n)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def random_options(rng: np.random.Generator, graph: Graph) -> Options:
    hops = int(rng.integers(1, graph.n + 1)) if rng.random() < 0.4 else None
    targets = tuple(rng.permutation(graph.n)[: rng.integers(1, graph.n + 1)].tolist()) if rng.random() < 0.2 else None
    return Options(max_hops=hops, targets=targets, threads=1, device="cpu")


def check(seed: int, seen: Counter[str]) -> None:
    """One random graph in every type that holds its distances."""
    rng = np.random.default_rng(seed)
    kind = random.Random(seed).choice(KINDS)
    graph = random_graph(rng, kind)
    options = random_options(rng, graph)
    lengths = within_hops(graph, options.max_hops or graph.n)
    for dtype in types_for(graph, options):
        asked = Options(**{**vars(options), "dtype": dtype, "algorithm": str(rng.choice(algorithms(graph, options)))})
        router = Router(solved(graph, asked))  # type: ignore[arg-type]
        for source in rng.integers(0, graph.n, 3).tolist():
            for target in range(graph.n) if options.targets is None else options.targets:
                told = f"seed {seed}, {kind}, {asked}, {source} to {target}"
                check_route(router, source, target, lengths[source, target], seen, told)


def algorithms(graph: Graph, options: Options) -> list[str]:
    return sorted(["auto", *suitable(graph, options)])


def check_route(router: Router, source: int, target: int, shortest: float, seen: Counter[str], told: str) -> None:
    graph, stored = router._graph, router._matrix.entries([source], [target])[0]
    try:
        found = router.route(source, target)
    except StorageFailed:
        # The stored distance itself is off, as reduced lengths are rounded by the size of the potentials; or it is
        # that of a walk round a cycle of length zero, which rounding has made worth its arcs.
        assert stored.dtype.kind == "f", told
        assert graph.weights.min() < 0, told
        assert abs(shortest - float(stored)) <= 1e-5 * np.abs(graph.weights).sum(), told
        seen["refused"] += 1
        return
    if stored == router._matrix.unreachable:
        assert found is None, told
        return
    assert found is not None, told
    seen["routes"] += 1
    assert (found.vertices[0], found.vertices[-1]) == (source, target), told
    assert len(set(found.vertices)) == len(found.vertices), told
    assert len(found.weights) <= (router._matrix.attributes["max_hops"] or graph.n), told
    for tail, head, weight in zip(found.vertices, found.vertices[1:], found.weights, strict=False):
        heads = graph.heads[graph.indptr[tail] : graph.indptr[tail + 1]].tolist()
        assert graph.weights[graph.indptr[tail] + heads.index(head)] == weight, told
    assert found.length == (sum(found.weights) if graph.integral else math.fsum(found.weights)), told
    if stored.dtype.kind != "f":
        assert found.length == stored, told
        return
    unit = float(np.finfo(stored.dtype.name).eps) * math.fsum(map(abs, found.weights))
    assert abs(found.length - float(stored)) <= (len(found.weights) + 1) * unit, told


def test_routes_of_a_hundred_random_graphs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        check(seed, seen)
    assert seen["routes"] > 3_000
    assert seen["refused"] < seen["routes"] / 100


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_routes_of_ten_thousand_random_graphs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100, 10_100):
        check(seed, seen)
    assert seen["routes"] > 300_000
    assert seen["refused"] < seen["routes"] / 100
