"""Preparing by workers: the files of one process to the byte, whatever is lost when, and gone on with by anybody."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.from_tables.compacting import prepare_compact
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome
from engine.distributed import planning as planning_of_workers
from engine.distributed.prepared import driver, planning, run
from engine.distributed.prepared.worker import LOOKED_AT, PreparedWorker
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.streaming import part_journal
from storage.errors import Cancelled, DoesNotFit, SolveFailed, StorageFailed
from storage.graph.graph import Graph
from storage.prepared import writer
from tests.property.test_prepared import KINDS, random_graph
from tests.spreading import BusyCluster, ToyCluster
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import arcs_of, files_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans, tasks of few of them, and chunks of few entries, so that small graphs have all of it."""
    monkeypatch.setattr(planning, "LEAST_UPDATES", 1)
    monkeypatch.setattr(driver, "TASK_UPDATES", 2000)
    monkeypatch.setattr(writer, "TABLE_CHUNK", 64)


def by_workers(
    cluster: ToyCluster,
    graph: Graph,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    compact: bool = False,
    **more: Any,
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
    return make(profile, path, options, plan=replace(plan, workers=len(found)), **more)


def whole(path: Path) -> dict[str, object]:
    """All files of a prepared graph, and its root document without the plan, which says who made it, and its digest."""
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    del attributes["seal"]["digest"]
    return {**files_of(path), **{name: value for name, value in attributes.items() if name != "plan"}}


def spoil_files(folder: Path, pattern: str) -> list[Path]:
    """Flip a bit in each byte of all files of more than 8 bytes that are found below a folder; return the files.

    Another thread may move a file meanwhile.  So each is opened only once, and one that is gone is passed over.
    """
    spoilt = list[Path]()
    for path in sorted(folder.rglob(pattern)):
        with suppress(FileNotFoundError), path.open("r+b") as file:
            data = file.read()
            if len(data) > 8:
                file.seek(0)
                file.write(bytes(byte ^ 1 for byte in data))
                spoilt.append(path)
    return spoilt


def local(graph: Graph, path: Path, *, compact: bool = False, options: Options | None = None) -> dict[str, object]:
    """Prepare in this process, and return all files."""
    (prepare_compact if compact else prepare)(graph, path, options)
    return whole(path)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.long)])
def test_the_files_are_those_of_one_process(
    kind: str, seeds: range, compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        graph, path = random_graph(kind, seed), tmp_path / "workers"
        want = local(graph, tmp_path / "local", compact=compact)
        by_workers(ToyCluster(3, seed=seed), graph, path, monkeypatch, compact=compact)
        assert whole(path) == want
        assert sorted(each.name for each in tmp_path.iterdir()) == ["local", "workers"]
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "local")


