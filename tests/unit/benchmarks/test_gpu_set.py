"""The benchmark set's own logic, with the processors standing in for the GPU."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from benchmarks.kernels import gpu_set
from engine.api.solve import make_plan
from engine.graph.profile import GraphProfile
from engine.model.plan import Candidate, Plan
from engine.model.problem import Options
from storage.graph.graph import Graph

GRAPH = graphs.one_way(300)
MATRIX = dijkstra(csr_array((GRAPH.weights.astype(float), GRAPH.heads, GRAPH.indptr), shape=(300, 300)))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of the processors that say they are the GPU's."""

    def options(device: str = "cpu", **given: Any) -> Options:
        return Options(device="cpu", threads=1, **given)

    def planned(graph: Graph, asked: Options) -> Plan:
        plan = make_plan(graph, asked)
        return replace(plan, candidates=tuple(replace(c, device="cuda") for c in plan.candidates))

    monkeypatch.setattr(gpu_set, "Options", options)
    monkeypatch.setattr(gpu_set, "make_plan", planned)
    monkeypatch.setattr(gpu_set, "ENOUGH_SECONDS", 0.0)
    monkeypatch.setattr(gpu_set, "SAMPLE", 8)


def facts() -> dict[str, Any]:
    away = MATRIX + np.where(np.eye(300, dtype=bool), np.inf, 0)
    far = np.where(np.isfinite(away), away, -1).max(axis=1)
    return {
        "reachable_pairs": int(np.isfinite(away).sum()), "distance_sum": int(away[np.isfinite(away)].sum()),
        "diameter": int(far.max()),
    }  # fmt: skip


@pytest.mark.usefixtures("stand_in")
def test_a_row_of_the_table() -> None:
    row = gpu_set.compare("random", GRAPH, {"apsp": facts()})
    assert set(row["agrees"].values()) == {True}
    assert row["regret"] == row["seconds"][row["choice"]] / min(row["seconds"].values())
    assert len(row["seconds"]) >= 3
    assert set(row["processors"]) == {"searches", "dijkstra", "scipy"}
    printed = gpu_set.markdown({"rows": [row]}).splitlines()
    assert len(printed) == 3
    assert len({line.count("|") for line in printed}) == 1
    assert printed[2].endswith("| yes |")


@pytest.mark.usefixtures("stand_in")
def test_wrong_facts_are_seen() -> None:
    row = gpu_set.compare("random", GRAPH, {"apsp": facts() | {"distance_sum": 1}})
    assert set(row["agrees"].values()) == {False}
    assert "| NO |" in gpu_set.markdown({"rows": [row]})


@pytest.mark.parametrize("right", [True, False])
def test_sampled_rows_are_compared_by_their_hash(right: bool) -> None:
    sources = np.random.default_rng(1).permutation(300)[:50].tolist()
    rows = np.where(np.isfinite(MATRIX[sorted(sources)]), MATRIX[sorted(sources)], -1).astype("<i8")
    digest = hashlib.sha256(rows.tobytes() if right else b"").hexdigest()
    reference = {"sampled": {"sources": GRAPH.labels[sources].tolist(), "sha256_int64": digest}}
    options = Options(device="cpu", dtype="int32", threads=1)
    _, agrees = gpu_set.run(GraphProfile(GRAPH), make_plan(GRAPH, options), options, reference)
    assert agrees is right


def test_what_is_worth_running() -> None:
    quick, chosen = _candidate(gpu_set.PATIENCE / 2), _candidate(10.0)
    assert gpu_set.worth(quick, chosen)
    assert gpu_set.worth(_candidate(gpu_set.HOPELESS * 9), chosen)
    assert not gpu_set.worth(_candidate(gpu_set.HOPELESS * 11), chosen)
    assert not gpu_set.worth(replace(quick, device="cpu"), chosen)
    assert not gpu_set.worth(replace(quick, feasible=False), chosen)


def test_cases_begin_with_the_telling_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rome99.gr").mkdir()
    names = [name for name, *_ in gpu_set.cases(tmp_path, {})]
    assert names[0] == "random 65,536"
    assert names.index("rome99") == len(gpu_set.MADE)
    assert len(names) == len(gpu_set.MADE) + 1 + len(gpu_set.SMALL)
    monkeypatch.setattr(gpu_set, "load_graph", lambda path: (SimpleNamespace(path=path),))
    [load] = [make for name, make, _ in gpu_set.cases(tmp_path, {}) if name == "rome99"]
    assert load().path == tmp_path / "rome99.gr"  # type: ignore[attr-defined]


def _candidate(seconds: float) -> Candidate:
    return Candidate("bfs", memory=0, disk=0, seconds=seconds, phases=(), device="cuda", feasible=True)
