"""Streamed solves that take each step with whoever watches them, so that a stop comes where it is asked for."""

from __future__ import annotations

import pytest

from engine.streaming.crew import Crew


def keep_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the threads of a streamed solve wait until the monitor has been told of what they have done.

    Else a busy machine lets them finish rounds or panels before the monitor is asked whether to stop.
    """
    real = Crew.advance

    def advance(crew: Crew, amount: int) -> None:
        real(crew, amount)
        with crew.change:
            while crew._news and not crew._stop and not crew.alone:
                crew.change.wait(0.001)

    monkeypatch.setattr(Crew, "advance", advance)
