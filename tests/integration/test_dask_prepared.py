"""Tests graphs that worker processes of a Dask scheduler prepare, and questions that workers answer."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apsp
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.prepared_planning import plan_prepared
from engine.model.problem import Options
from engine.streaming import part_journal
from service.runner.runner import Runner
from service.settings import Settings
from storage.errors import ApspError, DoesNotFit, SolveFailed, StorageFailed
from storage.graph.graph import Graph
from storage.matrix.working_dir import RECORD
from storage.prepared.journal import journal_folder
from tests.commands import APSP
from tests.dask_processes import Processes, kill
from tests.integration import test_dask
from tests.integration.service_process import LiveService
from tests.integration.test_dask import wait_for
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.distributed.prepared.test_driver import KINDS, Until, random_graph, whole
from tests.unit.service.support import Bench

pytest.importorskip("distributed")
two_networks = test_dask.two_networks  # a fixture
pytestmark = [
    pytest.mark.beside,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def three() -> Iterator[Processes]:
    with Processes(3) as processes:
        wait_for(lambda: _count(processes) == 3, 120)
        yield processes


@pytest.fixture(autouse=True)
def many_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.distributed.prepared.planning.LEAST_UPDATES", 1)
    monkeypatch.setattr("engine.distributed.prepared.driver.TASK_UPDATES", 1)


def _count(processes: Processes) -> int:
    try:
        return plan_prepared(grid_graph(3), options(processes)).workers
    except ApspError:
        return 0


def options(processes: Processes, **more: Any) -> Options:
    return Options(executor="dask", scheduler=processes.address, **more)


def local(graph: Graph, path: Path) -> dict[str, object]:
    prepare(graph, path)
    return whole(path)


@pytest.mark.parametrize("kind", KINDS)
def test_random_graphs_have_the_files_of_one_process(three: Processes, kind: str, tmp_path: Path) -> None:
    graph = random_graph(kind, 1)
    outcome = prepare(graph, tmp_path / "p", options(three, cutoff=150.0))
    prepare(graph, tmp_path / "local", Options(cutoff=150.0))
    assert whole(tmp_path / "p") == whole(tmp_path / "local")
    assert outcome.plan.workers == outcome.summary["workers"] == 3


class At(Until):
    """Does something once a share of the updates is done."""

    def __init__(self, share: float, action: Any) -> None:
        super().__init__(share)
        self.action = action

    def cancelled(self) -> bool:
        if super().cancelled() and self.action is not None:
            action, self.action = self.action, None
            action()
        return False


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_a_worker_killed_in_mid_part(three: Processes, share: float, tmp_path: Path) -> None:
    graph, before = grid_graph(60), three.worker_processes()
    prepare(graph, tmp_path / "p", options(three), monitor=At(share, lambda: kill(before[0])))
    assert whole(tmp_path / "p") == local(graph, tmp_path / "local")
    wait_for(lambda: _count(three) == 3, 120)


PROGRAM = """
import sys
from engine.api.prepared import prepare
from engine.distributed.prepared import driver, planning
from engine.model.problem import Options
from engine.streaming import part_journal
from tests.unit.engine.api.test_prepared import grid_graph

