"""Reports the progress of a running job to the job store, and learns whether the job should stop."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from engine.model.plan import Plan
from engine.model.progress import Monitor
from service.jobs.phases import foretold
from storage.errors import StorageFailed
from storage.jobs.store import JobRecord, JobStore, Progress

log = logging.getLogger(__name__)

#: seconds between two reports; a cancellation is noticed within this time
REPORT_SECONDS: Final = 0.25
#: seconds between two checks for a cancellation by the heartbeat thread
LOOK_SECONDS: Final = 1.0
#: time constant, in seconds, with which the displayed rate is averaged
_RATE_SECONDS: Final = 5.0
#: the prediction of a phase counts as much as what is observed while this share of the phase is done
_TRUST: Final = 0.1


class ProgressEstimator:
    """Computes the fraction of the whole job, a rate and the remaining seconds from the units done.

    Phases are weighted by the plan's predicted seconds; the fraction never falls.  The remaining seconds begin with
    those of the plan, and follow what is observed the more of a phase is done.
    """

    def __init__(self, plan: Plan | None, now: float) -> None:
        self._predicted = foretold((phase.name, phase.seconds) for phase in plan.phases) if plan else {}
        self._order = list(self._predicted)
        self._fraction = 0.0
        self.phase = "loading"
        self.unit: str | None = None
        self._rate: float | None = None
        self._total = self._done = self._seen = 0
        self._mark = self._began = now
        self._first: tuple[float, int] | None = None

    def begin(self, phase: str, total: int, unit: str, now: float) -> None:
        """Begin a phase of ``total`` units.

        Args:
            phase: name of the phase.
            total: units of work in it; 0 if unknown.
            unit: what is counted.
            now: seconds of a steady clock.
        """
        self.phase, self.unit = phase, unit
        self._total, self._done, self._seen = total, 0, 0
        self._mark = self._began = now
        self._rate = self._first = None

    def advance(self, amount: int) -> None:
        """Count ``amount`` more units as done."""
        self._done += amount

    def read(self, now: float) -> Progress:
        """Return the state at ``now`` (seconds of any steady clock)."""
        elapsed = now - self._mark
        if elapsed > 0 and self._done > self._seen:
            recent = (self._done - self._seen) / elapsed
            keep = max(0.0, 1 - elapsed / _RATE_SECONDS) if self._rate else 0.0
            self._rate = keep * (self._rate or 0.0) + (1 - keep) * recent
            self._mark, self._seen = now, self._done
            # from the first progress on: before it kernels may have been compiled, which says nothing about the rest
            self._first = self._first or (now, self._done)
        share = min(1.0, self._done / self._total) if self._total else 0.0
        before, current, after = self._split()
        whole = before + current + after
        if whole > 0:
            self._fraction = max(self._fraction, min(1.0, (before + share * current) / whole))
        left = self._left(now, share, current)
        return Progress(self._fraction, self._rate, self.unit, None if left is None else left + after)

    def _left(self, now: float, share: float, predicted: float) -> float | None:
        """Return the remaining seconds of this phase; None if nothing is known about them."""
        if not predicted:
            return max(0, self._total - self._done) / self._rate if self._rate and self._total else None
        if self._first is None or not self._total:
            return predicted if now - self._began <= predicted else None
        begun, done = self._first
        observed = min(1.0, max(0, self._done - done) / self._total)
        return (now - begun + _TRUST * predicted) / (observed + _TRUST) * (1 - share)

    def _split(self) -> tuple[float, float, float]:
        """Return the predicted seconds before, in and after the current phase; a phase without a prediction counts
        zero.
        """
        if self.phase not in self._predicted:
            whole = sum(self._predicted.values())
            return self._fraction * whole, 0.0, (1 - self._fraction) * whole
        at = self._order.index(self.phase)
        seconds = list(self._predicted.values())
        return sum(seconds[:at]), seconds[at], sum(seconds[at + 1 :])


class JobMonitor(Monitor):
    """Reports one claimed job.  Failed reports are logged and repeated; they never stop a solve.

    Attributes:
        stopping: set when the runner has to stop; the job then goes back to the queue.
        asked: whether cancellation of the job was asked for.
        lost: whether the claim is lost; nothing may be stored about the job any more.
        interrupted: whether the solve was stopped between two tiles.
    """

    def __init__(
        self,
        jobs: JobStore,
        claimed: JobRecord,
        stopping: threading.Event,
        stepped: Callable[[str, float], None] = lambda _phase, _seconds: None,
    ) -> None:
        """``stepped`` is called after every tile, batch or round with its phase and seconds."""
        self._jobs, self._claimed, self._stepped = jobs, claimed, stepped
        self.stopping = stopping
        self.asked = claimed.cancel
        self.lost = self.interrupted = False
        self._estimator = ProgressEstimator(None, time.monotonic())
        self._due = 0.0
        self._stepped_at = time.monotonic()

    def look(self) -> None:
        """Check whether to stop, however long the current tile takes; writes nothing."""
        with contextlib.suppress(StorageFailed):
            found = self._jobs.holds(self._claimed)
            self.lost = found is None
            self.asked = self.asked or bool(found)

    def pulse(self) -> None:
        """Store a heartbeat and check whether to stop, however long the current tile takes."""
        try:
            found = self._jobs.beat(self._claimed)
        except StorageFailed as error:
            log.warning("job %s: the heartbeat was not stored: %s", self._claimed.id, error)
            return
        self.lost = found is None
        self.asked = self.asked or bool(found)

    def follow(self, plan: Plan) -> None:
        """Weight the phases by the predictions of ``plan``."""
        self._estimator = ProgressEstimator(plan, time.monotonic())

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Report the new phase at once.

        Args:
            phase: name of the phase.
            total: units of work in it; 0 if unknown.
            unit: what is counted.
        """
        now = time.monotonic()
        log.info("job %s: phase %s, %d %s", self._claimed.id, phase, total, unit)
        self._estimator.begin(phase, total, unit, now)
        self._stepped_at = now
        self._report(now)

    def advance(self, amount: int) -> None:
        """Count ``amount`` units; report if a report is due."""
        self._estimator.advance(amount)
        now, before = time.monotonic(), self._stepped_at
        self._stepped_at = now
        self._stepped(self._estimator.phase, now - before)
        self._report_if_due()

    def cancelled(self) -> bool:
        """Return whether to stop, for whatever reason."""
        self._report_if_due()
        return self.asked or self.lost or self.stopping.is_set()

    def _report_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._report(now)

    def _report(self, now: float) -> None:
        self._due = now + REPORT_SECONDS
        try:
            found = self._jobs.report(self._claimed, self._estimator.phase, self._estimator.read(now))
        except StorageFailed as error:
            log.warning("job %s: progress was not stored: %s", self._claimed.id, error)
            return
        self.lost = found is None
        self.asked = self.asked or bool(found)


class Heartbeat:
    """Context manager with a thread that stores the runner's heartbeat every ``seconds``."""

    def __init__(self, monitor: JobMonitor, seconds: float, announce: Callable[[], None]) -> None:
        self._monitor, self._seconds, self._announce = monitor, seconds, announce
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._seconds
        while not self._over.wait(min(self._seconds, LOOK_SECONDS)):
            if time.monotonic() < due:
                self._monitor.look()
                continue
            due = time.monotonic() + self._seconds
            self._monitor.pulse()
            try:
                self._announce()
            except StorageFailed as error:
                log.warning("the heartbeat was not stored: %s", error)
