"""A runner process, which claims jobs and solves them one after the other until it is stopped.

Run as ``python -m service.runner.runner DEVICE`` with the settings in the environment; DEVICE is ``cpu``, ``cuda0``,
``cuda1`` ... ``cuda0-3`` for four GPUs, or ``short`` for the runner that takes short jobs only.  Locks guarantee one
runner for each device of a node.  If a job of this device is still marked *running* when the locks are acquired, the
runner that solved it is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, Final

from service import logs
from service.api.fault import Fault, fault_of, for_want_of_disk, without_paths
from service.jobs import checkpoints, claims
from service.jobs.folders import has_result, prepare, result_bytes, result_place, sweep, trash
from service.jobs.joblog import job_log
from service.pool.tabled import wants_table
from service.runner import processes
from service.runner.gpu_probe import probe
from service.runner.gpus import SHORT, numbers, singles
from service.runner.making import Task
from service.runner.metrics import RunnerMetrics
from service.runner.short import ShortJobs
from service.runner.tracker import Heartbeat, JobMonitor
from service.runner.warmup import WarmUp
from service.settings import Settings
from storage.errors import ApspError, Cancelled, DoesNotFit, NotFound, StorageFailed
from storage.files.locks import FileLock
from storage.jobs.store import SUCCESSFUL, JobRecord, JobStore, RunnerRecord
from storage.semirings import EVERY
from storage.threads import set_from_handler

log = logging.getLogger(__name__)

#: seconds between two queries of an empty queue, unless the runner is notified of a job
_IDLE_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
#: most seconds to wait until a runner whose lease has expired releases the checkpoint of the job
_PATIENCE: Final = 3.0
#: seconds in which the runner claims no job after a full disk: the first pause, and the longest
_DISK_PAUSES: Final = (5.0, 300.0)
#: seconds between two probes of a failed GPU: the first pause, and the longest
_PROBE_PAUSES: Final = (10.0, 300.0)
#: argument that makes the runner stop when its standard input ends, because its parent has ended
WITH_PARENT: Final = "--with-parent"
_ANEW: Final = "no checkpoint was kept, so it starts from the beginning"
#: exit status of a runner whose process cannot use its GPU any more, but a new process may
DEVICE_LOST: Final = 3


class Runner:
    """The runner of one device.

    Args:
        settings: the settings of the service.
        stopping: an event; when it is set, the runner stops at the next tile or batch.
        device: ``cpu``, ``short``, or ``cuda`` and a number or a range of numbers.
        wake: an event that is set when there is a new job.
    """

    def __init__(
        self, settings: Settings, stopping: threading.Event, device: str = "cpu", wake: threading.Event | None = None
    ) -> None:
        prepare(settings)
        self._settings, self._stopping, self._device = settings, stopping, device
        self._wake = wake or threading.Event()
        self._jobs = JobStore(settings.database, timeout=settings.database_timeout)
        self._slot = settings.slot(device)
        self._name = f"{self._slot}:{os.getpid()}"
        self._short = ShortJobs(settings, self._jobs, self._name) if device == SHORT else None
        self._monitor: JobMonitor | None = None
        self._metrics = RunnerMetrics(device)
        #: whether only a new process can use the GPU again
        self.device_lost = False
        self._probed: float | None = None
        #: ``_pause``: seconds of the last pause because of a full disk; ``_rests_until``: the time at which it ends
        self._pause = self._rests_until = 0.0

    def run(self) -> None:
        """End the claims of a dead predecessor, then work until stopped.  A failing job does not end this loop."""
        self._until_stored(self._recover)
        warm_up = WarmUp(compiles=self._device != SHORT)
        told: float | None = None
        while not self._stopping.is_set() and not self.device_lost:
            try:
                if told is None or time.monotonic() - told >= self._settings.heartbeat_seconds:
                    if numbers(self._device) and not self._answers():
                        break
                    self.announce("idle")
                    told = time.monotonic()
                job = self._claimed()
            except StorageFailed as error:
                log.error("no job can be claimed: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            if job is not None:
                warm_up.pause()
                self.work(job)
            elif not warm_up.step():
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
        warm_up.pause()
        self._end()

    def _claimed(self) -> JobRecord | None:
        if time.monotonic() < self._rests_until:
            return None
        return self._short.claim() if self._short else self._jobs.claim(self._name, cuda=bool(numbers(self._device)))

    def interrupt(self) -> None:
        """Make the runner stop at the next tile; if its job was cancelled, raise Cancelled to stop at once.

        This is for signal handlers.
        """
        set_from_handler(self._stopping, self._wake)
        if self._monitor is not None and self._monitor.asked and not self._monitor.interrupted:
            self._monitor.interrupted = True
            raise Cancelled("the job was cancelled")

    def announce(self, state: str, detail: str | None = None) -> None:
        """Store the state of this runner with the present time: its heartbeat."""
        figures = {**self._metrics.read(), "process": processes.own()}
        self._jobs.announce(RunnerRecord(self._slot, self._name, self._device, state, detail, time.time(), figures))

    def work(self, job: JobRecord) -> None:
        """Solve one claimed job and store how it ended, even if it fails."""
        with job_log(self._settings, job.id, job.fence):
            logs.JOB_ID.set(job.id)
            log.info("job %s: attempt %d begins on %s", job.id, job.attempt, self._name)
            self._work(job)

    def _work(self, job: JobRecord) -> None:
        others_wait = self._short.wait_for if self._short else None
        monitor = JobMonitor(self._jobs, job, self._stopping, self._metrics.step, others_wait=others_wait)
        try:
            with Heartbeat(monitor, self._settings.heartbeat_seconds, lambda: self.announce("busy", job.id)):
                self._monitor = monitor
                try:
                    summary, seconds, size = self._solve(job, monitor)
                finally:
                    self._monitor = None
            # logged first, so that the log is complete when the job has ended
            log.info("job %s: done in %.3g s", job.id, sum(seconds.values()))
            self._pause = 0.0
            if not self._until_stored(lambda: self._jobs.succeed(job, summary, seconds, size)):
                log.error("job %s: its end was not stored; the runner that holds the job now will end it", job.id)
        except Cancelled:
            self._stopped(job, monitor)
        except Exception as error:
            if not isinstance(error, ApspError):
                log.exception("job %s: unexpected error", job.id)
                if monitor.interrupted:  # a library may turn the exception of a cancellation into a different one
                    self._stopped(job, monitor)
                    return
            self._failed(job, monitor, without_paths(fault_of(error), self._settings.data_dir))

    def _solve(self, job: JobRecord, monitor: JobMonitor) -> tuple[dict[str, Any], dict[str, float], int]:
        """Load, plan, solve and seal; return the summary, the seconds of each phase, and the bytes of the store."""
        from engine.graph.profile import GraphProfile
        from service.pool.tasks import job_options, with_asked
        from storage.graph.graph_store import GraphStore

        store, address = self._settings.store(job.id), self._settings.address(job.id)
        rubbish, patience = trash(self._settings), min(_PATIENCE, self._settings.heartbeat_seconds)
        if has_result(self._settings, job.id) or claims.begin(store, job.fence, rubbish, patience):
            log.info("job %s: the result of an earlier attempt is complete", job.id)
            return self._sealed(job)
        if job.fence > 1:
            own = claims.kept_record(claims.place(store, job.fence)) is not None
            kept = own or checkpoints.has_checkpoint(store, address)
            log.info("job %s: %s", job.id, "goes on from its checkpoint" if kept else _ANEW)
        place = claims.place(store, job.fence)
        began = time.perf_counter()
        uploaded, _ = GraphStore(self._settings.data_dir, self._settings.store_url).load(job.graph)
        # the stored graph has the column name of its first upload, which may be another user's
        uploaded = replace(uploaded, weight_column=None)
        graph = with_asked(uploaded, job.options, self._settings)
        options = job_options(graph, job.options, self._settings)
        checkpoints.fetch(place, address)
        profile = GraphProfile(graph)
        with contextlib.closing(Task(self._settings, job, profile, options)) as task:
            plan = task.plan(monitor)
            loaded = time.perf_counter() - began
            if _differs(plan.to_dict(), job.plan):
                self._until_stored(lambda: self._jobs.replan(job, plan.to_dict()))
            monitor.follow(plan)
            log.info("job %s: %s in %s on %s: %s", job.id, plan.algorithm, plan.dtype, plan.device, plan.reason)
            outcome = task.make(plan, monitor)
        if outcome is None:
            return self._sealed(job)
        if address is None:
            claims.publish(store, job.fence, rubbish)
        summary, _, size = self._sealed(job)  # the published store may be the work of another claim
        return summary, {"load": loaded, **outcome.seconds}, size

    def _sealed(self, job: JobRecord) -> tuple[dict[str, Any], dict[str, float], int]:
        """Return the summary of the finished store, an empty dict (no seconds of phases are known), and its bytes."""
        from engine.api.prepared_matrix import open_result
        from storage.tables.reader import open_table

        self._tidy(job, solved=True)
        open_sealed = open_table if wants_table(job.options) else partial(open_result, semiring=EVERY)
        with open_sealed(result_place(self._settings, job.id)) as result:
            return dict(result.summary), {}, result_bytes(self._settings, job.id)

    def _tidy(self, job: JobRecord, *, solved: bool = False) -> None:
        claims.tidy(self._settings.store(job.id), job.fence, trash(self._settings), solved=solved)

    def _let_go(self, job: JobRecord) -> None:
        """Clean up after the claim was lost.  If the job has a result, the claim's files are removed; else they stay
        for the runner that holds the job now.
        """
        log.error("job %s: the claim was lost, so this runner stops to work on it", job.id)
        with contextlib.suppress(StorageFailed, NotFound):
            if self._jobs.job(job.id).state == SUCCESSFUL:
                self._tidy(job, solved=True)

    def _stopped(self, job: JobRecord, monitor: JobMonitor) -> None:
        """Store why the solve was stopped: the job was cancelled, gives way to short jobs, or the runner stops.  If the
        claim is lost, nothing is stored.
        """
        if monitor.lost:
            self._let_go(job)
            return
        self._tidy(job)
        if monitor.asked:
            log.info("job %s: cancelled", job.id)
            self._until_stored(lambda: self._jobs.dismiss(job))
        elif monitor.gives_way:
            log.info("job %s: it returns to the queue for another runner: it is not short, and short jobs wait", job.id)
            self._until_stored(lambda: self._jobs.release(job, predicted=False))
        else:
            log.info("job %s: it returns to the queue, because the runner stops", job.id)
            self._until_stored(lambda: self._jobs.release(job))

    def _failed(self, job: JobRecord, monitor: JobMonitor, fault: Fault) -> None:
        log.error("job %s failed: %s: %s", job.id, fault.code, fault.message)
        if monitor.lost:
            self._let_go(job)
            return
        self._tidy(job)
        if for_want_of_disk(fault.to_dict()):
            self._put_back(job, fault)
            return
        if self._device == SHORT and fault.code == DoesNotFit.kind:
            log.info("job %s: it returns to the queue for a runner with more memory", job.id)
            self._until_stored(lambda: self._jobs.release(job, predicted=False))
            return
        if numbers(self._device) and fault.code in ("solve-failed", "internal"):
            self.device_lost = True  # after a CUDA error the process may stay unusable
            if (sick := self._probe()) is not None:
                most = self._settings.max_attempts
                reason = f"{fault.message}; the probe of {self._device} failed: {sick}"
                self._until_stored(lambda: self._jobs.lose(job, reason, max_attempts=most))
                return
        if self._until_stored(lambda: self._jobs.fail(job, fault.to_dict())) is False:
            self._let_go(job)

    def _put_back(self, job: JobRecord, fault: Fault) -> None:
        """Queue a job again, because the disk is full, and pause.  The attempt counts as if the runner were lost."""
        most, error = self._settings.max_attempts, fault.to_dict()
        self._until_stored(lambda: self._jobs.lose(job, fault.message, max_attempts=most, error=error))
        first, longest = _DISK_PAUSES
        self._pause = min(2 * self._pause, longest) if self._pause else first
        self._rests_until = time.monotonic() + self._pause
        log.warning("this runner starts no job for %g s: %s", self._pause, fault.message)

    def _answers(self) -> bool:
        """Return whether the idle GPU still works; False also if the runner is stopped meanwhile.

        A process that has used the GPU queries the GPU's memory; otherwise the GPU is probed at intervals.
        """
        modules = sys.modules.get("engine.devices.cuda.context") if "cupy" in sys.modules else None
        if modules is not None:
            self.device_lost = modules.memory_in_use() is None
            if self.device_lost:
                log.error("%s does not answer any more; its runner is restarted and the GPU is probed", self._slot)
            return not self.device_lost
        if self._probed is None or time.monotonic() - self._probed >= _PROBE_PAUSES[1]:
            healthy = self._healthy()
            self._probed = time.monotonic()
            return healthy
        return True

    def _healthy(self) -> bool:
        """Wait until the GPU computes; False if the runner is stopped meanwhile."""
        pause, longest = _PROBE_PAUSES
        while (sick := self._probe()) is not None:
            log.error("%s is out of service: %s; it is probed again in %g s", self._slot, sick, pause)
            until = time.monotonic() + pause
            while time.monotonic() < until:
                self._until_stored(lambda: self.announce("sick", sick))
                if self._stopping.wait(min(pause, self._settings.heartbeat_seconds)):
                    return False
            pause = min(2 * pause, longest)
        return True

    def _probe(self) -> str | None:
        """Return None if every GPU of this runner computes, else the reason why one does not."""
        # this process sees its own devices only, so their numbers begin at 0
        group = numbers(self._device)
        for seen, number in enumerate(group):
            if (sick := probe(seen, self._settings.probe_seconds)) is not None:
                return sick if len(group) == 1 else f"GPU {number}: {sick}"
        return None

    def _recover(self) -> None:
        most = self._settings.max_attempts
        for record in self._jobs.recover(self._slot, living=self._name, max_attempts=most):
            log.warning("job %s lost its runner in attempt %d and is now %s", record.id, record.attempt, record.state)
            if not record.open:
                self._tidy(record)
        for path in sweep(self._settings, self._jobs):
            log.warning("%s belonged to no job and was removed", path)

    def _until_stored(self, write: Callable[[], object]) -> object:
        """Repeat ``write`` until it succeeds, because the end of a job must be stored.

        Returns:
            The result of ``write``; None if the runner is stopped first; the next runner of the device then settles the
            job.
        """
        while True:
            try:
                return write()
            except StorageFailed as error:
                log.error("%s; trying again", error)
            if self._stopping.wait(_RETRY_SECONDS):
                return None

    def _end(self) -> None:
        try:
            self._jobs.withdraw(self._name)
        except StorageFailed as error:
            log.warning("the runner ends, but its record cannot be removed: %s", error)
        self._jobs.close()


def _differs(plan: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Return whether a plan differs from the stored one in more than numbers that depend on the free memory."""
    names = ("algorithm", "dtype", "device", "threads", "max_hops", "tier")
    return not stored or any(plan.get(name) != stored.get(name) for name in names)


