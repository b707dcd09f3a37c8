"""Finds running jobs whose runner is lost: the job's heartbeat has not changed for too long.  Uses no database.

Time is measured with the observer's monotonic clock, and only while the observer could read heartbeats.  So no living
runner loses its job because a wall clock jumps, a machine sleeps or the database is unavailable.
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
    """Measures how long heartbeats stay the same.

    Args:
        seconds: a heartbeat that is unchanged for this time is overdue.
        gap: the most seconds counted between two calls, because after a longer time the observer itself was suspended.
    """

    def __init__(self, seconds: float, gap: float) -> None:
        self._seconds, self._gap = seconds, gap
        self._seen: dict[str, _Seen] = {}
        self._last: float | None = None

    def forget(self) -> None:
        """Start to measure again, because no runner could store a heartbeat."""
        self._seen, self._last = {}, None

    def overdue(self, beats: Iterable[Beat], now: float) -> list[Beat]:
        """Return the heartbeats that are overdue at ``now`` (seconds of a monotonic clock)."""
        passed = 0.0 if self._last is None else min(now - self._last, self._gap)
        self._last = now
        found: dict[str, _Seen] = {}
        for beat in beats:
            before = self._seen.get(beat[0])
            same = before is not None and before.beat == beat
            found[beat[0]] = _Seen(beat, before.silent + passed if before is not None and same else 0.0)
        self._seen = found
        return [seen.beat for seen in found.values() if seen.silent >= self._seconds]
