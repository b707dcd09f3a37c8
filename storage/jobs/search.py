"""Lists and counts jobs by state, owner and words, for the dashboard.

Waiting jobs are listed in the order in which runners will claim them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.sql import ColumnElement

from storage.jobs.database import Database
from storage.jobs.schema import ACCEPTED, DELETED, LISTED, JobRecord, graph_owners, graphs, job_of, jobs


@dataclass(frozen=True)
class JobFilter:
    """The conditions that listed jobs fulfil.

    Attributes:
        states: states of the jobs; empty for all states.
        owner: owner of the jobs; None for all owners.
        words: a text that is part of the name or id of the job or of its graph, in any case; empty for all jobs.
    """

    states: tuple[str, ...] = ()
    owner: str | None = None
    words: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions on rows of ``jobs`` for SQL."""
        found: list[ColumnElement[bool]] = [or_(jobs.c.removal.is_(None), jobs.c.removal != DELETED)]
        if self.states:
            found.append(jobs.c.state.in_(self.states))
        if self.owner is not None:
            found.append(jobs.c.owner == self.owner)
        if self.words:
            found.append(self._named())
        return found

    def _named(self) -> ColumnElement[bool]:
        def holds(column: ColumnElement[str]) -> ColumnElement[bool]:
            return column.icontains(self.words, autoescape=True)

        called: Select[tuple[str]] = select(graphs.c.id).where(holds(graphs.c.name))
        if self.owner is not None:  # a graph may have a different name for each owner
            mine = graph_owners.c.owner == self.owner
            called = select(graph_owners.c.graph).where(mine, holds(graph_owners.c.name))
        return or_(holds(jobs.c.name), holds(jobs.c.id), holds(jobs.c.graph), jobs.c.graph.in_(called))


class JobSearch:
    """The part of the job store that lists and counts the jobs that fulfil some conditions.

    All methods raise ``DatabaseFailed`` when the database cannot be read.
    """

    _database: Database

    def find_jobs(self, wanted: JobFilter, limit: int, before: str | None = None) -> list[JobRecord]:
        """Return jobs without their options, the newest first.  If only waiting jobs are wanted, they are in the order
        of the queue.

        Args:
            wanted: conditions that the jobs fulfil.
            limit: largest number of jobs to return.
            before: only jobs older than the job with this id, to continue a list.
        """
        query = select(*LISTED).where(*wanted.conditions())
        if before is not None:
            query = query.where(jobs.c.id < before)
        queue = (jobs.c.priority.desc(), jobs.c.place_in_queue, jobs.c.id)
        query = query.order_by(*(queue if wanted.states == (ACCEPTED,) else (jobs.c.id.desc(),)))
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query.limit(limit))]

    def count_jobs(self, wanted: JobFilter) -> int:
        """Return how many jobs fulfil the conditions of ``wanted``."""
        query = select(func.count()).select_from(jobs).where(*wanted.conditions())
        with self._database.transaction("read") as connection:
            return int(connection.execute(query).scalar_one())

    def queue_position(self, record: JobRecord) -> int:
        """Return the number of accepted jobs that will be claimed before the job ``record``."""
        same = jobs.c.priority == record.priority
        before = or_(
            jobs.c.priority > record.priority,
            and_(same, jobs.c.place_in_queue < record.place_in_queue),
            and_(same, jobs.c.place_in_queue == record.place_in_queue, jobs.c.id < record.id),
        )
        query = select(func.count()).select_from(jobs).where(jobs.c.state == ACCEPTED, before)
        with self._database.transaction("read") as connection:
            return int(connection.execute(query).scalar_one())
