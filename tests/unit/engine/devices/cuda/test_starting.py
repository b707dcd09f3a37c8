"""The driver is started beside other work; no GPU is needed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from engine.devices.cuda import starting


class Driver:
    """A driver that answers each call with a status."""

    def __init__(self, **status: int) -> None:
        self.status, self.asked = status, list[str]()

    def __getattr__(self, name: str) -> Any:
        def answer(*_: object) -> int:
            self.asked.append(name)
            return self.status.get(name, 0)

        return answer


def test_the_primary_context_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    starting.start_driver().join(10)
    assert driver.asked == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]


@pytest.mark.parametrize("failing", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
def test_a_driver_that_refuses_is_left_alone(failing: str) -> None:
    driver = Driver(**{failing: 100})
    assert not starting.context(driver, 3)
    assert driver.asked[-1] == failing


def test_a_machine_without_a_driver_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    starting.start_driver().join(10)


def test_starting_it_imports_nothing_heavy() -> None:
    code = "import sys, engine.devices.cuda.starting; print(sorted({'numpy', 'cupy', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
