"""Sweeps of pieces of rows: every row, whatever their number."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import graphs
from engine.algorithms.partitioned import sweeper_of
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.model.device_layout import SWEEP_ROWS
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from tests.oracle import decode
from tests.unit.engine.algorithms.harness import oracle


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, SWEEP_ROWS - 1, SWEEP_ROWS, SWEEP_ROWS + 1, 400])
def test_pieces_hold_every_row(rows: int, threads: int) -> None:
    profile, kind, backend = GraphProfile(graphs.grid(400)), WORK_TYPES["uint16"], CpuBackend(threads)
    sweeper = sweeper_of(backend, profile, profile.parts(CPU_GRAIN), kind, Monitor())
    sources = np.random.default_rng(1).permutation(400)[:rows]
    out = np.zeros((rows, 400), kind.dtype)
    sweeper.search(profile.arcs, sources, out)
    sweeper.shutdown()
    assert np.array_equal(decode(out), oracle(profile.graph, sources))
