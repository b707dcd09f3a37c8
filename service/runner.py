"""The runner process: claims jobs and solves them, one after the other, until it is told to stop.

Run as ``python -m service.runner`` with the settings in the environment.  It is the only runner of its data
directory, which a lock guarantees: so a job that is *running* while the lock is being taken has lost its runner.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from service import logs
from service.fault import fault_of
from service.settings import Settings
from service.stores import discard, prepare, sweep
from service.tracker import JobMonitor
from storage.errors import ApspError, Cancelled, StorageFailed
from storage.jobs import ACCEPTED, JobRecord, JobStore
from storage.locks import FileLock

if TYPE_CHECKING:
    from engine.solve import Outcome

log = logging.getLogger(__name__)

#: seconds between two looks at an empty queue
_IDLE_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
#: argument that makes the runner stop when its standard input ends, that is when its parent is gone
WITH_PARENT: Final = "--with-parent"


class Runner:
    """One runner of one data directory."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        prepare(settings)
        self._settings, self._stopping = settings, stopping
        self._jobs = JobStore(settings.database)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def run(self) -> None:
        """Settle what a dead runner left, then work until told to stop.  No job's failure ends this loop."""
        self._until_stored(self._recover)
        _warm_up()
        while not self._stopping.is_set():
            try:
                claimed = self._jobs.claim(self._name)
            except StorageFailed as error:
                log.error("no job can be claimed: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            if claimed is None:
                self._stopping.wait(_IDLE_SECONDS)
            else:
                self.work(claimed)
        self._jobs.close()

    def work(self, claimed: JobRecord) -> None:
        """Bring one claimed job to an end, whatever happens."""
        logs.JOB_ID.set(claimed.id)
        log.info("job %s: attempt %d begins", claimed.id, claimed.attempt)
        monitor = JobMonitor(self._jobs, claimed, self._stopping)
        try:
            summary, seconds = self._solve(claimed, monitor)
            self._until_stored(lambda: self._jobs.succeed(claimed, summary, seconds))
            log.info("job %s: done in %.3g s", claimed.id, sum(seconds.values()))
        except Cancelled:
            self._stopped(claimed, monitor)
        except Exception as error:
            if not isinstance(error, ApspError):
                log.exception("job %s: unexpected error", claimed.id)
            fault = fault_of(error)
            log.error("job %s failed: %s: %s", claimed.id, fault.code, fault.message)
            discard(self._settings, claimed.id)
            self._until_stored(lambda: self._jobs.fail(claimed, fault.to_dict()))

    def _solve(self, claimed: JobRecord, monitor: JobMonitor) -> tuple[dict[str, Any], dict[str, float]]:
        """Load, plan, solve, seal; returns summary and seconds of each phase."""
        from engine.solve import make_plan, solve_to_store
        from service.tasks import job_options
        from storage.graphs import GraphStore

        store = self._settings.store(claimed.id)
        if store.exists():  # sealed by an earlier attempt, whose runner died before it could say so
            return self._sealed(claimed), {}
        discard(self._settings, claimed.id)
        store.parent.mkdir(parents=True)
        began = time.perf_counter()
        graph, _ = GraphStore(self._settings.data_dir).load(claimed.graph)
        options = job_options(graph, claimed.options, self._settings)
        plan = make_plan(graph, options, out=store)
        loaded = time.perf_counter() - began
        if plan.to_dict() != claimed.plan:
            self._jobs.replan(claimed, plan.to_dict())
        monitor.follow(plan)
        outcome: Outcome = solve_to_store(
            graph, options, store, plan=plan, compression=self._settings.compression, monitor=monitor
        )
        return outcome.summary, {"load": loaded, **outcome.seconds}

    def _sealed(self, claimed: JobRecord) -> dict[str, Any]:
        from storage.matrix import open_matrix

        with open_matrix(self._settings.store(claimed.id)) as matrix:
            return dict(matrix.summary)

    def _stopped(self, claimed: JobRecord, monitor: JobMonitor) -> None:
        """The solve stopped on request: whose?"""
        if monitor.lost:
            log.error("job %s: the claim was lost; leaving it alone", claimed.id)
            return
        discard(self._settings, claimed.id)
        if monitor.asked:
            log.info("job %s: cancelled", claimed.id)
            self._until_stored(lambda: self._jobs.dismiss(claimed))
        else:
            log.info("job %s: given back, the runner stops", claimed.id)
            self._until_stored(lambda: self._jobs.release(claimed))

    def _recover(self) -> None:
        for record in self._jobs.recover():
            log.warning("job %s lost its runner in attempt %d and is now %s", record.id, record.attempt, record.state)
            if record.state != ACCEPTED:
                discard(self._settings, record.id)
        for path in sweep(self._settings, self._jobs):
            log.warning("%s belonged to no job and was removed", path)

    def _until_stored(self, write: Callable[[], object]) -> None:
        """The end of a job must be recorded: try until it is.  Told to stop, the next runner settles the job."""
        while True:
            try:
                write()
                return
            except StorageFailed as error:
                log.error("%s; trying again", error)
            if self._stopping.wait(_RETRY_SECONDS):
                return


def _warm_up() -> None:
    """Import the engine and its kernels while nobody waits for them."""
    for name in (
        "service.tasks",
        "storage.graphs",
        "engine.solve",
        "engine.backends.cpu",
        "engine.algorithms.dijkstra",
    ):
        importlib.import_module(name)


def main() -> None:
    """Entry of the runner process."""
    settings = Settings.load()
    logs.configure("runner", settings.log_format)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if WITH_PARENT in sys.argv[1:]:
        threading.Thread(target=_watch_parent, args=(stopping,), daemon=True).start()
    os.nice(settings.runner_nice)
    lock = FileLock(settings.runner_lock)
    try:
        # A runner of a service that was killed may still be on its way to the next tile.
        lock.acquire(timeout=settings.stop_seconds)
    except ApspError as error:
        log.error("another runner works on this data directory: %s", error)
        sys.exit(1)
    Runner(settings, stopping).run()
    lock.release()


def _watch_parent(stopping: threading.Event) -> None:
    # not through sys.stdin: its lock, held by a waiting thread, makes the interpreter abort at exit
    while os.read(0, 1024):
        pass
    stopping.set()


if __name__ == "__main__":
    main()
