"""The comparison measures, checks answers, and prints what it found; peers that are not installed are left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs, peers


@pytest.mark.parametrize("table", ["sparse", "dense"])
@pytest.mark.parametrize("unit", [False, True])
def test_solvers_agree_on_rows(table: str, unit: bool) -> None:
    graph = graphs.random(150)
    graph = graphs.hops(graph) if unit else graph
    rows: dict[str, Any] = {}
    for name, solver in {"sparse": peers.SPARSE, "dense": peers.DENSE}[table].items():
        try:
            solve, row = solver(graph, unit, 1)
        except ModuleNotFoundError:
            continue
        answer = solve()
        rows[name] = np.array([row(answer, u) for u in peers.sample(graph.n)], float)
    assert {"apsp", "SciPy"} <= set(rows)
    for name, found in rows.items():
        assert np.allclose(found, rows["apsp"]), name


def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    row = peers.compare("sparse", peers.Case("random", 300), 1)
    assert row["solvers"]["apsp"]["seconds"] > 0
    assert row["solvers"]["SciPy"]["agrees"]
    text = peers.markdown("sparse", [row], ["apsp", "SciPy", "nobody"], "processor")
    assert "| random | 300 |" in text
    assert text.splitlines()[-1].count("|") == text.splitlines()[3].count("|")
    assert "–" in text


def test_a_solver_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "cases", lambda data: {"sparse": [peers.Case("ring", 40)], "dense": []})
    monkeypatch.setattr(peers, "attempt", lambda table, name, case, threads: _fake(name))
    for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "argv", ["peers", "--out", str(tmp_path), "--threads", "1"])
    peers.main()
    (path,) = tmp_path.glob("peers-*.json")
    record = json.loads(path.read_text())
    solvers = record["tables"]["sparse"][0]["solvers"]
    assert set(solvers) == {"apsp", "SciPy"}
    assert not solvers["SciPy"]["agrees"]
    assert record["facts"]["threads"] == 1


def _fake(name: str) -> peers.Result | None:
    answers = {"apsp": peers.Result(1.0, 1.5, 10, [[1.0]]), "SciPy": peers.Result(2.0, 1.0, 10, [[3.0]])}
    return answers.get(name)
