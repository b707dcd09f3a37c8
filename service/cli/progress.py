"""Shows the progress of a running solve, of a job of a service, or of a download on standard error.

A :class:`Display` draws a bar on a terminal and prints plain lines elsewhere; the other classes decide what is shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from engine.model.progress import COMPILING, Monitor, kernels_are_kept
from service.units import format_bytes, format_count, format_seconds
from storage.counted import counted, singular

if TYPE_CHECKING:
    from rich.progress import Progress

#: The unit in which the progress of compiling is counted.
KERNELS: Final = "kernels"
#: Two endings of the note that kernels are compiled: if compiled kernels are kept on disk, and if they cannot be.
_ONCE: Final = ", once on this machine; apsp warm does it ahead"
_EACH_TIME: Final = " and cannot be kept: no folder for them can be written; NUMBA_CACHE_DIR may name one"
#: Share of a phase that must be done before the time left is estimated.
_ENOUGH: Final = 0.01
#: Seconds between two updates of a bar, and between two printed lines.
_BAR_SECONDS, _LINE_SECONDS = 0.1, 5.0


def never() -> bool:
    """Return False: the default for ``stop`` of :class:`ProgressMonitor`, which never stops a solve."""
    return False


def amount_text(amount: float, unit: str) -> str:
    """Return an amount of work with its unit: ``1.50 GiB`` or ``12.3 M rows``."""
    if unit == "bytes":
        return format_bytes(amount)
    return f"{format_count(amount)} {singular(unit) if amount == 1 else unit}".rstrip()


def _rate_texts(rate: float, unit: str) -> list[str]:
    """Return a list with the rate as text.  It is empty for kernels, whose compile times differ too much for a rate."""
    return [] if unit == KERNELS else [f"{amount_text(rate, unit)}/s"]


class Display:
    """Shows how far a phase is on ``stream``: as a bar on a terminal, elsewhere as a line every few seconds.

    Args:
        stream: where the progress is shown.
        every: seconds between two updates; None for the default of the stream.
    """

    def __init__(self, stream: TextIO, *, every: float | None = None) -> None:
        self._stream = stream
        self.terminal = not stream.closed and stream.isatty()
        self.every = every if every is not None else _BAR_SECONDS if self.terminal else _LINE_SECONDS
        self._bar: Progress | None = None
        self._said, self._due = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def due(self, what: str) -> bool:
        """Return whether to show something now: ``what`` is new, or the last output is ``every`` seconds old."""
        now = time.perf_counter()
        if what == self._said and now < self._due:
            return False
        self._said, self._due = what, now + self.every
        return True

    def show(self, what: str, fraction: float | None, rest: str) -> None:
        """Show how much of ``what`` is done.

        Args:
            what: name of the phase.
            fraction: how much is done, from 0 to 1; None if that is unknown.
            rest: further text, such as rate and time left.
        """
        if self.terminal:
            self._draw(what, fraction, rest)
        else:
            done = "running" if fraction is None else f"{100 * fraction:3.0f} %"
            self.print(f"{what}: {done}{f'  {rest}' if rest else ''}")

    def _draw(self, what: str, fraction: float | None, rest: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            texts = TextColumn("{task.description}"), TextColumn("{task.fields[rest]}")
            columns = texts[0], BarColumn(), TaskProgressColumn(), texts[1]
            # other messages on standard error appear above the bar; standard output, on which answers are printed, is
            # unchanged
            self._bar = Progress(*columns, console=Console(file=self._stream), redirect_stdout=False)
            self._bar.add_task("", rest="")
            self._bar.start()
        total = None if fraction is None else 1.0
        self._bar.update(self._bar.task_ids[0], description=what, completed=fraction or 0.0, total=total, rest=rest)

    def print(self, line: str) -> None:
        """Print a line; a closed stream is ignored, so that it does not end the command."""
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self._stream, flush=True)

    def stop(self) -> None:
        """End the bar; its last state stays on the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class ProgressMonitor(Monitor):
    """Counts the work of a solve and displays it; :meth:`close` (or the end of the context) ends the last phase.

    Args:
        stream: where the progress is shown.
        stop: called at every step; True cancels the solve.
        every: seconds between two updates; None for the default of the stream.
        explain: whether to explain why kernels are compiled.
    """

    def __init__(
        self, stream: TextIO, stop: Callable[[], bool] = never, *, every: float | None = None, explain: bool = True
    ) -> None:
        self._explain = explain
        self._display, self._stop = Display(stream, every=every), stop
        self.phase: str | None = None
        self.stopped = False
        self.total = self.done = 0
        self.unit = ""
        self._started = self._due = 0.0
        self._last = (0.0, 0)
        self._interrupted: tuple[str | None, float] = (None, 0.0)

    def begin(self, phase: str, total: int, unit: str) -> None:
        """End the previous phase and start this one.

        Args:
            phase: name of the phase.
            total: units of work in it; 0 if unknown.
            unit: what is counted, such as rows or bytes.
        """
        if phase == COMPILING and self.phase not in (None, COMPILING):
            self._interrupted = (self.phase, time.perf_counter() - self._started)
        self.close()
        if phase == COMPILING and self._explain:
            self._explain = False
            self._display.print(f"note: kernels are compiled{_ONCE if kernels_are_kept() else _EACH_TIME}")
        self.phase, self.total, self.done, self.unit = phase, total, 0, unit
        self._started, self._last = time.perf_counter(), (0.0, 0)
        self._due = self._started + self._display.every
        if self._display.terminal:
            self._display.show(phase, self._fraction(), "")

    def resume(self, phase: str, total: int, unit: str, done: int) -> None:
        """Continue a phase after an interruption.  The rate leaves out the seconds of the interruption.

        Args:
            phase, total, unit: as in :meth:`begin`.
            done: units that were done before the interruption.
        """
        name, seconds = self._interrupted
        self.begin(phase, total, unit)
        before = seconds if name == phase else 0.0
        self._started -= before
        self.done, self._last = done, (before, done)

    def advance(self, amount: int) -> None:
        """Count work, up to the total; the display changes only when an update is due, so calls cost little."""
        self.done = min(self.done + amount, self.total or self.done + amount)
        now = time.perf_counter()
        if self.phase is not None and now >= self._due:
            self._due = now + self._display.every
            self._display.show(self.phase, self._fraction(), self._state(now - self._started))

    def cancelled(self) -> bool:
        """Return whether the solve must stop."""
        return self._stop()

    def close(self) -> None:
        """End the present phase, if there is one, and show its amount of work, time and rate."""
        if self.phase is None:
            return
        seconds = time.perf_counter() - self._started
        parts = [f"{'stopped after ' if self.stopped else ''}{format_seconds(seconds)}"]
        if self.done:
            rate = self.done / max(seconds, 1e-9)
            parts += [amount_text(self.done, self.unit), *_rate_texts(rate, self.unit)]
        if self._display.terminal:
            self._display.show(self.phase, self._fraction(), ", ".join(parts))
            self._display.stop()
        else:
            self._display.print(f"{self.phase}: {', '.join(parts)}")
        self.phase = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopped = kind is not None
        self.close()

    def _fraction(self) -> float | None:
        return self.done / self.total if self.total else None

    def _state(self, seconds: float) -> str:
        """Return a text with the amount of work done, the rate and the time left."""
        since, self._last = self._last, (seconds, self.done)
        if self.unit == KERNELS:
            since = (0.0, 0)  # rate from the beginning: kernels differ a hundredfold in time
        # any other rate is since the last update, because the first part of a phase may have waited for a compilation
        rate = (self.done - since[1]) / max(seconds - since[0], 1e-9)
        done = format_bytes(self.done) if self.unit == "bytes" else format_count(self.done)
        parts = [f"{done} of {amount_text(self.total, self.unit)}"] if self.total else []
        parts += _rate_texts(rate, self.unit)
        if self.total and rate and self.done >= _ENOUGH * self.total:
            parts.append(f"about {format_seconds((self.total - self.done) / rate)} left")
        return ", ".join(parts)


