"""Which running jobs have lost their runner: whose beat has stayed the same for too long.  Pure; knows no database.

The time that counts is that of the observer's own clock, which only runs forward, and only while it could look: a wall
clock that jumps, a machine that slept and a database that was away take no job from a runner that lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage.jobs.store import Beat


@dataclass
class _Seen:
    beat: Beat
    silent: float = 0.0


class Leases:
    """Watches beats.

    Args:
        seconds: a beat that stays the same for so long is overdue.
        gap: at most so many seconds are counted between two looks; more than that, the observer itself was away.
    """

    def __init__(self, seconds: float, gap: float) -> None:
        self._seconds, self._gap = seconds, gap
        self._seen: dict[str, _Seen] = {}
        self._last: float | None = None

    def forget(self) -> None:
        """Begin to count anew: while nobody could give a sign, nobody was silent."""
        self._seen, self._last = {}, None

    def overdue(self, beats: Iterable[Beat], now: float) -> list[Beat]:
        """The beats that are overdue at ``now`` (seconds of any clock that only runs forward)."""
        passed = 0.0 if self._last is None else min(now - self._last, self._gap)
        self._last = now
        found: dict[str, _Seen] = {}
        for beat in beats:
            before = self._seen.get(beat[0])
            same = before is not None and before.beat == beat
            found[beat[0]] = _Seen(beat, before.silent + passed if before is not None and same else 0.0)
        self._seen = found
        return [seen.beat for seen in found.values() if seen.silent >= self._seconds]
