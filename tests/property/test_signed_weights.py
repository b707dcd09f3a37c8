"""Compares every algorithm and type with exact sums, for weights of both signs and near the limits of a type."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.solve import make_plan, solve
from engine.graph.analysis import describe
from engine.model.algorithms import unsuitable
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from engine.planning.planner import ESTIMATES, choose_type
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph

Arcs = dict[tuple[int, int], int | float]
Exact = list[list[Fraction | None]]

#: What docs/formats.md promises: rounding by this share of the largest distance, for each arc of a path.
SHARE = {"float32": 2.0**-22, "float64": 2.0**-46}
#: Whole numbers up to which sums are exact.
EXACT = {"uint16": math.inf, "int32": math.inf, "float32": 2**24, "float64": 2**53}
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def rounded_up(value: Fraction) -> float:
    """The least float that is not below ``value``: no cycle becomes negative by rounding."""
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


@st.composite
def whole_arcs(draw: st.DrawFn) -> tuple[int, Arcs]:
    """Whole weights, mostly differences of heights, so that most cycles have length zero."""
    n, size = draw(st.integers(2, 18)), 6 * 10 ** draw(st.integers(0, 15))  # weights up to 2^53 are read
    heights = draw(st.lists(st.integers(0, size), min_size=n, max_size=n))
    more = st.sampled_from([0, 0, 0, 1, 17, size // 3])
    return n, {(u, v): heights[u] - heights[v] + draw(more) for u, v in draw(pairs(n))}


@st.composite
def decades(draw: st.DrawFn) -> tuple[int, Arcs]:
    """Floats of both signs over many decades, with no negative cycle in exact sums."""
    n, top = draw(st.integers(2, 18)), draw(st.integers(-3, 17))
    length = st.builds(lambda m, e: m * 10.0**e, st.floats(1, 9.99), st.integers(top - 18, top))
    heights = [Fraction(draw(length)) if draw(st.booleans()) else Fraction(0) for _ in range(n)]
    more = st.one_of(st.just(0.0), length)
    return n, {(u, v): rounded_up(heights[u] - heights[v] + Fraction(draw(more))) for u, v in draw(pairs(n))}


@st.composite
def ends(draw: st.DrawFn) -> tuple[int, Arcs]:
    """Weights at the ends of the types, one sign or both."""
    n = draw(st.integers(2, 14))
    last = [
        1e308,
        8e307,
        1e307,
        3.4e38,
        1e38,
        8e37,
        1e-38,
        1e-45,
        5e-324,
        2e-308,
        1.0,
        0.0,
        2.0**24,
        2.0**53,
        2.0**23 + 1,
    ]
    weight = st.sampled_from(draw(st.lists(st.sampled_from(last), min_size=1, max_size=3)))
    if draw(st.booleans()):
        return n, {pair: draw(weight) for pair in draw(pairs(n))}
    heights = [Fraction(draw(weight)) for _ in range(n)]
    return n, {(u, v): float(heights[u] - heights[v]) for u, v in draw(pairs(n))}


def pairs(n: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    vertex = st.integers(0, n - 1)
    some = st.tuples(vertex, vertex).filter(lambda pair: pair[0] != pair[1])
    every = [(u, v) for u, v in itertools.product(range(n), repeat=2) if u != v]
    return st.one_of(st.just(every), st.lists(some, min_size=1, max_size=4 * n, unique=True))


def graph_of(n: int, arcs: Arcs) -> Graph:
    tails, heads = (np.array(side, np.int64) for side in zip(*arcs, strict=True))
    real = any(isinstance(weight, float) for weight in arcs.values())
    weights = np.array(list(arcs.values()), np.float64 if real else np.int64)
    return build_graph(tails, heads, weights, n=n, directed=True)[0]


def exact_distances(graph: Graph) -> Exact | None:
    """Floyd-Warshall as in the textbook, in fractions; None where a cycle is negative."""
    d: Exact = [[Fraction(0) if u == v else None for v in range(graph.n)] for u in range(graph.n)]
    for u in range(graph.n):
        for e in range(graph.indptr[u], graph.indptr[u + 1]):
            d[u][graph.heads[e]] = Fraction(graph.weights[e].item())
    for k in range(graph.n):
        through = [(v, length) for v, length in enumerate(d[k]) if length is not None]
        for row in d:
            first = row[k]
            if first is None:
                continue
            for v, length in through:
                known = row[v]
                if known is None or first + length < known:
                    row[v] = first + length
    return None if any(d[v][v] != 0 for v in range(graph.n)) else d


def solved(graph: Graph, options: Options) -> Exact:
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    facts = solve(graph, plan, options, sink).summary
    none = WORK_TYPES[plan.dtype].sentinel()
    assert not np.isnan(sink.array.astype(float)).any()
    assert math.isfinite(facts["sum"])
    return [[None if value == none else Fraction(value.item()) for value in row] for row in sink.array]


def check(n: int, arcs: Arcs) -> None:
    """Every algorithm in every type is refused, or right to within the rounding that is promised."""
    graph = graph_of(n, arcs)
    exact = exact_distances(graph)
    if exact is None:  # by rounding of the weights themselves: another test's matter
        return
    problem = describe(graph)
    largest = max(abs(d) for row in exact for d in row if d is not None)
    for dtype in WORK_TYPES:
        try:
            kind = choose_type(problem, dtype)[0]
        except InvalidRequest:
            continue
        share = Fraction(SHARE.get(dtype, 0)) * n
        if graph.integral and 4 * problem.bound <= EXACT[kind.name]:
            share = Fraction(0)
        for name in ESTIMATES:
            if name != "partitioned" and unsuitable(name, problem) is not None:
                continue
            found = solved(graph, Options(algorithm=name, dtype=dtype, device="cpu", threads=2))
            for u, v in itertools.product(range(n), repeat=2):
                wanted, value = exact[u][v], found[u][v]
                assert (value is None) == (wanted is None), (name, dtype, u, v)
                if wanted is not None and value is not None:
                    error = abs(value - wanted)
                    assert error <= share * largest + Fraction(5e-324), (name, dtype, u, v, float(value), float(wanted))


@settings(max_examples=12, **QUIET)
@given(whole_arcs())
def test_whole_weights_with_negative_arcs_are_right_in_every_type(case: tuple[int, Arcs]) -> None:
    check(*case)


@settings(max_examples=12, **QUIET)
@given(decades())
def test_floats_of_both_signs_over_many_decades_are_right_to_within_the_promised_rounding(
    case: tuple[int, Arcs],
) -> None:
    check(*case)


@settings(max_examples=12, **QUIET)
@given(ends())
def test_weights_at_the_ends_of_the_types_are_right_or_refused(case: tuple[int, Arcs]) -> None:
    check(*case)


@pytest.mark.slow
@settings(max_examples=40, **QUIET)
@given(st.one_of(whole_arcs(), decades(), ends()))
def test_more_graphs_of_weights_that_are_hard_to_add(case: tuple[int, Arcs]) -> None:
    check(*case)


@pytest.mark.long
@settings(max_examples=400, **QUIET)
@given(st.one_of(whole_arcs(), decades(), ends()))
def test_many_graphs_of_weights_that_are_hard_to_add(case: tuple[int, Arcs]) -> None:
    check(*case)
