"""A refusal names budgets that suffice, and hardly more than that; graphs, budgets and devices are numbers alone."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.plan import Candidate
from engine.model.problem import Device, Machine, Options, Problem, Workers, with_threads
from engine.planning.constants import RESIDENT_SPARE
from engine.planning.cost import fewer
from engine.planning.planner import choose
from engine.planning.refusal import gib, round_up
from service.units import parse_size
from storage.errors import DoesNotFit, InvalidRequest

MIB, GIB, TIB = 2**20, 2**30, 2**40
#: What the text of a budget may say above the least one: three digits.
DIGITS = 0.99
CARD = Device("a card", GIB, 140 * GIB, {"uint16": 34e12, "int32": 18e12, "float32": 16e12, "float64": 5e12})
BOX = Machine(
    threads=16, memory=2 * GIB, resident=GIB // 4, disk=2000 * GIB,
    relax_rate={"uint16": 1e12, "int32": 5e11, "float32": 3e11, "float64": 2e11}, search_rate=1e8, write_rate=2e9,
    stream_rate=2.5e9, cuda=CARD, no_cuda="",
)  # fmt: skip
DENSE = Problem(
    n=32_768, arcs=32_768 * 4, rows=32_768, directed=True, integral=False, unit=False, min_weight=0.5, max_weight=9.0,
    smallest_weight=0.5, bound=10**6, bound_proof="two searches", max_hops=None,
)  # fmt: skip


def sizes(least: int, most: int) -> st.SearchStrategy[int]:
    """Bytes, each magnitude as likely as the others."""
    return st.floats(least.bit_length() - 1, most.bit_length() - 1).map(lambda power: int(2**power))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n = draw(sizes(64, 2**18))
    whole = draw(st.booleans())
    negative = draw(st.sampled_from([False, False, True]))
    return replace(
        DENSE,
        n=n,
        arcs=int(n * draw(st.sampled_from([0.5, 4, 60]))),
        rows=n if whole else draw(st.integers(1, n)),
        targets=None if whole else draw(st.none() | st.integers(1, n)),
        directed=draw(st.booleans()),
        integral=draw(st.booleans()),
        min_weight=-1.0 if negative else 0.5,
        bound=draw(st.sampled_from([1000.0, 1e6])),
        max_hops=draw(st.sampled_from([None, None, None, 5])),
        hops=draw(st.sampled_from([6, 500])),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    count = draw(st.sampled_from([1, 1, 2, 4]))
    card = replace(CARD, memory=draw(sizes(16 * MIB, 64 * GIB)), count=count)
    machine = replace(
        BOX,
        threads=draw(st.sampled_from([1, 2, 16, 128])),
        memory=BOX.resident + draw(sizes(MIB, 64 * GIB)),
        disk=draw(st.none() | sizes(MIB, 4 * TIB)),
        cuda=draw(st.sampled_from([None, card, card])),
    )
    kind = draw(st.sampled_from([None, None, "cpu", "cuda"]))
    if kind is None:
        return machine
    memory = draw(sizes(16 * MIB, 64 * GIB))
    rates = {name: count * rate for name, rate in (CARD if kind == "cuda" else BOX).relax_rate.items()}
    workers = Workers(count, kind, "some", 4, memory, rates, host_memory=draw(sizes(16 * MIB, 64 * GIB)))
    return replace(machine, workers=workers, cuda=replace(CARD, memory=memory) if kind == "cuda" else None)


OPTIONS = st.builds(
    Options,
    device=st.sampled_from(["auto", "cpu", "cuda"]),
    algorithm=st.sampled_from(["auto", "auto", "dijkstra", "blocked-floyd-warshall", "partitioned", "bellman-ford"]),
)


def granted(machine: Machine, budgets: list[dict[str, Any]], less: str | None = None) -> Machine:
    """The machine with the budgets of a remedy, a little less of the resource ``less``."""
    for budget in budgets:
        name, size = budget["resource"], budget["needed"]
        if name == less:
            if name == "memory":
                size -= RESIDENT_SPARE + machine.resident // 50
            size = int(size * (1 if name == "disk" else DIGITS)) - 1
        workers = machine.workers
        if name == "memory":
            machine = replace(machine, memory=size)
        elif name == "disk":
            machine = replace(machine, disk=size)
        elif name == "device memory":
            assert machine.cuda is not None
            machine = replace(machine, cuda=replace(machine.cuda, memory=size))
            machine = machine if workers is None else replace(machine, workers=replace(workers, memory=size))
        else:
            assert workers is not None
            own = "memory" if workers.device == "cpu" else "host_memory"
            machine = replace(machine, workers=replace(workers, **{own: size}))
    return machine


def offered(problem: Problem, machine: Machine, options: Options) -> list[Candidate]:
    """The candidates that fit, on all threads or on fewer, and that the options allow."""
    found: list[Candidate] = []
    for threads in (machine.threads, *fewer(machine)):
        try:
            found += choose(problem, with_threads(machine, threads), options).candidates
        except DoesNotFit:
            break
    asked = options.algorithm
    return [c for c in found if c.feasible and asked in ("auto", c.algorithm)]


def refused(machine: Machine, options: Options, problem: Problem = DENSE) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as caught:
        choose(problem, machine, options)
    return caught.value


@settings(max_examples=150, deadline=None)
@given(problems(), machines(), OPTIONS)
def test_budgets_that_a_refusal_names_suffice_and_a_little_less_does_not(
    problem: Problem, machine: Machine, options: Options
) -> None:
    with contextlib.suppress(InvalidRequest):
        if not offered(problem, machine, options):
            check(problem, machine, options)


@settings(max_examples=60, deadline=None)
@given(problems(), machines(), OPTIONS, st.floats(0.0, 0.02))
def test_what_fits_fits_in_more_memory(problem: Problem, machine: Machine, options: Options, more: float) -> None:
    """A plan takes larger batches where there is more memory, but none that make it too large."""
    with contextlib.suppress(InvalidRequest):
        larger = replace(machine, memory=int(machine.memory * (1 + more)))
        ways = [{(c.algorithm, c.tier) for c in offered(problem, one, options)} for one in (machine, larger)]
        assert {way for way in ways[0] if way[0] != "blocked-floyd-warshall"} <= ways[1]


def test_batches_that_grow_with_the_memory_do_not_make_a_plan_too_large() -> None:
    """With 128 threads a batch grew by a band from 5.29 GB on, and the job fitted again from 5.34 GB on."""
    problem = replace(DENSE, n=95_742, arcs=47_871, rows=95_742, directed=False, integral=False, min_weight=0.5)
    fits = []
    for memory in range(4 * 10**9, 8 * 10**9, 5_000_000):
        machine = replace(BOX, threads=128, memory=memory, disk=None, cuda=None)
        fits.append(bool(offered(problem, machine, Options(algorithm="dijkstra"))))
    assert any(fits)
    assert fits == sorted(fits)


def check(problem: Problem, machine: Machine, options: Options) -> None:
    """Check each remedy of a refusal, and each of its budgets without a little."""
    error = refused(machine, options, problem)
    message, found = str(error), cast(tuple[dict[str, Any], ...], error.remedies)
    assert error.needed > error.available
    assert found
    assert message.startswith(error.reason.partition(";")[0])
    assert error.details()["reason"] == error.reason
    assert error.offering("another", "or otherwise").reason == error.reason
    for remedy in found:
        budgets = remedy["budgets"]
        assert not any(gib(budget["needed"]) in error.reason.partition("; ")[2] for budget in budgets)
        assert all(budget["needed"] > budget["available"] for budget in budgets)
        fitting = offered(problem, granted(machine, budgets), options)
        assert (remedy["algorithm"], remedy["tier"]) in {(c.algorithm, c.tier) for c in fitting}
        assert all(gib(budget["needed"]).replace(" ", "") in message.replace(" ", "") for budget in budgets)
        for budget in budgets:
            less = offered(problem, granted(machine, budgets, less=budget["resource"]), options)
            assert remedy["tier"] not in {c.tier for c in less}, (budget, remedy)


def test_the_limit_that_binds_is_named_with_the_least_budget_of_each_tier() -> None:
    """A GiB of a GPU suffices for a matrix of four; the memory of the host is what lacks."""
    tight = replace(BOX, memory=GIB)
    found = refused(tight, Options("auto", "blocked-floyd-warshall", "cuda", GIB, GIB))
    assert (found.resource, found.available) == ("memory", GIB)
    assert GIB < found.needed < 2 * GIB
    assert "does not fit in memory" in str(found)
    remedies = cast(list[dict[str, Any]], found.details()["remedies"])
    ways = [(tuple(b["option"] for b in r["budgets"]), r["tier"]) for r in remedies]
    assert ways == [(("memory",), "store"), (("device_memory",), "device"), (("memory",), "host")]
    typed = [word for word in str(found).split() if word.endswith("iB") and word[0].isdigit()]
    assert [parse_size(word, field="size") for word in typed] == [b["needed"] for r in remedies for b in r["budgets"]]


def test_no_way_is_named_that_a_faster_one_with_the_same_budgets_forestalls() -> None:
    """Streaming from the store and from host memory need the same of the GPU, and the host has plenty."""
    card = replace(CARD, memory=40 * MIB, free=60 * GIB)
    roomy = replace(BOX, memory=200 * GIB, free=200 * GIB, cuda=card)
    found = refused(roomy, Options("auto", "blocked-floyd-warshall", "cuda", device_memory=card.memory))
    assert found.resource == "device memory"
    ways = [(r["budgets"][0]["needed"], r["tier"], r["seconds"]) for r in cast(list[dict[str, Any]], found.remedies)]
    assert [tier for _, tier, _ in ways] == ["host", "device"]
    budgets, seconds = [way[0] for way in ways], [way[2] for way in ways]
    assert budgets == sorted(set(budgets))
    assert seconds == sorted(seconds, reverse=True)


def test_several_limits_are_named_together_where_no_single_one_suffices() -> None:
    tiny = replace(BOX, memory=GIB // 3, disk=GIB, cuda=replace(CARD, memory=GIB // 16, count=4))
    found = refused(tiny, Options(device="cuda", memory=GIB // 3))
    assert all(len(cast(list[object], remedy["budgets"])) > 1 for remedy in found.remedies)
    assert "with --memory" in str(found)
    assert "of GPU memory on each GPU and" in str(found)
    assert "of the disk are free" in str(found)


def test_an_option_is_named_only_where_the_machine_has_as_much() -> None:
    tight = replace(BOX, memory=GIB, cuda=None)
    problem = replace(DENSE, rows=10_000, arcs=10**8)
    for options, free, words in (
        (Options(memory=GIB), 64 * GIB, "with --memory "),
        (Options(memory=GIB), None, "with --memory "),
        (Options(memory=GIB), 2 * GIB, "where "),
        (Options(), GIB, "where "),
    ):
        found = refused(replace(tight, free=free), options, problem)
        assert f"it fits {words}" in str(found)
        assert ("of memory are free" in str(found)) == (words == "where ")


def test_other_options_are_named_where_they_suffice() -> None:
    small = replace(BOX, memory=16 * GIB, cuda=replace(CARD, memory=GIB // 64))
    assert "or with --device auto as it is (" in str(refused(small, Options(device="cuda")))
    options = Options(algorithm="repeated-squaring", device="cpu")
    assert "or with --algorithm auto as it is (" in str(refused(replace(BOX, cuda=None), options))


@pytest.mark.parametrize("size", [1, 1023, 1024, 999_999, 12_345_678, 4_999_999_999, 10**13])
def test_sizes_are_rounded_up_to_what_can_be_printed(size: int) -> None:
    assert size <= round_up(size) <= 1.011 * size + 1
    assert abs(parse_size(gib(round_up(size)).replace(" ", ""), field="size") - round_up(size)) <= 1
