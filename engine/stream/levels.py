"""How far each stripe is, in a record and out of it again, whatever layout goes on from there.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.stream.layout import Streaming

Levels = npt.NDArray[np.int64]


def progress_of(levels: Levels, streaming: Streaming) -> dict[str, object]:
    """What a record says: the round that each stripe has reached at least, -1 for none, as pairs (round, stripes)."""
    runs = [[int(level), len(list(run))] for level, run in groupby(levels.tolist())]
    cut = {"height": streaming.height, "width": streaming.width, "symmetric": streaming.symmetric}
    return {"kind": "rounds", **cut, "levels": runs}


def is_half(record: Mapping[str, Any]) -> bool:
    """Whether only what lies above the diagonal is as far as a record says."""
    planned = record.get("plan", {}).get("streaming") or {}
    return bool(record.get("symmetric", planned.get("symmetric", False)))


def levels_of(record: Mapping[str, Any] | None, streaming: Streaming, n: int, *, half: bool = False) -> Levels:
    """The round that each stripe of ``streaming`` has reached at least, -1 where nothing is in the store yet.

    With another layout than the record's, only the rounds that all stripes have behind them count; none do where the
    half below the diagonal was not kept and is now wanted, unless the caller puts it together (``half``).
    """
    fresh = np.full(streaming.stripes(n), -1, np.int64)
    if record is None or record.get("kind") != "rounds" or n == 0:
        return fresh
    if is_half(record) and not (streaming.symmetric or half):
        return fresh
    found = np.repeat([run[0] for run in record["levels"]], [run[1] for run in record["levels"]]).astype(np.int64)
    height, width = int(record["height"]), int(record["width"])
    if (height, width) == (streaming.height, streaming.width):
        return found
    rounds = -(-n // width)
    done = n if found.min() >= rounds - 1 else (int(found.min()) + 1) * width
    return np.full_like(fresh, streaming.rounds(n) - 1 if done >= n else done // streaming.width - 1)
