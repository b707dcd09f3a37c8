"""Tests that results are exact although two runners are suspended (SIGSTOP) beyond their leases of a second, and woken.

A supervisor kills suspended runners of its own machine.  Here it does not, as if each runner had its own machine; only
in half of the long runs it does.  ``APSP_SEED=N`` repeats a run, ``APSP_WOKEN_JOBS=N`` is the number of jobs.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from service.jobs.folders import result_place
from service.runner import processes
from service.runner.supervisor import Supervisor
from service.settings import Settings
from storage.graph.graph import Graph, build_graph
from storage.jobs.store import OPEN, SUCCESSFUL
from storage.matrix.reader import open_matrix
from tests.stores import verify_matrix
from tests.unit.service.support import Bench

ROOT = Path(__file__).resolve().parents[2]
N = 300
NODES = ("A", "B")
#: A runner whose Floyd-Warshall works in the store, slowly, and commits now and then.
_RUNNER = """
import random, time
from dataclasses import replace
from engine.model.tiling import Tiling
from engine.streaming.store_tier import StoreTier
from service.jobs import checkpoints
from service.runner import runner, warmup
warmup._SOLVES = ()
planned, give = checkpoints.plan, StoreTier.give
def plan(graph, options, store, monitor=None):
    found = planned(graph, options, store, monitor)
    if options.algorithm != "blocked-floyd-warshall":
        return found
    return replace(found, tier="store", streaming=Tiling("store", 64, 128, symmetric=False))
def give_and_commit(tier, turn, stripe, rows):
    give(tier, turn, stripe, rows)
    time.sleep(0.02)
    if random.random() < 0.3:
        tier._commit()
checkpoints.plan, StoreTier.give = plan, give_and_commit
runner.main()
"""


class Site:
    """A data directory, a runner for each node, and somebody who watches their leases."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings = settings
        self.bench = Bench(settings)
        self.jobs = self.bench.jobs
        self.log = log.open("ab")
        self.supervisor = Supervisor(settings, self.jobs)
        self.runners: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Site:
        for node in NODES:
            self.start(node)
        self.supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.runners.values():
            process.kill()
        for process in self.runners.values():
            process.communicate()
        self.supervisor.stop()
        self.jobs.close()
        self.log.close()

    def start(self, node: str) -> None:
        """A runner, in the place of one that was killed."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
        own = self.settings.model_copy(update={"node": node, "runners": "cpu"})
        self.runners[node] = subprocess.Popen(
            [sys.executable, "-c", _RUNNER, "cpu", "--with-parent"], cwd=ROOT, stdin=subprocess.PIPE, stdout=self.log,
            stderr=self.log, env={**inherited, **own.environment()},
        )  # fmt: skip

    def send(self, node: str, number: signal.Signals) -> None:
        """A signal to the runner of a node, which is started again if it is gone."""
        if self.runners[node].poll() is not None:
            self.runners[node].communicate()
            self.start(node)
        self.runners[node].send_signal(number)

    def open(self) -> int:
        """How many jobs are not over."""
        return len(self.jobs.list_jobs(1000, state=OPEN))


def graphs(rng: np.random.Generator) -> Iterator[tuple[Graph, np.ndarray]]:
    """Graphs in which every vertex reaches every other one, and their distances by SciPy."""
    for _ in range(2):
        tails, heads = rng.integers(0, N, (2, 4 * N))
        tails[:N], heads[:N] = np.arange(N), np.roll(np.arange(N), -1)
        graph, _ = build_graph(tails, heads, rng.integers(1, 100, 4 * N), n=N, directed=True)
        arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(N, N))
        yield graph, shortest_path(arcs)


def settings_of(data: Path, **more: object) -> Settings:
    return Settings(
        data_dir=data, auth=False, runners="none", runner_nice=0, threads=1, lease_seconds=1.0, heartbeat_seconds=0.2,
        max_attempts=1000, database_timeout=3.0, **more,
    )  # fmt: skip


def campaign(site: Site, count: int, seed: int, seconds: float) -> None:
    """Submit jobs, stop and wake their runners until all are over, and look at every result."""
    rng, known = random.Random(seed), list(graphs(np.random.default_rng(seed)))
    ids = [site.bench.add_graph(graph) for graph, _ in known]
    expected = {}
    for at in range(count):
        algorithm = ("blocked-floyd-warshall", "blocked-floyd-warshall", "dijkstra")[at % 3]
        job = site.jobs.create(ids[at % 2], {"algorithm": algorithm, "dtype": "int32", "threads": 1}, {})
        expected[job.id] = known[at % 2][1]
    deadline, stops = time.monotonic() + seconds, 0
    while site.open():
        assert time.monotonic() < deadline, f"seed {seed}: {site.open()} of {count} jobs are open after {seconds:g} s"
        time.sleep(rng.choice((0.05, 0.3, 0.8)) * rng.random())
        if stops >= 4 * count:  # on a busy machine nothing would ever come to its end
            continue
        node = rng.choice(NODES)
        site.send(node, signal.SIGSTOP)
        time.sleep(rng.choice((0.1, 1.8, 2.5)))
        site.send(node, signal.SIGCONT)
        stops += 1
    time.sleep(2.0)  # what woke last may still do something
    wrong = {job: said for job, distances in expected.items() if (said := _wrong(site, job, distances)) is not None}
    overtaken = sum(bool(site.jobs.job(job).history) for job in expected)
    print(f"seed {seed}: {count} jobs, {stops} stops, {overtaken} jobs overtaken, wrong: {wrong}")
    assert not wrong, f"seed {seed}: {wrong}"
    assert overtaken > 0 or count < 50, f"seed {seed}: nobody was overtaken, so nothing was tried"


def _wrong(site: Site, job_id: str, distances: np.ndarray) -> str | None:
    """What is wrong with a job, if something is."""
    job = site.jobs.job(job_id)
    if job.state != SUCCESSFUL:
        return f"{job.state}: {job.error}"
    place = result_place(site.settings, job_id)
    try:
        verify_matrix(place)
        with open_matrix(place) as matrix:
            same = bool((matrix.rows(range(N)) == distances).all()) and dict(matrix.summary) == job.summary
    except Exception as error:
        return repr(error)
    return None if same else "the result is another one"


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("APSP_SEED") or secrets.randbelow(10**6))


@pytest.fixture
def _on_machines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher cannot reach the runners."""
    monkeypatch.setattr(processes, "find", lambda _told: None)


@pytest.mark.usefixtures("_on_machines_of_their_own")
@pytest.mark.slow
def test_runners_that_are_stopped_and_woken_lose_nothing(tmp_path: Path):
    with Site(settings_of(tmp_path / "data"), tmp_path / "log") as site:
        campaign(site, 6, int(os.environ.get("APSP_SEED", "3")), 300)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("killed", [False, True], ids=["on machines of their own", "on one machine"])
@pytest.mark.parametrize("where", ["sqlite", "postgresql", "objects"])
def test_many_jobs_are_exact_wherever_they_are_kept(
    request: pytest.FixtureRequest, tmp_path: Path, seed: int, where: str, killed: bool
):
    if not killed:
        request.getfixturevalue("_on_machines_of_their_own")
    more: dict[str, object] = {}
    if where == "postgresql":
        more["database_url"] = request.getfixturevalue("postgres").url()
    if where == "objects":
        more["store_url"] = f"{request.getfixturevalue('s3').address}/{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(Site(settings_of(tmp_path / "data", **more), tmp_path / "log"))
        campaign(site, int(os.environ.get("APSP_WOKEN_JOBS", "200")), seed, 3000)
