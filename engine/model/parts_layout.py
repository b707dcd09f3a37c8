"""Device memory that sweeps over parts take."""

from __future__ import annotations

from typing import Final

from engine.model.device_layout import SweepLayout
from engine.model.problem import PartsFacts

#: Rows that a thread sweeps at once: few, and a packed border is soon used up; many, and they leave the cache.
SWEEP_ROWS: Final = 24


def sweep_layout(facts: PartsFacts, n: int, rows: int, itemsize: int) -> SweepLayout:
    """What sweeping ``rows`` rows of ``n`` vertices over such parts keeps on a GPU."""
    return SweepLayout(n, rows, itemsize, facts.entries, n + 16 * facts.count, facts.border)
