"""Bytes between host and devices in this process, for those who measure; counted where the large copies are queued."""

from __future__ import annotations

import threading
from typing import Literal

_lock = threading.Lock()
_totals = {"read": 0, "write": 0}


def moved(direction: Literal["read", "write"], count: int) -> None:
    """``count`` bytes go to (``write``) or come from (``read``) a device."""
    with _lock:
        _totals[direction] += count


def totals() -> dict[str, int]:
    """Bytes since the process began, by direction."""
    with _lock:
        return dict(_totals)
