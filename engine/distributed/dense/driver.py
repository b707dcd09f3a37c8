"""The driver of a solve in rounds over many workers: it decides which worker closes which panel and relaxes which
stripe.

No task waits for a whole round.  A stripe may be relaxed by panel k as soon as that panel is closed; panel k + 1 may be
closed as soon as its stripe has been relaxed by panel k, so a worker relaxes that stripe first.  One worker holds
adjacent stripes, and closes their panels one after the other while earlier panels are sent to the other workers.
Stripes stay with their workers.  Panels are sent through the exchange folder.  A panel remains there until all stripes
in the store have been relaxed by it.  So if a worker is lost, other workers read its stripes from the store, or make
them from the arcs, and relax them by the panels of later rounds.  Meanwhile all workers continue with their own stripes
until they need the panel of a lost stripe.

Every entry is at all times the length of some walk and never rises, so a task may run twice, over old or new entries
(see ``engine.model.tier``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from engine.devices.rounds import panels_until
from engine.distributed.dask_cluster import Cluster, TaskEnded, Ticket, WorkerJoined, WorkerLeft
from engine.distributed.dense.assignment import AssignedWorker, Stripe, assign_stripes, rebalance
from engine.distributed.dense.commits import StripeCommits
from engine.distributed.driver import PAUSE, Driver, result_of
from engine.distributed.messages import DistributedJob, StoredStripe, TaskFailure, TaskRequest, TaskResult, WorkerInfo
from engine.model.progress import Monitor
from engine.model.tiling import stripe_entries
from engine.planning.cost_distributed import capacity
from engine.rows.summary import Summary
from engine.streaming.checkpoint import Journal
from storage.errors import Cancelled
from storage.matrix.exchange import TileFile

#: Time limit in seconds for the last commit after the monitor has asked to stop.
LAST: Final = 12.0
#: The largest number of bytes of stripes that one task writes; a task writes at least one stripe.
PIECE: Final = 2**28


class DenseDriver(Driver):
    """Drives one solve by rounds of blocked Floyd–Warshall over the workers.

    Args:
        cluster: the connection to the workers; workers may join and leave.
        workers: the present workers.
        job: the description of the solve for the workers.
        journal: writes the records.
        summary: gathers facts of finished rows, such as the largest distance.
        monitor: receives progress, and is asked whether to stop.
        stripes: all stripes, each with the last round that its copy in the store has reached.
    """

    def __init__(  # noqa: PLR0917
        self,
        cluster: Cluster,
        workers: Mapping[str, WorkerInfo],
        job: DistributedJob,
        journal: Journal,
        summary: Summary,
        monitor: Monitor,
        stripes: list[Stripe],
    ) -> None:
        super().__init__(cluster, job, monitor)
        self._job, self._journal, self._writer = job, journal, journal.writer
        self._summary, self._pace = summary, job.pace
        self._tiling, self._n, self._last = job.tiling, job.n, job.tiling.rounds(job.n) - 1
        self._stripes, floor = stripes, min(stripe.level for stripe in stripes)
        # _closed: the last panel in the exchange folder; _led: the last panel that a worker has closed; _leading: the
        # panel that is being closed, or -1; _leader: the worker of the last task that closes a panel
        self._closed, self._led, self._leading, self._leader = floor, floor, -1, ""
        self._panels: dict[int, str] = {}
        self._workers: dict[str, AssignedWorker] = {}
        self._serial, self._finishing = 0, False
        self._commits = StripeCommits(journal, job, stripes, self._panels, self._exchange_dir)
        self._left = self._least = sum((self._last - s.level) * self._updates(i) for i, s in enumerate(self._stripes))
        self._after: dict[str, Callable[[str, TaskRequest, TaskResult], None]] = {
            "relax": self._progress,
            "lead": self._after_lead,
            "publish": self._after_publish,
            "fetch": self._ignore,
            "save": self._after_save,
            "finish": self._after_finish,
            "forget": self._ignore,
        }
        for name, info in workers.items():
            self._admit(name, info)

    def run(self) -> None:
        """Run the rounds until all rows are in the store.

        Raises:
            Cancelled: the monitor asked to stop; finished work is committed first, unless it took very little time.
            BelowZero: the graph has a negative cycle.
            SolveFailed: the scheduler or all workers are lost; the last commit remains.
            StorageFailed: a worker or the driver could not read or write.
        """
        self._monitor.begin("relax", self._left, "updates")
        try:
            while any(stripe.level < self._last for stripe in self._stripes):
                self._step()
            self._monitor.begin("finish", self._n, "rows")
            self._finishing = True
            self._monitor.step(sum(self._height(i) for i, s in enumerate(self._stripes) if s.finished))
            while not all(stripe.finished for stripe in self._stripes):
                self._step()
        except Cancelled:
            self._stop()
            raise
        finally:
            self._end()

    def _hand_out(self) -> None:
        self._commit_if_due()
        for name in list(self._workers):
            self._feed(name)

    @property
    def _present(self) -> int:
        return len(self._workers)

    # ---- workers -----------------------------------------------------------------------------------------------------

    def _join(self, name: str, info: WorkerInfo) -> None:
        rate = info.relax_rate.get(self._job.plan.dtype, 1e10)
        self._workers[name] = AssignedWorker(
            info, rate, capacity(self._tiling, self._n, self._writer.dtype.itemsize, info.memory, self._pace)
        )
        assign_stripes(self._stripes, self._workers)

    def _worker_left(self, name: str) -> None:
        """Reset all stripes of a worker that has left to their state in the store, and assign them to other workers."""
        if self._workers.pop(name, None) is None:
            return
        self._count_loss(name)
        for number, stripe in enumerate(self._stripes):
            if stripe.owner == name:
                stripe.owner, stripe.ticket, stripe.saving = "", None, None
                self._reset(number)
        if self._leader == name:  # not the owner of the panel's stripe, because that may be another worker by now
            self._leading, self._led = -1, self._closed
        assign_stripes(self._stripes, self._workers)

    def _move(self, number: int, name: str) -> None:
        """Assign a stripe to another owner; the old owner drops it."""
        stripe = self._stripes[number]
        if stripe.held:
            self._submit_for_device(stripe.owner, "forget", TaskRequest(stripes=(number,)), urgent=True)
        stripe.owner, stripe.held = name, False

    # ---- tasks to submit ---------------------------------------------------------------------------------------------

    def _feed(self, name: str) -> None:
        worker, k = self._workers[name], self._led + 1
        if k <= self._last and self._stripes[k].owner == name and self._may_lead(name, k):
            self._hand(name, "lead", [k], k)  # before all waiting tasks, because every worker needs this panel
        most = self._pace.ahead
        while sum(t.purpose.action != "lead" for t in worker.tickets) < most and (task := self._next(name)) is not None:
            self._hand(name, *task)
        self._save_some(name)

    def _next(self, name: str) -> tuple[str, list[int], int] | None:
        """Return the next task of a worker: action, stripes, round; None if there is nothing to do now."""
        k = self._led + 1
        mine = [
            (i, s)
            for i, s in enumerate(self._stripes)
            if s.owner == name and s.ticket is None and not s.finished and i != k
        ]
        behind = [(i, s) for i, s in mine if s.level < self._closed]
        if behind:
            level = min(s.level for _, s in behind)
            count, now = len(self._stripes), [i for i, s in behind if s.level == level]
            now.sort(key=lambda i: panels_until(i, k, count))
            return "relax", self._some(name, now, len(mine)), level + 1
        done = [i for i, s in mine if s.level == self._last and s.saving is None]
        # a worker drops the stripes that it finishes, so a running commit must save them first
        if done and self._closed == self._last and not self._commits.running:
            return "finish", done[: self._piece()], self._last
        return None

    def _may_lead(self, name: str, k: int) -> bool:
        """Return whether worker ``name`` may close panel ``k`` now, at most ``early`` rounds ahead of other stripes.

        Panels are closed one at a time.  The previous panel must have been closed by the same worker, or must have
        arrived in the exchange folder.
        """
        if self._leading >= 0 or (self._led > self._closed and self._leader != name):
            return False
        floor = min((s.level for i, s in enumerate(self._stripes) if i != k and s.held), default=self._last)
        # a worker's cache holds few panels, and must not drop a panel before it is in the exchange folder
        return self._stripes[k].ticket is None and k <= min(floor, self._closed) + self._pace.early

    def _some(self, name: str, stripes: list[int], all_: int) -> list[int]:
        """Return the first of ``stripes``, for one task: as many as take the intended time of a task, but at least
        ``all_`` / ``ahead`` of them; only one stripe if some of ``stripes`` exceed the worker's capacity.
        """
        seconds = self._updates(stripes[0]) / self._workers[name].rate
        most = max(-(-all_ // self._pace.ahead), int(self._pace.task / max(seconds, 1e-9)) + 1)
        return stripes[: 1 if self._streamed(name) & set(stripes) else most]

    def _streamed(self, name: str) -> set[int]:
        """Return the stripes of a worker that exceed its capacity."""
        own = [i for i, s in enumerate(self._stripes) if s.owner == name and not s.finished]
        return set(own[self._workers[name].capacity :])

    def _hand(self, name: str, action: str, stripes: list[int], level: int) -> None:
        absent = [i for i in stripes if not self._stripes[i].held]
        low = min([self._stripes[i].stored for i in absent] + [self._stripes[i].level for i in stripes])
        request = TaskRequest(
            tuple(stripes),
            level,
            {k: self._panels[k] for k in range(low + 1, level + 1) if k in self._panels},
            {i: self._whereabouts(i) for i in absent},
            # no stripe is released while it is being saved; a later task releases it
            frozenset(i for i in self._streamed(name) & set(stripes) if self._stripes[i].saving is None)
            if action != "finish"
            else frozenset(),
        )
        ticket = self._submit_for_device(name, action, request, urgent=action == "lead")
        self._workers[name].tickets.append(ticket)
        for i in stripes:
            self._stripes[i].ticket = ticket
        if action == "lead":
            self._leading, self._leader = level, name

    def _submit_for_device(self, name: str, action: str, request: TaskRequest, *, urgent: bool) -> Ticket:
        return self._submit(name, action, request, device=self._job.device, share=self._pace.share, urgent=urgent)

    def _whereabouts(self, number: int) -> StoredStripe:
        stripe, band = self._stripes[number], self._writer.tile[0]
        first, last = self._tiling.rows(number, self._n)
        return StoredStripe(stripe.stored, self._writer.marks(first // band, -(-last // band)), stripe.upper)

    # ---- tasks ended -------------------------------------------------------------------------------------------------

    def _done(self, done: TaskEnded) -> None:
        name, purpose = done.ticket.worker, done.ticket.purpose
        worker = self._workers.get(name)
        if worker is None:
            return
        if done.ticket in worker.tickets:
            worker.tickets.remove(done.ticket)
        if worker.saving is done.ticket:
            worker.saving = None
        for i in purpose.request.stripes:
            stripe = self._stripes[i]
            stripe.ticket = None if stripe.ticket is done.ticket else stripe.ticket
            stripe.saving = None if stripe.saving is done.ticket else stripe.saving
        result = result_of(done)
        if result is None:  # the task was cancelled or stopped, so it is unknown whether the worker holds the stripes
            for i in purpose.request.stripes:
                self._stripes[i].held &= self._stripes[i].owner != name
            result = TaskResult()
        self._losses = 0
        self._after[purpose.action](name, purpose.request, result)

    def _after_lead(self, name: str, request: TaskRequest, result: TaskResult) -> None:
        self._progress(name, request, result)
        self._leading = -1
        # if this panel was not closed or the previous one was lost, begin again with the first panel that is missing
        if request.level not in result.levels or request.level != self._led + 1:
            self._led = self._closed
            return
        self._led = request.level
        self._serial += 1
        panels = {request.level: f"panel-{request.level}-{self._serial}"}
        self._submit(name, "publish", TaskRequest(level=request.level, panels=panels), device=None, urgent=True)

    def _after_publish(self, name: str, request: TaskRequest, result: TaskResult) -> None:
        if result.panel is None:  # the worker has a new session, which does not have the panel
            self._led = self._closed
            return
        k = request.level
        self._panels[k] = result.panel
        while self._closed + 1 in self._panels:  # panels may arrive out of order
            self._closed += 1
        self._led = max(self._led, self._closed)
        for other in self._workers:
            if other != name and any(s.owner == other and s.level < k for s in self._stripes):
                self._submit(other, "fetch", TaskRequest(level=k, panels={k: result.panel}), device=None, urgent=True)

    def _ignore(self, name: str, request: TaskRequest, result: TaskResult) -> None:
        """Do nothing: the driver's state does not depend on a fetched panel or a dropped stripe."""

    def _after_save(self, name: str, request: TaskRequest, result: TaskResult) -> None:  # noqa: ARG002
        for i, files in result.files.items():
            # a release or a finish may have stored newer files; the older files go with the exchange folder at the end
            if not self._stripes[i].finished and result.levels[i] >= self._stripes[i].stored:
                self._adopt(i, result.levels[i], files)
        for i in result.missing:
            self._reset(i)

    def _after_finish(self, name: str, request: TaskRequest, result: TaskResult) -> None:
        self._progress(name, request, result)
        if result.files and self._job.reduced:
            self._journal.forget()  # finished rows are not reduced, so rounds could not resume from them
        for i, files in result.files.items():
            self._writer.adopt(self._exchange_dir, files)
            self._stripes[i].finished, self._stripes[i].held = True, False
            self._monitor.advance(self._height(i) if self._finishing else 0)
        for part in result.parts:
            self._summary.join(part)

    def _progress(self, name: str, request: TaskRequest, result: TaskResult) -> None:
        worker = self._workers[name]
        for i, level in result.levels.items():
            stripe = self._stripes[i]
            self._left -= max(0, level - stripe.level) * self._updates(i)
            stripe.level, stripe.held = max(level, stripe.level), True
        for i in result.missing:
            self._reset(i)
        if request.level >= 0 and not result.parts:
            for i, files in result.files.items():
                self._adopt(i, result.levels[i], files)
                self._stripes[i].held = False
        self._tell()
        if result.updates:
            worker.learn(result.updates, result.seconds, self._pace.task)

    def _tell(self) -> None:
        """Report new updates to the monitor; updates that are repeated after the loss of a worker count only once."""
        self._monitor.advance(max(0, self._least - self._left))
        self._least = min(self._least, self._left)

    def _reset(self, number: int) -> None:
        """Set the state of a stripe, which its worker does not hold any more, back to that of its copy in the store."""
        stripe = self._stripes[number]
        if not stripe.finished:
            stripe.held = False
            self._left += (stripe.level - stripe.stored) * self._updates(number)
            stripe.level = stripe.stored

    # ---- commits -----------------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        if self._commits.running:
            if self._commits.all_saved():
                self._commit()
        elif self._commits.due(self._closed):
            self._commits.begin()

    def _save_some(self, name: str) -> None:
        """Submit a task in which a worker saves stripes for the running commit, unless it has such a task already."""
        if self._workers[name].saving is not None:
            return
        some = self._commits.take(name, self._piece())
        if some:
            ticket = self._submit(name, "save", TaskRequest(stripes=tuple(some)), device=None)
            self._workers[name].saving = ticket
            for i in some:
                self._stripes[i].saving = ticket

    def _adopt(self, number: int, level: int, files: tuple[TileFile, ...]) -> None:
        self._writer.adopt(self._exchange_dir, files)
        stripe = self._stripes[number]
        stripe.stored, stripe.upper = max(level, stripe.stored), False

    def _commit(self) -> None:
        """Finish the commit; if a record was written, move stripes to workers that have less than their share."""
        if self._commits.finish(self._closed):
            for number, other in rebalance(self._stripes, self._workers):
                self._move(number, other)

    def _stop(self) -> None:
        """End the running tasks, and commit once more if that is possible within ``LAST`` seconds."""
        self._halt()
        if not self._journal.worth() or self._commits.has_original_rows() or self._commits.took > LAST:
            return
        until = time.monotonic() + LAST
        if not self._commits.running:
            self._commits.begin()
        while self._commits.running and time.monotonic() < until:
            for name in list(self._workers):
                self._save_some(name)
            for event in self._cluster.events(PAUSE):
                if isinstance(event, WorkerJoined):
                    continue
                if isinstance(event, TaskEnded) and isinstance(event.result, TaskFailure):
                    self._workers[event.ticket.worker].tickets.clear()
                    continue
                if isinstance(event, WorkerLeft):
                    self._worker_left(event.worker)
                else:
                    self._done(event)
            if self._commits.all_saved():
                self._commit()

    def _height(self, stripe: int) -> int:
        first, last = self._tiling.rows(stripe, self._n)
        return last - first

    def _updates(self, stripe: int) -> int:
        """Return the updates of a stripe in a round of full width; the last round may be narrower."""
        return stripe_entries(self._tiling, stripe, self._n) * min(self._tiling.width, self._n)

    def _piece(self) -> int:
        """Return the largest number of stripes that one task writes."""
        return max(1, PIECE // (self._tiling.height * self._n * self._writer.dtype.itemsize))
