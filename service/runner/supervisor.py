"""Keeps the runners of one node alive, kills those that do not stop, and takes jobs from runners without heartbeat.

Used by ``apsp serve`` in the API process, and by ``apsp runner`` on any node that has access to the database and the
store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from service import logs
from service.jobs.folders import check_store
from service.runner import processes
from service.runner.gpus import devices, of_runner, with_shares
from service.runner.leases import Leases
from service.runner.runner import DEVICE_LOST, WITH_PARENT
from service.settings import Settings
from storage.errors import DatabaseFailed, StorageFailed
from storage.jobs.store import JobRecord, JobStore, RunnerRecord
from storage.threads import set_from_handler

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
#: if a runner has lived for this many seconds, its end does not count as a failed start
_HEALTHY_SECONDS: Final = 30.0
#: seconds between two checks of the running jobs
_WATCH_SECONDS: Final = 0.5


class RunnerProcess:
    """Keeps one runner process alive until it is stopped; the pause between failed starts doubles.

    ``ended`` is called with the slot and a reason when the process has ended abnormally.
    """

    def __init__(
        self,
        settings: Settings,
        device: str = "cpu",
        *,
        ended: Callable[[str, str], None] = lambda _slot, _reason: None,
    ) -> None:
        self.device, self.slot = device, settings.slot(device)
        self._settings, self._ended = settings, ended
        self._stopping, self._notifying = threading.Event(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name=f"watch-{device}", daemon=True)

    def start(self) -> None:
        """Start the runner and the thread that watches it."""
        self._thread.start()

    def wake(self) -> None:
        """Notify the runner of a job; without the notification, it finds the job a little later."""
        process = self._process
        if process is not None and process.stdin is not None:
            with self._notifying, contextlib.suppress(OSError, ValueError):  # the pipe is full or closed
                os.write(process.stdin.fileno(), b"!")

    def signal(self, number: signal.Signals, name: str) -> None:
        """Send a signal to the runner if its process is still the one called ``name``, ``SLOT:PID``."""
        process = self._process
        if process is not None and name == f"{self.slot}:{process.pid}" and process.poll() is None:
            process.send_signal(number)

    def terminate(self) -> None:
        """Ask the runner to stop at the next tile and to return its job to the queue; it is not restarted."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def stop(self) -> None:
        """Terminate the runner, and kill it if that takes too long."""
        self.terminate()
        process = self._process
        if process is not None:
            try:
                process.wait(self._settings.stop_seconds)
            except subprocess.TimeoutExpired:
                log.warning("the runner did not stop in %g s and is killed", self._settings.stop_seconds)
                process.kill()
                process.wait()
        self._thread.join()

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            born = time.monotonic()
            self._process = process = self._spawn()
            if self._stopping.is_set():  # terminate() was called while the process was being started
                process.terminate()
            code = process.wait()
            if process.stdin is not None:
                # a file that is opened next may get the pipe's descriptor, and must not be written
                with self._notifying:
                    process.stdin.close()
            if code != 0:
                self._ended(self.slot, f"the runner {_ending(code)}")
            if self._stopping.is_set():
                return
            if code in (0, DEVICE_LOST):
                pause = _FIRST_PAUSE
                continue
            pause = _FIRST_PAUSE if time.monotonic() - born > _HEALTHY_SECONDS else min(2 * pause, _LONGEST_PAUSE)
            log.error("the runner of %s %s; a new one starts in %.3g s", self.slot, _ending(code), pause)
            self._stopping.wait(pause)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # The runner stops when its standard input ends, which happens however this process ends.  It runs in a separate
        # session, where the terminal's interrupt does not reach it: the API gets that interrupt, and must stop first.
        environment = {**os.environ, **of_runner(self._settings, self.device)}
        process = subprocess.Popen(  # noqa: S603 - nothing in it comes from outside
            [sys.executable, "-m", "service.runner.runner", self.device, WITH_PARENT],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
        return process


class Supervisor:
    """All runners of one node.

    Args:
        settings: the settings of the service.
        jobs: the job store, which the supervisor does not close.
    """

    def __init__(self, settings: Settings, jobs: JobStore) -> None:
        self._settings, self._jobs = settings, jobs
        names = devices(settings.runners, settings.gpus_per_runner)
        self.runners = [RunnerProcess(settings, device, ended=self._ended) for device in names]
        self._leases = Leases(settings.lease_seconds, gap=4 * _WATCH_SECONDS)
        self._signs = Leases(settings.lease_seconds, gap=4 * _WATCH_SECONDS)
        self._asked: dict[tuple[str, int], float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the runners and the thread that watches their jobs."""
        for runner in self.runners:
            runner.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop all runners concurrently."""
        self._stopping.set()
        self._thread.join()
        for runner in self.runners:
            runner.terminate()
        for runner in self.runners:
            runner.stop()

    def wake(self) -> None:
        """Notify all runners of a new job."""
        for runner in self.runners:
            runner.wake()

    def look(self, now: float) -> None:
        """Check the running jobs once, at ``now`` (seconds of a monotonic clock)."""
        beats = self._jobs.beats()
        if beats:
            for runner in self.runners:
                self._end_cancelled(runner, now)
        self._end_blocking(now)
        for beat in self._leases.overdue(beats, now):
            self._take(beat)

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_SECONDS):
            try:
                self.look(time.monotonic())
            except StorageFailed as error:
                log.error("the running jobs cannot be watched: %s", error)
            except Exception:
                log.exception("the running jobs cannot be watched")

    def _end_cancelled(self, runner: RunnerProcess, now: float) -> None:
        """Send SIGTERM, and later SIGKILL, to the runner of a cancelled job that does not stop."""
        found = {(job.id, job.fence): job for job in self._jobs.asked_to_cancel(runner.slot)}
        others = {key: since for key, since in self._asked.items() if key in found}
        self._asked = {**others, **{key: now for key in found if key not in others}}
        for key, job in found.items():
            waited = now - self._asked[key]
            term = self._settings.cancel_term_seconds
            if waited >= term + self._settings.cancel_kill_seconds:
                log.warning("job %s does not stop: its runner is killed", job.id)
                runner.signal(signal.SIGKILL, job.runner or "")
            elif waited >= term:
                runner.signal(signal.SIGTERM, job.runner or "")

    def _end_blocking(self, now: float) -> None:
        """Send SIGKILL to suspended runners of this machine that hold the lock of the database.

        A transaction takes milliseconds, but a process that is suspended within a transaction blocks all other writers.
        """
        signs = {f"{runner.name} {runner.heartbeat}": runner for runner in self._jobs.list_runners()}
        silent = self._signs.overdue([(sign, 0, 0) for sign in signs], now)
        found = [signs[sign[0]] for sign in silent if processes.stopped(_process(signs[sign[0]]))]
        if not found:
            return
        try:
            self._jobs.ping()
        except DatabaseFailed as error:
            for runner in found:
                if processes.kill(_process(runner)):
                    log.warning("%s is suspended and is killed, because it blocks the database: %s", runner.name, error)

    def _take(self, beat: tuple[str, int, int]) -> None:
        job = self._jobs.job(beat[0])
        for other in self._jobs.list_runners():
            if other.name == job.runner and processes.stopped(_process(other)) and processes.kill(_process(other)):
                log.warning("%s was suspended beyond its lease and is killed", other.name)
        try:
            self._jobs.ping()
        except DatabaseFailed:
            self._leases.forget()  # no runner could store a heartbeat, so none counts as silent
            raise
        for runner in self.runners:
            # a hanging or suspended runner of this node must not resume and write into another runner's job
            runner.signal(signal.SIGKILL, job.runner or "")
        reason = f"the runner gave no sign of life for {self._settings.lease_seconds:g} s"
        settled = self._jobs.expire(beat, reason, max_attempts=self._settings.max_attempts)
        if settled is not None:
            _tell(settled, reason)

    def _ended(self, slot: str, reason: str) -> None:
        """Queue or fail the job of a runner that ended abnormally, without waiting for its lease to expire."""
        try:
            for settled in self._jobs.recover(slot, reason=reason, max_attempts=self._settings.max_attempts):
                _tell(settled, reason)
        except StorageFailed as error:
            log.error("%s will settle its jobs after its restart: %s", slot, error)


def _process(runner: RunnerRecord) -> object:
    return (runner.figures or {}).get("process")


def _tell(settled: JobRecord, reason: str) -> None:
    log.warning("job %s: attempt %d: %s; it is %s now", settled.id, len(settled.history), reason, settled.state)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}" + (" (perhaps because memory ran out)" if name == "SIGKILL" else "")


def supervise(settings: Settings) -> None:
    """Run the runners of this node until SIGTERM or SIGINT; this is the command ``apsp runner``."""
    logs.configure("runners", settings.log_format)
    settings = with_shares(settings.model_copy(update={"data_dir": settings.data_dir.absolute()}))
    check_store(settings)
    stopping = threading.Event()
    ends = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: set_from_handler(stopping)) for number in ends}
    jobs = JobStore(settings.database, timeout=settings.database_timeout)
    supervisor = Supervisor(settings, jobs)
    supervisor.start()
    try:
        print(f"apsp runs {', '.join(r.slot for r in supervisor.runners) or 'no runner'}", flush=True)
        while not stopping.wait(3600):
            pass
    finally:
        supervisor.stop()
        jobs.close()
        for number, handler in before.items():
            signal.signal(number, handler)
