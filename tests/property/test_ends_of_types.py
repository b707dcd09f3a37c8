"""Weights at the ends of the types, in everything that works on a graph: answers or refusals, and never a warning.

Warnings are errors in all tests.  NumPy warns of an overflow only where numbers of very different size meet, and such
numbers may come from different threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apsp
from engine.api.betweenness.assignment import assign
from engine.api.betweenness.centrality import betweenness
from engine.api.measuring import measure
from engine.api.near import near_pairs
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import ApspError
from storage.graph.demand_table import Demands
from storage.graph.graph import Graph, build_graph
from storage.semirings import SEMIRINGS

FLOATS = [1e308, 8e307, 1e300, 3.4e38, 1e17, 2.0**53, 123456789.125, 1.0, 0.3, 0.1, 1e-9, 1e-38, 2e-308, 5e-324, 0.0]
WHOLES = [0, 1, 7, 32766, 32767, 65535, 2**30 - 1, 2**31 - 2, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62]
#: What runs with 1 and 2 threads.
Work = Callable[[Options], object]


def weights_of(rng: np.random.Generator, tails: np.ndarray, heads: np.ndarray, n: int) -> np.ndarray | None:
    m = len(tails)
    heights = rng.choice(FLOATS[1:], n) * rng.choice([0, 1, -1], n)
    kinds = (
        lambda: None,
        lambda: rng.choice(FLOATS, m),
        lambda: rng.choice(np.array(rng.choice(WHOLES, 4)), m),
        lambda: 10.0 ** rng.uniform(-300, 300, m),
        lambda: rng.random(m) * 10.0 ** rng.integers(-320, 308),
        lambda: heights[tails] - heights[heads] + rng.choice([0, 1, 1e-3], m),
    )
    return kinds[int(rng.integers(len(kinds)))]()


def a_graph(rng: np.random.Generator) -> Graph:
    n = int(rng.integers(1, 50))
    m = int(rng.integers(4 * n + 1))
    tails, heads = rng.integers(0, n, (2, m))
    quantities = {"whole": rng.integers(-3, 9, m), "real": rng.random(m) * 10.0 ** rng.integers(-300, 290)}
    weights = weights_of(rng, tails, heads, n)
    return build_graph(tails, heads, weights, n=n, directed=bool(rng.integers(2)), quantities=quantities)[0]


def some(rng: np.random.Generator, n: int) -> tuple[int, ...] | None:
    return None if rng.integers(2) else tuple(rng.permutation(n)[: rng.integers(1, n + 1)].tolist())


def work_on(graph: Graph, rng: np.random.Generator, folder: Path) -> tuple[Work, dict[str, Any]]:
    """One of the things that work on a graph, and the options that it takes."""
    n, sides = graph.n, {"sources": some(rng, graph.n), "targets": some(rng, graph.n)}
    limits = sorted({*rng.choice(FLOATS, 3).tolist()})
    cutoff = {"cutoff": float(rng.choice(FLOATS))} if rng.integers(3) == 0 else {}

    def solved(options: Options) -> None:
        solve_to_store(graph, options, folder / "d.zarr", overwrite=True)
        verify_store(folder / "d.zarr", "all")

    def prepared(options: Options) -> None:
        apsp.prepare(graph, folder / "d.apsp", options, overwrite=True)
        apsp.open(folder / "d.apsp").rows(range(n))

    semiring = str(rng.choice([*SEMIRINGS, *["min-plus"] * 4]))
    also = {"also": ("whole", "real")} if semiring == "min-plus" and rng.integers(3) == 0 else {}
    hops = {"max_hops": int(rng.integers(9))} if rng.integers(8) == 0 else {}
    types = {"dtype": str(rng.choice(["auto"] * 4 + ["uint16", "int32", "float32", "float64"]))}
    opportunities = {"jobs": rng.random(n) * 10.0 ** rng.integers(-300, 300)}
    decay = rng.choice(["step", "exponential", "linear", "logistic"])
    value = {"decay_value": float(rng.choice(FLOATS))} if decay in ("linear", "logistic") else {}
    asked: dict[str, Any] = {
        "within": limits,
        "quantiles": (0.1, 1.0),
        "nearest": 2,
        "direction": str(rng.choice(["in", "out"])),
    }
    asked |= {"opportunities": opportunities, "decay": str(decay), **value} if rng.integers(2) else {}
    demands = Demands(rng.integers(0, n, 9), rng.integers(0, n, 9), rng.random(9) * 10.0 ** rng.integers(-300, 290))
    found: list[tuple[Work, dict[str, Any]]] = [
        (
            solved,
            {"semiring": semiring, **sides, **also, **hops, **types, **(cutoff if semiring == "min-plus" else {})},
        ),
        (prepared, {}),
        (lambda options: measure(graph, options, **asked), sides | cutoff),
        (lambda options: near_pairs(graph, options, nearest=3), sides | cutoff),
        (lambda options: betweenness(graph, options, arcs=bool(cutoff)), sides),
        (lambda options: assign(graph, demands, options), {}),
    ]
    return found[int(rng.integers(len(found)))]


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 20000), marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_whatever_works_on_a_graph_answers_or_refuses_without_a_warning(seeds: range, tmp_path: Path) -> None:
    answers = 0
    for seed in seeds:
        rng = np.random.default_rng([7, seed])
        try:
            work, options = work_on(a_graph(rng), rng, tmp_path)
            for threads in (1, 2):
                work(Options(device="cpu", threads=threads, **options))
            answers += 1
        except ApspError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert answers > len(seeds) // 4
