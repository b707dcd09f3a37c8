"""Checkpoints: when a solve commits, what its record says, and how a later solve resumes from the record.

A record says how far the matrix in the working store has come: how many of its first rows are done (searches), or which
round each stripe has reached (``engine.streaming``).  Before a record is written, all tiles that it counts are durable.
Before such a tile is overwritten by a less advanced tile, the record is lowered (``engine.streaming.forms``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.context import SolveContext
from engine.model.algorithms import by_rows
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.rows import Array, FoundFacts
from engine.rows.summary import SummarySink
from engine.streaming.forms import LOWERED_KINDS, CheckpointForm, Way, way_on
from storage.errors import Conflict
from storage.matrix.working import Checkpoint, WorkingMatrix, find_checkpoint

#: Seconds from one commit to the next.
INTERVAL: Final = 25.0
#: A stopped solve commits its work if it has run for this many seconds, or has committed before.
WORTH: Final = 5.0
#: Bytes of rows that ``Continued`` reads back at a time.
_PIECE: Final = 2**25


class Journal:
    """Writes the records of one solve: the plan, the seconds of its phases, and the progress that the algorithm
    reports.

    All methods are thread-safe.

    Args:
        writer: the working store.
        plan: the plan of the solve.
        seconds: returns the seconds that each phase of this process has taken so far.

    Attributes:
        interval: seconds from one commit to the next.
        before: seconds of each phase in earlier processes, from the record.
        potentials: the fingerprint of the potentials by which the lengths of rounds are reduced
            (``engine.streaming.forms.fingerprint``); None for true lengths.
        commits: the number of commits so far.
        spent: wall seconds of all commits; most of this time a background thread waits for the disk.
        work: processor seconds of all commits, and of copying the matrix from host memory for them.
    """

    def __init__(self, writer: WorkingMatrix, plan: Plan, seconds: Callable[[], Mapping[str, float]]) -> None:
        found = writer.record() or {}
        self.writer, self._plan, self._seconds = writer, plan.to_dict(), seconds
        # in the record, "per" says that the cutoff counts in whole units (``engine.execution.sums.units_searched``)
        self._units: dict[str, object] = {} if plan.counted is None else {"per": plan.counted[1]}
        self.before: dict[str, float] = dict(found.get("seconds", {}))
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()
        self.interval = INTERVAL
        self.potentials: str | None = None
        self.commits = 0
        self.spent = self.work = 0.0

    def due(self) -> bool:
        """Return whether the interval has passed since the last commit."""
        return time.monotonic() - self._last >= self.interval

    def worth(self) -> bool:
        """Return whether the work of a stopped solve took long enough to be kept."""
        return self.writer.record() is not None or time.monotonic() - self._began >= WORTH

    def commit(self, progress: Mapping[str, object]) -> None:
        """Make all written tiles durable, then write a record of ``progress``.

        Raises:
            StorageFailed: the store cannot be written.
        """
        began, work = time.monotonic(), time.thread_time()
        with self._lock:
            self.writer.commit(self._record(progress))
            self._last = time.monotonic()
            self.commits += 1
            self.spent += self._last - began
            self.work += time.thread_time() - work

    def lower(self, progress: Mapping[str, object]) -> None:
        """Replace the record by a record of ``progress``, which counts less than the old record.

        This is called before tiles are overwritten that only the old record counts.
        """
        if self.writer.record() is not None:
            self.writer.lower(self._record(progress))

    def forget(self) -> None:
        """Replace the record by a record that counts no round.

        This is called before tiles are overwritten by tiles from which no solve can resume.
        """
        record = self.writer.record()
        if record is not None and record.get("kind") in LOWERED_KINDS:
            stripes = sum(count for _, count in record["levels"])
            self.lower({**record, "potentials": self.potentials, "levels": [[-1, stripes]]})

    def _record(self, progress: Mapping[str, object]) -> dict[str, object]:
        reduced = {"potentials": self.potentials} if progress["kind"] in LOWERED_KINDS else {}
        known = {**self._units, **reduced}
        return {"algorithm": self._plan["algorithm"], **known, **progress, "plan": self._plan, "seconds": self.total()}

    def total(self) -> dict[str, float]:
        """Return the seconds of each phase, in this and in earlier processes."""
        now = self._seconds()
        return {name: self.before.get(name, 0.0) + now.get(name, 0.0) for name in {**self.before, **now}}


@dataclass(frozen=True)
class StoredSolve(SolveContext):
    """A solve into a working store; its sink is that store.

    Attributes:
        journal: the working store and its records.
        after: contexts that stay open until the store is sealed or the solve has failed.
    """

    journal: Journal
    after: ExitStack


class RowCommits:
    """A sink that writes whole rows to the working store and commits them at intervals; rows may come in any order."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.tile = journal.writer.tile
        self._rows, self._columns = journal.writer.shape
        self._lock = threading.Lock()
        self.done = int((journal.writer.record() or {}).get("rows", 0))
        self._ahead: dict[int, int] = {}

    def write(self, row: int, column: int, block: Array) -> None:
        """Write whole rows, and commit if the interval has passed.

        Args:
            row: the first row of the block, a multiple of the tile's height.
            column: the first column; must be 0.
            block: array of shape (rows, columns of the matrix).

        Raises:
            ValueError: the block does not hold whole rows.
            StorageFailed: the store cannot be written.
        """
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
        """Commit the longest run of finished rows that starts at row 0."""
        with self._lock:
            self._journal.commit({"kind": "rows", "rows": self.done})