part_journal.EVERY, planning.LEAST_UPDATES, driver.TASK_UPDATES = 0.0, 1, 1
prepare(grid_graph(60), sys.argv[1], Options(executor="dask", scheduler=sys.argv[2]))
"""


def test_the_client_killed_and_run_again(three: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, root = tmp_path / "p", Path(__file__).resolve().parents[2]
    client = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place), three.address],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    record = journal_folder(place) / RECORD
    wait_for(lambda: record.exists() and record.read_text().count('"span"') > 5, 120)
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert not place.exists()
    outcome = prepare(grid_graph(60), place, options(three))
    assert outcome.summary["resumed"]["eliminate"] > 0  # type: ignore[index]
    assert whole(place) == local(grid_graph(60), tmp_path / "local")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "p"]


RUNNER = """
import sys, threading
from engine.distributed.prepared import driver, planning
from engine.streaming import part_journal
from service.runner.runner import Runner
from service.settings import Settings
from tests.unit.service.runner.test_making import kill_at
part_journal.EVERY, part_journal.LARGE, planning.LEAST_UPDATES, driver.TASK_UPDATES = 0.0, 0, 1, 1
kill_at(int(sys.argv[2]))
runner = Runner(Settings.load(), threading.Event())
runner.work(runner._jobs.job(sys.argv[1]))
"""


@pytest.mark.parametrize("call", [60, 200, *(pytest.param(call, marks=pytest.mark.long) for call in (20, 120))])
def test_a_runner_killed_and_its_job_gone_on_with_by_another(
    three: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: int
) -> None:
    """It is killed before a call that changes the disk; the next claim takes up the spans, and nothing else is left."""
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)
    settings, graph = Settings(data_dir=tmp_path / "data", auth=False, scheduler=three.address), grid_graph(40)
    bench, root = Bench(settings), Path(__file__).resolve().parents[2]
    record = bench.jobs.create(bench.add_graph(graph), {"result": "prepared", "executor": "dask"}, {})
    assert bench.jobs.claim(f"{settings.slot('cpu')}:1") is not None
    environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(root)}
    words = [sys.executable, "-c", RUNNER, record.id, str(call)]
    done = subprocess.run(words, env=environment, cwd=root, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    bench.jobs.recover()
    again = bench.jobs.claim("second")
    assert again is not None
    runner = Runner(settings, threading.Event())
    with caplog.at_level(logging.INFO):
        runner.work(again)
    runner._jobs.close()
    assert bench.jobs.job(record.id).state == "successful", bench.jobs.job(record.id)
    assert call < 100 or "had done: eliminate" in caplog.text
    store = settings.store(record.id)
    assert whole(store) == local(graph, tmp_path / "local")
    assert sorted(path.name for path in store.parent.iterdir()) == ["log.txt", store.name]
    bench.jobs.close()


def test_everything_lost_and_gone_on_with_by_other_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph, place = grid_graph(60), tmp_path / "p"
    with Processes(2) as first:
        wait_for(lambda: _count(first) == 2, 120)

        def all_of_them() -> None:
            for process in [*first.worker_processes(), first.scheduler.pid]:
                kill(process)

        with pytest.raises(SolveFailed, match="lost"):
            prepare(graph, place, options(first), monitor=At(0.5, all_of_them))
    with Processes(1) as second:
        wait_for(lambda: _count(second) == 1, 120)
        outcome = prepare(graph, place, options(second))
    assert outcome.summary["resumed"]["eliminate"] > 0  # type: ignore[index]
    assert whole(place) == local(graph, tmp_path / "local")


@pytest.mark.slow
def test_a_link_cut(two_networks: test_dask.Networks, tmp_path: Path) -> None:
    graph = grid_graph(60)
    with Processes(0, host=two_networks.near) as processes:
        processes.node(1, "--host", two_networks.near)
        processes.node(1, "--host", two_networks.far, prefix=two_networks.run_far())
        wait_for(lambda: _count(processes) == 2, 120)
        began = time.monotonic()
        prepare(graph, tmp_path / "p", options(processes), monitor=At(0.3, two_networks.cut))
        assert time.monotonic() - began < 120
    assert whole(tmp_path / "p") == local(graph, tmp_path / "local")


def test_workers_that_do_not_see_the_folder_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have an empty disk where the driver has the folder; beside a worker that sees it they are not used."""
    monkeypatch.setattr(part_journal, "EVERY", 600.0)  # a run that has committed keeps its files, however it ends
    script = f'mount -t tmpfs none "{tmp_path}" && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    with Processes(0) as processes:
        processes.node(1, prefix=("unshare", "-m", "sh", "-c", script, "sh"))
        wait_for(lambda: _count(processes) == 1, 120)
        with pytest.raises(
            StorageFailed, match=r"no worker can use the folder \S+/.p.preparing, which all nodes must reach"
        ):
            prepare(grid_graph(5), tmp_path / "p", options(processes))
        assert list(tmp_path.iterdir()) == []
        processes.node(1)
        wait_for(lambda: _count(processes) == 2, 120)
        prepare(grid_graph(5), tmp_path / "p", options(processes))
        assert "is not used: it cannot use the folder" in caplog.text
    assert whole(tmp_path / "p") == local(grid_graph(5), tmp_path / "local")


