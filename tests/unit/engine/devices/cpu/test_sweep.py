"""Sweeps of pieces of rows: every row, whatever their number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.algorithms.partitioned import sweeper_of
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.model.backend import RowsWanted
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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [2, SWEEP_ROWS + 1, 400])
@pytest.mark.parametrize("kind", ["uint16", "int32", "float64"])
def test_rows_that_a_sink_takes_are_those_that_are_written(rows: int, threads: int, kind: str) -> None:
    graph = graphs.grid(400)
    keep = graph.heads < 390  # some vertices cannot be reached
    indptr = np.concatenate([[0], np.cumsum(keep)])[graph.indptr]
    graph = replace(graph, indptr=indptr, heads=graph.heads[keep], weights=graph.weights[keep], directed=True)
    profile, work, backend = GraphProfile(graph), WORK_TYPES[kind], CpuBackend(threads)
    sweeper = sweeper_of(backend, profile, profile.parts(CPU_GRAIN), work, Monitor())
    sources = np.random.default_rng(2).permutation(400)[:rows]
    out, taken = np.zeros((rows, 400), work.dtype), np.zeros((rows, 400), work.dtype)

    def take(numbers: Any, block: Any, places: Any) -> None:
        taken[numbers] = block[:, places]
        others = np.ones(block.shape[1], bool)
        others[places] = False
        assert (block[:, others] == work.sentinel()).all()

    sweeper.search(profile.arcs, sources, out)
    searches = sweeper.begin_search(profile.arcs, sources, np.zeros_like(out), RowsWanted(take=take))
    told: list[Any] = []
    while searches.waiting:
        searches.take(0, lambda rows, found: told.append((rows, found)))
    sweeper.shutdown()
    assert not told
    assert np.array_equal(taken, out)
    assert (out == work.sentinel()).any()
