"""Records when work ran on the streams of GPUs, as pairs of events that are converted to seconds at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """One piece of work on a stream.

    Attributes:
        kind: load, relax, store, reside, close, panel, write or lower.
        device: index of the device.
        k: the round; in passes, the panel.
        stripe: number of the stripe; for ``reside``, the pivot block of the group of resident stripes; -1 for none.
        lane: the slot, or a negative number for other streams.
        begin, end: seconds from the start of the trace.
    """

    kind: str
    device: int
    k: int
    stripe: int
    lane: int
    begin: float
    end: float


class Trace:
    """Collects intervals from any number of devices.

    Args:
        most: the largest number of intervals that are kept.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._marks: list[tuple[Any, ...]] = []
        self._starts: dict[int, Any] = {}
        self._cupy: Any = None

    def start(self, cupy: Any, device: int) -> None:
        """Set the start of the time scale of ``device``, which must be the current device."""
        self._cupy = cupy
        if device not in self._starts:
            self._starts[device] = cupy.cuda.Event()
            self._starts[device].record(cupy.cuda.Stream.null)

    def begin(self, stream: Any, kind: str, where: tuple[int, int, int, int]) -> Any:
        """Mark the beginning of work on a stream.

        Args:
            stream: the stream of the work, which begins when everything queued there before is done.
            kind: the kind of work (see :class:`Interval`).
            where: device, round, stripe and lane (see :class:`Interval`).

        Returns:
            The mark for :meth:`end`; None if ``most`` intervals are kept already.
        """
        if len(self._marks) >= self._most:
            return None
        events = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        events[0].record(stream)
        return kind, where, events

    def end(self, mark: Any, stream: Any) -> None:
        """Mark the end of the work that ``mark`` began."""
        if mark is not None:
            mark[-1][1].record(stream)
            self._marks.append(mark)

    def intervals(self) -> list[Interval]:
        """Return all intervals, sorted by their beginnings; waits for the devices."""
        found = []
        for kind, (device, k, stripe, lane), (begin, end) in self._marks:
            with self._cupy.cuda.Device(device):
                end.synchronize()
                times = [self._cupy.cuda.get_elapsed_time(self._starts[device], e) / 1e3 for e in (begin, end)]
            found.append(Interval(kind, device, k, stripe, lane, *times))
        return sorted(found, key=lambda i: i.begin)
