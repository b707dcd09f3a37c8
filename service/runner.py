"""A runner process: claims jobs and solves them, one after the other, until it is told to stop.

Run as ``python -m service.runner DEVICE`` with the settings in the environment; DEVICE is ``cpu`` or ``cuda0``,
``cuda1`` ...  There is one runner for each device of a node, which a lock guarantees: so a job of this slot that is
*running* while the lock is being taken has lost its runner.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from service import checkpoints, logs
from service.checkpoints import tidy
from service.fault import Fault, fault_of
from service.figures import Figures
from service.joblog import job_log
from service.probe import probe
from service.settings import Settings
from service.stores import discard, has_result, prepare, result_bytes, result_place, sweep
from service.tracker import JobMonitor, Pulse
from service.warmth import WarmUp
from storage.atomic import failure
from storage.errors import ApspError, Cancelled, Conflict, StorageFailed
from storage.jobs import JobRecord, JobStore, RunnerRecord
from storage.locks import FileLock

if TYPE_CHECKING:
    from engine.solve import Outcome

log = logging.getLogger(__name__)

#: seconds between two looks at an empty queue, unless somebody says that there is a job
_IDLE_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
#: seconds between two probes of a GPU that failed the last one: the first, and the longest
_PROBE_PAUSES: Final = (10.0, 300.0)
#: argument that makes the runner stop when its standard input ends, that is when its parent is gone
WITH_PARENT: Final = "--with-parent"
#: exit status of a runner whose GPU has to be started afresh
DEVICE_LOST: Final = 3


class Runner:
    """The runner of one device.

    Args:
        settings: of the service.
        stopping: set to make it stop at the next tile or batch.
        device: ``cpu``, or ``cuda`` and a number.
        wake: set by whoever knows of a new job.
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
        self._monitor: JobMonitor | None = None
        self._figures = Figures(device)
        #: the GPU has to be started afresh, which takes a new process
        self.device_lost = False
        self._probed: float | None = None

    def run(self) -> None:
        """Settle what a dead runner left, then work until told to stop.  No job's failure ends this loop."""
        self._until_stored(self._recover)
        warm_up = WarmUp()
        told: float | None = None
        while not self._stopping.is_set() and not self.device_lost:
            try:
                if told is None or time.monotonic() - told >= self._settings.heartbeat_seconds:
                    if self._device != "cpu" and not self._answers():
                        break
                    self.announce("idle")
                    told = time.monotonic()
                claimed = self._jobs.claim(self._name, cuda=self._device != "cpu")
            except StorageFailed as error:
                log.error("no job can be claimed: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            if claimed is not None:
                self.work(claimed)
            elif not warm_up.step():
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
        self._end()

    def interrupt(self) -> None:
        """Stop at the next tile; at once, by raising Cancelled, if the job that is solved was cancelled."""
        self._stopping.set()
        self._wake.set()
        if self._monitor is not None and self._monitor.asked and not self._monitor.interrupted:
            self._monitor.interrupted = True
            raise Cancelled("the job was cancelled")

    def announce(self, state: str, detail: str | None = None) -> None:
        """Say that this runner is there, and how it is."""
        figures = self._figures.read()
        self._jobs.announce(RunnerRecord(self._slot, self._name, self._device, state, detail, time.time(), figures))

    def work(self, claimed: JobRecord) -> None:
        """Bring one claimed job to an end, whatever happens."""
        with job_log(self._settings, claimed.id):
            logs.JOB_ID.set(claimed.id)
            log.info("job %s: attempt %d begins on %s", claimed.id, claimed.attempt, self._name)
            self._work(claimed)

    def _work(self, claimed: JobRecord) -> None:
        monitor = JobMonitor(self._jobs, claimed, self._stopping, self._figures.step)
        try:
            with Pulse(monitor, self._settings.heartbeat_seconds, lambda: self.announce("busy", claimed.id)):
                self._monitor = monitor
                try:
                    summary, seconds, size = self._solve(claimed, monitor)
                finally:
                    self._monitor = None
            # said first: whoever learns that the job is over finds its log complete
            log.info("job %s: done in %.3g s", claimed.id, sum(seconds.values()))
            if not self._until_stored(lambda: self._jobs.succeed(claimed, summary, seconds, size)):
                log.error("job %s: its end was not stored; whoever holds the job now ends it", claimed.id)
        except Cancelled:
            self._stopped(claimed, monitor)
        except Exception as error:
            if not isinstance(error, ApspError):
                log.exception("job %s: unexpected error", claimed.id)
            self._failed(claimed, monitor, fault_of(error))

    def _solve(self, claimed: JobRecord, monitor: JobMonitor) -> tuple[dict[str, Any], dict[str, float], int]:
        """Load, plan, solve, seal; returns summary, seconds of each phase and bytes of the store."""
        from service.tasks import job_options
        from storage.graphs import GraphStore

        store = self._settings.store(claimed.id)
        address = self._settings.address(claimed.id)
        if has_result(self._settings, claimed.id):  # of an earlier attempt, whose runner died before it could say so
            log.info("job %s: the result of an earlier attempt is complete", claimed.id)
            return self._sealed(claimed), {}, result_bytes(self._settings, claimed.id)
        tidy(self._settings, claimed.id)
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure("make", store.parent, error) from error
        began = time.perf_counter()
        graph, _ = GraphStore(self._settings.data_dir, self._settings.store_url).load(claimed.graph)
        options = job_options(graph, claimed.options, self._settings)
        checkpoints.fetch(store, address)
        plan = checkpoints.plan(graph, options, store)
        loaded = time.perf_counter() - began
        if _differs(plan.to_dict(), claimed.plan):
            self._jobs.replan(claimed, plan.to_dict())
        monitor.follow(plan)
        log.info("job %s: %s in %s on %s: %s", claimed.id, plan.algorithm, plan.dtype, plan.device, plan.reason)

        def attempt() -> Outcome:
            compression = self._settings.compression
            return checkpoints.solve(
                graph, options, store, plan=plan, compression=compression, monitor=monitor, address=address
            )

        try:
            outcome = attempt()
        except Conflict as error:
            if address is not None and has_result(self._settings, claimed.id):  # another runner was faster
                return self._sealed(claimed), {}, result_bytes(self._settings, claimed.id)
            # A checkpoint of something else, or one that a runner which was given up still holds: out of its way.
            log.warning("job %s: %s; it begins anew", claimed.id, error)
            discard(self._settings, claimed.id, logs=False)
            outcome = attempt()
        return outcome.summary, {"load": loaded, **outcome.seconds}, result_bytes(self._settings, claimed.id)

    def _sealed(self, claimed: JobRecord) -> dict[str, Any]:
        from storage.matrix import open_matrix

        with open_matrix(result_place(self._settings, claimed.id)) as matrix:
            return dict(matrix.summary)

    def _stopped(self, claimed: JobRecord, monitor: JobMonitor) -> None:
        """The solve stopped on request: whose?"""
        if monitor.lost:
            log.error("job %s: the claim was lost; leaving it alone", claimed.id)
            return
        tidy(self._settings, claimed.id)
        if monitor.asked:
            log.info("job %s: cancelled", claimed.id)
            self._until_stored(lambda: self._jobs.dismiss(claimed))
        else:
            log.info("job %s: given back, the runner stops", claimed.id)
            self._until_stored(lambda: self._jobs.release(claimed))

    def _failed(self, claimed: JobRecord, monitor: JobMonitor, fault: Fault) -> None:
        log.error("job %s failed: %s: %s", claimed.id, fault.code, fault.message)
        if monitor.lost:
            return
        tidy(self._settings, claimed.id)
        if self._device != "cpu" and fault.code in ("solve-failed", "internal"):
            self.device_lost = True  # an error that CUDA reports may stick to the process
            if (sick := self._probe()) is not None:
                most = self._settings.max_attempts
                reason = f"{fault.message}; the probe of {self._device} failed: {sick}"
                self._until_stored(lambda: self._jobs.lose(claimed, reason, max_attempts=most))
                return
        self._until_stored(lambda: self._jobs.fail(claimed, fault.to_dict()))

    def _answers(self) -> bool:
        """Whether the idle GPU is still there; False also if told to stop meanwhile.

        A process that uses it asks it for its memory; one that does not (yet) has it probed now and then.
        """
        modules = sys.modules.get("engine.backends.cuda_modules") if "cupy" in sys.modules else None
        if modules is not None:
            self.device_lost = modules.memory_in_use() is None
            if self.device_lost:
                log.error("%s does not answer any more: it is started afresh and probed", self._slot)
            return not self.device_lost
        if self._probed is None or time.monotonic() - self._probed >= _PROBE_PAUSES[1]:
            healthy = self._healthy()
            self._probed = time.monotonic()
            return healthy
        return True

    def _healthy(self) -> bool:
        """Wait until the GPU computes; False if told to stop meanwhile."""
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
        # this process sees one device only, which is its first
        return probe(0, self._settings.probe_seconds)

    def _recover(self) -> None:
        most = self._settings.max_attempts
        for record in self._jobs.recover(self._slot, living=self._name, max_attempts=most):
            log.warning("job %s lost its runner in attempt %d and is now %s", record.id, record.attempt, record.state)
            if not record.open:
                tidy(self._settings, record.id)
        for path in sweep(self._settings, self._jobs):
            log.warning("%s belonged to no job and was removed", path)

    def _until_stored(self, write: Callable[[], object]) -> object:
        """The end of a job must be recorded: try until it is.  Told to stop, the next runner settles the job.

        Returns what ``write`` returned; None if it was given up.
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
            log.warning("the runner ends without a word: %s", error)
        self._jobs.close()


def _differs(plan: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether another way is followed than was shown; figures that follow the free memory do not count."""
    names = ("algorithm", "dtype", "device", "threads", "max_hops", "tier")
    return not stored or any(plan.get(name) != stored.get(name) for name in names)


def main() -> None:
    """Entry of the runner process."""
    settings = Settings.load()
    device = next((word for word in sys.argv[1:] if not word.startswith("-")), "cpu")
    logs.configure("runner", settings.log_format)
    stopping, wake = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if WITH_PARENT in sys.argv[1:]:
        threading.Thread(target=_watch_parent, args=(stopping, wake), daemon=True).start()
    os.nice(settings.runner_nice)
    lock = FileLock(settings.runner_lock(device))
    try:
        # A runner of a service that was killed may still be on its way to the next tile.
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
    lock.release()
    sys.exit(DEVICE_LOST if runner.device_lost else 0)


def _watch_parent(stopping: threading.Event, wake: threading.Event) -> None:
    """Each byte from the parent says that there is a job; the end of them, that the parent is gone."""
    # not through sys.stdin: its lock, held by a waiting thread, makes the interpreter abort at exit
    while os.read(0, 1024):
        wake.set()
    stopping.set()
    wake.set()


if __name__ == "__main__":
    main()
