"""When what ran on which stream of a GPU: begin and end events, turned into seconds once all is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """One piece of work: ``kind`` is load, relax, store, reside, close, panel or write; seconds from the start."""

    kind: str
    device: int
    turn: int
    stripe: int
    lane: int
    begin: float
    end: float


class Trace:
    """Collects intervals from any number of devices; ``most`` bounds how many are kept."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._marks: list[tuple[Any, ...]] = []
        self._starts: dict[int, Any] = {}
        self._cupy: Any = None

    def start(self, cupy: Any, device: int) -> None:
        """The zero of the times of ``device``, which is the current one."""
        self._cupy = cupy
        if device not in self._starts:
            self._starts[device] = cupy.cuda.Event()
            self._starts[device].record(cupy.cuda.Stream.null)

    def begin(self, stream: Any, kind: str, where: tuple[int, int, int, int]) -> Any:
        """Work begins on ``stream`` when what was queued before is done; ``where``: device, round, stripe, lane."""
        if len(self._marks) >= self._most:
            return None
        events = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        events[0].record(stream)
        return kind, where, events

    def end(self, mark: Any, stream: Any) -> None:
        """That work ends."""
        if mark is not None:
            mark[-1][1].record(stream)
            self._marks.append(mark)

    def intervals(self) -> list[Interval]:
        """All of them, in the order of their beginnings; waits for the devices."""
        found = []
        for kind, (device, turn, stripe, lane), (begin, end) in self._marks:
            with self._cupy.cuda.Device(device):
                end.synchronize()
                times = [self._cupy.cuda.get_elapsed_time(self._starts[device], e) / 1e3 for e in (begin, end)]
            found.append(Interval(kind, device, turn, stripe, lane, *times))
        return sorted(found, key=lambda i: i.begin)
