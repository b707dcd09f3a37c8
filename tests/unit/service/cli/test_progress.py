"""How progress is told: the rest of it is tested with the commands that show it."""

from __future__ import annotations

import io

import pytest

from service.cli.progress import ProgressMonitor, amount_text


@pytest.mark.parametrize(
    ("amount", "unit", "said"),
    [
        (1, "kernels", "1 kernel"),
        (3, "kernels", "3 kernels"),
        (1, "rows", "1 row"),
        (1, "vertices", "1 vertex"),
        (0, "rows", "0 rows"),
        (2**20, "bytes", "1.00 MiB"),
    ],
)
def test_amounts(amount: float, unit: str, said: str):
    assert amount_text(amount, unit) == said


def test_kernels_have_no_rate():
    out = io.StringIO()
    with ProgressMonitor(out) as monitor:
        for phase, unit in (("compile", "kernels"), ("search", "rows")):
            monitor.begin(phase, 4, unit)
            monitor.step(4)
    compiled, searched = (line for line in out.getvalue().splitlines() if line.startswith(("compile:", "search:")))
    assert compiled.endswith("4 kernels")
    assert searched.endswith("rows/s")


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_said_whether_kernels_are_compiled_once(monkeypatch, kept):
    monkeypatch.setattr("engine.model.progress._KEPT", [kept])
    out = io.StringIO()
    with ProgressMonitor(out) as monitor:
        for _ in range(2):
            monitor.begin("compile", 4, "kernels")
    notes = [line for line in out.getvalue().splitlines() if line.startswith("note: kernels are compiled")]
    assert len(notes) == 1
    assert ("once on this machine" in notes[0]) == kept
    assert ("NUMBA_CACHE_DIR may name one" in notes[0]) != kept


def test_a_phase_that_goes_on_has_its_own_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("service.cli.progress.time.perf_counter", lambda: now[0])
    out = io.StringIO()
    with ProgressMonitor(out, every=0.5) as monitor:
        monitor.begin("search", 1000, "rows")
        now[0] += 1
        monitor.advance(100)
        monitor.begin("compile", 1, "kernels")
        now[0] += 60
        monitor.advance(1)
        monitor.resume("search", 1000, "rows", 100)
        now[0] += 1
        monitor.advance(100)
        now[0] += 8
        monitor.advance(800)
    lines = [line for line in out.getvalue().splitlines() if line.startswith("search:")]
    assert lines[0] == "search:  10 %  100 of 1,000 rows, 100 rows/s, about 9 s left"
    assert lines[2] == "search:  20 %  200 of 1,000 rows, 100 rows/s, about 8 s left"
    assert lines[-1] == "search: 10 s, 1,000 rows, 100 rows/s"


def test_kernels_are_estimated_by_all_that_are_compiled(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("service.cli.progress.time.perf_counter", lambda: now[0])
    out = io.StringIO()
    with ProgressMonitor(out, every=0.1) as monitor:
        monitor.begin("compile", 10, "kernels")
        for seconds in (6, 1, 3, 1, 2, 1, 1, 1, 1, 1):
            now[0] += seconds
            monitor.advance(1)
    left = [float(text.split(" s left")[0]) for text in out.getvalue().split("about ")[1:] if " s left" in text]
    assert left == sorted(left, reverse=True), out.getvalue()
