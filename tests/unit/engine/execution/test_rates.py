"""Rates that are measured once: when, how long they are kept, and what happens where they cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution import rates
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Candidate, Plan
from engine.model.problem import Device, Machine
from engine.model.tiling import Tiling
from storage.errors import SolveFailed, StorageFailed

KIND = WORK_TYPES["float32"]
DISK = {"stream_write": 5e8, "stream_rate": 4e8, "stream_work": 3e-10}
BUS = {"relax_rate": 1e13, "bus_rate": 2e10, "bus_most": 7e10, "touch_seconds": 1e-10, "lock_seconds": 2e-10}
MACHINE = Machine(
    threads=2, memory=2**34, resident=0, disk=2**40, relax_rate={"float32": 5e10}, search_rate=1e8, write_rate=1e9,
    cuda=Device("a card", 2**34, 2**34, {"float32": 16e12, "int32": 18e12}, 4),
)  # fmt: skip


def plan_of(seconds: float, device: str = "cpu", *, streams: bool = True) -> Plan:
    streaming = Tiling("store", 64, 64) if streams else None
    candidate = Candidate("blocked-floyd-warshall", 1, 1, seconds, device=device, streaming=streaming)
    return Plan("a", "float32", device, 2, (9, 9), 1, 1, seconds, "", "", candidates=(candidate,))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache; what is measured is noted."""
    found: list[str] = []

    def disk(_folder: Path, _threads: int) -> dict[str, float]:
        found.append("disk")
        return dict(DISK)

    def device(*_: object) -> dict[str, float]:
        found.append("device")
        return dict(BUS)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rates, "disk_rates", disk)
    monkeypatch.setattr(rates, "_device_rates", device)
    return found


def test_a_long_solve_that_may_stream_is_worth_measuring(calls: list[str], tmp_path: Path) -> None:
    found = rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr")
    assert (found.stream_write, found.stream_rate, found.stream_work) == (5e8, 4e8, 3e-10)
    assert found.cuda == MACHINE.cuda
    assert calls == ["disk"]


def test_the_devices_are_measured_where_they_may_stream(calls: list[str], tmp_path: Path) -> None:
    found = rates.with_rates(MACHINE, KIND, plan_of(11, "cuda"), tmp_path / "d.zarr").cuda
    assert found is not None
    assert found.relax_rate == {"float32": 1e13, "int32": 18e12}
    assert (found.bus_rate, found.bus_most, found.touch_seconds, found.lock_seconds) == (2e10, 7e10, 1e-10, 2e-10)
    assert calls == ["disk", "device"]


@pytest.mark.parametrize("plan", [plan_of(9), plan_of(11, streams=False)])
def test_other_solves_are_not(calls: list[str], tmp_path: Path, plan: Plan) -> None:
    assert rates.with_rates(MACHINE, KIND, plan, tmp_path / "d.zarr") is MACHINE
    assert rates.with_rates(MACHINE, KIND, plan_of(11), None) is MACHINE
    assert calls == []


