"""Tests workers of a Dask scheduler, as processes: results are exact, and a lost worker costs only its own part."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from engine.api.solve import make_plan, solve_to_store
from engine.distributed import planning
from engine.distributed.dense import commits
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming import checkpoint
from storage.errors import Cancelled, InvalidRequest, SolveFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.commands import APSP
from tests.dask_processes import Processes, kill
from tests.integration.service_process import LiveService
from tests.ports import free_port

pytest.importorskip("distributed")
#: Dask's own threads and sockets outlive a client that has lost its scheduler.
pytestmark = [
    pytest.mark.beside,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def four() -> Iterator[Processes]:
    with Processes(4) as processes:
        # a plan counts the workers that have come by then
        wait_for(lambda: _workers(sample(100), options(processes)) == 4)
        yield processes


def sample(n: int, *, directed: bool = True, negative: bool = False, whole: bool = True) -> Graph:
    rng = np.random.default_rng(n)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    weights = rng.integers(1, 100, 4 * n)
    if negative:
        height = rng.integers(0, 60, n)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails, heads, weights if whole else weights / 8, n=n, directed=directed)[0]


def reference(graph: Graph) -> np.ndarray:
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return shortest_path(arcs, method="J" if graph.weights.min() < 0 else "D")


def check(path: Path, graph: Graph) -> None:
    with open_matrix(path) as store:
        found = store.rows(store.sources)
        wanted = reference(graph)[store.sources]
        if graph.integral:
            found = np.where(found == store.attributes["unreachable"], np.inf, found)
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def options(processes: Processes, **more: object) -> Options:
    return Options(executor="dask", scheduler=processes.address, **more)  # type: ignore[arg-type]


def plan_for(graph: Graph, asked: Options, width: int = 64) -> Plan:
    plan = make_plan(graph, replace(asked, algorithm="blocked-floyd-warshall"))
    return replace(plan, streaming=Tiling("host", width, width))


class At(Monitor):
    """Does something once, when so much of the first phase of updates is done."""

    def __init__(self, share: float, action: object) -> None:
        self.share, self.action = share, action
        self.most = self.seen = 0

    def begin(self, phase: str, total: int, unit: str) -> None:
        if unit == "updates":
            self.most = total

    def advance(self, amount: int) -> None:
        self.seen += amount
        if self.most and self.seen >= self.share * self.most and self.action is not None:
            action, self.action = self.action, None
            action()  # type: ignore[operator]


@pytest.mark.parametrize(
    "kind",
    [{}, {"directed": False}, {"negative": True}, {"whole": False}, {"negative": True, "whole": False}],
    ids=["directed", "undirected", "negative", "fractions", "fractions of both signs"],
)
def test_four_workers_are_exact(four: Processes, kind: dict[str, bool], tmp_path: Path) -> None:
    graph, asked = sample(500, **kind), options(four)
    plan = plan_for(graph, asked)
    assert plan.workers == 4
    assert "4 workers of a Dask scheduler" in plan.device_reason
    solve_to_store(graph, asked, tmp_path / "d.zarr", plan=plan)
    check(tmp_path / "d.zarr", graph)


@pytest.mark.parametrize("kind", [{}, {"negative": True}], ids=["dijkstra", "johnson"])
def test_searches_are_shared_out_by_rows(four: Processes, kind: dict[str, bool], tmp_path: Path) -> None:
    graph, path = sample(2000, **kind), tmp_path / "d.zarr"
    asked = options(four, sources=tuple(range(1500, 100, -1)))
    plan = make_plan(graph, asked)
    assert plan.algorithm == ("johnson" if kind else "dijkstra")
    solve_to_store(graph, asked, path, plan=plan)
    with open_matrix(path) as store:
        np.testing.assert_array_equal(store.sources, asked.sources)
    check(path, graph)


def test_a_worker_killed_in_mid_round_costs_its_part_alone(four: Processes, tmp_path: Path) -> None:
    graph, asked = sample(900), options(four)
    before = four.worker_processes()
    solve_to_store(
        graph, asked, tmp_path / "d.zarr", plan=plan_for(graph, asked), monitor=At(0.3, lambda: kill(before[0]))
    )
    check(tmp_path / "d.zarr", graph)
    wait_for(lambda: len(four.worker_processes()) == 4)
    assert before[0] not in four.worker_processes()


def test_a_worker_of_another_version_is_refused(
    four: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.distributed.dask_cluster.code_digest", lambda: "another")
    with pytest.raises(SolveFailed, match="is refused: it runs another version of apsp"):
        make_plan(sample(100), options(four))


def test_cancelled_and_gone_on_with_in_this_process(
    four: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph, asked, path = sample(900), options(four), tmp_path / "d.zarr"
    monitor = At(0.4, lambda: setattr(monitor, "cancelled", lambda: True))
    began = time.monotonic()
    with pytest.raises(Cancelled):
        solve_to_store(graph, asked, path, plan=plan_for(graph, asked), monitor=monitor)
    assert time.monotonic() - began < 60
    assert find_checkpoint(path) is not None
    solve_to_store(graph, Options(), path, resume=True)
    check(path, graph)


def test_the_scheduler_lost_costs_back_to_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone on with by one process, and by the workers, which come back by themselves."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    graph, path = sample(900), tmp_path / "d.zarr"
    with Processes(2) as processes:
        asked = options(processes)
        monitor = At(0.5, lambda: kill(processes.scheduler.pid))
        with pytest.raises(SolveFailed, match=r"scheduler at tcp://\S+ is lost"):
            solve_to_store(graph, asked, path, plan=plan_for(graph, asked), monitor=monitor)
        found = find_checkpoint(path)
        assert found is not None
        assert max(level for level, _ in found.record["levels"]) >= 0
        processes.start_scheduler()
        shutil.copytree(tmp_path / ".d.zarr.working", tmp_path / ".e.zarr.working")
        solve_to_store(graph, Options(), tmp_path / "e.zarr", resume=True)
        wait_for(lambda: _planned(graph, asked))
        solve_to_store(graph, asked, path, resume=True)
    check(path, graph)
    check(tmp_path / "e.zarr", graph)


def _planned(graph: Graph, asked: Options) -> bool:
    try:
        return make_plan(graph, asked).workers == 2
    except (InvalidRequest, SolveFailed):
        return False


def wait_for(condition: object, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.1)


def test_without_a_scheduler_the_address_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.distributed.dask_cluster.REACH", 1.0)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(InvalidRequest, match=f"no Dask scheduler answers at {address}"):
        make_plan(sample(50), Options(executor="dask", scheduler=address))


def test_a_scheduler_without_workers_says_how_to_start_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "REACH", 0.5)
    with Processes(0) as processes:
        wait_for(lambda: _reached(processes))
        with pytest.raises(SolveFailed, match="apsp worker starts them"):
            make_plan(sample(50), options(processes))


def _reached(processes: Processes) -> bool:
    import socket

    with socket.socket() as some:
        return some.connect_ex((processes.host, processes.port)) == 0


def test_the_command_line(four: Processes, tmp_path: Path) -> None:
    """Plan and solve; SIGTERM leaves a checkpoint, or nothing, and the code of the signal."""
    graph = sample(300)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    lines = [f"{a} {b} {w}" for a, b, w in zip(tails, graph.heads, graph.weights, strict=True)]
    (tmp_path / "g.txt").write_text("\n".join(lines))
    words = ["--executor", "dask", "--scheduler", four.address, "--algorithm", "blocked-floyd-warshall", "--json"]
    out = subprocess.run(
        [*APSP, "solve", str(tmp_path / "g.txt"), "--out", str(tmp_path / "d.zarr"), *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(out.stdout)
    assert told["plan"]["workers"] == 4
    assert told["plan"]["streaming"]["rounds"] >= 1
    assert "4 workers of Dask" in out.stderr
    check(tmp_path / "d.zarr", graph)


def test_a_job_of_the_service(four: Processes, tmp_path: Path) -> None:
    graph = sample(300)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    lines = [f"{a} {b} {w}" for a, b, w in zip(tails, graph.heads, graph.weights, strict=True)]
    with LiveService(tmp_path / "data", APSP_SCHEDULER=four.address) as live:
        known = live.upload("\n".join(lines).encode(), directed=True)["id"]
        job = live.submit(known, executor="dask", algorithm="blocked-floyd-warshall")
        assert job["plan"]["workers"] == 4
        assert live.wait(job["id"], seconds=240)["state"] == "successful"
        check(tmp_path / "data" / "jobs" / job["id"] / "matrix.zarr", graph)
        # who solved it is no part of what was solved
        again = live.http.post("/v1/jobs", json={"graph": known, "algorithm": "blocked-floyd-warshall"})
        assert again.status_code == 200
        assert again.json()["id"] == job["id"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Networks(NamedTuple):
    """A network namespace beside this one, and the addresses of both ends of a link between them."""

    name: str
    near: str
    far: str

    def run_far(self) -> tuple[str, ...]:
        """The words before a command that runs in the other namespace."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        _ip("netns", "exec", self.name, "ip", "link", "set", f"{self.name}b", "down")


