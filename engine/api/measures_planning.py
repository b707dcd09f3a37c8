"""Predicts memory and time of a table of measures, for which the rows of the matrix are computed but not written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.plan import Candidate
from engine.planning.refusal import gib
from engine.rows.asked_measures import MEASURES, table_bytes
from storage.errors import DoesNotFit


def measures_beside(candidates: Sequence[Candidate], rows: int, memory: int) -> Candidate | None:
    """Predict memory and time of measures from the candidates for the matrix; None if no candidate fits in memory.

    Args:
        candidates: the candidates for the matrix, selected or rejected by planning.
        rows: the number of rows of the matrix.
        memory: bytes of memory that may be used.
    """
    table, found = table_bytes(rows, MEASURES), []
    for one in candidates:
        if one.device == "cpu" and one.streaming is None and not one.workers and one.memory + table <= memory:
            phases = tuple(phase for phase in one.phases if phase.name != "write")
            seconds = sum(phase.seconds for phase in phases)
            found.append(replace(one, phases=phases, seconds=seconds, memory=one.memory + table))
    if not found:
        return None
    best = min(found, key=lambda one: one.seconds)
    said = "makes no matrix, but a table with a row for each source: apsp measure"
    return replace(best, algorithm="measures", disk=table, feasible=True, rejected=said)


def with_measures(refusal: DoesNotFit, rows: int, memory: int) -> DoesNotFit:
    """Return the error that refuses a matrix, with an offer of measures if these fit.

    Args:
        refusal: the error that says why the matrix does not fit.
        rows: the number of rows of the matrix.
        memory: bytes of memory that may be used.

    Returns:
        ``refusal`` itself if measures do not fit either, or if the matrix would be no larger than their table.
    """
    found = measures_beside([one for one in refusal.candidates if isinstance(one, Candidate)], rows, memory)
    if found is None or refusal.resource not in ("disk", "memory") or found.disk >= refusal.needed:
        return refusal
    return refusal.offering(
        found,
        f"measures: a table of {gib(found.disk)}, about {max(found.seconds, 0.1):.2g} s "
        "(apsp measure: closeness, eccentricity, opportunities within reach, without a matrix)",
    )
