"""Tests that a job succeeds in one attempt even if the job database is locked, or PostgreSQL restarts, while it runs.

``APSP_LOCK_SECONDS=30`` holds the lock for that long instead of some seconds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.integration.service_process import LiveService
from tests.postgres import Postgres, close_postgres, open_postgres

pytestmark = pytest.mark.beside
LOCKED = float(os.environ.get("APSP_LOCK_SECONDS", "6"))
_TIMEOUT = 2.0


def arcs(n: int) -> bytes:
    """A ring with chords: an edge list."""
    return "\n".join(
        f"{v} {w} {1 + (7 * v + w) % 50}" for v in range(n) for w in ((v + 1) % n, (v * v + 3) % n)
    ).encode()


def dense_job(live: LiveService, n: int) -> dict[str, Any]:
    """A job that takes some seconds, running."""
    graph = live.upload(arcs(n), directed=True)
    job = live.submit(graph["id"], algorithm="blocked-floyd-warshall", dtype="float64", threads=1)
    live.wait(job["id"], phase="relax")
    return job


def check(live: LiveService, job: dict[str, Any]) -> None:
    """The job is done, in its first attempt."""
    done = live.wait(job["id"], seconds=500)
    assert (done["state"], done["attempt"]) == ("successful", 1), done
    row = live.http.get(f"/v1/jobs/{job['id']}/distance", params={"source": 0, "target": 1})
    assert row.status_code == 200


@pytest.mark.slow
def test_a_locked_database_delays_writes_and_loses_nothing(tmp_path: Path):
    with LiveService(tmp_path / "data", APSP_DATABASE_TIMEOUT=str(_TIMEOUT)) as live:
        job = dense_job(live, 5000)
        lock = sqlite3.connect(tmp_path / "data" / "apsp.db", isolation_level=None, timeout=30)
        lock.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        headers = {"Idempotency-Key": "while locked"}
        asked = {"graph": job["graph"], "dtype": "int32", "fresh": True}
        refused = live.http.post("/v1/jobs", json=asked, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (503, "database-unavailable")
        assert int(refused.headers["retry-after"]) > 0
        asking = time.monotonic()
        assert live.http.post(f"/v1/jobs/{job['id']}/cancel").status_code == 503, "no promise to stop it, either"
        assert time.monotonic() - asking < _TIMEOUT + 5
        assert live.http.get("/health/ready").status_code == 503
        assert live.http.get("/health/live").status_code == 200
        assert live.job(job["id"])["state"] == "running", "reading goes on"
        time.sleep(max(0.0, LOCKED - (time.monotonic() - began)))
        lock.rollback()
        lock.close()
        again = live.http.post("/v1/jobs", json=asked, headers=headers)
        assert again.status_code == 201, again.text
        check(live, job)
        check(live, again.json())
        jobs = live.http.get("/v1/jobs").json()["jobs"]
        assert {found["id"] for found in jobs} == {job["id"], again.json()["id"]}
        assert live.http.get("/health/ready").status_code == 200


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of its own: it is restarted."""
    server = open_postgres()
    yield server
    close_postgres(server)


@pytest.mark.slow
def test_postgresql_may_restart_in_mid_job(tmp_path: Path, server: Postgres):
    settings = {"APSP_DATABASE_URL": server.url(), "APSP_DATABASE_TIMEOUT": str(_TIMEOUT)}
    with LiveService(tmp_path / "data", **settings) as live:
        job = dense_job(live, 5000)
        over = threading.Event()
        promised: list[str] = []
        refused: list[int] = []
        client = threading.Thread(target=_submit_until, args=(live, job["graph"], over, promised, refused))
        client.start()
        for mode in ("fast", "immediate"):
            server.stop(mode)
            assert live.http.get(f"/v1/jobs/{job['id']}").status_code == 503
            assert live.http.get("/health/ready").status_code == 503
            time.sleep(1)
            server.start()
            time.sleep(1)
        over.set()
        client.join(60)
        assert refused
        assert set(refused) == {503}
        check(live, job)
        for each in promised:
            assert live.wait(each, seconds=120)["state"] == "successful"
        assert live.http.get("/health/ready").status_code == 200


def _submit_until(
    live: LiveService, graph: str, over: threading.Event, promised: list[str], refused: list[int]
) -> None:
    """Submit jobs of some rows, one after the other."""
    with httpx.Client(base_url=live.http.base_url, timeout=60) as http:
        while not over.wait(0.2):
            response = http.post("/v1/jobs", json={"graph": graph, "sources": [0, 1], "fresh": True})
            if response.status_code == 201:
                promised.append(response.json()["id"])
            else:
                refused.append(response.status_code)
