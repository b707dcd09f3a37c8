"""Writes the round or level that each stripe has reached into a record, and reads it for a solve with any layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling
from engine.streaming.checkpoint import Journal
from engine.streaming.forms import CheckpointForm, Way, kind_of, way_on

Levels = npt.NDArray[np.int64]


def progress_of(levels: Levels, tiling: Tiling) -> dict[str, object]:
    """Return the record of ``levels``: for each stripe a lower bound of the round or level that it has reached, -1 for
    none.

    The record holds a pair (level, number of stripes) for each run of stripes with the same level.

    In the half form, a level of the last round plus one means that the stripe is whole: its columns left of the
    diagonal are stored, too.
    """
    runs = [[int(level), len(list(run))] for level, run in groupby(levels.tolist())]
    cut = {"height": tiling.height, "width": tiling.width, "symmetric": tiling.symmetric}
    return {"kind": kind_of(tiling), **cut, "levels": runs}


def levels_of(record: Mapping[str, Any], tiling: Tiling, n: int) -> Levels:
    """Return a lower bound of the round or level that each stripe of ``tiling`` has reached, from a record; -1 for
    none.

    If the record has another layout than ``tiling``, only a part of its progress may count.  From a record of rounds,
    the rounds count that all stripes have finished.  From a record of passes, finished rows count, and so do the rows
    above the first row that the pass down has not lowered.  These lowered rows get the level WALKS: their panels have
    to be closed once more.

    Args:
        record: a record whose kind is ``rounds`` or ``passes``.
        tiling: how the matrix is cut now.
        n: side of the matrix.
    """
    found = np.repeat([run[0] for run in record["levels"]], [run[1] for run in record["levels"]]).astype(np.int64)
    height, width = int(record["height"]), int(record["width"])
    if (record["kind"], height, width) == (kind_of(tiling), tiling.height, tiling.width):
        return found
    if record["kind"] == "passes":
        return _from_passes(found, height, tiling, n)
    rounds = -(-n // width)
    done = n if found.min() >= rounds - 1 else (int(found.min()) + 1) * width
    if tiling.passes:
        # Every entry is at most the length of any walk whose intermediate vertices are all below ``done``.  So panels
        # whose rows are all below ``done`` are as the pass down leaves them.
        levels = np.full(tiling.stripes(n), FINISHED if done >= n else -1)
        levels[: done // tiling.width * tiling.group] = FINISHED if done >= n else LOWERED
        return levels
    return np.full(tiling.stripes(n), tiling.rounds(n) - 1 if done >= n else done // tiling.width - 1)


def _from_passes(found: Levels, height: int, tiling: Tiling, n: int) -> Levels:
    """Return the levels of the stripes of ``tiling``.

    ``found`` are the levels that passes have reached for stripes of another height, ``height``.
    """
    if found.min() >= FINISHED:
        return np.full(tiling.stripes(n), tiling.last(n))
    levels = np.full(tiling.stripes(n), -1)
    if not tiling.passes:
        return levels
    unlowered, unfinished = np.flatnonzero(found < WALKS), np.flatnonzero(found < FINISHED)
    lowered = int(unlowered[0]) * height if len(unlowered) else n
    finished = (int(unfinished[-1]) + 1) * height
    for stripe in range(len(levels)):
        first, last = tiling.rows(stripe, n)
        if first >= finished:
            levels[stripe] = FINISHED
        elif last <= lowered:
            levels[stripe] = WALKS
    return levels


def take_up(
    journal: Journal,
    tiling: Tiling,
    n: int,
    *,
    potentials: str | None = None,
    mirrored: bool = False,
    joined: bool = False,
) -> Levels:
    """Return a lower bound of the round or level that each stripe in the store has reached; -1 for a stripe that has to
    be made from the arcs.

    If a bound is less than the record says, this call lowers the record, before any tile is written.  Every streamed
    solve begins with this call.

    Args:
        journal: holds the record; the records that it writes after this call name ``potentials``.
        tiling: how the matrix is cut.
        n: side of the matrix.
        potentials: fingerprint of the potentials by which the lengths are reduced; None for true lengths.
        mirrored: whether the caller understands a level above the last round, which marks a whole stripe of the half
            form.
        joined: whether the caller makes whole rows from stripes of the half form; all stripes must then have reached
            the same round.

    Raises:
        ValueError: the record is of another kind or type, which earlier checks should have refused.
    """
    journal.potentials = potentials
    record, fresh = journal.writer.record(), np.full(tiling.stripes(n), -1, np.int64)
    if record is None or n == 0:
        return fresh
    dtype = journal.writer.dtype.name
    recorded = CheckpointForm.of_record(record, dtype)
    if joined:
        tiling = replace(tiling, symmetric=recorded.half, resident=0, passes=False)
    wanted = CheckpointForm.of_tiling(dtype, tiling, potentials)
    way = way_on(recorded, wanted)
    if way is Way.REFUSE:
        raise ValueError(f"a record of {recorded} was let through to a solve that wants {wanted}")
    levels = fresh if way is Way.FORGET else levels_of(record, tiling, n)
    if not mirrored:
        levels = np.minimum(levels, tiling.last(n))
    if joined and recorded.half:
        levels = np.full_like(levels, levels.min())
    stated = {**progress_of(levels, tiling), "potentials": potentials}
    if any(record.get(name) != value for name, value in stated.items()):
        journal.lower(stated)
    return levels