def test_the_command_line(three: Processes, tmp_path: Path) -> None:
    graph = grid_graph(30)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    lines = [f"{a} {b} {w}" for a, b, w in zip(tails, graph.heads, graph.weights, strict=True)]
    (tmp_path / "g.txt").write_text("\n".join(lines))
    words = [*APSP, "prepare", str(tmp_path / "g.txt"), "--directed"]
    there = ["--executor", "dask", "--scheduler", three.address, "--json"]
    for form in ([], ["--compact"]):
        out = subprocess.run(
            [*words, *form, "--out", str(tmp_path / "p"), "--overwrite", *there],
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(out.stdout)
        assert told["plan"]["workers"] == told["summary"]["workers"] == 3
        assert "3 workers of Dask" in out.stderr
        subprocess.run(
            [*words, *form, "--out", str(tmp_path / "local"), "--overwrite"], capture_output=True, check=True
        )
        assert whole(tmp_path / "p") == whole(tmp_path / "local")
    alone = subprocess.run(
        [*words, "--out", "x", "--executor", "dask"], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert alone.returncode == 2
    assert "--scheduler" in alone.stderr


def test_too_little_memory_is_refused_before_any_work(tmp_path: Path) -> None:
    with Processes(0) as processes:
        processes.node(1, "--memory", "100M")
        wait_for(lambda: _refused(processes) is not None, 120)
        refusal = _refused(processes)
    assert refusal is not None
    assert refusal.needed > refusal.available == 100 * 10**6


def _refused(processes: Processes) -> DoesNotFit | None:
    try:
        plan_prepared(grid_graph(5), options(processes))
    except DoesNotFit as refusal:
        return refusal
    except ApspError:
        return None
    return None


def test_a_job_of_the_service(three: Processes, tmp_path: Path) -> None:
    graph = grid_graph(12)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    lines = [f"{a} {b} {w}" for a, b, w in zip(tails, graph.heads, graph.weights, strict=True)]
    with LiveService(tmp_path / "data", APSP_SCHEDULER=three.address) as live:
        known = live.upload("\n".join(lines).encode(), directed=True)["id"]
        job = live.submit(known, executor="dask", result="prepared")
        assert job["plan"]["workers"] == 3
        assert live.wait(job["id"], seconds=240)["state"] == "successful"
        found = live.http.get(f"/v1/jobs/{job['id']}/distance", params={"source": "0", "target": "143"}).json()
        with open_result(next((tmp_path / "data" / "jobs" / job["id"]).glob("matrix*"))) as matrix:
            assert found["distance"] == matrix.entries([0], [143])[0]


QUESTION = """
import sys
import numpy as np
import apsp

with apsp.open(sys.argv[1]) as matrix:
    np.save(sys.argv[2], matrix.rows(range(50)))
"""


def test_queries_from_any_node(three: Processes, tmp_path: Path) -> None:
    """A second process answers from the folder, and so do workers, through dask.array over the opened matrix."""
    dask_array = pytest.importorskip("dask.array")
    import distributed

    graph = grid_graph(40)
    prepare(graph, tmp_path / "p", options(three))
    prepare(graph, tmp_path / "local")
    with open_result(tmp_path / "local") as matrix:
        want = matrix.rows(range(graph.n))
    subprocess.run([sys.executable, "-c", QUESTION, str(tmp_path / "p"), str(tmp_path / "rows.npy")], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), want[:50])
    with apsp.open(tmp_path / "p") as matrix, distributed.Client(three.address, set_as_default=False) as client:
        array = dask_array.from_zarr(matrix.zarr_store, component="distances")
        assert array.shape == (graph.n, graph.n)
        sums = client.compute(array.sum(axis=1, dtype="int64")).result(timeout=120)
        np.testing.assert_array_equal(sums, want.sum(axis=1, dtype="int64"))
        futures = [client.submit(_entries, matrix, [u], [graph.n - 1 - u], pure=False) for u in range(6)]
        assert [int(found[0]) for found in client.gather(futures)] == [int(want[u, graph.n - 1 - u]) for u in range(6)]
        again = pickle.loads(pickle.dumps(matrix))
        assert again.digest == matrix.digest
        assert matrix.zarr_store == pickle.loads(pickle.dumps(matrix.zarr_store))


def _entries(matrix: Any, sources: list[int], targets: list[int]) -> Any:
    return matrix.entries(sources, targets)
