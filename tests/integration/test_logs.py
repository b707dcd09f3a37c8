"""Tests the logs of the real processes: every line is a JSON object, ids relate the lines, and no secret appears."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from storage.jobs.keys import KeyStore
from storage.jobs.store import JobStore
from tests.integration.service_process import LiveService
from tests.ports import free_port

pytestmark = pytest.mark.beside


@pytest.mark.slow
def test_a_job_can_be_followed_and_no_key_is_shown(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    jobs = JobStore(data / "apsp.db")
    key = KeyStore(jobs.database).create("ann", ("read", "submit"))[1]
    jobs.close()
    port = free_port()
    settings = {"APSP_AUTH": "true", "APSP_LOG_REQUESTS": "true", "APSP_LOG_FORMAT": "json"}
    with LiveService(data, **settings, APSP_METRICS_PORT=str(port)) as live:
        live.http.headers["Authorization"] = f"Bearer {key}"
        graph = live.upload(b"1 2 3\n2 3 4\n", name="small")
        answer = live.http.post("/v1/jobs", json={"graph": graph["id"]}, headers={"X-Request-ID": "follow-me"})
        job_id = answer.json()["id"]
        heard = live.http.get(f"/v1/jobs/{job_id}/events").text
        assert live.job(job_id)["state"] == "successful"
        assert heard.count("event: done\n") == 1
        assert " INFO done in" in heard, "the log is whole when the job is over"
        live.http.get("/v1/jobs", params={"cursor": key}, headers={"X-Request-ID": "careless"})
        live.http.get(f"/v1/jobs/{key}")
        [device] = live.http.get("/v1/devices").json()["devices"]
        assert (device["device"], device["reason"]) == ("cpu", None)
        assert device["state"] in ("idle", "busy")
        assert device["memory_bytes"] > device["memory_used_bytes"] > 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as metrics:
            text = metrics.read().decode()
        assert re.search(r'apsp_job_run_seconds_count\{[^}]*status="successful"\} 1\.0', text)
        assert 'route="/v1/jobs/{job_id}/events",status="200"} 1.0' in text
    log = Path(live.log.name).read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["process"] for line in lines} >= {"api", "runner"}
    submitted = [line for line in lines if line.get("request_id") == "follow-me"]
    assert [(line["method"], line["path"], line["status"]) for line in submitted] == [("POST", "/v1/jobs", 201)]
    assert any(line.get("job_id") == job_id and line["process"] == "runner" for line in lines)
    assert any(line.get("job_id") == job_id and line["process"] == "api" for line in lines)
    secret = key.split("_", 2)[2]
    kept = [path for path in data.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert secret not in log + text + heard
    assert kept == []


def test_the_log_of_a_job_holds_no_password(tmp_path: Path):
    import logging

    from service.jobs.joblog import job_log, log_path
    from service.settings import Settings

    settings = Settings(data_dir=tmp_path)
    with job_log(settings, "job"):
        address, key = "postgresql://me:secretpass@host/x", "apsp_ab12cd34_" + "s" * 43
        logging.getLogger("x").error("no answer from %s with %s", address, key)
    text = log_path(settings, "job").read_text()
    assert "postgresql://me:***@host/x" in text
    assert "secretpass" not in text
    assert "ssss" not in text


def test_the_log_of_a_job_does_not_repeat_its_id(tmp_path: Path):
    import logging

    from service.jobs.joblog import job_log, log_path
    from service.settings import Settings

    settings = Settings(data_dir=tmp_path)
    with job_log(settings, "ab-1"):
        logging.getLogger("x").warning("job %s: attempt 1 begins after job ab-1: x", "ab-1")
        logging.getLogger("x").error("job %s: another", "ab-12")
    first, second = log_path(settings, "ab-1").read_text().splitlines()
    assert first.endswith("Z WARNING attempt 1 begins after job ab-1: x")
    assert second.endswith("Z ERROR job ab-12: another")
