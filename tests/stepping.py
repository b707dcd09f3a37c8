"""Rounds that take one step after the other with whoever watches them, so that a stop comes where it is asked for."""

from __future__ import annotations

import pytest

from engine.streaming.schedule import _Run


def keep_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the threads of a solve in rounds wait until the monitor has been told of what they have done.

    Else a busy machine lets them finish rounds before the monitor is asked whether to stop.
    """
    real = _Run._advance

    def advance(run: _Run, amount: int) -> None:
        real(run, amount)
        with run._change:
            while run._news and not run._stop:
                run._change.wait(0.001)

    monkeypatch.setattr(_Run, "_advance", advance)