@pytest.mark.parametrize("form", [{"dtype": "float32"}, {"dtype": "float64"}, {"cutoff": 30.0}])
def test_with_a_type_and_a_cutoff(form: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, options = grid_graph(9), Options(**form)
    want = local(graph, tmp_path / "local", options=options)
    by_workers(ToyCluster(2), graph, tmp_path / "workers", monkeypatch, options=options)
    assert whole(tmp_path / "workers") == want


def test_large_parts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that threads share within, as in one process."""
    monkeypatch.setattr("engine.algorithms.elimination.PART_UPDATES", 500)
    for directed in (True, False):
        graph, name = grid_graph(12, directed=directed), f"{directed}"
        want = local(graph, tmp_path / f"local{name}")
        cluster = ToyCluster(2)
        by_workers(cluster, graph, tmp_path / name, monkeypatch)
        assert whole(tmp_path / name) == want
        assert cluster.done.count("eliminate") > 4


@pytest.mark.parametrize("seed", range(4))
def test_workers_are_lost_and_come_at_any_time(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some go on with what they were given, so tasks are done twice, and nobody waits for the second."""
    cluster = ToyCluster(3, seed=seed)

    def mischief(_: ToyCluster) -> None:
        if cluster.random.random() < 0.3 and len(cluster.workers) > 1:
            cluster.kill(cluster.random.choice(sorted(cluster.workers)), zombie=cluster.random.random() < 0.5)
        if cluster.random.random() < 0.4 and len(cluster.workers) < 5:
            cluster.add()

    cluster.mischief = mischief
    graph = grid_graph(10)
    by_workers(cluster, graph, tmp_path / "workers", monkeypatch)
    assert cluster.number > 3
    assert whole(tmp_path / "workers") == local(graph, tmp_path / "local")


def test_tasks_that_run_twice_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, cluster = grid_graph(10), BusyCluster(3, twice=0.7)
    by_workers(cluster, graph, tmp_path / "workers", monkeypatch)
    assert whole(tmp_path / "workers") == local(graph, tmp_path / "local")


class Until(Monitor):
    """Asks to stop after a share of the updates."""

    def __init__(self, share: float) -> None:
        self.share, self.seen, self.most = share, 0, 1

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.most, self.seen = (total, 0) if unit == "updates" else (1, 0)

    def advance(self, amount: int) -> None:
        self.seen += amount

    def cancelled(self) -> bool:
        return self.most > 1 and self.seen > self.share * self.most


@pytest.mark.parametrize("then", ["local", "workers", "other workers"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("compact", [False, True])
def test_a_stopped_run_is_gone_on_with(
    then: str, share: float, compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph, path, want = grid_graph(11), tmp_path / "p", local(grid_graph(11), tmp_path / "local", compact=compact)
    with pytest.raises(Cancelled):
        by_workers(ToyCluster(2), graph, path, monkeypatch, compact=compact, monitor=Until(share))
    assert not path.exists()
    assert (tmp_path / ".p.preparing").is_dir()
    if then == "local":
        outcome = (prepare_compact if compact else prepare)(graph, path)
    else:
        count = 2 if then == "workers" else 5
        outcome = by_workers(ToyCluster(count), graph, path, monkeypatch, compact=compact)
    assert outcome.summary["resumed"]["eliminate"] > 0  # type: ignore[index]
    if share == 0.9 and then != "local" and not compact:
        assert outcome.summary["resumed"]["backward"] > 0  # type: ignore[index]
    assert whole(path) == want
    assert sorted(each.name for each in tmp_path.iterdir()) == ["local", "p"]


def test_workers_go_on_after_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process has committed is in another form, and is done again."""
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph, path = grid_graph(11), tmp_path / "p"
    with pytest.raises(Cancelled):
        prepare(graph, path, monitor=Until(0.5))
    by_workers(ToyCluster(2), graph, path, monkeypatch)
    assert whole(path) == local(graph, tmp_path / "local")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["local", "p"]


def test_the_scheduler_lost_costs_back_to_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph, path, cluster = grid_graph(10), tmp_path / "p", ToyCluster(2, ordered=True)
    cluster.mischief = lambda c: setattr(c, "lost", len(c.done) >= 12)
    with pytest.raises(SolveFailed, match="lost"):
        by_workers(cluster, graph, path, monkeypatch)
    outcome = by_workers(ToyCluster(1), graph, path, monkeypatch)
    assert outcome.summary["resumed"]["eliminate"] > 0  # type: ignore[index]
    assert whole(path) == local(graph, tmp_path / "local")


def test_a_short_run_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Cancelled):
        by_workers(ToyCluster(2), grid_graph(8), tmp_path / "p", monkeypatch, monitor=Until(0.3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damaged", ["eliminated", "extended", "parts", "arcs"])
def test_a_damaged_file_is_named_and_nothing_is_sealed(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, spoilt = ToyCluster(1, ordered=True), list[Path]()

    def spoil(_: ToyCluster) -> None:
        for worker in cluster.workers.values():  # what it remembers would not be read again
            if isinstance(worker.session, PreparedWorker):
                worker.session._kept.clear()
        if not spoilt:
            spoilt.extend(spoil_files(tmp_path, f"{damaged}*.bin"))

    cluster.mischief = spoil
    with pytest.raises(StorageFailed, match="is damaged"):
        by_workers(cluster, grid_graph(9), tmp_path / "p", monkeypatch)
    assert spoilt
    assert not (tmp_path / "p").exists()


def test_a_worker_that_does_not_see_the_folder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is on a node without the folder; the others do its share."""
    look, calls = PreparedWorker._look, []

    def blind(self: PreparedWorker) -> object:
        calls.append(self)
        if self is calls[0]:
            self._exchange_dir = tmp_path / "elsewhere"
        return look(self)

    monkeypatch.setattr(PreparedWorker, "_look", blind)
    cluster = ToyCluster(2)
    by_workers(cluster, grid_graph(8), tmp_path / "p", monkeypatch)
    assert "is not used: it cannot use the folder" in caplog.text
    assert whole(tmp_path / "p") == local(grid_graph(8), tmp_path / "local")


@pytest.mark.parametrize("kind", ["missing", "another"])
def test_if_no_worker_sees_the_folder_it_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = PreparedWorker._look

    def blind(self: PreparedWorker) -> object:
        if kind == "missing":
            self._exchange_dir = tmp_path / "elsewhere"
        else:  # a folder of that name, on another disk
            np.array([1], np.int64).tofile(self._exchange_dir / LOOKED_AT)
        return look(self)

    monkeypatch.setattr(PreparedWorker, "_look", blind)
    with pytest.raises(
        StorageFailed, match=r"no worker can use the folder .*\.p\.preparing, which all nodes must reach"
    ):
        by_workers(ToyCluster(2), grid_graph(8), tmp_path / "p", monkeypatch)
    assert not (tmp_path / "p").exists()


def test_workers_with_too_little_memory_are_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DoesNotFit, match=r"needs \d+ bytes .* of a worker's memory, .* offers 1000 ") as told:
        by_workers(ToyCluster(2, memory=1000), grid_graph(8), tmp_path / "p", monkeypatch)
    assert told.value.available == 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_new_weights(in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables, by workers, with a closed arc; the files are those of one process."""
    graph = grid_graph(9)
    tails, heads, weights = arcs_of(graph)
    weights = np.concatenate([[np.inf], weights[1:] * 2.0])
    prepare(graph, tmp_path / "p")
    reweight(tmp_path / "p", (tails, heads, weights), out=tmp_path / "local")
    cluster = ToyCluster(3)
    found = {e.worker: e.info for e in cluster.news}  # type: ignore[union-attr]
    cluster.news.clear()
    for module, name in ((run, "Cluster"), (planning_of_workers, "Cluster")):
        monkeypatch.setattr(module, name, lambda address: cluster)
    for module in (run, planning_of_workers):
        monkeypatch.setattr(module, "gather", lambda *_: found)
    out = None if in_place else tmp_path / "q"
    options = Options(executor="dask", scheduler="toy")
    outcome = reweight(tmp_path / "p", (tails, heads, weights), out=out, options=options)
    assert outcome.plan.workers == 3
    assert outcome.summary["closed"] == 1
    assert cluster.done.count("extend") > 3
    assert whole(tmp_path / ("p" if in_place else "q")) == whole(tmp_path / "local")
