"""Reports the progress of a running job to the job store, and finds out whether the job should stop."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from engine.model.plan import Plan
from engine.model.progress import COMPILING, Monitor
from service.jobs.phases import foretold
from storage.counted import counted
from storage.errors import StorageFailed
from storage.jobs.store import JobRecord, JobStore, Progress

log = logging.getLogger(__name__)

#: least seconds between two reports of a solve; a report also checks for a cancellation
REPORT_SECONDS: Final = 0.25
#: seconds between two checks for a cancellation by the heartbeat thread, however long a tile takes
LOOK_SECONDS: Final = 1.0
#: time constant, in seconds, of the moving average of the displayed rate
_RATE_SECONDS: Final = 5.0
#: share of a phase after which the observed rate counts as much as the prediction; before, the prediction counts more
_TRUST: Final = 0.1


class _Phase:
    """The progress of one phase: its units of work, and the seconds spent in it without interruptions."""

    def __init__(self, predicted: float) -> None:
        self.predicted = predicted
        self.total = self.done = 0
        self.spent = 0.0
        # seconds and units at the first progress; time before it does not count: kernels may have been compiled then
        self.first: tuple[float, int] | None = None

    def share(self) -> float:
        """Return how much of the phase is done, from 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def left(self, rate: float | None) -> float | None:
        """Return the remaining seconds of this phase; None if nothing is known about them."""
        if not self.predicted:
            return max(0, self.total - self.done) / rate if rate and self.total else None
        if self.first is None or not self.total:
            return self.predicted if self.spent <= self.predicted else None
        begun, done = self.first
        observed = min(1.0, max(0, self.done - done) / self.total)
        return (self.spent - begun + _TRUST * self.predicted) / (observed + _TRUST) * (1 - self.share())


class _Compiling(_Phase):
    """The phase of compiling: all kernels before a solve, or one kernel at a time, which interrupts another phase."""

    def left(self, _rate: float | None) -> float | None:
        """Return the remaining seconds: as predicted until that time is over, then estimated from the finished kernels.

        The longest kernels are compiled first.  So the total is more than the seconds until the last finished
        kernel, and less than these seconds divided by the share of finished kernels.  The estimate of the total is the
        geometric mean of these two bounds.
        """
        if self.total < 2:
            return self.pending() or None
        if self.spent <= self.predicted:
            return (1 - self.share()) * self.predicted
        return (1 - self.share()) * self.first[0] / math.sqrt(self.share()) if self.first else None

    def pending(self) -> float:
        """Return the foreseen seconds of kernels that will interrupt other phases."""
        return max(0.0, self.predicted - self.spent) if self.total < 2 else 0.0


def _state(name: str, predicted: float) -> _Phase:
    return _Compiling(predicted) if name == COMPILING else _Phase(predicted)


class ProgressEstimator:
    """Computes the fraction of the whole job, a rate and the remaining seconds from the units done.

    Phases are weighted by the plan's predicted seconds; the fraction never falls.  The remaining seconds are at first
    those of the plan; the more of a phase is done, the more they follow the observed rate.  Compiling can interrupt a
    phase; the seconds of compiling count neither into the rate nor into the remaining seconds of that phase.
    """

    def __init__(self, plan: Plan | None, now: float) -> None:
        predicted = foretold((phase.name, phase.seconds) for phase in plan.phases) if plan else {}
        self._phases = {name: _state(name, seconds) for name, seconds in predicted.items()}
        self._order = list(predicted)
        self._fraction = 0.0
        self.phase = "loading"
        self.unit: str | None = None
        self._rate: float | None = None
        self._interrupted: str | None = None
        self._now = self._mark = now
        self._current, self._seen = _Phase(0.0), 0

    def begin(self, phase: str, total: int, unit: str, now: float, *, done: int = 0) -> None:
        """Begin a phase of ``total`` units, or go on with the phase that was interrupted.

        Args:
            phase: name of the phase.
            total: units of work in it; 0 if unknown.
            unit: what is counted.
            now: seconds of a steady clock.
            done: the units that were done before the interruption.
        """
        self._pass(now)
        known = self._phases.get(phase) or _state(phase, 0.0)
        if phase not in (COMPILING, self._interrupted):
            known = _Phase(known.predicted)
        aside = phase == COMPILING and total == 1
        self._interrupted = (self._interrupted or self.phase) if aside else None
        self._phases[phase] = self._current = known
        self.phase, self.unit = phase, unit
        known.total, known.done = total, done
        self._mark, self._seen, self._rate = now, done, None

    def advance(self, amount: int) -> None:
        """Count ``amount`` more units as done."""
        self._current.done += amount

    def read(self, now: float) -> Progress:
        """Return the state at ``now`` (seconds of any steady clock)."""
        self._pass(now)
        current, elapsed = self._current, now - self._mark
        if self.phase == COMPILING:  # kernels have no rate
            if current.done > self._seen:
                current.first, self._seen = (current.spent, current.done), current.done
        elif elapsed > 0 and current.done > self._seen:
            recent = (current.done - self._seen) / elapsed
            keep = max(0.0, 1 - elapsed / _RATE_SECONDS) if self._rate else 0.0
            self._rate = keep * (self._rate or 0.0) + (1 - keep) * recent
            self._mark, self._seen = now, current.done
            current.first = current.first or (current.spent, current.done)
        before, after = self._around()
        whole = sum(self._phases[name].predicted for name in self._order)
        if whole > 0:
            self._fraction = max(self._fraction, min(1.0, before / whole))
        left = current.left(self._rate)
        if left and self._interrupted in self._order:  # the further this phase is, the fewer kernels remain to compile
            left *= 1 - self._phases[self._interrupted].share()
        return Progress(self._fraction, self._rate, self.unit, None if left is None or after is None else left + after)

    def _pass(self, now: float) -> None:
        self._current.spent += now - self._now
        self._now = now

    def _around(self) -> tuple[float, float | None]:
        """Return the predicted seconds of the work that is done, and of the phases after the current one.  A phase
        without a prediction counts zero.
        """
        at, seconds = self._interrupted or self.phase, [self._phases[name].predicted for name in self._order]
        if at not in self._order:
            return self._fraction * sum(seconds), (1 - self._fraction) * sum(seconds)
        place, phase = self._order.index(at), self._phases[at]
        before, after = sum(seconds[:place]) + phase.share() * seconds[place], sum(seconds[place + 1 :])
        if self._interrupted:
            left = phase.left(None)
            return before, None if left is None else left + after
        kernels = self._phases.get(COMPILING)
        if isinstance(kernels, _Compiling) and COMPILING in self._order[:place]:
            after += (1 - phase.share()) * kernels.pending()
        return before, after


