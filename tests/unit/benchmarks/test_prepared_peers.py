"""Peers of prepared graphs are asked in processes of their own, and their answers compared."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import prepared_peers
from benchmarks.graphs import road
from engine.api.reference import Reference


@pytest.fixture
def asked():
    graph = road(100)
    u = np.zeros(4, np.int64)
    row = Reference(graph).trees(u[:1])[0][0]
    v = np.argsort(row)[1:5]  # reached, and not the source
    return graph, u, v, row[v]


def test_answers_are_compared(asked, monkeypatch, capsys):
    graph, u, v, want = asked
    missing = ("no_such_module", prepared_peers.scipy_rows, 4)
    monkeypatch.setattr(
        prepared_peers, "PEERS", {"SciPy, a row each": prepared_peers.PEERS["SciPy, a row each"], "-": missing}
    )
    prepared_peers.compare_peers(graph, u, v, want)
    prepared_peers.compare_peers(graph, u, v, want + 1)
    said = capsys.readouterr().out
    assert "0 of 4 differ" in said
    assert "4 of 4 differ" in said
    assert said.count("-: not installed") == 2
