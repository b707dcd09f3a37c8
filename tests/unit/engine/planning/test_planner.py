"""Planning is pure arithmetic: no graph, no machine, only numbers."""

from dataclasses import replace
from typing import Any

import pytest

from engine.model.problem import Machine, Options, Problem
from engine.planning.cost import batch_rows
from engine.planning.planner import ESTIMATES, choose, choose_type
from storage.errors import DoesNotFit, InvalidRequest

GIB = 2**30
ROAD = Problem(
    n=20_000, arcs=50_000, rows=20_000, directed=True, integral=True, unit=False, min_weight=1, max_weight=900,
    smallest_weight=0, bound=10**6, bound_proof="two searches", max_hops=None,
)  # fmt: skip
DENSE = replace(ROAD, n=2_000, rows=2_000, arcs=2_000 * 1_999)
BOX = Machine(
    threads=2, memory=16 * GIB, resident=GIB // 4, disk=100 * GIB,
    relax_rate={"uint16": 12e10, "int32": 7e10, "float32": 5e10, "float64": 2e10}, search_rate=1e8, write_rate=1e9,
)  # fmt: skip


def test_sparse_graphs_are_searched_and_dense_ones_multiplied() -> None:
    assert choose(ROAD, BOX, Options()).algorithm == "dijkstra"
    assert choose(DENSE, BOX, Options()).algorithm == "recursive-floyd-warshall"
    assert choose(replace(ROAD, min_weight=-3), BOX, Options()).algorithm == "johnson"
    assert choose(replace(DENSE, max_hops=5), BOX, Options()).algorithm == "repeated-squaring"


def test_an_unknown_type_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match="dtype 'int64' is unknown; use auto, uint16, int32, float32, float64"):
        choose(ROAD, BOX, Options(dtype="int64"))


def test_every_candidate_is_listed_with_numbers_and_a_reason() -> None:
    plan = choose(ROAD, BOX, Options())
    assert [c.algorithm for c in plan.candidates[:1]] == [plan.algorithm]
    assert {c.algorithm for c in plan.candidates} == set(ESTIMATES)
    assert plan.candidates[0].rejected is None
    assert all(c.rejected for c in plan.candidates[1:])
    assert all(c.memory > BOX.resident and c.seconds > 0 for c in plan.candidates)
    assert plan.algorithm in plan.reason
    assert "GiB" in plan.reason or "MiB" in plan.reason


@pytest.mark.parametrize(
    ("bound", "low", "name"),
    [
        (32_766, 0, "uint16"),
        (32_767, 0, "int32"),
        (2**30 - 2, 0, "int32"),
        (2**30 - 1, 0, "float64"),
        (100, -1, "int32"),
        (2**29 - 1, -1, "int32"),
        (2**29, -1, "float64"),
        (2**53, 0, "float64"),
    ],
)
def test_the_narrowest_proven_integer_type(bound: int, low: int, name: str) -> None:
    assert choose_type(replace(ROAD, bound=bound, min_weight=low), "auto")[0].name == name


@pytest.mark.parametrize(
    ("bound", "smallest", "name"), [(1e6, 0.5, "float32"), (1e39, 0.5, "float64"), (1e6, 1e-40, "float64")]
)
def test_float_types(bound: float, smallest: float, name: str) -> None:
    problem = replace(ROAD, integral=False, bound=bound, smallest_weight=smallest)
    assert choose_type(problem, "auto")[0].name == name


def test_whole_numbers_past_every_exact_type_are_refused_with_the_bound() -> None:
    with pytest.raises(InvalidRequest, match=r"2\^53|9\.0072e\+15"):
        choose_type(replace(ROAD, bound=2**53 + 1), "auto")


