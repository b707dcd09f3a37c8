"""The benchmark of betweenness runs with the programs that are installed, and leaves out the others."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import betweenness as benchmark
from storage.graph.graph import build_graph


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_that_are_not_installed_are_left_out(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_installed", lambda name: False)
    ring = np.arange(9)
    graph = build_graph(ring, np.roll(ring, -1), None, directed=True)[0]
    found = benchmark.measured(graph, threads, 2, 25.0)
    assert {name: runs for name, (_, _, runs) in found.items()} == {"apsp": 2}


def test_every_program_that_is_installed_is_timed() -> None:
    ring = np.arange(9)
    graph = build_graph(ring, np.roll(ring, -1), None, directed=False)[0]
    expected = {
        "apsp",
        *(shown for name, shown in (("networkit", "NetworKit"), ("igraph", "igraph")) if benchmark._installed(name)),
    }
    assert benchmark.contenders(graph, 1).keys() == expected


@pytest.mark.data
def test_graphs_can_be_read(data_dir) -> None:  # type: ignore[no-untyped-def]
    small = benchmark._read(data_dir, "mediumEWD, weights")
    assert small.n == 250
