"""How a running solve reports phases and progress to its caller, and how the caller cancels it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from storage.arguments import shown
from storage.errors import Cancelled, InvalidRequest

#: Takes the name of a kernel, and returns a context that is entered for as long as that kernel is compiled.
Announce = Callable[[str], AbstractContextManager[None]]

#: The phase in which kernels are compiled.
COMPILING: Final = "compile"


class Monitor:
    """Receives progress and decides whether to stop.  This base class ignores all reports and never stops.

    Only the solving thread calls these methods, often: between tiles or batches.  So they must be cheap.
    """

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Report that a phase begins.

        Args:
            phase: name of the phase, such as ``relax``.
            total: units of work in the phase.
            unit: ``updates``, ``rows``, ``bytes`` or ``arcs``.
        """

    def resume(self, phase: str, total: int, unit: str, done: int) -> None:
        """Report that a phase continues after an interruption by another phase; this base class begins it again.

        Args:
            phase, total, unit: as in :meth:`begin`.
            done: units that were done before the interruption.
        """
        self.begin(phase, total, unit)
        self.advance(done)

    def advance(self, amount: int) -> None:
        """Report that ``amount`` more units of the current phase are done."""

    def cancelled(self) -> bool:
        """Return whether the solve should stop at the next tile or batch boundary."""
        return False

    def step(self, amount: int) -> None:
        """Report that ``amount`` more units are done, and raise if the caller wants the solve to stop.

        Raises:
            Cancelled: the caller wants the solve to stop.
        """
        self.advance(amount)
        if self.cancelled():
            raise Cancelled("the job was cancelled")


def given_monitor(monitor: Monitor | None) -> Monitor:
    """Return the monitor that a caller gave, or a monitor that ignores all reports if the caller gave None.

    Raises:
        InvalidRequest: ``monitor`` is neither None nor a :class:`Monitor`.
    """
    if monitor is not None and not isinstance(monitor, Monitor):
        raise InvalidRequest(f"monitor must be a Monitor, found {shown(monitor)}", field="monitor")
    return monitor or Monitor()


class PhaseClock(Monitor):
    """Passes all reports on to another monitor and adds up the wall seconds of each phase."""

    def __init__(self, inner: Monitor) -> None:
        self._inner = inner
        self._phase: str | None = None
        self._begun: tuple[str, int, str] | None = None
        self._done = 0
        self._away = False
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Stop the clock of the previous phase and start the clock of ``phase``.

        Args:
            phase, total, unit: as in :meth:`Monitor.begin`.
        """
        self.stop()
        self._phase, self._begun, self._done, self._away = phase, (phase, total, unit), 0, False
        self._inner.begin(phase, total, unit)

    def advance(self, amount: int) -> None:
        """Pass the progress on."""
        if self._away and self._begun is not None:
            self._away = False
            self._inner.resume(*self._begun, self._done)
        self._done += amount
        self._inner.advance(amount)

    @contextlib.contextmanager
    def aside(self, phase: str, unit: str) -> Iterator[None]:
        """Context manager: interrupt the current phase by one unit of another phase, whose seconds are counted
        separately.

        When the interrupted phase next reports progress, the inner monitor is told that this phase has resumed.

        Args:
            phase: name of the phase that interrupts.
            unit: name of its unit.
        """
        interrupted = self._phase
        self.stop()
        self._phase = phase
        try:
            if isinstance(self._inner, PhaseClock):
                with self._inner.aside(phase, unit):
                    yield
            else:
                self._away = self._begun is not None
                self._inner.begin(phase, 1, unit)
                yield
                self._inner.advance(1)
        finally:
            self.stop()
            self._phase = interrupted

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


class NotCompiledError(Exception):
    """Raised instead of compiling a kernel, for a caller that does not want to wait for compilation."""


class _Waiting(threading.local):
    """How calls from this thread treat a kernel that is not compiled.

    Attributes:
        announce: makes the context that is entered around each compilation.
        asked: called for each kernel that is called for the first time, with its module, its name and numba's types of
            the arguments.
        refuse: whether NotCompiledError is raised instead of compiling.
        compiling: whether this thread is compiling a kernel; kernels that it calls are then compiled along with it.
        compiled: seconds for which this thread has compiled so far.
    """

    announce: Announce | None = None
    asked: Callable[[tuple[str, str], object], None] | None = None
    refuse = False
    compiling = False
    compiled = 0.0


WAITING: Final = _Waiting()
#: The only entry of this list counts the compilations of kernels, by this process or by another process on its behalf.
_COMPILATIONS: Final = [0]
#: The only entry of this list says whether later processes find the kernels that this process compiles.
_KEPT: Final = [True]


def compilations() -> int:
    """Return the number of compilations so far, by this process or by another process on its behalf.

    If two calls return the same number, no kernel was compiled in between.
    """
    return _COMPILATIONS[0]


def count_compilation() -> None:
    """Increase the counter of :func:`compilations`, after kernels were compiled."""
    _COMPILATIONS[0] += 1


def kernels_are_kept() -> bool:
    """Return whether later processes find the kernels that this process compiles; True as long as this process has not
    found that it can write no folder (:func:`note_not_kept`).
    """
    return _KEPT[0]


def note_not_kept() -> None:
    """Note that no folder for compiled kernels can be written, so that each process compiles them for itself."""
    _KEPT[0] = False


class _Treating:
    """Context manager: set an attribute of ``WAITING`` inside the block.

    It is a class because every solve enters several such blocks, and a generator with ``contextlib`` takes four times
    as long.
    """

    __slots__ = ("_before", "_meanwhile", "_name")

    def __init__(self, name: str, meanwhile: object) -> None:
        self._name, self._meanwhile = name, meanwhile

    def __enter__(self) -> None:
        self._before = getattr(WAITING, self._name)
        setattr(WAITING, self._name, self._meanwhile)

    def __exit__(self, *_: object) -> None:
        setattr(WAITING, self._name, self._before)


def announcing(announce: Announce) -> AbstractContextManager[None]:
    """Context manager: enter ``announce(name)`` around each compilation that this thread waits for."""
    return _Treating("announce", announce)


@contextlib.contextmanager
def compilation(kernel: str) -> Iterator[None]:
    """Context manager around each compilation: announces it, and stops the clock of :func:`working_time` meanwhile.

    Args:
        kernel: name of the kernel.
    """
    began = time.perf_counter()
    with contextlib.nullcontext() if WAITING.announce is None else WAITING.announce(kernel):
        WAITING.compiling = True
        try:
            yield
        finally:
            WAITING.compiling = False
            WAITING.compiled += time.perf_counter() - began
            count_compilation()


def working_time() -> float:
    """Return the seconds of a clock that stands still while this thread compiles kernels.

    Trials are timed with it: a trial may be the first to call a kernel and wait for its compilation, but the work that
    is predicted from the trial will find the kernel compiled.
    """
    return time.perf_counter() - WAITING.compiled


def only_ready() -> AbstractContextManager[None]:
    """Context manager: kernels called from this thread raise NotCompiledError instead of being compiled."""
    return _Treating("refuse", True)


def told_of_compiling(clock: PhaseClock) -> AbstractContextManager[None]:
    """Context manager: report each compilation that this thread waits for as a phase of its own, because compilation
    may take longer than the solve.
    """
    return announcing(lambda _kernel: clock.aside(COMPILING, "kernels"))
