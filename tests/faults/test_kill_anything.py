"""Tests that a service keeps its promises despite SIGKILL at random instants of submit, solve, seal and delete.

CI takes 10 rounds; ``APSP_KILL_ROUNDS=300 ./dev test tests/faults/test_kill_anything.py -m slow`` takes 300.
``APSP_KILL_SEED`` repeats the random choices of a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from storage.matrix.reader import open_matrix
from tests.faults.killable import Killable
from tests.ports import free_port
from tests.stores import verify_matrix

ROUNDS = int(os.environ.get("APSP_KILL_ROUNDS", "10"))
_SIDE = 24
_VICTIMS = (("api",), ("runner",), ("runners",), ("api", "runner"))


def graph_of(seed: int) -> tuple[bytes, np.ndarray]:
    """An edge list and its distances by SciPy."""
    chance = np.random.default_rng(seed)
    n = _SIDE * _SIDE
    tails, heads = chance.integers(0, n, (2, 4 * n))
    weights = chance.integers(1, 50, 4 * n)
    lines = [f"{v} {(v + 1) % n} 60" for v in range(n)]
    lines += [f"{a} {b} {w}" for a, b, w in zip(tails, heads, weights, strict=True)]
    dense = np.full((n, n), np.inf)
    np.minimum.at(dense, (tails, heads), weights)
    ring = np.arange(n)
    dense[ring, (ring + 1) % n] = np.minimum(dense[ring, (ring + 1) % n], 60)
    np.fill_diagonal(dense, 0)
    rows, columns = np.nonzero(np.isfinite(dense) & (dense > 0))
    return "\n".join(lines).encode(), shortest_path(csr_array((dense[rows, columns], (rows, columns)), shape=(n, n)))


class Round:
    """What the whole run has been promised so far."""

    def __init__(self, service: Killable, chance: random.Random, graph: str) -> None:
        self.service, self.chance, self.graph = service, chance, graph
        self.accepted: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.maybe_deleted: set[str] = set()
        self.over: dict[str, tuple[object, ...]] = {}

    def submit(self, number: int) -> None:
        """A job under a key of its own, sent once more if no answer came."""
        key = f"key-{number}"
        body = {"graph": self.graph, "fresh": True, "dtype": self.chance.choice(["uint16", "int32"])}
        for _ in range(10):
            response = self.service.ask("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key})
            if response is None:
                continue
            assert response.status_code in (200, 201), response.text
            known = self.accepted.setdefault(key, response.json()["id"])
            assert known == response.json()["id"], "one key, two jobs"
            return

    def delete_some(self) -> None:
        """Delete an old job, if it is over."""
        left = [job for job in self.accepted.values() if job not in self.deleted | self.maybe_deleted]
        if len(left) < 8:
            return
        job = self.chance.choice(left[:4])
        response = self.service.ask("DELETE", f"/v1/jobs/{job}")
        if response is None:
            self.maybe_deleted.add(job)
        elif response.status_code == 204:
            self.deleted.add(job)
        else:
            assert response.status_code == 409, response.text

    def look(self) -> None:
        """Remember how a job ended: nothing may change about that any more."""
        response = self.service.ask("GET", f"/v1/jobs/{self.chance.choice(list(self.accepted.values()))}")
        if response is not None and response.status_code == 200 and response.json()["finished"] is not None:
            self.over.setdefault(response.json()["id"], ending(response.json()))


def ending(job: dict[str, object]) -> tuple[object, ...]:
    """What stays as it is once a job is over."""
    return job["state"], job["finished"], job["attempt"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_promise_survives_sigkill(tmp_path: Path):
    seed = int(os.environ.get("APSP_KILL_SEED", time.time_ns() % 10**6))
    print(f"APSP_KILL_SEED={seed}")
    chance = random.Random(seed)
    port = free_port()
    # lost attempts are what this is about: they may be many more than the three of a poison job
    service = Killable(tmp_path / "data", port, APSP_MAX_ATTEMPTS="1000")
    service.start()
    try:
        content, distances = graph_of(7)
        upload = service.ask("POST", "/v1/graphs", content=content)
        assert upload is not None
        run = Round(service, chance, upload.json()["id"])
        for number in range(ROUNDS):
            for which in range(chance.randrange(1, 4)):
                run.submit(4 * number + which)
            run.delete_some()
            run.look()
            time.sleep(chance.expovariate(3))
            for name in chance.choices(_VICTIMS, (1, 4, 2, 1))[0]:
                service.kill(name)
            service.start()
        check_promises(run, tmp_path / "data", distances)
    finally:
        service.stop()


def check_promises(run: Round, data: Path, distances: np.ndarray) -> None:
    """Each accepted job is over, once, with the right distances; what was deleted is gone, all of it."""
    deadline = time.monotonic() + 300
    for job in run.accepted.values():
        while True:
            response = run.service.ask("GET", f"/v1/jobs/{job}")
            assert response is not None
            gone = response.status_code == 410
            assert gone or response.status_code == 200, (job, response.text)
            if gone or response.json()["state"] not in ("accepted", "running"):
                break
            assert time.monotonic() < deadline, (response.text, run.service.log.read_text()[-3000:])
            time.sleep(0.1)
        assert gone == (job in run.deleted) or job in run.maybe_deleted
        if gone:
            continue
        assert response.json()["state"] == "successful", response.text
        assert run.over.get(job) in (None, ending(response.json())), "it ended twice"
        store = data / "jobs" / job / "matrix.zarr"
        verify_matrix(store)
        with open_matrix(store) as matrix:
            assert np.array_equal(matrix.rows(range(len(distances))), distances), job
    with contextlib.closing(sqlite3.connect(data / "apsp.db")) as connection, connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        known = {row[0] for row in connection.execute("SELECT id FROM jobs")}
        assert known == set(run.accepted.values()), "a job that nobody was promised"
    connection.close()
    print(f"{len(known)} jobs, {len(known) - len(run.deleted)} kept, {len(run.over)} ends seen before the end")
