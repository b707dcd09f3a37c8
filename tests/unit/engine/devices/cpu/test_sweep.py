"""Sweeps of pieces of rows: every row, whatever their number."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.algorithms.partitioned import sweeper_of
from engine.devices.cpu import sweep
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import CPU_GRAIN, Grain
from engine.graph.profile import GraphProfile
from engine.model.backend import RowsWanted
from engine.model.device_layout import SWEEP_ROWS
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from tests.oracle import decode
from tests.unit.engine.algorithms.harness import oracle

#: Parts that are as small as they can be.
FINE = Grain(width=1, entry=0.0, part=0.0, inside=0.0)


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


@pytest.mark.parametrize("kind", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shifted", [False, True])
def test_threads_that_share_a_row_make_the_row_of_one(
    kind: str, shifted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every share needs nothing of the others, and only the last one says that the row is done."""
    graph = graphs.grid(400)
    keep = graph.heads < 390  # some vertices cannot be reached
    indptr = np.concatenate([[0], np.cumsum(keep)])[graph.indptr]
    weights = graph.weights[keep] / (7 if kind.startswith("float") else 1)
    graph = replace(graph, indptr=indptr, heads=graph.heads[keep], weights=weights, directed=True)
    profile, work, found = GraphProfile(graph), WORK_TYPES[kind], dict[tuple[int, int], Any]()
    potentials = np.random.default_rng(3).random(400) if shifted and kind == "float64" else None
    arcs = replace(profile.arcs, potentials=potentials)
    monkeypatch.setattr(sweep, "SHARED_ROW", 20)
    monkeypatch.setattr(sweep, "LONG_ROW", 20)
    monkeypatch.setattr(sweep, "MOST_SHARES", 7)
    for threads in (1, 2, 3, 8):
        sweeper = sweeper_of(CpuBackend(threads), profile, profile.parts(FINE), work, Monitor())
        assert (len(sweeper._one_row) > 1) == (threads > 1)
        for source in (0, 7, 211, 399):
            out = np.zeros((1, 400), work.dtype)
            searches, told, rows = sweeper.begin_search(arcs, np.array([source]), out), list[Any](), 0
            order = np.random.default_rng(source).permutation(len(sweeper._one_row))
            searches._pieces = deque([list(searches._pieces)[k] for k in order])
            ended = False
            while searches.waiting:
                assert not told
                done, ended = searches.take(0, lambda *given, told=told: told.append(given))
                rows += done
            assert (rows, ended, len(told)) == (1, True, 1)
            found[threads, source] = out
            assert np.array_equal(out, found[1, source])
            sweeper.search(arcs, np.array([source]), again := np.zeros_like(out))
            assert np.array_equal(again, out)
        sweeper.shutdown()
    if not shifted and not kind.startswith("float"):
        assert np.array_equal(decode(found[8, 7]), oracle(graph, np.array([7])))


@pytest.mark.parametrize(
    ("entries", "threads"),
    [(1, 1), (3_353, 1), (2**15 - 1, 1), (2**15, 2), (231_161, 4), (2**19, 8), (1_000_000, 15), (4_000_000, 16)],
)
def test_long_rows_are_shared_by_more_threads(entries: int, threads: int) -> None:
    assert sweep.most_shares(entries) == threads


def test_a_row_that_one_thread_sweeps_wakes_no_other() -> None:
    """Waking sixteen threads takes several times what the sweep of Rome's roads takes."""
    graph = graphs.grid(400)
    profile, work, owner = GraphProfile(graph), WORK_TYPES["int32"], CpuBackend(8)
    sweeper = sweeper_of(owner, profile, profile.parts(FINE), work, Monitor())
    out = np.zeros((1, 400), work.dtype)
    for source in range(5):
        sweeper.search(profile.arcs, np.array([source]), out)
    assert not sweeper._team._others
    sweeper.search(profile.arcs, np.arange(8), np.zeros((8, 400), work.dtype))
    assert sweeper._team._others
    owner.shutdown()
