"""Tests that many small jobs of eight clients succeed, and that no process grows in memory or in open files.

CI submits 80 jobs; ``APSP_SOAK_JOBS=2000 ./dev test tests/faults/test_soak.py -m slow -s`` submits 2,000, and prints
the memory and the open files.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.integration.service_process import LiveService

JOBS = int(os.environ.get("APSP_SOAK_JOBS", "80"))
_CLIENTS = 8
#: the first part fills caches, pools and the allocator's arenas
_WARM = max(JOBS // 4, 40)
#: a pool of connections grows once, up to its bound, when more clients than before meet; a leak grows in every round
_ROUNDS = 3
_MOST_GROWTH = 48 << 20
_MOST_FILES = 12


def ring(n: int, seed: int) -> bytes:
    return "\n".join(
        f"{v} {w} {1 + (v * seed + w) % 9}" for v in range(n) for w in ((v + 1) % n, (v * seed) % n)
    ).encode()


def family(pid: int) -> dict[int, str]:
    """A process and all below it, with the last words of their command lines."""
    found = {pid: _command(pid)}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= family(int(child))
    return found


def _command(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return " ".join(word[-40:].replace("\n", " ") for word in words[1:4])


def usage(pid: int) -> tuple[int, int]:
    """Resident bytes and open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return resident << 10, len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Clients:
    """Eight clients that share a number of jobs."""

    def __init__(self, live: LiveService, graphs: list[str]) -> None:
        self._live, self._graphs = live, graphs
        self._lock = threading.Lock()
        self.begun = self.done = 0
        self.wrong: list[str] = []

    def run(self, until: int) -> None:
        """Do jobs until so many are done."""
        threads = [threading.Thread(target=self._work, args=(until,)) for _ in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, until: int) -> None:
        with httpx.Client(base_url=self._live.http.base_url, timeout=60) as http:
            while True:
                with self._lock:
                    number = self.begun
                    if number >= until:
                        return
                    self.begun += 1
                if (trouble := self._one(http, number)) is not None:
                    self.wrong.append(trouble)
                with self._lock:
                    self.done += 1

    def _one(self, http: httpx.Client, number: int) -> str | None:
        body = {"graph": self._graphs[number % len(self._graphs)], "fresh": True}
        made = http.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"})
        if made.status_code != 201:
            return made.text
        job = made.json()["id"]
        deadline = time.monotonic() + 120
        while (found := http.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=30"}).json())["state"] != "successful":
            if found["state"] not in ("accepted", "running") or time.monotonic() > deadline:
                return str(found)
        asked = {"source": 0, "target": 1}
        if (answer := http.get(f"/v1/jobs/{job}/distance", params=asked)).status_code != 200:
            return answer.text
        if number % 2 and (gone := http.delete(f"/v1/jobs/{job}")).status_code != 204:
            return gone.text
        return None


def soak(clients: Clients, processes: dict[int, str]) -> list[str]:
    """Do a round of jobs; the processes that grew meanwhile.  None may have died."""
    before = {pid: usage(pid) for pid in processes}
    until = clients.done + JOBS
    began = time.monotonic()
    clients.run(until)
    seconds = time.monotonic() - began
    assert clients.wrong == []
    assert clients.done == until
    print(f"{JOBS} jobs in {seconds:.0f} s, {JOBS / seconds:.1f} a second")
    grown = []
    for pid, (memory, files) in before.items():
        memory_now, files_now = usage(pid)
        said = f"{processes[pid]}: {memory >> 20} to {memory_now >> 20} MiB, {files} to {files_now} files"
        print(said)
        if memory_now - memory >= _MOST_GROWTH or files_now - files > _MOST_FILES:
            grown.append(said)
    return grown


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(3600)
def test_many_small_jobs_leave_no_trace_in_memory_or_open_files(tmp_path: Path):
    with LiveService(tmp_path / "data", APSP_MATRIX_CACHE="8", APSP_RUNNER_NICE="0") as live:
        graphs = [live.upload(ring(60 + 5 * seed, seed), directed=True)["id"] for seed in range(2, 8)]
        clients = Clients(live, graphs)
        clients.run(_WARM)
        processes = family(live.process.pid)
        for _ in range(_ROUNDS):
            grown = soak(clients, processes)
            if not grown:
                return
        pytest.fail(f"in each of {_ROUNDS} rounds of {JOBS} jobs a process grew; in the last: {grown}")
