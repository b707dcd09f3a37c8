"""Selects results that are due for removal, and removes old rows from the job database."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import delete, select

from storage.jobs.claims import changed
from storage.jobs.database import Database
from storage.jobs.schema import EXPIRED, OVER, SUCCESSFUL, graphs, idempotency, jobs


class ResultRetention:
    """The part of the job store that removes results and old rows.

    All methods raise ``DatabaseFailed`` when the database cannot be read or written.
    """

    _database: Database

    def with_result(self) -> list[str]:
        """Return the ids of all jobs that should have a result."""
        query = select(jobs.c.id).where(jobs.c.state == SUCCESSFUL, jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            return list(connection.execute(query).scalars())

    def with_folder(self, job_ids: Sequence[str]) -> set[str]:
        """Return the ids among ``job_ids`` whose jobs may have files, because their results were not removed."""
        query = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            return set(connection.execute(query).scalars())

    def overdue(self, before: float | None, most_bytes: int | None) -> list[str]:
        """Return the ids of jobs whose results should be removed.

        Results of jobs that ended before the time ``before`` (seconds since the epoch; None for no limit) should be
        removed.  If all results together have more than ``most_bytes`` bytes, results should also be removed in the
        order in which their jobs ended, until the remaining results have at most ``most_bytes``.
        """
        query = select(jobs.c.id, jobs.c.finished, jobs.c.bytes).where(jobs.c.state.in_(OVER), jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            rows = connection.execute(query.order_by(jobs.c.finished.desc(), jobs.c.id.desc())).all()
        found, total = [], 0
        for row in rows:
            total += row.bytes or 0
            old = before is not None and row.finished < before
            if old or (most_bytes is not None and row.bytes and total > most_bytes):
                found.append(row.id)
        return found

    def expire_result(self, job_id: str) -> bool:
        """Mark the result of a job as expired; return False if the result was already removed."""
        here = (jobs.c.id == job_id, jobs.c.removed.is_(None), jobs.c.state.in_(OVER))
        with self._database.transaction("durable") as connection:
            change = changed(removed=time.time(), removal=EXPIRED).where(*here)
            return bool(connection.execute(change).rowcount)

    def purge(self, removed_before: float, keys_before: float) -> int:
        """Delete old rows, and return the number of deleted jobs.

        These are jobs, and graphs without jobs, that were removed before the time ``removed_before``, and idempotency
        keys that were created before the time ``keys_before`` (both in seconds since the epoch).
        """
        with self._database.transaction("durable") as connection:
            connection.execute(delete(idempotency).where(idempotency.c.created < keys_before))
            gone = connection.execute(delete(jobs).where(jobs.c.removed < removed_before)).rowcount
            unused = ~select(jobs.c.id).where(jobs.c.graph == graphs.c.id).exists()
            connection.execute(delete(graphs).where(graphs.c.removed < removed_before, unused))
            return int(gone)
