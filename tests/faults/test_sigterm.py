"""Tests that a long solve commits its work within 20 s of SIGTERM, and that the next process continues from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.model.problem import Options
from service.jobs import checkpoints
from service.settings import Settings
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.stores import verify_matrix
from tests.unit.service.support import Bench

ROOT = Path(__file__).resolve().parents[2]
N = 3000
#: Streams in the tier that is asked for however small the matrix is, and commits soon; then runs as ever.
_SETUP = """
import sys
from dataclasses import replace
import engine.planning.cost_streaming as estimate
import engine.planning.planner
import engine.streaming.checkpoint, engine.streaming.host_tier
engine.streaming.checkpoint.INTERVAL, engine.streaming.host_tier.COST = 0.3, 1.0
tier = sys.argv.pop(1)
def only(setting):
    found = estimate.in_memory(setting) if tier == "host" else estimate.from_store(setting)
    yield replace(found, seconds=0.0)
engine.planning.planner.streamed, engine.planning.planner.STREAMED_FROM = only, 0
"""
_COMMAND = _SETUP + "from service.cli.main import main; main()"
_RUNNER = _SETUP + "from service.runner import runner; runner.main()"


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(2)
    # a ring besides, so that each vertex is in the list of edges
    tails, heads = np.hstack([rng.integers(0, N, (2, 4 * N)), [np.arange(N), np.roll(np.arange(N), 1)]])
    return build_graph(tails, heads, rng.integers(1, 1000, 5 * N), n=N, directed=True)[0]


@pytest.fixture(scope="module")
def expected(graph, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("expected") / "d.zarr"
    options = Options(algorithm="dijkstra", dtype="float64", device="cpu")
    solve_to_store(graph, options, path, plan=make_plan(graph, options))
    return path


def same(one: Path, other: Path) -> None:
    verify_matrix(other)
    with open_matrix(one) as a, open_matrix(other) as b:
        order = {label: at for at, label in enumerate(b.labels.tolist())}
        places = np.array([order[str(label) if b.labels.dtype.kind in "UST" else label] for label in a.labels.tolist()])
        np.testing.assert_array_equal(a.rows(range(N)), b.rows(places)[:, places])


def stop_at_a_checkpoint(process: subprocess.Popen[str], store: Path) -> float:
    """Send SIGTERM once there is a checkpoint; the seconds until the process was gone."""
    deadline = time.monotonic() + 120
    while not checkpoints.has_checkpoint(store):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    began = time.monotonic()
    process.wait(60)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["store", "host"])
def test_a_terminated_command_says_how_to_go_on_and_does(graph, expected, tmp_path, tier):
    arcs, out = tmp_path / "graph.txt", tmp_path / "d.zarr"
    tails = np.repeat(np.arange(N), np.diff(graph.indptr))
    np.savetxt(arcs, np.column_stack([tails, graph.heads, graph.weights]), fmt="%d")
    command = [sys.executable, "-c", _COMMAND, tier, "solve", str(arcs), "--out", str(out), "--dtype", "float64",
               "--algorithm", "blocked-floyd-warshall", "--threads", "1", "--json"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        seconds = stop_at_a_checkpoint(process, out)
        _, said = process.communicate()
    assert process.returncode == 143, said
    assert seconds < 20
    assert "interrupted; what was done until" in said
    assert "--resume continues from there" in said
    found = find_checkpoint(out)
    assert found is not None
    reached = max(level for level, _ in found.record["levels"])
    done = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"]["tier"] == tier
    assert reached >= 0
    same(expected, out)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(Settings(data_dir=tmp_path / "data", auth=False, runner_nice=0, heartbeat_seconds=1.0))
    yield found
    found.jobs.close()


@pytest.mark.slow
def test_a_terminated_runner_gives_its_job_back_and_the_next_one_goes_on(graph, expected, bench):
    options = {"algorithm": "blocked-floyd-warshall", "dtype": "float64", "threads": 1}
    job = bench.jobs.create(bench.add_graph(graph), options, {}).id
    store = bench.settings.store(job)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
    environment = {**inherited, **bench.settings.environment()}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _RUNNER, "store", "cpu"]
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    with start() as process:
        seconds = stop_at_a_checkpoint(process, store)
        said = process.communicate()[0]
    assert process.returncode == 0, said
    assert seconds < 20
    assert "returns to the queue" in said
    assert (bench.jobs.job(job).state, bench.jobs.job(job).attempt) == ("accepted", 0)
    assert checkpoints.has_checkpoint(store)
    with start() as process:
        deadline = time.monotonic() + 200
        while bench.jobs.job(job).state in ("accepted", "running") and time.monotonic() < deadline:
            time.sleep(0.1)
        process.terminate()
        said = process.communicate()[0]
    assert bench.jobs.job(job).state == "successful", said
    same(expected, store)
