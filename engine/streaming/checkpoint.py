"""Checkpoints: when a solve commits, what its record says, and how a search goes on from one.

A record says how far the matrix in the working store has come: how many of its first rows are done (searches), or up to
which round each stripe is (``engine.streaming``).  Everything that it speaks of is durable before it is written, and it
is lowered before a tile is overwritten by less (``engine.streaming.forms``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.model.algorithms import by_rows
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.rows import Array
from engine.rows.summary import SummarySink
from engine.streaming.forms import Form, Way, way_on
from storage.errors import Conflict
from storage.matrix.working import Checkpoint, WorkingMatrix, find_checkpoint

#: Seconds from one commit to the next.
INTERVAL: Final = 25.0
#: A solve that is stopped keeps what it has done if it has worked for so many seconds, or has committed before.
WORTH: Final = 5.0
#: Bytes of rows that are read back at a time.
_PIECE: Final = 2**25


class Journal:
    """Writes the records of one solve: the plan, the seconds of its phases, and what the algorithm has to say.

    Thread-safe.  ``seconds`` answers the seconds that each phase has taken so far.

    Attributes:
        potentials: by which the lengths of rounds are reduced (``engine.streaming.forms.fingerprint``); None for true
        lengths. commits: how many there were.
        spent, work: seconds in them, most of them waiting for the disk in the background, and seconds of a processor,
            copies of host memory included.
    """

    def __init__(self, writer: WorkingMatrix, plan: Plan, seconds: Callable[[], Mapping[str, float]]) -> None:
        found = writer.record() or {}
        self.writer, self._plan, self._seconds = writer, plan.to_dict(), seconds
        self.before: dict[str, float] = dict(found.get("seconds", {}))
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()
        self.interval = INTERVAL
        self.potentials: str | None = None
        self.commits = 0
        self.spent = self.work = 0.0

    def due(self) -> bool:
        """Whether it is time to commit again."""
        return time.monotonic() - self._last >= self.interval

    def worth(self) -> bool:
        """Whether a stopped solve should be kept."""
        return self.writer.record() is not None or time.monotonic() - self._began >= WORTH

    def commit(self, progress: Mapping[str, object]) -> None:
        """Make durable what was written, and say how far that is.  StorageFailed."""
        began, work = time.monotonic(), time.thread_time()
        with self._lock:
            self.writer.commit(self._record(progress))
            self._last = time.monotonic()
            self.commits += 1
            self.spent += self._last - began
            self.work += time.thread_time() - work

    def lower(self, progress: Mapping[str, object]) -> None:
        """Have the record say no more than ``progress`` before the next tile is written; until then it stays."""
        if self.writer.record() is not None:
            self.writer.lower(self._record(progress))

    def forget(self) -> None:
        """Have the record say that nothing is done before the next tile is written: what follows cannot be gone on
        from."""
        record = self.writer.record()
        if record is not None and record.get("kind") == "rounds":
            stripes = sum(count for _, count in record["levels"])
            self.lower({**record, "potentials": self.potentials, "levels": [[-1, stripes]]})

    def _record(self, progress: Mapping[str, object]) -> dict[str, object]:
        known = {"potentials": self.potentials} if progress["kind"] == "rounds" else {}
        return {"algorithm": self._plan["algorithm"], **known, **progress, "plan": self._plan, "seconds": self.total()}

    def total(self) -> dict[str, float]:
        """Seconds of each phase, those of the processes before included."""
        now = self._seconds()
        return {name: self.before.get(name, 0.0) + now.get(name, 0.0) for name in {**self.before, **now}}


class RowCommits:
    """A sink that passes whole rows on to the working store and commits them now and then; rows come in any order."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.tile = journal.writer.tile
        self._rows, self._columns = journal.writer.shape
        self._lock = threading.Lock()
        self.done = int((journal.writer.record() or {}).get("rows", 0))
        self._ahead: dict[int, int] = {}

    def write(self, row: int, column: int, block: Array) -> None:
        """Write, and commit if it is time."""
        self._journal.writer.write(row, column, block)
        if column != 0 or block.shape[1] != self._columns:
            raise ValueError("whole rows are expected")
        with self._lock:
            self._ahead[row] = row + len(block)
            while self.done in self._ahead:
                self.done = self._ahead.pop(self.done)
            due = self.done < self._rows and self._journal.due()
        if due:
            self.commit()

    def commit(self) -> None:
        """Commit the rows that are done from the first one on."""
        with self._lock:
            self._journal.commit({"kind": "rows", "rows": self.done})


