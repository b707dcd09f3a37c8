"""Handles SIGINT and SIGTERM: a running solve stops at its next tile or batch; anything else stops at once."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

#: Seconds after which an interrupt that could not be raised, or was lost, is raised again.
_AGAIN: Final = 0.01


class Interrupts:
    """Remembers the signal that asked to stop.

    Outside of the context :meth:`politely` the first signal raises KeyboardInterrupt at once.  Inside, the first signal
    is only noted (see ``requested``), and a second one raises.  No exception is raised while a module is imported,
    because code of the module may turn it into another exception. If Python drops the exception, as it does in
    finalizers, it is raised again.

    Attributes:
        left_behind: a message that says which files an interrupted command leaves.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._polite = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._show_dropped: Callable[[Any], object] | None = None
        self.left_behind = "nothing unfinished was left behind"

    def install(self) -> None:
        """Handle SIGINT and SIGTERM from now on; a signal that the parent had ignored stays ignored."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before.setdefault(number, signal.getsignal(number))
                signal.signal(number, self._handle)
        if self._show_dropped is None:
            self._show_dropped, sys.unraisablehook = sys.unraisablehook, self._dropped

    def remove(self) -> None:
        """Handle signals as before :meth:`install`.

        Call this after all output is written: a later exception would only interrupt the exit of the interpreter.
        """
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._show_dropped is not None:
            sys.unraisablehook, self._show_dropped = self._show_dropped, None

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
        """The exit code by the convention of shells, 128 + signal number: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + (self.received if self.received is not None else signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.received = self.received is None, number
        if not (first and self._polite):
            self._raise(frame)
            return
        with contextlib.suppress(OSError, RuntimeError):
            print("apsp: stopping at the next tile; interrupt again to stop at once", file=sys.stderr, flush=True)

    def _raise(self, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt; a little later if ``frame`` imports a module."""
        if _imports(frame) and self._raise_again():
            return
        raise KeyboardInterrupt

    def _raise_again(self) -> bool:
        """Raise KeyboardInterrupt a little later.  Return False if other code uses SIGALRM: then this is impossible."""
        if signal.SIGALRM not in self._before:
            if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
                return False
            self._before[signal.SIGALRM] = signal.SIG_DFL
            signal.signal(signal.SIGALRM, lambda _, frame: self._raise(frame))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return True

    def _dropped(self, lost: Any) -> None:
        """Handle an exception that Python could not raise: an interrupt is raised again, others are shown."""
        if issubclass(lost.exc_type, KeyboardInterrupt) and self.requested() and self._raise_again():
            return
        if self._show_dropped is not None:
            self._show_dropped(lost)


def _imports(frame: FrameType | None) -> bool:
    """Return whether ``frame``, or a frame that has called it, imports a module."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


INTERRUPTS = Interrupts()
