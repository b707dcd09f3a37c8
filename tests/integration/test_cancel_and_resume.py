"""Tests that a running job is cancelled promptly, that long work is kept, and that resuming continues from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.streaming.checkpoint import WORTH
from tests.integration.service_process import LiveService

N = 5000


def arcs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A ring with chords."""
    tails = np.repeat(np.arange(N), 2)
    heads = np.where(np.arange(2 * N) % 2, (tails * 37 + 11) % N, (tails + 1) % N)
    keep = tails != heads
    return tails[keep], heads[keep], np.arange(2 * N)[keep] % 50 + 1


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with LiveService(tmp_path_factory.mktemp("service") / "data") as live:
        yield live


@pytest.fixture(scope="module")
def graph(live: LiveService) -> str:
    lines = "\n".join(f"{a} {b} {w}" for a, b, w in zip(*arcs(), strict=True))
    found: str = live.upload(lines.encode(), directed=True)["id"]
    return found


ASKED = {"algorithm": "blocked-floyd-warshall", "dtype": "float64", "threads": 1, "fresh": True}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.alone
def test_a_cancel_is_prompt(live: LiveService, graph: str):
    seconds = []
    for _ in range(3):
        job = live.submit(graph, **ASKED)["id"]
        live.wait(job, phase="relax")
        began = time.monotonic()
        live.http.post(f"/v1/jobs/{job}/cancel")
        assert live.wait(job)["state"] == "dismissed"
        seconds.append(time.monotonic() - began)
        assert live.http.post(f"/v1/jobs/{job}/resume").status_code == 409, "there was nothing worth keeping"
    assert min(seconds) < 2, seconds


def test_a_cancelled_job_that_kept_its_work_goes_on(live: LiveService, graph: str, tmp_path: Path):
    # less memory than the matrix and the process take, so that it is solved in the store, which is kept
    job = live.submit(graph, **ASKED, memory=400 * 2**20)["id"]
    live.wait(job, phase="relax")
    began = time.monotonic()
    while live.job(job)["progress"] < 0.2 or time.monotonic() - began < WORTH + 1:
        time.sleep(0.05)
    live.http.post(f"/v1/jobs/{job}/cancel")
    stopped = live.wait(job)
    assert stopped["state"] == "dismissed", stopped
    resumed = live.http.post(stopped["links"]["resume"])
    assert resumed.status_code == 202, resumed.text
    done = live.wait(job, seconds=600)
    assert (done["state"], done["attempt"]) == ("successful", 1), done
    rows = live.http.get(f"/v1/jobs/{job}/rows", params={"sources": f"0,{N - 1}", "format": "npy"}).content
    (tmp_path / "rows.npy").write_bytes(rows)
    tails, heads, weights = arcs()
    expected = dijkstra(csr_array((weights, (tails, heads)), shape=(N, N)), indices=[0, N - 1])
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), expected)
