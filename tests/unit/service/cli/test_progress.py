"""How progress is told: the rest of it is tested with the commands that show it."""

from __future__ import annotations

import io

import pytest

from service.cli.progress import ProgressMonitor, amount_text


@pytest.mark.parametrize(
    ("amount", "unit", "said"),
    [(1, "kernels", "1 kernel"), (3, "kernels", "3 kernels"), (1, "rows", "1 rows"), (2**20, "bytes", "1.00 MiB")],
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