class Continued:
    """The sink of a search that goes on after row ``done``: gathers the facts of all rows, those done before too."""

    def __init__(
        self,
        sink: RowCommits,
        rows: npt.NDArray[np.int64],
        n: int,
        *,
        integral: bool,
        targets: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._all = SummarySink(sink, rows, n, integral=integral, targets=targets)
        self._done = sink.done
        self.tile = sink.tile

    def write(self, row: int, column: int, block: Array) -> None:
        """``row`` counts from the first row that was not done."""
        self._all.write(row + self._done, column, block)

    def read_back(self, writer: WorkingMatrix) -> None:
        """Gather the facts of the rows that were done before.  StorageFailed if one of them is damaged."""
        band, (_, columns) = self.tile[0], writer.shape
        most = max(1, _PIECE // max(1, band * columns * writer.dtype.itemsize)) * band
        buffer = np.empty((min(most, self._done), columns), writer.dtype)
        for first in range(0, self._done, most):
            rows = buffer[: min(most, self._done - first)]
            writer.read_rows(first, rows)
            self._all.observe(first, rows)

    def summary(self, labels: Array) -> dict[str, object]:
        """The summary of all rows."""
        return self._all.summary(labels)


def resumable(path: Path | None, *, resume: bool) -> Checkpoint | None:
    """The checkpoint that a solve into ``path`` would go on from."""
    return find_checkpoint(path) if resume and path is not None else None


def bound_to(checkpoint: Checkpoint | None, options: Options) -> Options:
    """``options`` with the algorithm that can go on from ``checkpoint``, and its type.

    Raises:
        Conflict: another kind of algorithm, or another type, was asked for.
    """
    if checkpoint is None:
        return options
    algorithm, dtype = str(checkpoint.record["algorithm"]), str(checkpoint.identity["type"])
    recorded = Form.of_record(checkpoint.record, dtype)
    for name, asked, found, wanted in (
        ("algorithm", options.algorithm, algorithm, Form(dtype, "rows" if by_rows(options.algorithm) else "whole")),
        ("type", options.dtype, dtype, replace(recorded, dtype=options.dtype)),
    ):
        if asked != "auto" and way_on(recorded, wanted) is Way.REFUSE:
            raise Conflict(
                f"{checkpoint.target} has a checkpoint of {found}, and {name} {asked} cannot go on from that; "
                f"leave it out, or begin anew (--overwrite)"
            )
    kept = algorithm if options.algorithm == "auto" else options.algorithm
    return replace(options, algorithm=kept, dtype=dtype)


def suits(checkpoint: Checkpoint, plan: Plan) -> bool:
    """Whether ``plan`` can go on from a checkpoint, were it by forgetting it."""
    recorded = Form.of_record(checkpoint.record, str(checkpoint.identity["type"]))
    return way_on(recorded, Form.of_plan(plan)) is not Way.REFUSE


def take_up_whole(journal: Journal, plan: Plan) -> None:
    """Begin a solve in memory, which writes distances when it is done: over entries that are no part of them, after
    these are forgotten."""
    record = journal.writer.record()
    if record is not None and way_on(Form.of_record(record, plan.dtype), Form.of_plan(plan)) is Way.FORGET:
        journal.forget()


def rest(options: Options, n: int, done: int) -> Options:
    """``options`` for the rows after the first ``done``."""
    sources = range(n) if options.sources is None else options.sources
    return replace(options, sources=tuple(sources[done:]))
