"""What a machine offers, under limits of the process that asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.execution import survey as surveying
from storage.errors import InvalidRequest

ROOT = Path(__file__).resolve().parents[4]
#: Plans where the driver of a GPU needs more memory than the process may map, as under ``ulimit -v`` or in a helper
#: process of the service.
_PLANS = """
import json, mmap, resource, sys
import numpy as np
from engine.api import planning
from engine.devices.cuda import context
from engine.model.problem import Options
from storage.errors import InvalidRequest
from storage.graph.graph import build_graph

def find_device(budget):
    with mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        raise AssertionError("the driver found room")

context.find_device, planning.DEVICE_START = find_device, 0.0
arcs = np.random.default_rng(0).integers(0, 300, (2, 3000))
graph, _ = build_graph(*arcs, np.ones(3000), n=300, directed=True)
planning.make_plan(graph, Options(device="cpu"))  # loads what planning needs
name = getattr(resource, sys.argv[1])
held = int(open("/proc/self/statm").read().split()[0 if name == resource.RLIMIT_AS else 5]) * resource.getpagesize()
resource.setrlimit(name, (held + (1 << 30), -1))
plan = planning.make_plan(graph, Options())
try:
    planning.make_plan(graph, Options(device="cuda"))
    refused = None
except InvalidRequest as error:
    refused = str(error)
print(json.dumps([plan.device, plan.device_reason, refused]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_gpu_whose_driver_has_no_room_is_no_gpu_and_the_plan_says_why(limit: str) -> None:
    done = subprocess.run([sys.executable, "-c", _PLANS, limit], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    device, reason, refused = json.loads(done.stdout)
    assert device == "cpu"
    assert "the CUDA installation cannot be used" in reason
    assert "Cannot allocate memory" in reason
    assert refused is not None
    assert "device cuda was asked for, but the CUDA installation cannot be used" in refused


def test_much_free_memory_is_read_once_in_a_moment_and_little_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    free, held, now, read, asked = [64 << 30], [1 << 30], [1000.0], list[tuple[str, ...]](), list[tuple[str, ...]]()
    monkeypatch.setattr(surveying, "_SEEN", [])
    monkeypatch.setattr(surveying.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(surveying, "control_groups", lambda: ("a",))
    monkeypatch.setattr(surveying, "with_quota", lambda groups: (f"{groups[0]} with a quota",))
    monkeypatch.setattr(surveying, "usable_processors", lambda groups: asked.append(groups) or 4)
    monkeypatch.setattr(surveying, "resident_bytes", lambda: held[0])
    monkeypatch.setattr(surveying, "available_memory", lambda groups: read.append(groups) or free[0])
    assert surveying.survey().memory == 65 << 30
    free[0], held[0] = 60 << 30, 5 << 30  # this process took 4 GiB, which changes nothing in the sum
    machine = surveying.survey()
    assert (machine.threads, machine.memory, machine.free) == (4, 65 << 30, 65 << 30)
    assert machine.resident > 4 << 30
    assert asked == [("a",), ("a with a quota",)]
    assert surveying.survey(memory=7 << 30).memory == 7 << 30
    assert read == [("a",)]
    now[0] += surveying.MOMENT
    free[0] = 1 << 30  # another process took nearly all of it
    for _ in range(2):
        assert surveying.survey().memory == 6 << 30
    assert len(read) == 2
    now[0] += surveying.MOMENT
    held[0] = 1 << 30
    for _ in range(3):
        assert surveying.survey().memory == 2 << 30  # so little is read each time
    assert len(read) == 5


def test_for_little_work_without_a_budget_what_was_held_a_moment_ago_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    held, now = [1 << 30], [1000.0]
    monkeypatch.setattr(surveying, "_SEEN", [])
    monkeypatch.setattr(surveying.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(surveying, "resident_bytes", lambda: held[0])
    monkeypatch.setattr(surveying, "available_memory", lambda groups: 64 << 30)
    first = surveying.survey(little=True).resident
    held[0] = 5 << 30
    assert surveying.survey(little=True).resident == first
    assert surveying.survey(little=True, memory=7 << 30).resident == first + (4 << 30)
    assert surveying.survey().resident == first + (4 << 30)
    now[0] += 1
    assert surveying.survey(little=True).resident == first + (4 << 30)


def test_little_work_finds_the_machine_of_a_moment_ago_once_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loaded = [1000.0], [False]
    monkeypatch.setattr(surveying, "_SEEN", [])
    monkeypatch.setattr(surveying.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(surveying, "available_memory", lambda groups: 64 << 30)
    monkeypatch.setattr(surveying, "computes", lambda: loaded[0])
    assert surveying.survey(little=True) is not surveying.survey(little=True)  # the first counts loaded kernels twice
    loaded[0] = True
    first = surveying.survey(little=True, threads=1)
    assert surveying.survey(little=True, threads=1) is first
    assert surveying.survey(little=True).threads == surveying.usable_processors()
    assert surveying.survey(little=True, threads=1, memory=1 << 40) is not first
    assert surveying.survey(threads=1) is not first
    with pytest.raises(InvalidRequest, match="threads is"):
        surveying.survey(little=True, threads=10**6)
    now[0] += 1
    assert surveying.survey(little=True, threads=1) is not first


@pytest.mark.parametrize(("threads", "rate"), [(1, 1.1e9), (2, 2.2e9)])
def test_stores_in_memory_are_written_by_all_threads(
    threads: int, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "usable_processors", lambda _: 4)
    monkeypatch.setattr(surveying, "in_memory", lambda folder: folder == tmp_path)
    assert surveying.survey(out=tmp_path / "new" / "store", threads=threads).write_rate == pytest.approx(rate)
    assert surveying.survey(out=Path("/store"), threads=threads).write_rate == surveying.WRITE_RATE
    assert surveying.survey(threads=threads).write_rate == surveying.WRITE_RATE
