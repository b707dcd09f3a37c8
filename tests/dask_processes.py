"""A Dask scheduler and workers of ``apsp worker``, as processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.commands import APSP
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
#: One thread each: there are more workers than processors.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s",
    "DASK_LOGGING__DISTRIBUTED": "error",
}


class Processes:
    """One scheduler, and nodes of workers; ends them all when it is closed."""

    def __init__(self, workers: int, *, host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        self.port = free_port()
        self.host = host
        self.address = f"tcp://{host}:{self.port}"
        self._all: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler(prefix)
        if workers:
            self.node(workers)

    def start_scheduler(self, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        words = [
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            self.host,
            "--port",
            str(self.port),
            "--no-dashboard",
        ]
        self.scheduler = self._start([*prefix, sys.executable, *words])
        return self.scheduler

    def node(self, workers: int, *more: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        words = ["--scheduler", self.address, "--devices", "cpu", "--workers", str(workers), "--threads", "1", *more]
        return self._start([*prefix, *APSP, "worker", *words])

    def worker_processes(self) -> list[int]:
        """Process ids of the Dask workers that ``apsp worker`` has started."""
        nodes = {p.pid for p in self._all}
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent in nodes and b"distributed.cli.dask_worker" in words:
                    found.append(int(path.name))
        return sorted(found)

    def close(self) -> None:
        # workers first: they say good-bye to the scheduler
        for some in ([p for p in self._all if p is not self.scheduler], [self.scheduler]):
            for process in some:
                if process.poll() is None:
                    process.terminate()
            for process in some:
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, words: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL)
        self._all.append(process)
        return process


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
