"""Starts a real service on a free port of the loopback, with an API process, a helper process and a runner."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx

ROOT = Path(__file__).resolve().parents[2]
OPEN = ("accepted", "running")
#: most seconds until a service says its address: two or three of processor time, on a machine that does much else
START_SECONDS = 180
#: what ``apsp serve`` does; while it imports, it looks for garbage as rarely as the command
SERVE = """
import gc
gc.set_threshold(50_000, 10, 10)
from service.serve import serve
from service.settings import Settings
serve(Settings.load())
"""
#: no memory is plenty, so there is no runner for short jobs beside the one that tests hold up, watch or kill
ONE_RUNNER = {"APSP_SHORT_MEMORY": str(2**50)}
#: the usual runners again
USUAL_RUNNERS = {"APSP_SHORT_MEMORY": "1GiB"}


class LiveService:
    """Started on entering, stopped on leaving; ``http`` talks to it; ``before`` is run before all else in it."""

    before = ""

    def __init__(self, data: Path, **settings: str) -> None:
        self.data = data
        self._settings = {
            "APSP_PORT": "0",
            "APSP_DATA_DIR": str(data),
            "APSP_AUTH": "false",
            "APSP_METRICS_PORT": "0",
            **ONE_RUNNER,
            **settings,
        }

    def __enter__(self) -> LiveService:
        code = f"{self.before}\n{SERVE}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
        self.log = (self.data.parent / f"{self.data.name}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env={**inherited, **self._settings},
            stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip
        self.http = httpx.Client(base_url=self._address(), timeout=120)
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        assert self.stop(signal.SIGTERM) in (0, -signal.SIGKILL), "SIGTERM is a clean way to stop"

    def stop(self, number: signal.Signals) -> int:
        """Send a signal and wait; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        if self.process.stdout:
            self.process.stdout.close()
        self.log.close()
        return status

    def _address(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(START_SECONDS) else ""
        if "http://" not in line:
            self.stop(signal.SIGKILL)
            raise AssertionError(f"the service did not start: {line!r} {Path(self.log.name).read_text()}")
        return next(word for word in line.split() if word.startswith("http://"))

    def upload(self, content: bytes, **query: Any) -> dict[str, Any]:
        """Post a graph; its description."""
        response = self.http.post("/v1/graphs", content=content, params=query)
        assert response.status_code in (200, 201), response.text
        found: dict[str, Any] = response.json()
        return found

    def submit(self, graph: str, **options: Any) -> dict[str, Any]:
        """Post a job; its description."""
        response = self.http.post("/v1/jobs", json={"graph": graph, **options})
        assert response.status_code == 201, response.text
        found: dict[str, Any] = response.json()
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as it is now."""
        response = self.http.get(f"/v1/jobs/{job_id}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def wait(self, job_id: str, *, seconds: float = 60, **until: str) -> dict[str, Any]:
        """Poll until the job is over, or until a member has a value: ``phase="relax"``."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(job_id)
            if job["state"] not in OPEN or (until and all(job[k] == v for k, v in until.items())):
                return job
            assert time.monotonic() < deadline, job
            time.sleep(0.05)

    def runner(self) -> int:
        """Process id of the runner, and not of the one for short jobs."""
        [lock] = [lock for lock in (self.data / "runners").iterdir() if not lock.stem.endswith("-short")]
        return int(lock.read_text())
