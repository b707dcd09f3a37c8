"""What a running solve reports to its caller: phases and progress; and how the caller cancels it."""

from __future__ import annotations

import time

from storage.errors import Cancelled


class Monitor:
    """Receives progress and decides whether to stop.  This base class ignores all reports and never stops.

    The solving thread alone calls an implementation, often, between tiles or batches; so the methods must be cheap.
    """

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Report that a phase begins.

        Args:
            phase: name of the phase, such as ``relax``.
            total: units of work in the phase.
            unit: ``updates``, ``rows``, ``bytes`` or ``arcs``.
        """

    def advance(self, amount: int) -> None:
        """Report that ``amount`` more units of the current phase are done."""

    def cancelled(self) -> bool:
        """Return whether the solve should stop at the next tile or batch boundary."""
        return False

    def step(self, amount: int) -> None:
        """Report that ``amount`` more units are done, and stop if that is wanted.

        Raises:
            Cancelled: the caller wants the solve to stop.
        """
        self.advance(amount)
        if self.cancelled():
            raise Cancelled("the job was cancelled")


class PhaseClock(Monitor):
    """Passes all reports on to another monitor and adds up the wall seconds of each phase."""

    def __init__(self, inner: Monitor) -> None:
        self._inner = inner
        self._phase: str | None = None
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Stop the clock of the previous phase and start that of the next one.

        Args:
            phase: name of the phase.
            total: units of work in the phase.
            unit: name of the unit.
        """
        self.stop()
        self._phase = phase
        self._inner.begin(phase, total, unit)

    def advance(self, amount: int) -> None:
        """Pass the progress on."""
        self._inner.advance(amount)

    def cancelled(self) -> bool:
        """Return whether the inner monitor asks to stop."""
        return self._inner.cancelled()

    def so_far(self) -> dict[str, float]:
        """Return the seconds of each phase, including those of the current phase until now."""
        seconds, phase = dict(self.seconds), self._phase
        if phase is not None:
            seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - self._since
        return seconds

    def stop(self) -> None:
        """Add the time since the phase began to its seconds, and end the phase."""
        now = time.perf_counter()
        if self._phase is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = None, now