@pytest.mark.parametrize(
    ("problem", "options", "field", "words"),
    [
        (ROAD, {"dtype": "uint16"}, "dtype", "1e\\+06.*32766"),
        (replace(ROAD, integral=False), {"dtype": "int32"}, "dtype", "whole numbers"),
        (replace(ROAD, min_weight=-2, bound=9), {"dtype": "uint16"}, "dtype", "negative"),
        (ROAD, {"dtype": "int8"}, "dtype", "int8"),
        (ROAD, {"algorithm": "a-star"}, "algorithm", "a-star"),
        (ROAD, {"algorithm": "johnson"}, "algorithm", "no arc is negative"),
        (replace(ROAD, min_weight=-2), {"algorithm": "dijkstra"}, "algorithm", "-2"),
        (replace(ROAD, max_hops=3), {"algorithm": "dijkstra"}, "algorithm", "3 hops"),
        (ROAD, {"device": "cuda"}, "device", "asked for, but no GPU"),
        (ROAD, {"device": "cuda", "algorithm": "dijkstra"}, "algorithm", "CPU only"),
        (ROAD, {"device": "tpu"}, "device", "tpu"),
        (ROAD, {"max_hops": 0}, "max_hops", "0"),
        (ROAD, {"threads": -1}, "threads", "-1"),
    ],
)
def test_contradictions_are_refused_by_name(problem: Problem, options: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        choose(problem, BOX, Options(**options))
    assert caught.value.field == field


def test_a_matrix_larger_than_the_disk_is_refused_with_both_numbers() -> None:
    with pytest.raises(DoesNotFit) as caught:
        choose(ROAD, replace(BOX, disk=GIB), Options(), store=1_600_000_000)
    assert caught.value.resource == "disk"
    assert "1,600,000,000" in str(caught.value)
    assert f"{GIB:,}" in str(caught.value)


def test_too_little_memory_falls_back_to_searches_and_then_refuses() -> None:
    tight = replace(BOX, memory=BOX.resident + 500 * 2**20)
    large = replace(DENSE, n=30_000, rows=30_000, arcs=10**7)
    assert choose(replace(large, arcs=10**6), tight, Options()).algorithm == "dijkstra"
    with pytest.raises(DoesNotFit) as caught:
        choose(large, replace(BOX, memory=BOX.resident), Options())
    assert caught.value.resource == "memory"
    assert caught.value.needed > caught.value.available


def test_a_small_matrix_is_streamed_only_where_it_does_not_fit() -> None:
    rounds = Options(algorithm="blocked-floyd-warshall")
    assert choose(DENSE, BOX, rounds).tier == "host"
    assert "store" not in {c.tier for c in choose(DENSE, BOX, Options()).candidates}
    large = choose(replace(DENSE, n=9_000, rows=9_000, arcs=9_000 * 8_999), BOX, Options())
    assert "store" in {c.tier for c in large.candidates}
    plan = choose(DENSE, replace(BOX, memory=choose(DENSE, BOX, rounds).memory - 1), rounds)
    assert plan.tier == "store"


def test_an_algorithm_that_was_asked_for_is_kept_or_refused() -> None:
    assert choose(ROAD, BOX, Options(algorithm="blocked-floyd-warshall")).algorithm == "blocked-floyd-warshall"
    with pytest.raises(DoesNotFit, match="recursive-floyd-warshall"):
        choose(ROAD, replace(BOX, memory=GIB), Options(algorithm="recursive-floyd-warshall"))


def test_undirected_graphs_need_about_half_the_work() -> None:
    whole = choose(DENSE, BOX, Options(algorithm="recursive-floyd-warshall")).phases[1]
    half = choose(replace(DENSE, directed=False), BOX, Options(algorithm="recursive-floyd-warshall")).phases[1]
    assert half.updates < 0.65 * whole.updates


def test_batches_are_whole_bands_within_their_budget() -> None:
    assert batch_rows(10, 10, 4) == 10
    assert batch_rows(10**6, 10**6, 4) == 128
    assert batch_rows(10_000, 10_000, 4) % 64 == 0
    assert batch_rows(10_000, 10_000, 4) * 10_000 * 4 <= 64 * 2**20


def test_batches_keep_all_threads_busy_where_there_is_memory() -> None:
    assert batch_rows(10**6, 10**6, 4, threads=16) == 16 * 128
    assert batch_rows(10**6, 10**6, 4, threads=16, memory=2**30) == 64
    assert 0.2 < 2 * batch_rows(10**6, 10**6, 4, threads=16, memory=2**34) * 4e6 / 2**34 <= 0.25
    plan = choose(ROAD, BOX, Options(algorithm="dijkstra"))
    assert plan.batch >= BOX.threads * 128


def test_a_plan_is_json() -> None:
    import json

    again = json.loads(json.dumps(choose(ROAD, BOX, Options()).to_dict()))
    assert again["candidates"][0]["phases"][0]["name"] == "search"


def test_a_stored_plan_keeps_the_names_that_stores_have_always_had() -> None:
    problem = replace(ROAD, rows=ROAD.n, targets=1)
    plan = choose(problem, BOX, Options(algorithm="dijkstra"))
    assert plan.from_targets
    stored = plan.to_dict()
    candidates = stored["candidates"]
    assert isinstance(candidates, tuple)
    for names in (stored, candidates[0], plan.candidates[0].to_dict()):
        assert names["turned"] is True
        assert "from_targets" not in names


def test_a_refusal_carries_every_candidate_with_its_reason() -> None:
    tight = replace(BOX, memory=GIB // 2)
    with pytest.raises(DoesNotFit) as caught:
        choose(ROAD, tight, Options(algorithm="recursive-floyd-warshall"))
    assert {c.algorithm for c in caught.value.candidates} == set(ESTIMATES)
    assert all(c.rejected for c in caught.value.candidates)


@pytest.mark.parametrize(
    ("bound", "negative", "found"),
    [
        (1e308, False, None),  # the sum of all four distances of two vertices leaves float64
        (4e307, False, "float64"),
        (1e308, True, None),
        (4e307, True, "float64"),
        (4.3e307, True, None),  # sums on the way may be four times as large
        (1e38, False, "float32"),
        (1e38, True, "float64"),
        (float("inf"), False, None),
        (float("inf"), True, None),
    ],
)
def test_floats_whose_sums_could_leave_the_type_are_refused(bound: float, negative: bool, found: str | None) -> None:
    low = -1.0 if negative else 1.0
    problem = replace(ROAD, n=2, rows=2, targets=None, integral=False, bound=bound, min_weight=low, smallest_weight=1.0)
    if found is None:
        with pytest.raises(InvalidRequest, match=r"no type holds the distances.*divide all weights by a power of ten"):
            choose_type(problem, "auto")
        with pytest.raises(InvalidRequest, match="dtype float64 cannot be used"):
            choose_type(problem, "float64")
    else:
        assert choose_type(problem, "auto")[0].name == found


def test_whole_weights_of_both_signs_are_exact_where_all_sums_on_the_way_are() -> None:
    problem = replace(ROAD, min_weight=-1)
    assert choose_type(replace(problem, bound=2**51), "auto")[0].name == "float64"
    with pytest.raises(InvalidRequest, match="exact up to 2\\^53; --dtype float64 rounds them"):
        choose_type(replace(problem, bound=2**51 + 1), "auto")
    assert choose_type(replace(problem, bound=2**51 + 1), "float64")[0].name == "float64"
