"""Phases and their seconds, and phases that interrupt others."""

from __future__ import annotations

from engine.model.progress import Monitor, PhaseClock


class Told(Monitor):
    def __init__(self) -> None:
        self.calls: list[object] = []

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.calls.append((phase, total, unit))

    def advance(self, amount: int) -> None:
        self.calls.append(amount)


def test_an_interruption_is_a_phase_and_the_phase_before_goes_on(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("engine.model.progress.time.perf_counter", lambda: now[0])
    told = Told()
    outer = PhaseClock(told)
    clock = PhaseClock(outer)
    clock.begin("search", 9, "rows")
    now[0] += 1
    clock.advance(4)
    for _ in range(2):
        with clock.aside("compile", "kernels"):
            now[0] += 10
    now[0] += 2
    assert clock.so_far() == outer.so_far() == {"search": 3, "compile": 20}
    clock.advance(5)
    clock.begin("seal", 1, "store")
    now[0] += 1
    clock.stop()
    outer.stop()
    assert clock.seconds == outer.seconds == {"search": 3, "compile": 20, "seal": 1}
    again, compiled = [("search", 9, "rows"), 4, 5], [("compile", 1, "kernels"), 1]
    assert told.calls == [("search", 9, "rows"), 4, *compiled, *compiled, *again, ("seal", 1, "store")]


def test_an_interruption_before_any_phase() -> None:
    told = Told()
    clock = PhaseClock(told)
    with clock.aside("compile", "kernels"):
        pass
    clock.advance(1)
    assert told.calls == [("compile", 1, "kernels"), 1, 1]
    assert list(clock.seconds) == ["compile"]


def test_a_monitor_can_know_that_a_phase_goes_on() -> None:
    class Knows(Told):
        def resume(self, phase: str, total: int, unit: str, done: int) -> None:
            self.calls.append((phase, total, unit, done))

    told = Knows()
    clock = PhaseClock(told)
    clock.begin("search", 9, "rows")
    clock.advance(4)
    with clock.aside("compile", "kernels"):
        pass
    clock.advance(5)
    assert told.calls == [("search", 9, "rows"), 4, ("compile", 1, "kernels"), 1, ("search", 9, "rows", 4), 5]