def test_what_a_busy_machine_hid_is_found_by_the_next_measurements(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disturbance makes rates look worse, never better: the best of some measurements holds, value by value."""
    clock = [1e9]
    monkeypatch.setattr(rates.time, "time", lambda: clock[0])
    found = [
        {"stream_write": 5e7, "stream_rate": 9e8, "stream_work": 9e-10},
        {"stream_write": 6e8, "stream_rate": 4e7, "stream_work": 2e-10},
        {"stream_write": 1e6, "stream_rate": 1e6, "stream_work": 1.0},
    ]
    monkeypatch.setattr(rates, "disk_rates", lambda *_: calls.append("disk") or found[len(calls) - 1])

    def known() -> tuple[float | None, float, float]:
        machine = rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr")
        return machine.stream_write, machine.stream_rate, machine.stream_work

    assert known() == known() == (5e7, 9e8, 9e-10)  # not twice within the hour: the machine is as busy as it was
    clock[0] += 3601
    assert known() == (6e8, 9e8, 2e-10)
    clock[0] += 86400
    assert known() == (6e8, 9e8, 2e-10)
    clock[0] += 27 * 86400
    assert known() == (6e8, 9e8, 2e-10)
    assert calls == ["disk"] * 3  # and then no more for the rest of the month


def test_an_entry_of_one_measurement_without_a_count_is_measured_again(calls: list[str], tmp_path: Path) -> None:
    rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr")
    entries = json.loads(rates.cache_file().read_text())
    old = {
        key: {"when": entry["when"] - 86400, "values": {**DISK, "stream_rate": 1.0}} for key, entry in entries.items()
    }
    rates.cache_file().write_text(json.dumps(old))
    assert rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr").stream_rate == DISK["stream_rate"]
    assert calls == ["disk"] * 2


def test_nothing_is_measured_twice_within_an_hour(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        found = rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "new" / "d.zarr")
        assert found.stream_rate == 4e8
    assert calls == ["disk"]
    rates.with_rates(replace(MACHINE, threads=4), KIND, plan_of(11), tmp_path / "d.zarr")
    assert calls == ["disk"] * 2
    now = rates.time.time()
    monkeypatch.setattr(rates.time, "time", lambda: now + 31 * 86400)
    rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr")
    assert calls == ["disk"] * 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": {"when": "x", "values": {}}}', "\x00"])
def test_a_damaged_cache_is_as_good_as_none(calls: list[str], tmp_path: Path, text: str) -> None:
    rates.cache_file().parent.mkdir(parents=True)
    rates.cache_file().write_text(text)
    assert rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr").stream_rate == 4e8
    assert len(json.loads(rates.cache_file().read_text())) == 1


def test_a_cache_that_cannot_be_written_is_no_error(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr").stream_rate == 4e8
    assert calls == ["disk"] * 2


def test_a_user_without_a_home_measures_each_time(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    for _ in range(2):
        assert rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr").stream_rate == 4e8
    assert calls == ["disk"] * 2


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_cache_that_cannot_be_replaced_leaves_no_files(calls: list[str], tmp_path: Path) -> None:
    rates.cache_file().mkdir(parents=True)
    rates.with_rates(MACHINE, KIND, plan_of(11), tmp_path / "d.zarr")
    assert list(rates.cache_file().parent.iterdir()) == [rates.cache_file()]


@pytest.mark.parametrize("error", [StorageFailed("the disk is full"), SolveFailed("the GPU failed"), OSError("no")])
def test_what_cannot_be_measured_is_left_as_it_was(
    calls: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def failing(*_: object) -> dict[str, float]:
        raise error

    monkeypatch.setattr(rates, "disk_rates", failing)
    monkeypatch.setattr(rates, "_device_rates", failing)
    found = rates.with_rates(MACHINE, KIND, plan_of(11, "cuda"), tmp_path / "d.zarr")
    assert found == MACHINE
    assert str(error) in caplog.text
    assert not rates.cache_file().exists()


def test_the_disk_is_measured_in_place_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SIDE", 640)
    found = rates.disk_rates(tmp_path, 2)
    assert set(found) == set(DISK)
    assert all(value > 0 for value in found.values())
    assert found["stream_work"] < 1e-6
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SIDE", 6400)
    monkeypatch.setattr(rates, "LIMIT", 0.0)
    assert all(value > 0 for value in rates.disk_rates(tmp_path, 2).values())


def test_a_rate_begins_with_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rates.time, "perf_counter", lambda: now)
    limit = rates._Limit()
    now = 103.0  # threads have started
    limit.advance(64)
    assert limit.rate() == pytest.approx(64 / 3)  # there is nothing else to go by
    now = 104.0
    limit.advance(64)
    limit.advance(64)
    assert (limit.rows, limit.rate()) == (192, pytest.approx(128))
    assert limit.cancelled()
