"""A solve into memory of a small graph: how much Python runs around the searches, which take less time than Python."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.api.in_memory import solve
from engine.devices.cpu.atonce import AVAILABLE
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph

#: Most calls of functions, those written in C included, that a warm solve may make.  When this was written the three
#: graphs below took 1,354, 1,335 and 1,343 of them, and 1,556, 1,548 and 1,499 before.
MOST_CALLS = 1_430


def ring(n: int, weight: Callable[[int], Any]) -> Graph:
    """Return a ring of ``n`` vertices with chords; each pair is joined in both directions."""
    tails = np.arange(n)
    ends = [(tails, (tails + step) % n) for step in (1, 7, 31)]
    weights = np.array([weight(k) for k in range(3 * n)])
    one, other = (np.concatenate([pair[side] for pair in ends]) for side in (0, 1))
    return build_graph(one, other, weights, n=n, directed=False)[0]


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions ``work`` calls in this thread."""
    count = 0

    def tell(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.skipif(not AVAILABLE, reason="the system lacks the threads of compiled calls")
@pytest.mark.parametrize("weight", [lambda k: 1 + k % 50, lambda k: 0.25 * (1 + k % 50), lambda _: 1])
def test_a_small_solve_calls_few_functions(weight: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.devices.cpu.atonce.calls.only_ready", contextlib.nullcontext)
    monkeypatch.setattr("engine.devices.cpu.atonce.calls._NOT_COMPILED", set())
    graph, options = ring(1_000, weight), Options(device="cpu", threads=1)
    for _ in range(2):  # loads kernels
        solve(replace(graph), options)
    count = calls_of(lambda: solve(replace(graph), options))
    assert 100 < count < MOST_CALLS
