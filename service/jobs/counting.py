"""Summaries of prepared results: a summary is counted when it is first asked for, and then kept in memory.

Imports no NumPy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from service.settings import Settings, variable
from storage.errors import LimitExceeded

#: Most summaries that are kept; a summary has a few kilobytes.
_MOST: Final = 256

#: the predicted processor seconds of a summary, and the summary, which is None if the seconds exceed the limit
Counted = tuple[float, dict[str, Any] | None]


class SummaryCache:
    """A cache of summaries by digest of the result.  Safe to use from many threads: a summary is counted only once."""

    def __init__(self, settings: Settings) -> None:
        limits = {name: float(getattr(settings, name)) for name in ("max_computing_seconds", "answer_seconds")}
        self._setting = min(limits, key=lambda name: limits[name])
        self.most = limits[self._setting]
        self._kept: OrderedDict[str, Counted] = OrderedDict()
        self._counting: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def known(self, digest: str) -> dict[str, Any] | None:
        """Return a summary that was counted before; None if it was not."""
        with self._lock:
            return self._kept.get(digest, (0.0, None))[1]

    def get(self, digest: str, rows: int, count: Callable[[float], Counted]) -> dict[str, Any]:
        """Return the summary of a result; if another thread is counting it, wait for that thread.

        Args:
            digest: the digest of the result's seal.
            rows: the number of rows of the result, for messages.
            count: counts the rows; called with the most processor seconds that it may take.

        Raises:
            LimitExceeded: counting is predicted to take more seconds than it may.
            ApspError: ``count`` raised it.
        """
        with self._lock:
            alone = self._counting.setdefault(digest, threading.Lock())
        with alone:
            with self._lock:
                found = self._kept.get(digest)
            if found is None:
                found = count(self.most)
                with self._lock:
                    self._kept[digest] = found
                    if len(self._kept) > _MOST:
                        self._counting.pop(self._kept.popitem(last=False)[0], None)
        predicted, summary = found
        if summary is None:
            raise LimitExceeded(
                f"counting all {rows:,} rows of this prepared result is predicted to take {predicted:,.0f} processor "
                f"seconds, and at most {self.most:g} may be used; fetch it and ask there, where rows are picked "
                "evenly: apsp fetch JOB --out FOLDER, then apsp query FOLDER summary",
                limit=int(self.most),
                requested=int(predicted),
                setting=variable(self._setting),
            )
        return summary
