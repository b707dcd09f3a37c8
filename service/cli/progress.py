"""Progress of a running solve on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from engine.model.progress import Monitor
from service.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Share of a phase below which the time left is not guessed.
_ENOUGH: Final = 0.01


def never() -> bool:
    """Do not stop."""
    return False


def amount_text(amount: float, unit: str) -> str:
    """An amount of work with its unit: ``1.50 GiB`` or ``12.3 M rows``."""
    return format_bytes(amount) if unit == "bytes" else f"{format_count(amount)} {unit}"


class ProgressMonitor(Monitor):
    """Counts the work and displays it at intervals; :meth:`close` (or the end of the context) ends the last phase.

    Args:
        stop: called at every step; True cancels the solve.
        every: seconds between two updates of what is shown.
    """

    def __init__(self, stop: Callable[[], bool] = never, *, every: float) -> None:
        self._stop, self._every = stop, every
        self.phase: str | None = None
        self.stopped = False
        self.total = self.done = 0
        self.unit = ""
        self._started = self._due = 0.0

    def begin(self, phase: str, total: int, unit: str) -> None:
        """End the phase before and start this one.

        Args:
            phase: name of the phase.
            total: units of work in it; 0 if unknown.
            unit: what is counted, such as rows or bytes.
        """
        self.close()
        self.phase, self.total, self.done, self.unit = phase, total, 0, unit
        self._started = time.perf_counter()
        self._due = self._started + self._every
        self.opened()

    def advance(self, amount: int) -> None:
        """Count, up to the total; show only when an update is due, so that calling often costs little."""
        self.done = min(self.done + amount, self.total or self.done + amount)
        now = time.perf_counter()
        if now >= self._due:
            self._due = now + self._every
            self.shown()

    def cancelled(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop()

    def close(self) -> None:
        """End the present phase, if there is one."""
        if self.phase is not None:
            self.closed()
            self.phase = None

    def __enter__(self) -> ProgressMonitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopped = kind is not None
        self.close()

    @property
    def seconds(self) -> float:
        """Seconds since the present phase began."""
        return time.perf_counter() - self._started

    def opened(self) -> None:
        """Show that a phase began."""
        raise NotImplementedError

    def shown(self) -> None:
        """Show how far the phase is."""
        raise NotImplementedError

    def closed(self) -> None:
        """Show that the phase is over."""
        raise NotImplementedError


class LineProgress(ProgressMonitor):
    """One line when a phase has run for a while, then every few seconds, and one at its end; for logs and pipes."""

    def __init__(self, stream: TextIO, stop: Callable[[], bool] = never, *, every: float = 5.0) -> None:
        super().__init__(stop, every=every)
        self._stream = stream
        self._last = (0.0, 0)

    def opened(self) -> None:
        """Print nothing yet, because short phases get one line, at their end."""
        self._last = (0.0, 0)

    def shown(self) -> None:
        """Fraction, amount, rate and time left."""
        seconds, since = self.seconds, self._last
        self._last = (seconds, self.done)
        # the recent rate, because the first part of a phase may have waited for a kernel's compilation
        rate = (self.done - since[1]) / max(seconds - since[0], 1e-9)
        done = format_bytes(self.done) if self.unit == "bytes" else format_count(self.done)
        parts = [f"{done} of {amount_text(self.total, self.unit)}"] if self.total else []
        parts.append(f"{amount_text(rate, self.unit)}/s")
        if self.total and rate and self.done >= _ENOUGH * self.total:
            parts.append(f"about {format_seconds((self.total - self.done) / rate)} left")
        percent = f"{100 * self.done / self.total:3.0f} %" if self.total else "running"
        self._write(f"{self.phase}: {percent}  {', '.join(parts)}")

    def closed(self) -> None:
        """Amount, time and rate; how far it came if it was stopped."""
        seconds = self.seconds
        parts = [f"{'stopped after ' if self.stopped else ''}{format_seconds(seconds)}"]
        if self.done:
            parts.append(amount_text(self.done, self.unit))
            parts.append(f"{amount_text(self.done / max(seconds, 1e-9), self.unit)}/s")
        self._write(f"{self.phase}: {', '.join(parts)}")

    def _write(self, line: str) -> None:
        # A closed pipe or log must not end the job.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self._stream, flush=True)


class BarProgress(ProgressMonitor):
    """A bar with percentage, rate and time left for each phase, drawn by rich on a terminal."""

    def __init__(self, stream: TextIO, stop: Callable[[], bool] = never, *, every: float = 0.1) -> None:
        super().__init__(stop, every=every)
        self._stream = stream
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def opened(self) -> None:
        """Draw an empty bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(file=self._stream),
        )
        self._task = self._bar.add_task(self.phase or "", total=self.total or None, rate="")
        self._bar.start()

    def shown(self) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            rate = self.done / max(self.seconds, 1e-9)
            self._bar.update(self._task, completed=self.done, rate=f"{amount_text(rate, self.unit)}/s")

    def closed(self) -> None:
        """Draw the last state, which stays on the screen."""
        self.shown()
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None


def progress_on(stream: TextIO, stop: Callable[[], bool] = never) -> ProgressMonitor:
    """The kind of progress that suits ``stream``."""
    return BarProgress(stream, stop) if stream.isatty() else LineProgress(stream, stop)
