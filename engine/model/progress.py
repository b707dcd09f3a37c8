"""How a running solve talks to whoever started it: phases, progress, cancellation."""

from __future__ import annotations

from storage.errors import Cancelled


class Monitor:
    """Receives progress and answers whether to stop.  This base class ignores everything and never stops.

    Implementations are called from the solving thread only, between tiles or batches, often: they must be cheap.
    """

    def begin(self, phase: str, total: int, unit: str) -> None:
        """A phase starts: ``total`` units of work (``unit`` is ``updates``, ``rows``, ``bytes`` or ``arcs``)."""

    def advance(self, amount: int) -> None:
        """``amount`` more units of the present phase are done."""

    def cancelled(self) -> bool:
        """Whether the solve should stop at the next tile or batch boundary."""
        return False

    def step(self, amount: int) -> None:
        """Report ``amount`` units done, then raise :class:`Cancelled` if a stop was asked for."""
        self.advance(amount)
        if self.cancelled():
            raise Cancelled("the job was cancelled")
