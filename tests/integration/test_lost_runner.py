"""Tests that a runner continues the out-of-core job of a killed runner from its checkpoint, to the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from service.jobs import checkpoints
from service.settings import Settings
from storage.graph.graph import build_graph
from storage.jobs.store import JobRecord
from storage.matrix.reader import open_matrix
from tests.stores import verify_matrix
from tests.unit.service.support import Bench

pytestmark = pytest.mark.beside

ROOT = Path(__file__).resolve().parents[2]
N = 900
#: A runner that tells in which round it begins, commits in the middle of a round, and is killed there.
_RUNNER = """
import os, signal, time
from dataclasses import replace
import engine.streaming.schedule
from engine.model.tiling import Tiling
from engine.streaming.store_tier import StoreTier
from service.jobs import checkpoints
from service.runner import runner
planned = checkpoints.plan
def plan(graph, options, store, monitor):  # however much memory there is
    tiling = Tiling("store", 64, 128, symmetric=False)
    return replace(planned(graph, options, store, monitor), tier="store", streaming=tiling)
checkpoints.plan = plan
follow, give = engine.streaming.schedule.run, StoreTier.give
def run(streaming, tier, devices, monitor, **more):
    if tier.n == {n}:  # the others warm up
        print("first round", more["first_round"], "of", streaming.rounds(tier.n), flush=True)
    return follow(streaming, tier, devices, monitor, **more)
def give_and_die(tier, k, stripe, rows):
    give(tier, k, stripe, rows)
    if k >= {deadly}:
        time.sleep(0.5)
        tier._commit()
        os.kill(os.getpid(), signal.SIGKILL)
engine.streaming.schedule.run, StoreTier.give = run, give_and_die
runner.main()
"""


@pytest.fixture
def bench(tmp_path: Path):
    found = Bench(Settings(data_dir=tmp_path / "data", auth=False, runner_nice=0, heartbeat_seconds=1.0))
    yield found
    found.jobs.close()


def start(settings: Settings, deadly: int) -> subprocess.Popen[str]:
    """A runner of the processors."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
    return subprocess.Popen(
        [sys.executable, "-c", _RUNNER.format(deadly=deadly, n=N), "cpu"], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        env={**inherited, **settings.environment()},
    )  # fmt: skip


def submitted(bench: Bench) -> tuple[JobRecord, np.ndarray]:
    """A job that has to be solved in the store, and its distances by SciPy."""
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, N, (2, 5 * N))
    tails[:N], heads[:N] = np.arange(N), np.roll(np.arange(N), -1)  # every vertex reaches every other one
    graph, _ = build_graph(tails, heads, rng.integers(1, 100, 5 * N), n=N, directed=True)
    options = {"algorithm": "blocked-floyd-warshall", "dtype": "int32"}
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(N, N))
    return bench.jobs.create(bench.add_graph(graph), options, {}), shortest_path(arcs)


@pytest.mark.slow
def test_a_lost_runners_job_goes_on_from_its_checkpoint(bench: Bench):
    job, distances = submitted(bench)
    store = bench.settings.store(job.id)
    begun = []
    for deadly in (2, 4):
        dying = start(bench.settings, deadly)
        begun.append(told(dying, 120))
        assert dying.returncode == -signal.SIGKILL
        assert checkpoints.has_checkpoint(store)
    last = start(bench.settings, deadly=N)
    deadline = time.monotonic() + 120
    while bench.jobs.job(job.id).open and time.monotonic() < deadline:
        time.sleep(0.05)
    last.terminate()
    begun.append(told(last, 30))
    assert begun[0] == 0
    assert begun[1] >= 1
    assert begun[2] >= 3
    done = bench.jobs.job(job.id)
    assert (done.state, done.attempt, done.plan["tier"]) == ("successful", 3, "store"), done
    assert [(lost["attempt"], lost["reason"]) for lost in done.history] == [(n, "the runner died") for n in (1, 2)]
    assert {path.name for path in store.parent.iterdir()} == {"matrix.zarr", "log.txt"}
    assert "goes on from its checkpoint" in (store.parent / "log.txt").read_text()
    verify_matrix(bench.settings.store(job.id))
    with open_matrix(bench.settings.store(job.id)) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), distances)


def told(process: subprocess.Popen[str], seconds: float) -> int:
    """The round in which a runner began, when the runner has ended."""
    try:
        words = process.communicate(timeout=seconds)[0].split()
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert words[:2] == ["first", "round"], words
    return int(words[2])
