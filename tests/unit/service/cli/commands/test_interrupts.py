"""Interrupts where Python would lose them, or a library would make other errors of them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from service.cli import main
from service.cli.commands import failures
from service.cli.commands.interrupts import Interrupts
from storage.errors import StorageFailed

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {which: signal.getsignal(which) for which in WATCHED}
    timer = signal.setitimer(signal.ITIMER_REAL, 0)  # what watches over the time of tests may use it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    found = Interrupts()
    found.install()
    yield found
    found.remove()
    for which, handler in before.items():
        signal.signal(which, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def soon() -> None:
    """Wait for an interrupt that is to come."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        time.sleep(0.001)


def test_an_interrupt_while_a_module_is_imported_comes_after_it(
    interrupts: Interrupts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["import signal, time", "signal.raise_signal(signal.SIGINT)", "time.sleep(0.05)", "whole = True"]
    (tmp_path / "slowly_imported.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    def work() -> None:
        import_module("slowly_imported")
        soon()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert sys.modules["slowly_imported"].whole
    assert interrupts.requested()


def test_an_interrupt_that_a_finalizer_drops_comes_again(
    interrupts: Interrupts, capsys: pytest.CaptureFixture[str]
) -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def work() -> None:
        del [Finalized()][0]
        soon()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert capsys.readouterr().err == ""


def test_what_a_finalizer_drops_otherwise_is_shown(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finalized:
        def __del__(self) -> None:
            raise ZeroDivisionError

    shown: list[type[BaseException]] = []
    interrupts.remove()
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: shown.append(lost.exc_type))
    interrupts.install()
    del [Finalized()][0]
    assert shown == [ZeroDivisionError]


def test_where_the_alarm_has_another_use_the_interrupt_comes_at_once(interrupts: Interrupts) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    assert not interrupts._raise_again()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_all_is_as_before_once_they_are_removed(interrupts: Interrupts) -> None:
    hook = interrupts._show_dropped
    assert interrupts._raise_again()
    interrupts.remove()
    time.sleep(0.03)  # an alarm that nobody handles would end this process
    assert [signal.getsignal(which) for which in WATCHED] == [
        signal.default_int_handler,
        signal.SIG_DFL,
        signal.SIG_DFL,
    ]
    assert sys.unraisablehook is hook


def test_an_error_that_a_library_makes_of_an_interrupt_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapped(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    monkeypatch.setattr(main, "program_of", lambda _: wrapped)
    assert main.run(["plan", "g.gr"]) == 130
    assert "fault" not in capsys.readouterr().err


def test_an_error_of_cleaning_up_is_told() -> None:
    failed, fault = StorageFailed("the disk is full"), ZeroDivisionError()
    failed.__context__ = KeyboardInterrupt()
    assert not failures.comes_of_interrupt(failed)
    assert not failures.comes_of_interrupt(fault)
    fault.__context__ = failed
    assert failures.comes_of_interrupt(fault)
