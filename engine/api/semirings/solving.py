"""Runs plans of semirings other than min-plus, into memory or row by row into a working store."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from engine.algorithms.context import SolveContext
from engine.algorithms.semirings import solving
from engine.algorithms.semirings.solving import ValueFacts
from engine.graph.selection import Rectangle
from engine.streaming.checkpoint import RowCommits, StoredSolve
from storage.errors import Cancelled
from storage.matrix.working import WorkingMatrix
from storage.semirings import SEMIRINGS, Semiring

#: Most bytes of rows of a resumed store that are read at once.
_PIECE: Final = 2**25


def run(context: SolveContext) -> dict[str, object]:
    """Solve into the context's sink, and return the summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
        SolveFailed: a product is too small for float64.
    """
    semiring = SEMIRINGS[context.plan.semiring]
    facts = ValueFacts(context.sink, context.rectangle, semiring.unreachable)
    solving.run(replace(context, sink=facts))
    return _summary(semiring, facts)


def run_by_rows(context: StoredSolve) -> dict[str, object]:
    """Solve into a working store: continue after the rows that its record counts, and commit at intervals.

    Raises:
        Cancelled: the monitor asked to stop; finished rows are committed first, unless they took very little time.
        SolveFailed: a product is too small for float64; finished rows are committed in the same way.
    """
    sink, asked, semiring = RowCommits(context.journal), context.rectangle, SEMIRINGS[context.plan.semiring]
    facts = ValueFacts(sink, asked, semiring.unreachable, sink.done)
    try:
        _read_back(facts, context.journal.writer, sink.done)
        if sink.done < len(asked.rows):
            left = asked if sink.done == 0 else Rectangle(asked.n, asked.rows[sink.done :], asked.targets, asked.cutoff)
            solving.run(replace(context, sink=facts, rectangle=left))
    except Cancelled:
        if context.journal.worth():
            sink.commit()
        raise
    return _summary(semiring, facts)


def _summary(semiring: Semiring, facts: ValueFacts) -> dict[str, object]:
    """Return the summary of all rows; for reachability without the least and the greatest value, which are always 1."""
    values = () if semiring.name != "lor-land" else ("least", "greatest")
    return {"semiring": semiring.name, **{name: fact for name, fact in facts.summary().items() if name not in values}}


def _read_back(facts: ValueFacts, writer: WorkingMatrix, done: int) -> None:
    """Read the rows that an earlier process wrote, and gather their facts.

    Raises:
        StorageFailed: a row is damaged.
    """
    band, (_, columns) = writer.tile[0], writer.shape
    most = max(1, _PIECE // max(1, band * columns * writer.dtype.itemsize)) * band
    buffer = np.empty((min(most, done), columns), writer.dtype)
    for first in range(0, done, most):
        rows = buffer[: min(most, done - first)]
        writer.read_rows(first, rows)
        facts.add(first, rows)