def main() -> None:
    """Entry of the runner process."""
    settings = Settings.load()
    device = next((word for word in sys.argv[1:] if not word.startswith("-")), "cpu")
    logs.configure("runner", settings.log_format)
    stopping, wake = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: set_from_handler(stopping))
    if WITH_PARENT in sys.argv[1:]:
        threading.Thread(target=_watch_parent, args=(stopping, wake), daemon=True).start()
    os.nice(settings.runner_nice)
    locks = [FileLock(settings.runner_lock(single)) for single in singles(device)]
    try:
        # The runner of a killed service holds these locks until it has written its tile, so wait for them.
        for lock in locks:
            lock.acquire(timeout=settings.stop_seconds)
    except ApspError as error:
        log.error("another runner works on %s: %s", settings.slot(device), error)
        sys.exit(1)
    runner = Runner(settings, stopping, device, wake)

    def stop(_number: int, _frame: FrameType | None) -> None:
        runner.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    runner.run()
    for lock in locks:
        lock.release()
    sys.exit(DEVICE_LOST if runner.device_lost else 0)


def _watch_parent(stopping: threading.Event, wake: threading.Event) -> None:
    """Read the standard input: each byte from the parent announces a job; its end means that the parent has ended."""
    # A thread that waits in sys.stdin holds its lock, and the interpreter then aborts at exit; os.read takes no lock.
    while os.read(0, 1024):
        wake.set()
    stopping.set()
    wake.set()


if __name__ == "__main__":
    main()
