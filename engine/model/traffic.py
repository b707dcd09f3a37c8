"""Counts the bytes that this process copies between host and devices, for metrics; only large copies are counted."""

from __future__ import annotations

import threading
from typing import Literal

_lock = threading.Lock()
_totals = {"read": 0, "write": 0}


def moved(direction: Literal["read", "write"], count: int) -> None:
    """Count a copy of ``count`` bytes to a device (``write``) or from a device (``read``)."""
    with _lock:
        _totals[direction] += count


def totals() -> dict[str, int]:
    """Return the bytes copied since the process began, by direction."""
    with _lock:
        return dict(_totals)
