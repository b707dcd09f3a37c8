"""A job that fits with fewer threads is not refused with all of them; machines and budgets are numbers alone."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem, Trials, Workers, with_threads
from engine.planning.constants import RESIDENT_SPARE
from engine.planning.cost import Setting, fewer, on_threads
from engine.planning.planner import choose
from storage.errors import DoesNotFit, InvalidRequest
from tests.unit.engine.planning.test_refusal import BOX, DENSE, DIGITS, MIB, OPTIONS, machines, problems

GRAPH = replace(DENSE, n=5000, rows=5000, arcs=40_000, directed=False, integral=True, bound=40_000)
DENSELY = Options(algorithm="blocked-floyd-warshall", dtype="int32")
HOST = replace(BOX, resident=100 * MIB, cuda=None)


def planned(machine: Machine, options: Options, problem: Problem = GRAPH) -> Plan | None:
    with contextlib.suppress(DoesNotFit):
        return choose(problem, machine, options)
    return None


@pytest.mark.parametrize("algorithm", ["auto", "blocked-floyd-warshall", "dijkstra"])
@pytest.mark.parametrize("threads", [2, 7, 64])
def test_what_one_thread_can_do_is_not_refused_with_more(threads: int, algorithm: str) -> None:
    """Budgets from far too little to plenty."""
    options = replace(DENSELY, algorithm=algorithm)
    fits, seconds = [], []
    for mebibytes in range(280, 1000, 30):
        machine = with_threads(replace(HOST, memory=mebibytes * MIB), threads)
        plan = planned(machine, options)
        assert (plan is None) == (planned(with_threads(machine, 1), options) is None)
        fits.append(plan is not None)
        if plan is not None:
            assert plan.memory <= machine.memory
            assert plan.threads <= threads
            assert (plan.threads < threads) == (f"of {threads}, because memory is short" in plan.reason)
            seconds.append(plan.seconds)
    assert fits == sorted(fits)
    assert {True, False} == set(fits)
    assert seconds == sorted(seconds, reverse=True), "more memory makes no plan slower"
    assert plan is not None
    assert plan.threads == threads


@settings(max_examples=60, deadline=None)
@given(problems(), machines(), OPTIONS, st.integers(1, 128))
def test_what_any_number_of_threads_can_do_is_not_refused_with_more(
    problem: Problem, machine: Machine, options: Options, threads: int
) -> None:
    with contextlib.suppress(InvalidRequest):
        fewest = with_threads(machine, min(threads, machine.threads))
        if planned(machine, options, problem) is None:
            assert planned(fewest, options, problem) is None


def test_a_refusal_names_what_one_thread_needs() -> None:
    with pytest.raises(DoesNotFit) as caught:
        choose(GRAPH, with_threads(replace(HOST, memory=200 * MIB), 64), DENSELY)
    needed = caught.value.needed
    less = int(DIGITS * (needed - RESIDENT_SPARE - HOST.resident // 50)) - 1
    for threads in (1, 64):
        assert planned(with_threads(replace(HOST, memory=needed), threads), DENSELY)
        assert planned(with_threads(replace(HOST, memory=less), threads), DENSELY) is None


def test_a_solve_from_the_store_takes_fewer_threads_if_their_buffers_leave_little_for_panels() -> None:
    machine = with_threads(replace(HOST, memory=580 * MIB), 64)
    plan = planned(machine, DENSELY)
    assert plan is not None
    assert plan.tier == "store"
    others = [planned(with_threads(machine, count), DENSELY) for count in fewer(machine)]
    assert plan.threads < 64
    assert plan.seconds == min(other.seconds for other in others if other is not None)


def test_numbers_of_threads_end_at_one_and_workers_keep_theirs() -> None:
    assert list(fewer(with_threads(HOST, 1))) == []
    assert list(fewer(with_threads(HOST, 2))) == [1]
    assert list(fewer(with_threads(HOST, 64))) == [48, 36, 27, 20, 15, 11, 8, 6, 4, 3, 2, 1]
    workers = Workers(2, "cpu", "some", 4, 2**30, BOX.relax_rate)
    assert list(fewer(replace(HOST, workers=workers))) == []


def test_rates_trials_and_memory_in_use_follow_the_threads() -> None:
    machine = replace(HOST, threads=16, thread_bytes=MIB)
    setting = Setting(GRAPH, machine, WORK_TYPES["int32"], 0, Trials(1.0, None, 3.0, 5))
    assert on_threads(setting, 16) is setting
    found = on_threads(setting, 4)
    assert found.trials == Trials(4.0, None, 3.0, 5)
    assert found.machine == replace(
        machine,
        threads=4,
        resident=machine.resident - 12 * MIB,
        relax_rate={name: rate / 4 for name, rate in machine.relax_rate.items()},
        search_rate=machine.search_rate / 4,
    )