class JobDisplay(Display):
    """Displays phase, fraction, rate and time left of a job; it is called with the job's facts."""

    def __call__(self, facts: dict[str, Any]) -> None:
        """Display the job's current facts."""
        parts = []
        if facts["rate"]:
            parts.append(f"{amount_text(facts['rate'], facts['unit'] or '')}/s")
        if facts["eta_seconds"] is not None:
            parts.append(f"about {format_seconds(facts['eta_seconds'])} left")
        if facts.get("queue_position"):
            parts.append(f"{counted(facts['queue_position'], 'jobs')} before it")
        phase = facts["state"] if facts["state"] != "running" else f"running, {facts['phase']}"
        if self.due(phase):
            self.show(phase, facts["progress"], ", ".join(parts))


class FetchDisplay(Display):
    """Displays a download, with rate and time left; it is called with the bytes fetched and the bytes in all."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.total = 0
        self._began = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        """Display that ``done`` of ``total`` bytes have been fetched."""
        self.total = total
        if done < total and not self.due("fetching"):
            return
        rate = done / max(time.perf_counter() - self._began, 1e-9)
        left = format_seconds((total - done) / rate) if rate else "?"
        rest = f"{format_bytes(done)} of {format_bytes(total)}, {format_bytes(rate)}/s, about {left} left"
        self.show("fetching", done / total if total else 1.0, rest)
