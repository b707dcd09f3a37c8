"""What a running solve reports to its caller: phases and progress; and how the caller cancels it."""

from __future__ import annotations

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
