"""Plans a claimed job and makes its result, a matrix, a prepared graph or a table, in the folder of the claim."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from service.jobs import checkpoints, claims
from service.jobs.folders import has_result, trash
from service.pool.tabled import TableTask, wants_table
from service.pool.tasks import prepared_plan, wants_prepared
from service.settings import Settings
from storage.errors import Conflict
from storage.jobs.store import JobRecord

if TYPE_CHECKING:
    from engine.api.solve import Outcome
    from engine.graph.profile import GraphProfile
    from engine.model.plan import Plan
    from engine.model.problem import Options
    from engine.model.progress import Monitor
    from storage.remote.generation import Generation

log = logging.getLogger(__name__)


@dataclass
class Task:
    """One claimed job with its graph and options; the folder of the claim exists.

    Attributes:
        settings: the settings of the service.
        job: the claimed job.
        profile: its graph.
        options: as ``service.pool.tasks.job_options`` returns them.
    """

    settings: Settings
    job: JobRecord
    profile: GraphProfile
    options: Options

    def plan(self, monitor: Monitor) -> Plan:
        """Return the plan, from the checkpoint in the folder if there is one; raises what planning raises.

        A table has no checkpoint: the work that another runner has begun is done again.
        """
        place = claims.place(self.settings.store(self.job.id), self.job.fence)
        if wants_table(self.job.options):
            return self._table.plan(place, monitor)
        if wants_prepared(self.job.options):
            return prepared_plan(self.profile, self.options, place)
        return checkpoints.plan(self.profile, self.options, place, monitor)

    def close(self) -> None:
        """Close the files that planning and making have opened."""
        if "_table" in self.__dict__:
            self._table.close()

    @cached_property
    def _table(self) -> TableTask:
        return TableTask(self.profile, self.job.options, self.options, self.settings)

    def make(self, plan: Plan, monitor: Monitor) -> Outcome | None:
        """Make the result and seal it; None if another runner has finished the job meanwhile."""
        store = self.settings.store(self.job.id)
        try:
            return self._attempt(plan, monitor)
        except Conflict as error:
            if has_result(self.settings, self.job.id):
                return None
            # the checkpoint belongs to a different solve; it is in the folder of this claim, so it can be removed
            log.warning("job %s: %s; it starts again from the beginning", self.job.id, error)
            claims.begin_anew(store, self.job.fence, trash(self.settings))
            return self._attempt(plan, monitor)

    def _generation(self) -> Generation | None:
        """Return the generation (version of the result) that this claim sends to the object store; None if results are
        in local folders.  Raises Conflict.
        """
        from storage.remote.generation import Generation

        address = self.settings.address(self.job.id)
        return None if address is None else Generation.at(address, overwrite=False, claim=self.job.fence)

    def _attempt(self, plan: Plan, monitor: Monitor) -> Outcome:
        from engine.api.prepared import prepare
        from engine.api.solve import Outcome, solve_to_store

        settings, job = self.settings, self.job
        place = claims.place(settings.store(job.id), job.fence)
        if wants_table(job.options):
            return Outcome(plan, self._table.make(place, plan, monitor, self._generation()), {})
        if wants_prepared(job.options):
            sent = self._generation()
            out = place if sent is None else (place, sent)
            outcome = prepare(self.profile, out, self.options, plan=plan, monitor=monitor)
            steps = cast("dict[str, int]", outcome.summary["resumed"])
            if any(steps.values()):
                done = ", ".join(f"{step} {count}" for step, count in steps.items())
                log.info("job %s: parts that an earlier attempt had done: %s", job.id, done)
            return outcome
        return solve_to_store(
            self.profile, self.options, place, plan=plan, resume=True, compression=settings.compression,
            monitor=monitor, address=settings.address(job.id), claim=job.fence,
        )  # fmt: skip