class Continued:
    """The sink of a search that resumes at row ``sink.done``.

    It collects the facts (reached, sum, largest distance) of all rows, including rows that an earlier process wrote.

    Args:
        sink: writes the rows.
        rows: vertex indices of all sources of the matrix, shape (rows,).
        n: vertices of the graph.
        integral: whether all distances are whole numbers.
        targets: vertex indices of the columns; None for all vertices.
    """

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
        """Write rows and gather their facts.

        Args:
            row: the first row of the block, counted from the first row that earlier processes have not done.
            column: the first column.
            block: array of shape (rows, columns).
        """
        self._all.write(row + self._done, column, block)

    @property
    def place(self) -> None:
        """None, because searches cannot write rows directly into the store."""

    def gather(
        self,
        row: int,
        block: Array,
        some: npt.NDArray[np.int64] | None = None,
        found: FoundFacts | None = None,
    ) -> None:
        """Gather the facts of rows, as :meth:`engine.rows.summary.SummarySink.gather` does.

        ``row`` is counted from the first row that earlier processes have not done.
        """
        self._all.gather(row + self._done, block, some, found)

    def keep(self, row: int, block: Array) -> None:
        """Write rows whose facts have been gathered.

        ``row`` is counted from the first row that earlier processes have not done.
        """
        self._all.keep(row + self._done, block)

    def read_back(self, writer: WorkingMatrix) -> None:
        """Gather the facts of the rows that an earlier process wrote.

        Raises:
            StorageFailed: one of these rows is damaged.
        """
        band, (_, columns) = self.tile[0], writer.shape
        most = max(1, _PIECE // max(1, band * columns * writer.dtype.itemsize)) * band
        buffer = np.empty((min(most, self._done), columns), writer.dtype)
        for first in range(0, self._done, most):
            rows = buffer[: min(most, self._done - first)]
            writer.read_rows(first, rows)
            self._all.gather(first, rows)

    def summary(self, labels: Array) -> dict[str, object]:
        """Return the summary of all rows; ``labels`` are the labels of the vertices."""
        return self._all.summary(labels)


def resumable(path: Path | None, *, resume: bool) -> Checkpoint | None:
    """Return the checkpoint from which a solve into ``path`` would resume; None if there is none or it has a fault."""
    found = find_checkpoint(path) if resume and path is not None else None
    return None if found is None or found.fault is not None else found


def bound_to(checkpoint: Checkpoint | None, options: Options) -> Options:
    """Return ``options`` with an algorithm that can resume from ``checkpoint``, and with the type of the checkpoint.

    Args:
        checkpoint: a checkpoint of the matrix that ``options`` ask for; None if there is none.
        options: the user's options.

    Raises:
        Conflict: ``options`` ask for another kind of algorithm, or for another type.
    """
    if checkpoint is None:
        return options
    algorithm, dtype = str(checkpoint.record["algorithm"]), str(checkpoint.identity["type"])
    recorded = CheckpointForm.of_record(checkpoint.record, dtype)
    for name, asked, found, wanted in (
        (
            "algorithm",
            options.algorithm,
            algorithm,
            CheckpointForm(dtype, "rows" if by_rows(options.algorithm) else "whole"),
        ),
        ("type", options.dtype, dtype, replace(recorded, dtype=options.dtype)),
    ):
        if asked != "auto" and way_on(recorded, wanted) is Way.REFUSE:
            raise Conflict(
                f"{checkpoint.target} has a checkpoint of {found}, and {name} {asked} cannot go on from that; "
                f"leave it out, or begin anew (--overwrite)"
            )
    kept = algorithm if options.algorithm == "auto" else options.algorithm
    return replace(options, algorithm=kept, dtype=dtype)


def resumes_half(checkpoint: Checkpoint | None) -> bool:
    """Return whether ``checkpoint`` counts rounds of the half form, from which only a solve in this form can resume.

    In the half form only entries on or right of the diagonal count.  The result is False if the record counts no round,
    or if not even a solve in the half form can use the record.
    """
    if checkpoint is None or checkpoint.record.get("kind") != "rounds":
        return False
    recorded = CheckpointForm.of_record(checkpoint.record, str(checkpoint.identity["type"]))
    wanted = replace(recorded, potentials=None)  # only undirected graphs have a half form, and they need no potentials
    begun = max((level for level, _ in checkpoint.record["levels"]), default=-1) >= 0
    return recorded.half and begun and way_on(recorded, wanted) is not Way.FORGET


def suits(checkpoint: Checkpoint, plan: Plan) -> bool:
    """Return whether a solve by ``plan`` may begin on ``checkpoint``: it resumes from the tiles or overwrites them."""
    recorded = CheckpointForm.of_record(checkpoint.record, str(checkpoint.identity["type"]))
    return way_on(recorded, CheckpointForm.of_plan(plan)) is not Way.REFUSE


def take_up_whole(journal: Journal, plan: Plan) -> None:
    """Prepare the record for an in-memory solve, which writes distances at its end.

    A record of lengths that are reduced by potentials is replaced by a record that counts nothing.
    """
    record = journal.writer.record()
    if (
        record is not None
        and way_on(CheckpointForm.of_record(record, plan.dtype), CheckpointForm.of_plan(plan)) is Way.FORGET
    ):
        journal.forget()
