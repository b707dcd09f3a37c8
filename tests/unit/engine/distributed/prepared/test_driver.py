"""Preparing by workers: the files of one process to the byte, whatever is lost when, and gone on with by anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.from_tables.compacting import prepare_compact
from engine.api.prepared import prepare
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome
from engine.distributed.prepared import driver, planning, run
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.streaming import part_journal
from storage.errors import Cancelled, SolveFailed, StorageFailed
from storage.graph.graph import Graph
from storage.prepared import writer
from tests.property.test_prepared import KINDS, random_graph
from tests.spreading import BusyCluster, ToyCluster
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import files_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans, tasks of few of them, and chunks of few entries, so that small graphs have all of it."""
    monkeypatch.setattr(planning, "LEAST_UPDATES", 1)
    monkeypatch.setattr(driver, "TASK_UPDATES", 2000)
    monkeypatch.setattr(writer, "TABLE_CHUNK", 64)


def by_workers(
    cluster: ToyCluster, graph: Graph, path: Path, monkeypatch: pytest.MonkeyPatch, *, compact: bool = False, **more: Any
) -> Outcome:
    """Prepare by the workers of a cluster."""
    profile, asked = GraphProfile(graph), more.pop("options", Options())
    plan = plan_prepared(profile, asked, compact=compact)
    found = {e.worker: e.info for e in cluster.news}  # type: ignore[union-attr]
    cluster.news.clear()
    monkeypatch.setattr(run, "Cluster", lambda address: cluster)
    monkeypatch.setattr(run, "gather", lambda *_: found)
    options = replace(asked, executor="dask", scheduler="toy")
    make = prepare_compact if compact else prepare
    return make(profile, path, asked_plan(profile, options), plan=replace(plan, workers=len(found)), **more)


def asked_plan(profile: GraphProfile, options: Options) -> Options:
    return options


def local(graph: Graph, path: Path, *, compact: bool = False, options: Options | None = None) -> dict[str, bytes]:
    """Prepare in this process, and return all files."""
    (prepare_compact if compact else prepare)(graph, path, options)
    return files_of(path)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_those_of_one_process(
    kind: str, compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(8):
        graph, path = random_graph(kind, seed), tmp_path / f"workers{seed}"
        want = local(graph, tmp_path / f"local{seed}", compact=compact)
        by_workers(ToyCluster(3, seed=seed), graph, path, monkeypatch, compact=compact)
        assert files_of(path) == want
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{w}{k}" for w in ("local", "workers") for k in range(seed + 1))
