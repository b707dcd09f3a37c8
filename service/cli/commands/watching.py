"""Displays the progress of a job of a service or of a download: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from service.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: seconds between two lines where there is no terminal
_LINE_SECONDS: Final = 5.0


class StatusDisplay:
    """Displays a fraction and a text about it on ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._due, self._said = 0.0, ""
        if stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rest]}"),
            )
            # other output appears above the bar, and standard output is not redirected
            self._bar = Progress(*columns, console=Console(file=stream), redirect_stdout=False, refresh_per_second=4)
            self._task = self._bar.add_task("", total=1.0, rest="")

    def begin(self) -> None:
        """Start the display."""
        if self._bar is not None:
            self._bar.start()

    def end(self) -> None:
        """End the display; the last state stays on the screen."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, fraction: float, rest: str) -> None:
        """Display how much of ``what`` is done; lines are printed when ``what`` changes, and every few seconds.

        Args:
            what: name of the phase.
            fraction: how much is done, from 0 to 1.
            rest: further text, such as rate and time left.
        """
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=what, completed=fraction, rest=rest)
            return
        now = time.monotonic()
        if what != self._said or now >= self._due:
            self._said, self._due = what, now + _LINE_SECONDS
            with contextlib.suppress(OSError, ValueError):  # a closed stream must not end the command
                print(f"{what}: {100 * fraction:3.0f} %{f'  {rest}' if rest else ''}", file=self._stream, flush=True)


class JobDisplay(StatusDisplay):
    """Given a job's facts, shows phase, fraction, rate and time left."""

    def __call__(self, facts: dict[str, Any]) -> None:
        """Display the job's current facts."""
        parts = []
        if facts["rate"]:
            unit = facts["unit"] or ""
            amount = format_bytes(facts["rate"]) if unit == "bytes" else f"{format_count(facts['rate'])} {unit}"
            parts.append(f"{amount}/s")
        if facts["eta_seconds"] is not None:
            parts.append(f"about {format_seconds(facts['eta_seconds'])} left")
        if facts.get("queue_position"):
            parts.append(f"{facts['queue_position']} jobs before it")
        phase = facts["state"] if facts["state"] != "running" else f"running, {facts['phase']}"
        self.show(phase, facts["progress"], ", ".join(parts))


class FetchDisplay(StatusDisplay):
    """Given bytes that are there and bytes in all, shows them, with rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.total = 0
        self._began = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Display that ``done`` of ``total`` bytes are there."""
        self.total = total
        rate = done / max(time.monotonic() - self._began, 1e-9)
        left = format_seconds((total - done) / rate) if rate else "?"
        rest = f"{format_bytes(done)} of {format_bytes(total)}, {format_bytes(rate)}/s, about {left} left"
        self.show("fetching", done / total if total else 1.0, rest)


Shown = TypeVar("Shown", bound=StatusDisplay)


@contextlib.contextmanager
def displayed(watch: Shown) -> Iterator[Shown]:
    """Context manager in which the display is active."""
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()