@pytest.fixture
def two_networks() -> Iterator[Networks]:
    """Two networks with addresses of this process alone, since a test that was killed leaves its link and addresses."""
    name = f"apsp{os.getpid()}"
    between = ip_network("198.18.0.0/15")  # reserved for tests between networks (RFC 2544)
    near, far = (str(between[os.getpid() % 2**15 * 4 + end]) for end in (1, 2))
    _delete_left()
    try:
        _ip("netns", "add", name)
        try:
            _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
            _ip("link", "set", f"{name}b", "netns", name)
            _ip("addr", "add", f"{near}/30", "dev", f"{name}a")
            _ip("link", "set", f"{name}a", "up")
            for words in (("addr", "add", f"{far}/30", "dev", f"{name}b"), ("link", "set", f"{name}b", "up")):
                _ip("netns", "exec", name, "ip", *words)
        except BaseException:
            _ip("netns", "del", name)
            raise
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield Networks(name, near, far)
    _ip("netns", "del", name)


def _delete_left() -> None:
    """Delete the namespaces of tests that were killed."""
    for path in Path("/run/netns").glob("apsp*"):
        pid = path.name.removeprefix("apsp")
        if pid.isdigit() and not Path("/proc", pid).exists():
            subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)


@pytest.mark.slow
def test_a_link_cut_in_mid_round_costs_the_part_behind_it(two_networks: Networks, tmp_path: Path) -> None:
    """Two nodes in networks of their own; the scheduler gives up the one behind the cut after its time-out."""
    graph = sample(900)
    with Processes(0, host=two_networks.near) as processes:
        asked = options(processes)
        processes.node(1, "--host", two_networks.near)
        processes.node(1, "--host", two_networks.far, prefix=two_networks.run_far())
        wait_for(lambda: _workers(graph, asked) == 2, 120)
        began = time.monotonic()
        monitor = At(0.3, two_networks.cut)
        solve_to_store(graph, asked, tmp_path / "d.zarr", plan=plan_for(graph, asked), monitor=monitor)
        assert time.monotonic() - began < 120
    check(tmp_path / "d.zarr", graph)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, pytest.param(8, marks=pytest.mark.long)])
