"""Tests the verification by new searches: it accepts every right matrix, and reports a wrong entry."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from engine.api.verify import verify_rows
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import Graph
from tests.property.test_algorithms import suitable, types_for
from tests.property.test_routes import KINDS, random_graph
from tests.wrong import Solved, solved


def some(rng: np.random.Generator, n: int) -> tuple[int, ...] | None:
    return tuple(rng.permutation(n)[: rng.integers(1, n + 1)].tolist()) if rng.random() < 0.4 else None


def question(rng: np.random.Generator, graph: Graph) -> dict[str, Any]:
    limit: dict[str, Any] = {"max_hops": int(rng.integers(1, graph.n + 1))} if rng.random() < 0.4 else {}
    if not limit and rng.random() < 0.4:
        limit = {"cutoff": float(10.0 ** rng.uniform(-4, 3))}
    return {"sources": some(rng, graph.n), "targets": some(rng, graph.n), "threads": 1, "device": "cpu", **limit}


def spoil(rng: np.random.Generator, matrix: Solved) -> None:
    """Change one entry by a hundredth of the heaviest arc (whole numbers by 1), or make it unreachable."""
    i, j = (int(rng.integers(0, size)) for size in matrix.shape)
    array, none, cutoff = matrix.array, matrix.unreachable, matrix.attributes["cutoff"]
    step = 0.01 * np.abs(matrix.of.weights).max(initial=1.0)
    if array[i, j] == none:
        # a path beyond the cutoff may be longer by less than the rounding, so the entry goes well below the cutoff
        array[i, j] = 1 if cutoff is None or array.dtype.kind != "f" else cutoff - step
    elif rng.random() < 0.3 and array[i, j] <= (np.inf if cutoff is None else cutoff - step):
        array[i, j] = none
    elif array.dtype.kind == "f":
        array[i, j] -= step
    elif rng.random() < 0.5 or array[i, j] == 0:
        array[i, j] += 1
    else:
        array[i, j] -= 1


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, random.Random(seed).choice(KINDS))
    asked = question(rng, graph)
    for dtype in types_for(graph, Options(max_hops=asked.get("max_hops"))):
        options = Options(**asked, dtype=dtype)
        if asked.get("cutoff") is None:
            options = Options(**asked, dtype=dtype, algorithm=str(rng.choice(["auto", *suitable(graph, options)])))
        told = f"seed {seed}, {options}"
        matrix = solved(graph, options)
        assert matrix.dtype == WORK_TYPES[dtype].dtype
        verify_rows(matrix, "all")  # type: ignore[arg-type]
        spoil(rng, matrix)
        try:
            verify_rows(matrix, "all")  # type: ignore[arg-type]
        except StorageFailed:
            continue
        pytest.fail(told)


def test_hundreds_of_random_graphs() -> None:
    for seed in range(20_000, 20_200):
        check(seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_thousands_of_random_graphs() -> None:
    for seed in range(30_000, 35_000):
        check(seed)