class JobMonitor(Monitor):
    """Reports one claimed job.  Failed reports are logged and repeated; they never stop a solve.

    Attributes:
        stopping: set when the runner has to stop; the job then goes back to the queue.
        asked: whether cancellation of the job was asked for.
        lost: whether the claim is lost; nothing may be stored about the job any more.
        interrupted: whether a signal has stopped the solve at once, without waiting for the end of a tile.
        gives_way: whether this job should go to another runner, because short jobs wait for this runner.
    """

    def __init__(
        self,
        jobs: JobStore,
        claimed: JobRecord,
        stopping: threading.Event,
        stepped: Callable[[str, float], None] = lambda _phase, _seconds: None,
        *,
        others_wait: Callable[[float], bool] | None = None,
    ) -> None:
        """``stepped`` is called after every tile, batch or round with its phase and seconds.

        ``others_wait`` is called every few seconds with the seconds of the job's work; if it returns True,
        ``gives_way`` becomes True.
        """
        self._others_wait, self._worked, self._phase_at = others_wait, 0.0, time.monotonic()
        self.gives_way = False
        self._jobs, self._claimed, self._stepped = jobs, claimed, stepped
        self.stopping = stopping
        self.asked = claimed.cancel
        self.lost = self.interrupted = False
        self._estimator = ProgressEstimator(None, time.monotonic())
        self._due = 0.0
        self._stepped_at = time.monotonic()

    def look(self) -> None:
        """Check whether to stop, without writing.  The heartbeat thread calls this, however long a tile takes."""
        with contextlib.suppress(StorageFailed):
            found = self._jobs.holds(self._claimed)
            self.lost = found is None
            self.asked = self.asked or bool(found)
            if self._others_wait is not None and not self.gives_way:
                self.gives_way = self._others_wait(self._work())

    def pulse(self) -> None:
        """Store a heartbeat and check whether to stop.  The heartbeat thread calls this, however long a tile takes."""
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
        log.info("job %s: phase %s, %s", self._claimed.id, phase, counted(total, unit))
        self._begin(phase, total, unit, 0)

    def resume(self, phase: str, total: int, unit: str, done: int) -> None:
        """Report that a phase goes on after compiling has interrupted it.

        Args:
            phase, total, unit: as in :meth:`begin`.
            done: units that were done before the interruption.
        """
        self._begin(phase, total, unit, done)

    def _begin(self, phase: str, total: int, unit: str, done: int) -> None:
        self._worked, now = self._work(), time.monotonic()
        self._phase_at = now
        self._estimator.begin(phase, total, unit, now, done=done)
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
        """Return whether the solve must stop for any reason: ``asked``, ``lost``, ``gives_way`` or ``stopping``."""
        self._report_if_due()
        return self.asked or self.lost or self.gives_way or self.stopping.is_set()

    def _work(self) -> float:
        """Return the seconds of this job so far, without those of compiling."""
        now = time.monotonic()
        return self._worked + (now - self._phase_at if self._estimator.phase != COMPILING else 0.0)

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
