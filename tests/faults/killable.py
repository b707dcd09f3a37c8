"""Starts a service whose API and runners are separate processes, each of which a test can kill at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx

from storage.jobs.keys import KeyStore
from storage.jobs.store import JobStore
from tests.integration.service_process import SERVE

ROOT = Path(__file__).resolve().parents[2]
_RUNNERS = (
    "from service.runner.supervisor import supervise; from service.settings import Settings; supervise(Settings.load())"
)


class Killable:
    """``api`` and ``runners`` are process groups of one data directory; ``start`` brings back what is dead."""

    def __init__(self, data: Path, port: int, **settings: str) -> None:
        self.data, self.port = data, port
        jobs = JobStore(data / "apsp.db")
        _, key = KeyStore(jobs.database).create("faults", ("read", "submit"))
        jobs.close()
        self._authorization = {"Authorization": f"Bearer {key}"}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
        # a short lease, so that many rounds fit: here nothing else than a kill takes a runner's voice
        fixed = {"APSP_PORT": str(port), "APSP_DATA_DIR": str(data), "APSP_LEASE_SECONDS": "20",
                 "APSP_HEARTBEAT_SECONDS": "1", "APSP_RUNNER_NICE": "0", "APSP_PLANNERS": "1"}  # fmt: skip
        self._environment = {**inherited, **fixed, **settings}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = data.parent / f"{data.name}.log"

    def start(self) -> None:
        """Start whatever is not running."""
        for name, code, runners in (("api", SERVE, "none"), ("runners", _RUNNERS, "cpu")):
            process = self._processes.get(name)
            if process is not None and process.poll() is None:
                continue
            command = [sys.executable, "-c", code]
            with self.log.open("ab") as log:
                self._processes[name] = subprocess.Popen(
                    command, cwd=ROOT, env={**self._environment, "APSP_RUNNERS": runners}, stdout=log, stderr=log
                )

    def kill(self, name: str) -> None:
        """SIGKILL: ``api``, ``runners`` (the watchers, their runner follows), or ``runner`` (the one that solves)."""
        if name == "runner":
            with contextlib.suppress(OSError, ValueError, StopIteration):
                os.kill(int(next((self.data / "runners").iterdir()).read_text()), signal.SIGKILL)
            return
        process = self._processes[name]
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End everything in good order."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(60)

    def ask(self, method: str, path: str, *, seconds: float = 120, **more: Any) -> httpx.Response | None:
        """One request, once the API is there; None if the API died before it answered."""
        deadline = time.monotonic() + seconds
        headers = self._authorization | more.pop("headers", {})
        while True:
            try:
                return httpx.request(method, f"http://127.0.0.1:{self.port}{path}", timeout=60, headers=headers, **more)
            except httpx.ConnectError:
                assert time.monotonic() < deadline, self.log.read_text()[-3000:]
                time.sleep(0.05)
            except httpx.TransportError:
                return None
