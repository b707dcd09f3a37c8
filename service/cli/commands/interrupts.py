"""Handles SIGINT and SIGTERM: a running solve stops at its next tile or batch; anything else stops at once."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """Remembers the signal that asked to stop.

    Outside of the context :meth:`politely` the first signal raises KeyboardInterrupt at once.  Inside, the first signal
    is only noted (see ``requested``), and a second one raises.

    Attributes:
        left_behind: a message that says which files an interrupted command leaves.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._polite = False
        self.left_behind = "nothing unfinished was left behind"

    def install(self) -> None:
        """Handle SIGINT and SIGTERM from now on; a signal that the parent had ignored stays ignored."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    @contextlib.contextmanager
    def politely(self) -> Iterator[None]:
        """Context manager: within it the first signal does not raise."""
        self._polite = True
        try:
            yield
        finally:
            self._polite = False

    def requested(self) -> bool:
        """Return whether a signal has come."""
        return self.received is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells have it: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + (self.received if self.received is not None else signal.SIGINT)

    def _handle(self, number: int, _: FrameType | None) -> None:
        first, self.received = self.received is None, number
        if not (first and self._polite):
            raise KeyboardInterrupt
        with contextlib.suppress(OSError, RuntimeError):
            print("apsp: stopping at the next tile; interrupt again to stop at once", file=sys.stderr, flush=True)


INTERRUPTS = Interrupts()
