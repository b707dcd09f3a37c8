"""Starts the Dask workers of one node, one for each GPU or a given number on the processors, and restarts workers that
end.

Dask's own nanny is not used: it may lose a worker that is just restarting and never start it again, and it cannot
assign GPUs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from engine.model.system import available_memory, usable_processors
from storage.errors import InvalidRequest

log = logging.getLogger("apsp.engine")

_PAUSE: Final = 0.2
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 15.0
#: If a worker has run for this number of seconds, its next restart waits only for the shortest time.
_HEALTHY: Final = 30.0
#: Seconds between SIGTERM and SIGKILL for a worker.
_GRACE: Final = 10.0
#: Number of threads in which a worker runs tasks, by device.  On processors, one thread computes.  On a GPU, three
#: threads compute and one closes panels.  All other threads read and write.
_THREADS: Final = {"CPU": 2, "GPU": 6}
#: Share of the node's free memory that its workers offer together.
_OFFERED: Final = 0.8
#: Settings of Dask, unless the environment has others: a connection without messages for 15 s counts as lost.
_SETTINGS: Final = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "15s",
    "DASK_LOGGING__DISTRIBUTED": "warning",
    # otherwise Dask samples the stacks of its threads a hundred times a second
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class WorkersArgs:
    """The arguments of ``apsp worker``; fields are named as on the command line, sizes are in bytes.

    ``devices`` are ``cpu``, ``cuda0``, ``cuda1`` and so on.
    """

    scheduler: str
    devices: Sequence[str]
    workers: int | None = None
    threads: int | None = None
    memory: int | None = None
    host: str | None = None


@dataclass
class _Slot:
    """One worker of this node: its environment, its process, when that began, and when it may be started again."""

    name: str
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    born: float = 0.0
    wait: float = _FIRST_WAIT
    due: float = 0.0


@dataclass
class WorkerProcesses:
    """The worker processes of a node.

    Raises:
        InvalidRequest: Dask is not installed, or the arguments contradict each other.
    """

    args: WorkersArgs
    slots: list[_Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("distributed") is None:
            raise InvalidRequest("apsp worker needs Dask: pip install 'apsp[dask]'", field="scheduler")
        found = self.args.devices
        if not found:
            raise InvalidRequest(
                "devices is none, so there is no device to work with; name cpu or GPUs", field="devices"
            )
        gpus = [name for name in found if name != "cpu"]
        count = (self.args.workers or 1) if "cpu" in found else 0
        if self.args.workers is not None and "cpu" not in found:
            raise InvalidRequest(
                "workers counts those on the processors, but devices names only GPUs",
                field="workers",
            )
        total = len(gpus) + count
        threads = self.args.threads or max(1, usable_processors() // total)
        memory = self.args.memory or int(_OFFERED * available_memory() / total)
        visible = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x.strip()]
        for gpu in gpus:
            number = int(gpu.removeprefix("cuda"))
            identifier = visible[number] if number < len(visible) else str(number)
            more = {"CUDA_VISIBLE_DEVICES": identifier}
            self.slots.append(_Slot(gpu, _environment("cuda", threads, memory, more)))
        for number in range(count):
            self.slots.append(_Slot(f"cpu{number}", _environment("cpu", threads, memory, {"CUDA_VISIBLE_DEVICES": ""})))

    def run(self) -> None:
        """Keep all workers running until SIGTERM or SIGINT; then end them."""
        stopping = False

        def stop(_number: int, _frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        with tempfile.TemporaryDirectory(prefix="apsp-worker-") as folder:
            try:
                while not stopping:
                    for slot in self.slots:
                        self._look(slot, folder)
                    time.sleep(_PAUSE)
            finally:
                self._end()
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _look(self, slot: _Slot, folder: str) -> None:
        now = time.monotonic()
        if slot.process is not None and (code := slot.process.poll()) is not None:
            # restart also after status 0, with which a worker ends when its scheduler is lost
            slot.wait = _FIRST_WAIT if now - slot.born > _HEALTHY else min(2 * slot.wait, _LONGEST_WAIT)
            slot.process, slot.due = None, now + slot.wait
            log.warning("worker %s ended with status %d; it is started again in %.1f s", slot.name, code, slot.wait)
        if slot.process is None and now >= slot.due:
            slot.process, slot.born = self._start(slot, folder), now

    def _start(self, slot: _Slot, folder: str) -> subprocess.Popen[bytes]:
        kind = "GPU" if slot.environment["APSP_WORKER_DEVICE"] == "cuda" else "CPU"
        words = [
            *(sys.executable, "-m", "distributed.cli.dask_worker", self.args.scheduler),
            *("--nthreads", str(_THREADS[kind]), "--resources", f"{kind}=1", "--memory-limit", "0"),
            *("--no-nanny", "--no-dashboard", "--death-timeout", "60", "--local-directory", folder),
            *("--name", f"apsp-{socket.gethostname()}-{os.getpid()}-{slot.name}-{int(time.time() * 1000):x}"),
        ]
        if self.args.host is not None:
            words += ["--host", self.args.host]
        return subprocess.Popen(words, env=slot.environment, preexec_fn=_with_parent)  # noqa: S603, PLW1509

    def _end(self) -> None:
        running = [slot.process for slot in self.slots if slot.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + _GRACE
        for process in running:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment(device: str, threads: int, memory: int, more: dict[str, str]) -> dict[str, str]:
    own = {
        "APSP_WORKER_DEVICE": device,
        "APSP_WORKER_THREADS": str(threads),
        "APSP_WORKER_MEMORY": str(memory),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")])
        ),
    }
    return {**_SETTINGS, **os.environ, **own, **more}


def _with_parent() -> None:
    """Run in the new process (preexec_fn): have the kernel send it SIGTERM when its parent dies (PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
