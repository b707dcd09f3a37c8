"""What passes ask of a GPU, recorded by fakes: how much memory, which copies over the bus, and what waits for what."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from engine.devices.cuda.stripes import memory
from engine.devices.cuda.stripes.panels import CudaPanels
from engine.model.progress import Monitor
from engine.model.tier import HostTier
from engine.model.tiling import FINISHED, Tiling, device_bytes, passed_bytes
from engine.streaming import passes
from tests.interrupting import by_itself
from tests.unit.engine.devices.cuda.stripes.fakes import install


def solved(monkeypatch, tiling, n):
    calls, tier = install(monkeypatch), HostTier(np.zeros((n, n), np.float32), tiling)
    passes.run(tiling, tier, [CudaPanels(0, memory=10**9)], Monitor(), nonnegative=True)
    assert (tier.level == FINISHED).all()
    return calls.lines


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize("held", [0, 1, 2, 50])
@pytest.mark.parametrize(("n", "height", "width"), [(64, 64, 64), (640, 64, 64), (640, 128, 128), (768, 64, 256)])
def test_the_bytes_are_those_of_the_plan(monkeypatch, slots, held, n, height, width):
    tiling = Tiling("host", height, width, slots, held * (width // height), passes=True)
    lines = solved(monkeypatch, tiling, n)
    copies = [re.search(r"memcpyAsync.* (\d+), ([12]), ", line) for line in lines]
    moved = {kind: sum(int(c[1]) for c in copies if c and c[2] == kind) for kind in "12"}
    assert (moved["1"], moved["2"]) == passed_bytes(tiling, n, 4)
    taken = [re.match(r"allocate array \d+\((\d+), (\d+)\) (\w+)", line) for line in lines]
    bytes_ = sum(int(t[1]) * int(t[2]) * np.dtype(t[3]).itemsize for t in taken if t)
    assert 0 < bytes_ <= device_bytes(tiling, n, 4)


def test_a_panel_is_closed_once(monkeypatch):
    lines = solved(monkeypatch, Tiling("host", 64, 128, 4, passes=True), 640)
    assert sum("ahead.close" in line or "solver.close" in line for line in lines) == 5


class FewBuffers(HostTier):
    """Stands for a store, whose buffers are few."""

    window = 2

    def take(self, stripe):
        found = Future()
        found.set_result(self.blank(stripe).copy())
        return found


def accesses(line):
    """The arrays that a line reads, and those that it writes, by their numbers."""
    copied = re.search(r"memcpyAsync \[('address'|\d+), ('address'|\d+), ", line)
    if copied:
        to, source = (int(place) >> 20 if place.isdigit() else None for place in copied.groups())
        return {source} - {None}, {to} - {None}
    read, written = set(), set()
    for kind, arguments in re.findall(r"\('(copy|product)', (.*?)(?=\('(?:copy|product)', |$)", line):
        arrays = [int(number) for number in re.findall(r"array (\d+)", arguments)]
        read.update(arrays)
        written.add(arrays[1 if kind == "copy" else 0])
    others = re.findall(r"array (\d+)", line) if not read else []
    return read, written | {int(number) for number in others}


def races(lines):
    """Pairs of accesses to one array, one of them a write, of which neither waits for the other.

    Clocks of Lamport's kind: each stream counts its work, and knows of other streams what it, or the host before it
    queued the work, has waited for.
    """
    known = defaultdict(dict)  # by stream, and by event: the count of each stream that is surely over
    before = defaultdict(list)  # by array: (stream, count, whether it writes, line)
    found = []

    def learn(who, of):
        for stream, count in known[of].items():
            known[who][stream] = max(known[who].get(stream, 0), count)

    for line in lines:
        stream = re.match(r"stream \d+", line)
        if line.startswith("host waits for"):
            learn("host", line.removeprefix("host waits for "))
        elif line.startswith("host waits"):
            learn("host", f"event {line.split()[-1]}")
        elif "deviceSynchronize" in line:
            for name in [name for name in known if name.startswith("stream")]:
                learn("host", name)
        copied = re.search(r"memcpy\w* .*, (\d+)\] \{\}$", line)
        if not stream and not copied:
            continue
        own = stream[0] if stream else ""
        action = re.match(r"stream \d+ (records|waits) (\d+)$", line)
        if action and action[1] == "waits":
            learn(own, f"event {action[2]}")
        elif action:
            known[f"event {action[2]}"] = {}
            learn(f"event {action[2]}", own)
        else:
            read, written = accesses(line)
            own = f"stream {copied[1]}" if copied else own
            learn(own, "host")
            known[own][own] = known[own].get(own, 0) + 1
            for array in read | written:
                for other, count, wrote, earlier in before[array]:
                    if (wrote or array in written) and known[own].get(other, 0) < count:
                        found.append((array, earlier, line))
                before[array].append((own, known[own][own], array in written, line))
    return found


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 128), (128, 128)])
@pytest.mark.parametrize("held", [0, 1, 50])
@pytest.mark.parametrize("kind", [HostTier, FewBuffers])
def test_no_work_overtakes_what_it_needs(monkeypatch, kind, held, height, width, slots):
    """Whatever the device has done when the host looks: a copy of an unfinished panel was wrong once."""
    for seed in range(3):
        calls = install(monkeypatch)
        tiling = Tiling("host", height, width, slots, held * (width // height), passes=True)
        calls.chance = random.Random(seed)
        matrix = np.zeros((640, 640), np.int32)
        passes.run(tiling, kind(matrix, tiling), [CudaPanels(0, memory=10**9)], Monitor(), nonnegative=False)
        assert any(accesses(line)[1] for line in calls.lines)
        assert races(calls.lines) == []


@pytest.mark.parametrize("queued", [1, 2, 3])
@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("held", [1, 4, 50])
@pytest.mark.parametrize(("devices", "kind"), [(1, HostTier), (1, FewBuffers), (2, HostTier)])
@pytest.mark.parametrize("resumed", [False, True])
def test_stripes_that_are_held_are_there_and_are_replaced_when_nothing_reads_them(
    monkeypatch, queued, slots, held, devices, kind, resumed
):
    """With so few places in the queue that they come round, and where the pass up begins while products are queued."""
    monkeypatch.setattr(memory, "QUEUED", queued)
    n, tiling = 768, Tiling("host", 64, 64, slots, held, passes=True)
    for seed in range(2):
        calls, levels = install(monkeypatch), None
        calls.chance = random.Random(seed)
        tier = kind(np.zeros((n, n), np.int32), tiling)
        if resumed:
            levels = np.array(random.Random(seed).choices([-1, 0, 1, 2], k=12))
            levels[-2:] = FINISHED
            tier.level[:] = levels
        shared = [CudaPanels(index, memory=10**9) for index in range(devices)]
        by_itself(lambda: [passes.run(tiling, tier, shared, Monitor(), nonnegative=False, levels=levels)])  # noqa: B023
        assert (tier.level == FINISHED).all()
        for lines in calls.by_thread.values() if devices > 1 else [calls.lines]:
            assert races(lines) == []


@pytest.mark.parametrize("spare", [-5, 0, 1, 3, 100])
def test_a_device_holds_what_its_own_memory_has_place_for(monkeypatch, spare):
    """The plan knows only what is free on the first device."""
    n, tiling = 768, Tiling("host", 64, 64, 4, 12, passes=True)
    size = 64 * n * 4
    calls = install(monkeypatch, free=memory._RESERVE + spare * size + size // 2)
    device, tier = CudaPanels(0, memory=10**9), HostTier(np.zeros((n, n), np.float32), tiling)
    passes.run(tiling, tier, [device], Monitor(), nonnegative=True)
    assert device.most_held == max(0, min(12, spare))
    assert (tier.level == FINISHED).all()
    assert races(calls.lines) == []
    read = sum(int(c[1]) for line in calls.lines if (c := re.search(r"memcpyAsync.* (\d+), 1, ", line)))
    assert read == passed_bytes(replace(tiling, resident=device.most_held), n, 4)[0]


class Updates(Monitor):
    """Counts what is done."""

    done = 0

    def advance(self, amount):
        self.done += amount


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("held", [0, 2, 6])
@pytest.mark.parametrize("kind", [HostTier, FewBuffers])
def test_several_devices_share_a_matrix(monkeypatch, kind, held, devices, slots):
    """Each waits, on its own streams, for what it needs, and takes from the host only what is there."""

    class Guarded(kind):
        def __init__(self, *given):
            super().__init__(*given)
            self.open = set()

        def take(self, stripe):
            assert stripe not in self.open, "a stripe is taken before it has arrived"
            return super().take(stripe)

        def give(self, k, stripe, rows):
            self.open.discard(stripe)
            super().give(k, stripe, rows)

    class Marking(CudaPanels):
        def give(self, k, level):
            self._job.tier.open.update(self._job.members(k))
            super().give(k, level)

    n, tiling = 768, Tiling("host", 64, 128, slots, held, passes=True)
    for seed in range(2):
        calls, monitor = install(monkeypatch), Updates()
        calls.chance = random.Random(seed)
        tier = Guarded(np.zeros((n, n), np.int32), tiling)
        shared = [Marking(index, memory=10**9) for index in range(devices)]
        by_itself(lambda: [passes.run(tiling, tier, shared, monitor, nonnegative=False)])  # noqa: B023
        assert (tier.level == FINISHED).all()
        assert monitor.done == n**3
        working = [lines for lines in calls.by_thread.values() if any("memcpyAsync" in line for line in lines)]
        assert 1 <= len(working) <= devices
        for lines in working:
            assert any(accesses(line)[1] for line in lines)
            assert races(lines) == []
        assert sum("ahead.close" in line or "solver.close" in line for line in calls.lines) == 6
        copies = [re.search(r"memcpyAsync.* (\d+), ([12]), ", line) for line in calls.lines]
        moved = {kind: sum(int(c[1]) for c in copies if c and c[2] == kind) for kind in "12"}
        read, written = passed_bytes(tiling, n, 4, devices)
        assert moved["2"] == written + 6 * 4  # each panel has a flag for entries below zero
        assert moved["1"] <= read + 4 * devices * 128 * n * 4
        assert not any("deviceEnablePeerAccess" in line for line in calls.lines)
