"""Grouping many graphs: pure arithmetic over the facts of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine.api.solve import solve
from engine.model.device_layout import SINGLE, SLACK
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Device, Machine, Options, Problem
from engine.model.rows import NullSink
from engine.planning.bulk import SMALLEST, TILE, Group, padded_side, plan_bulk, stack_bytes
from engine.planning.constants import STACK_BYTES
from storage.errors import InvalidRequest
from storage.graph.graph import build_graph

GIB = 2**30
SMALL = Problem(
    n=60, arcs=240, rows=60, directed=True, integral=True, unit=False, min_weight=1, max_weight=100,
    smallest_weight=0, bound=5000, bound_proof="arcs", max_hops=None,
)  # fmt: skip
BOX = Machine(
    threads=4, memory=16 * GIB, resident=GIB // 4, disk=100 * GIB,
    relax_rate={"uint16": 24e10, "int32": 14e10, "float32": 10e10, "float64": 4e10}, search_rate=2e8, write_rate=1e9,
)  # fmt: skip
GPU = replace(
    BOX, cuda=Device("GPU", 8 * GIB, 8 * GIB, {"uint16": 30e12, "int32": 16e12, "float32": 15e12, "float64": 5e12})
)


def sized(n: int, **facts: object) -> Problem:
    return replace(SMALL, **{"n": n, "rows": n, "arcs": n * min(n - 1, 30), **facts})


def many(*problems: Problem) -> dict[int, Problem]:
    return dict(enumerate(problems))


def stacked(problems: dict[int, Problem], machine: Machine = GPU, **options: object) -> list[Group]:
    plan = plan_bulk(problems, machine, Options(device="cuda", **options), stores=False)
    return [group for group in plan.groups if group.way == "stacked"]


def test_every_graph_is_in_exactly_one_group():
    problems = many(*(sized(n) for n in (2, 30, 33, 64, 65, 500, 3000, 9000)), sized(90, integral=False), sized(70))
    for machine, device in ((BOX, "cpu"), (BOX, "auto"), (GPU, "auto"), (GPU, "cuda")):
        plan = plan_bulk(problems, machine, Options(device=device), stores=True)
        members = sorted(i for group in plan.groups for i in group.members)
        assert members == sorted(problems), device
        assert all(group.seconds > 0 and group.reason and group.launch >= 1 for group in plan.groups)


def test_padding_is_to_the_tiles_that_the_kernel_works_on_anyway():
    assert [padded_side(n) for n in (1, 32, 33, 64, 65, 128, 129)] == [SMALLEST, SMALLEST, TILE, TILE, 128, 128, 192]
    groups = stacked(many(*(sized(n) for n in [1000] * 400 + [500] * 400)))
    assert sorted(group.side for group in groups) == [512, 1024]
    assert all(0 <= group.waste < 0.1 for group in groups)


def test_a_few_graphs_join_the_next_larger_ones_and_many_do_not():
    few = stacked(many(*[sized(60)] * 3, *[sized(120)] * 500))
    assert [(group.side, len(group.members)) for group in few] == [(128, 503)]
    lots = stacked(many(*[sized(60)] * 5_000, *[sized(120)] * 500))
    assert sorted((group.side, len(group.members)) for group in lots) == [(64, 5_000), (128, 500)]


def test_what_is_padded_together_has_one_type_and_sign():
    problems = many(
        sized(60), sized(60, bound=10**6), sized(60, integral=False, min_weight=0.5), sized(60, min_weight=-3)
    )
    found = {(group.dtype, group.nonnegative) for group in stacked(problems)}
    assert found == {("uint16", True), ("int32", True), ("float32", True), ("int32", False)}
    # fractions with negative arcs are solved over reduced weights, beside those without
    problems = many(sized(60, integral=False), sized(60, integral=False, min_weight=-0.5))
    (group,) = stacked(problems)
    assert (group.dtype, group.nonnegative, len(group.members)) == ("float32", True, 2)


def test_a_launch_fits_the_device():
    problems, kind = many(*[sized(1000)] * 300), WORK_TYPES["uint16"]
    for memory in (100 * 2**20, GIB, 8 * GIB):
        machine = replace(GPU, cuda=replace(GPU.cuda, memory=memory))
        (group,) = stacked(problems, machine)
        assert stack_bytes(1024, kind, group.launch) <= memory
        assert group.launch * 1024**2 * 2 <= STACK_BYTES
        assert group.device_memory == stack_bytes(1024, kind, group.launch)
    machine = replace(GPU, cuda=replace(GPU.cuda, memory=SLACK + 2**20))
    plan = plan_bulk(problems, machine, Options(device="cuda"), stores=False)
    assert [group.way for group in plan.groups] == ["alone"]


def test_large_graphs_go_alone_and_hops_keep_off_the_stacks():
    plan = plan_bulk(many(sized(60), sized(20_000, bound=10**6)), BOX, Options(device="cpu"), stores=False)
    assert {group.way: group.members for group in plan.groups} == {"beside": (0,), "alone": (1,)}
    assert stacked(many(sized(SINGLE + 1))) == []
    assert stacked(many(sized(60, max_hops=3)), max_hops=3) == []


def test_auto_takes_the_gpu_where_it_is_foreseen_to_be_faster():
    def devices(machine: Machine) -> set[str]:
        return {group.device for group in plan_bulk(problems, machine, Options(), stores=False).groups}

    problems = many(*[sized(1024, arcs=1024 * 1023)] * 64)
    assert devices(BOX) == {"cpu"}
    assert devices(GPU) == {"cuda"}
    slow = replace(GPU, cuda=replace(GPU.cuda, relax_rate=dict.fromkeys(WORK_TYPES, 1e9)))
    assert devices(slow) == {"cpu"}


def test_one_graph_that_cannot_be_solved_is_refused_alone():
    problems = many(sized(60), sized(60, bound=10**6), sized(60))
    plan = plan_bulk(problems, BOX, Options(dtype="uint16", device="cpu"), stores=False)
    assert list(plan.refused) == [1]
    assert "uint16" in str(plan.refused[1])
    assert sorted(i for group in plan.groups for i in group.members) == [0, 2]


def test_options_that_suit_no_graph():
    with pytest.raises(InvalidRequest, match="sources"):
        plan_bulk(many(SMALL), BOX, Options(sources=(1,)), stores=False)
    with pytest.raises(InvalidRequest, match="no GPU was looked for"):
        plan_bulk(many(SMALL), BOX, Options(device="cuda"), stores=False)


def test_stores_are_foreseen():
    problems = many(*[sized(60)] * 100)
    bare, stored = (plan_bulk(problems, BOX, Options(), stores=stores).seconds for stores in (False, True))
    assert stored > bare + 0.1


def spent(work: Callable[[], object]) -> float:
    """Processor seconds, the least of three times."""
    seconds = []
    for _ in range(3):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


@pytest.mark.alone
def test_planning_a_small_graph_costs_less_than_solving_it():
    rng = np.random.default_rng(0)
    graphs = [
        build_graph(*rng.integers(0, 64, (2, 256)), rng.integers(1, 100, 256), n=64, directed=True)[0]
        for _ in range(100)
    ]
    options = Options(threads=1)
    plan = plan_bulk(many(sized(64)), BOX, options, stores=False).plans[0]
    solving = spent(lambda: [solve(graph, plan, options, NullSink(64)) for graph in graphs])
    planning = spent(lambda: plan_bulk(many(*[sized(64)] * 100), GPU, Options(), stores=True))
    assert planning < solving
