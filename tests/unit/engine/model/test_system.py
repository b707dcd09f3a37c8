"""What control groups leave to a process: their own limits and those of the groups around them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.model import system
from engine.model.system import available_memory, signals_postponed, usable_processors

MIB = 2**20


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups, in whose ``job/step`` this process is; 64 processors, much memory."""
    (tmp_path / "job" / "step").mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=systemd:/elsewhere\n0::/job/step\n")
    monkeypatch.setattr(system, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(system, "_GROUPS", tmp_path)
    monkeypatch.setattr(system.os, "sched_getaffinity", lambda _: range(64))
    return tmp_path


def limit(group: Path, memory: str, used: int, inactive: int) -> None:
    """As the kernel shows it."""
    (group / "memory.max").write_text(memory + "\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nslab 9\n")


@pytest.mark.parametrize(
    ("step", "job", "expected"),
    [("max 100000", "max 100000", 64), ("250000 100000", "max 100000", 2), ("max 100000", "800000 100000", 8),
     ("400000 100000", "800000 100000", 4), ("50000 100000", "max 100000", 1), ("", "", 64)],
)  # fmt: skip
def test_quotas_of_all_groups_hold(groups: Path, step: str, job: str, expected: int) -> None:
    for name, quota in (("job/step", step), ("job", job)):
        if quota:
            (groups / name / "cpu.max").write_text(quota + "\n")
    assert usable_processors() == expected


def test_groups_with_a_quota_are_those_that_limit_processors(groups: Path) -> None:
    own = system.control_groups()
    assert system.with_quota(own) == ()
    (groups / "job" / "cpu.max").write_text("max 100000\n")
    (groups / "job" / "step" / "cpu.max").write_text("250000 100000\n")
    assert system.with_quota(own) == (str(groups / "job" / "step"),)
    assert usable_processors(system.with_quota(own)) == usable_processors(own) == 2


def test_memory_is_what_the_tightest_group_leaves(groups: Path) -> None:
    free = available_memory()
    assert free > 100 * MIB
    limit(groups / "job" / "step", "max", 3 * MIB, MIB)
    assert available_memory() == pytest.approx(free, rel=0.2)
    limit(groups / "job", str(80 * MIB), 30 * MIB, 10 * MIB)
    assert available_memory() == 60 * MIB
    limit(groups / "job" / "step", str(50 * MIB), 30 * MIB, 0)
    assert available_memory() == 20 * MIB
    limit(groups / "job" / "step", str(50 * MIB), 60 * MIB, 0)
    assert available_memory() == 0


@pytest.mark.parametrize("own", ["0::/../../beside\n", "4:memory:/old\n", None])
def test_groups_out_of_sight_limit_nothing(groups: Path, own: str | None) -> None:
    (groups / "job" / "cpu.max").write_text("100000 100000")
    if own is None:
        (groups / "own").unlink()
    else:
        (groups / "own").write_text(own)
    assert usable_processors() == 64


def test_a_level_names_what_its_processors_have_in_common() -> None:
    two = dict.fromkeys(system.LEVELS["x86-64-v2"], True)
    three = {**two, **dict.fromkeys(system.LEVELS["x86-64-v3"], True)}
    four = {**three, **dict.fromkeys(system.LEVELS["x86-64-v4"], True), "avx512vnni": True}
    for present, level in (
        (two, "x86-64-v2"),
        (three, "x86-64-v3"),
        (four, "x86-64-v4"),
        ({**four, "fma": False}, "x86-64-v2"),
    ):
        found = system.level_settings("auto", present)
        assert found["NUMBA_CPU_NAME"] == level
        assert found == system.level_settings(level, {})  # an image is built on any machine
        assert all(present[name[1:]] for name in found["NUMBA_CPU_FEATURES"].split(","))
    for wanted, present in (("auto", {"neon": True}), ("", four), ("x86-64-v9", four)):
        assert system.level_settings(wanted, present) == {}


def test_a_level_is_set_before_numba_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"APSP_CPU_LEVEL": "x86-64-v3"}
    monkeypatch.setattr(system, "os", SimpleNamespace(environ=found))
    monkeypatch.setattr(system, "sys", SimpleNamespace(modules={"numba": None}))
    system.use_level()
    assert "NUMBA_CPU_NAME" not in found
    system.sys.modules.clear()
    system.use_level()
    assert found["NUMBA_CPU_NAME"] == "x86-64-v3"
    found["APSP_CPU_LEVEL"] = "x86-64-v4"
    system.use_level()
    assert found["NUMBA_CPU_NAME"] == "x86-64-v3"  # what is set already counts


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupting() -> Iterator[None]:
    """SIGUSR1 raises Interrupted."""

    def handle(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupted_block(done: list[str], error: type[Exception] | None = None) -> None:
    with signals_postponed():
        os.kill(os.getpid(), signal.SIGUSR1)
        done.append("the block")
        if error is not None:
            raise error


@pytest.mark.usefixtures("interrupting")
@pytest.mark.parametrize("error", [None, ValueError])
def test_a_signal_waits_for_the_end_of_the_block(error: type[Exception] | None) -> None:
    """It is not lost behind an error of the block, and the handler is there again afterwards."""
    done: list[str] = []
    with pytest.raises(Interrupted):
        interrupted_block(done, error)
    assert done == ["the block"]
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.usefixtures("interrupting")
def test_blocks_of_other_threads_run_as_they_are() -> None:
    found = []

    def run() -> None:
        with signals_postponed():
            found.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGUSR1)]
