"""Commits of a solve in rounds over many workers: when a commit is due, which stripes it must save, and its record.

A commit does not stop the solve.  The workers save the stripes that they hold, and meanwhile continue with other tasks.
When all stripes are saved, a record says which round each stripe in the store has reached.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import numpy as np

from engine.distributed.dense.assignment import Stripe
from engine.distributed.messages import DistributedJob
from engine.streaming.checkpoint import Journal
from engine.streaming.progress_record import progress_of
from storage.matrix.exchange import remove_panel

#: The largest share of the time that commits may take; the interval between two commits is made long enough for that.
COST: Final = 0.05
#: Rate in bytes per second from which the duration of the first commit is predicted.
SAVED: Final = 4e8


class StripeCommits:
    """The commits of one solve.

    Args:
        journal: writes the records.
        job: the solve.
        stripes: the driver's state of all stripes, which the driver changes while a commit runs.
        panels: the files of panels in the exchange folder, by round; a commit removes those that no stripe needs.
        exchange_dir: the exchange folder.

    Attributes:
        running: whether a commit has begun and is not finished.
        took: seconds that the last commit took; before the first commit, a prediction.
    """

    def __init__(
        self, journal: Journal, job: DistributedJob, stripes: list[Stripe], panels: dict[int, str], exchange_dir: Path
    ) -> None:
        self._journal, self._stripes, self._panels, self._exchange_dir = journal, stripes, panels, exchange_dir
        self._tiling, self._reduced = job.tiling, job.reduced
        self._last = job.tiling.rounds(job.n) - 1
        row = job.n * journal.writer.dtype.itemsize
        self._bytes, self._panel_bytes = job.n * row, job.tiling.width * row
        self.running, self.took = False, self._bytes / SAVED
        self._began, self._ended = 0.0, time.monotonic()
        self._unsaved: list[int] = []

    def due(self, closed: int) -> bool:
        """Return whether a commit should begin; ``closed`` is the last panel in the exchange folder."""
        waited = time.monotonic() - self._ended >= max(self._journal.interval, self.took / COST)
        return (waited or self._crowded()) and closed < self._last and any(s.level > s.stored for s in self._stripes)

    def _crowded(self) -> bool:
        """Return whether panels take so much disk space that a commit, which removes old panels, is needed."""
        taken = len(self._panels) * self._panel_bytes
        return taken > self._bytes // 4 and taken > shutil.disk_usage(self._exchange_dir).free

    def begin(self) -> None:
        """Begin a commit: it saves all stripes that have reached a later round than their copies in the store."""
        self.running, self._began = True, time.monotonic()
        self._unsaved = [i for i, s in enumerate(self._stripes) if s.held and (s.level > s.stored or s.upper)]

    def take(self, owner: str, most: int) -> list[int]:
        """Return at most ``most`` stripes that worker ``owner`` must save next; they no longer count as unsaved."""
        some = [i for i in self._unsaved if self._stripes[i].owner == owner][:most]
        self._unsaved = [i for i in self._unsaved if i not in some and self._stripes[i].held]
        return [i for i in some if self._stripes[i].held and not self._stripes[i].finished]

    def all_saved(self) -> bool:
        """Return whether all stripes of the running commit are saved, so that it can be finished."""
        return not self._unsaved and all(s.saving is None for s in self._stripes)

    def has_original_rows(self) -> bool:
        """Return whether a solve with reduced lengths has finished rows already.  Finished rows hold original lengths,
        and a record cannot describe rows of both kinds.
        """
        return self._reduced and any(s.finished for s in self._stripes)

    def finish(self, closed: int) -> bool:
        """End the commit: write a record of all saved stripes, and remove panels that no stripe needs.

        Args:
            closed: the last panel in the exchange folder.

        Returns:
            Whether a record was written.  It cannot be written if some stripes in the store have only their upper
            entries, or if some rows are finished in a solve with reduced lengths.
        """
        self._ended = time.monotonic()
        self.running, self.took = False, self._ended - self._began
        if any(s.upper for s in self._stripes) or self.has_original_rows():
            return False
        levels = np.array([s.stored for s in self._stripes])
        if (levels >= 0).any():
            self._journal.commit(progress_of(levels, self._tiling))
        # all panels up to ``closed`` have arrived; later ones, which arrived out of order, are still needed
        floor = min(closed, *(s.stored for s in self._stripes if not s.finished), self._last)
        for k in [t for t in self._panels if t <= floor]:
            remove_panel(self._exchange_dir / self._panels.pop(k))
        return True
