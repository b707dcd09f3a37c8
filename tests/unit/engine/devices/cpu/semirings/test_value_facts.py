"""Facts of rows of any semiring, against NumPy: the source's own value and pairs without a path do not count."""

from __future__ import annotations

import numpy as np
import pytest

from engine.devices.cpu.semirings.value_facts import value_facts


@pytest.mark.parametrize("columns", [1, 7, 64, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize(
    ("kind", "unreachable"), [("float32", -np.inf), ("float32", np.inf), ("float64", 0.0), ("uint8", 0)]
)
def test_facts_are_those_of_numpy(kind: str, unreachable: float, columns: int):
    rng = np.random.default_rng(columns)
    block = (rng.random((9, columns)) * 9 + 1).astype(kind)
    block[rng.random(block.shape) < 0.3] = unreachable
    block[4] = unreachable
    own = rng.integers(-1, columns, 9)
    own[:2] = 0, columns - 1
    block[0, 0], block[1, -1] = (200, 0.5) if kind != "uint8" else (200, 1)  # own values are the largest and the least
    rows = rng.permutation(9)[:7]
    counted = block != np.array(unreachable, kind)
    counted[np.flatnonzero(own >= 0), own[own >= 0]] = False
    values = block[rows][counted[rows]]
    number = block.dtype.type
    ends = (number(np.inf), number(-np.inf)) if kind != "uint8" else (number(255), number(0))
    reached, least, greatest = value_facts(block, rows, own[rows], number(unreachable), ends)
    assert reached == len(values)
    assert least == values.min(initial=ends[0])
    assert greatest == values.max(initial=ends[1])
