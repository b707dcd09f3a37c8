"""What rounds over workers are predicted to take, and which pivot block they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.scaling import setting_of
from engine.model.pace import PASSING, PROCESSORS
from engine.model.problem import Device, Options, Workers
from engine.planning.cost import Setting
from engine.planning.cost_distributed import in_rounds, lacking
from engine.planning.planner import choose
from engine.planning.refusal import round_up
from storage.errors import DoesNotFit, InvalidRequest

GIB = 2**30


def limited(n: int, gpus: int, **changes: Any) -> tuple[Setting, Workers]:
    """The workers of docs/scaling.md with some of it otherwise."""
    setting, workers = setting_of(n, gpus)
    workers = replace(workers, **changes)
    rates = dict.fromkeys(("uint16", "int32", "float32", "float64"), 1e13)
    device = None if workers.device == "cpu" else Device(workers.name, workers.memory, workers.memory, rates)
    return replace(setting, machine=replace(setting.machine, workers=workers, cuda=device)), workers


LARGE = [(300_000, 1, 80), (500_000, 8, 80), (200_000, 2, 24), (100_000, 1, 16)]


@pytest.mark.parametrize(("n", "gpus", "memory"), LARGE)
def test_what_does_not_lie_in_memory_has_room_for_what_is_worked_on(n: int, gpus: int, memory: int) -> None:
    setting, workers = limited(n, gpus, memory=memory * GIB)
    found = in_rounds(setting, workers)
    assert found.streaming is not None
    assert found.tier == "store"
    panel = found.streaming.width * n * 4
    assert PASSING.workspace * panel <= found.device_memory <= memory * GIB
    assert found.streaming.width > 64


def test_page_locked_memory_bounds_the_pivot_block() -> None:
    wide, narrow = (in_rounds(*limited(300_000, 1, host_memory=host * GIB)).streaming for host in (512, 16))
    assert wide is not None
    assert narrow is not None
    assert narrow.width < wide.width
    assert PASSING.pieces * narrow.width * 300_000 * 4 <= 16 * GIB


def test_a_device_too_small_for_the_narrowest_one_is_told_what_is_needed() -> None:
    assert in_rounds(*limited(300_000, 1, memory=GIB // 4)).device_memory > GIB // 4


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_workers_with_too_little_memory_of_their_own_are_refused_with_numbers(device: str) -> None:
    own = "memory" if device == "cpu" else "host_memory"
    setting, workers = limited(300_000, 2, device=device, **{own: GIB // 8})
    found = lacking(in_rounds(setting, workers), setting)
    assert found is not None
    assert found[0] > found[1] == GIB // 8
    options = Options(algorithm="blocked-floyd-warshall", executor="dask", dtype="float32")
    with pytest.raises(DoesNotFit, match="rounds do not fit the workers: each needs") as refused:
        choose(setting.problem, setting.machine, options)
    assert (refused.value.needed, refused.value.available) == (round_up(found[0]), found[1])
    assert "with apsp worker --memory" in str(refused.value)
    granted = replace(workers, **{own: refused.value.needed})
    assert choose(setting.problem, replace(setting.machine, workers=granted), options).streaming is not None


def test_a_worker_on_processors_has_room_for_what_is_worked_on() -> None:
    found = in_rounds(*limited(300_000, 2, device="cpu", memory=8 * GIB))
    assert found.streaming is not None
    assert PROCESSORS.workspace * found.streaming.width * 300_000 * 4 <= 8 * GIB


@pytest.mark.parametrize(("n", "gpus", "measured"), [(98_304, 4, 66.5), (131_072, 4, 70.7)])
def test_predictions_are_near_what_was_measured(n: int, gpus: int, measured: float) -> None:
    """Updates a second of docs/many-nodes.md, in trillions, the start apart."""
    found = in_rounds(*limited(n, gpus, panel_rate=4e9))
    assert found.streaming is not None
    assert found.streaming.width == 2048
    relax = next(phase.seconds for phase in found.phases if phase.name == "relax")
    assert n**3 / relax / 1e12 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("options", "hops", "words"),
    [
        (Options(), 5, "only repeated-squaring limits paths to 5 hops"),
        (Options(algorithm="repeated-squaring"), 5, "algorithm repeated-squaring does not run on workers"),
        (Options(algorithm="recursive-floyd-warshall"), None, "algorithm recursive-floyd-warshall does not run on"),
    ],
)
def test_what_no_worker_runs_is_refused_by_name(device: str, options: Options, hops: int | None, words: str) -> None:
    """It ended in an error without words."""
    setting, _ = limited(5000, 2, device=device)
    problem = replace(setting.problem, max_hops=hops)
    with pytest.raises(InvalidRequest, match=words):
        choose(problem, setting.machine, options)
