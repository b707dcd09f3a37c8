"""Tests that a short job does not wait for a long one, if two runners share a machine, or one takes only short jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.system import usable_processors
from tests.integration.service_process import USUAL_RUNNERS, LiveService

pytestmark = pytest.mark.beside


@pytest.fixture(autouse=True)
def two_processors() -> Iterator[None]:
    """Services have two processors, so that a long job takes long on hosts with many, too."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[:2])
    yield
    os.sched_setaffinity(0, mine)


def test_a_short_job_is_solved_beside_a_long_one(tmp_path: Path):
    assert usable_processors() >= 2, "this needs two processors"
    with LiveService(tmp_path / "data", APSP_RUNNERS="cpu,cpu", APSP_RUNNER_NICE="0") as service:
        ring = "\n".join(f"{i} {(i + 1) % 4000} {i % 7 + 1}" for i in range(4000))
        long = service.submit(service.upload(ring.encode(), directed=True)["id"], algorithm="repeated-squaring")["id"]
        assert service.wait(long, state="running")["state"] == "running"
        short = service.submit(service.upload(b"1 2 3\n2 1 4\n", directed=True)["id"])["id"]
        assert service.wait(short)["state"] == "successful"
        assert service.job(long)["state"] == "running"
        assert service.job(long)["plan"]["threads"] == usable_processors() // 2
        devices = service.http.get("/v1/devices").json()["devices"]
        assert {device["device"] for device in devices} == {"cpu", "cpu2"}
        service.http.post(f"/v1/jobs/{long}/cancel")
        assert service.wait(long)["state"] == "dismissed"


def test_a_short_job_is_solved_beside_a_long_one_by_default(tmp_path: Path):
    with LiveService(tmp_path / "data", **USUAL_RUNNERS, APSP_RUNNER_NICE="0") as service:
        ring = "\n".join(f"{i} {(i + 1) % 4000} {i % 7 + 1}" for i in range(4000))
        graph = service.upload(ring.encode(), directed=True)["id"]
        dense = {"algorithm": "repeated-squaring", "dtype": "float64"}
        long, longer = (service.submit(graph, fresh=True, **dense)["id"] for _ in range(2))
        assert service.wait(long, state="running")["state"] == "running"
        short = service.submit(service.upload(b"1 2 3\n2 1 4\n", directed=True)["id"])["id"]
        assert service.wait(short)["state"] == "successful"
        assert [service.job(job)["state"] for job in (long, longer)] == ["running", "accepted"]
        assert service.job(long)["plan"]["threads"] == usable_processors(), "alone, a job has the whole machine"
        devices = service.http.get("/v1/devices").json()["devices"]
        assert {device["device"] for device in devices} == {"cpu", "short"}
        for job in (longer, long):
            service.http.post(f"/v1/jobs/{job}/cancel")
            assert service.wait(job)["state"] == "dismissed"