def test_other_numbers_of_workers(workers: int, tmp_path: Path) -> None:
    graph = sample(1000)
    with Processes(workers) as processes:
        asked = options(processes)
        wait_for(lambda: _workers(graph, asked) == workers)
        solve_to_store(graph, asked, tmp_path / "d.zarr", plan=plan_for(graph, asked))
    check(tmp_path / "d.zarr", graph)


def _workers(graph: Graph, asked: Options) -> int:
    try:
        return make_plan(graph, asked).workers
    except (InvalidRequest, SolveFailed):
        return 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_workers_killed_at_random(tmp_path: Path) -> None:
    """So many kills of a worker that is at work, in solve after solve: each ends, and right."""
    kills, wanted, seed = 0, int(os.environ.get("APSP_KILL_WORKERS", "5")), np.random.default_rng(5)
    path = tmp_path / "d.zarr"
    graph = sample(900)
    with Processes(3) as processes:
        asked = options(processes)
        wait_for(lambda: _workers(graph, asked) == 3)
        while kills < wanted:

            class Killer(At):
                def advance(self, amount: int) -> None:
                    nonlocal kills
                    self.seen += amount
                    running = processes.worker_processes()
                    if self.most and seed.random() < 0.15 and len(running) > 1:
                        kills += 1
                        kill(int(seed.choice(running)))

            solve_to_store(graph, asked, path, plan=plan_for(graph, asked), monitor=Killer(0, None))
            check(path, graph)
            shutil.rmtree(path)  # not every solve had a kill


def test_a_node_of_workers_ends_with_a_signal() -> None:
    with Processes(0) as processes:
        node = processes.node(2)
        wait_for(lambda: len(processes.worker_processes()) == 2)
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 0
        assert processes.worker_processes() == []
