"""The driver of a solve in rounds over many workers: who closes which panel, who relaxes what, who takes over.

Nothing waits for a whole round.  A stripe may be relaxed by panel k as soon as that is closed; panel k + 1 may be
closed as soon as its stripe has been relaxed by panel k, which its worker does first.  Neighbouring stripes lie with
one worker, which closes one panel after the other while those before are on their way to the others.  Stripes stay
with their workers; panels go through the store, and stay there until all that the store has is past them.  So a stripe
that is lost with its worker is taken from the store, or made from the arcs, by another one, and goes through the panels
since: as none waits for it but the panels that it will be itself, the others go on.

Every entry is at all times the length of some walk and only falls, so tasks may be run twice, over old entries and new
ones (see ``engine.model.tier``).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.distributed.assignment import Stripe, Worker, level_out, share_out
from engine.distributed.dask_cluster import Came, Cluster, Done, Ticket, Went
from engine.distributed.driver import PAUSE, Drive, result_of
from engine.distributed.messages import Failure, Hello, Job, Order, Report, Stored
from engine.model.progress import Monitor
from engine.model.tiling import stripe_entries
from engine.planning.cost_distributed import capacity
from engine.rows.summary import Summary
from engine.streaming.checkpoint import Journal
from engine.streaming.progress_record import progress_of
from storage.errors import Cancelled
from storage.matrix.exchange import TileFile, remove_panel

#: Share of the time that commits may take: they are so much further apart.
COST: Final = 0.05
#: Bytes a second at which a commit is predicted to be written, and seconds that the last one may take when the solve
#: has been asked to stop.
SAVED: Final = 4e8
LAST: Final = 12.0
#: Bytes of stripes that one task writes, if they are small.
PIECE: Final = 2**28


class Rounds(Drive):
    """One run.

    Args:
        cluster, workers: who works; more may come, and some may go.
        job, journal, summary, monitor: what is solved, who commits, who is told of finished rows and of progress.
        levels: of which round each stripe is in the store, -1 for none.
        upper: only what lies on or right of the diagonal of the store counts.
    """

    def __init__(  # noqa: PLR0917 - what a run has at hand
        self,
        cluster: Cluster,
        workers: Mapping[str, Hello],
        job: Job,
        journal: Journal,
        summary: Summary,
        monitor: Monitor,
        levels: npt.NDArray[np.int64],
        *,
        upper: bool = False,
    ) -> None:
        super().__init__(cluster, job, journal, monitor)
        self._summary, self._pace = summary, job.pace
        self._streaming, self._n, self._last = job.streaming, job.n, job.streaming.rounds(job.n) - 1
        floor = int(levels.min())
        self._stripes = [Stripe(level, level, upper and level >= 0) for level in levels.tolist()]
        # panels in the store, those that their worker has closed, the one that is being closed, and whose they are
        self._closed, self._led, self._leading, self._leader = floor, floor, -1, ""
        self._panels: dict[int, str] = {}
        self._workers: dict[str, Worker] = {}
        self._saved = time.monotonic()
        self._serial, self._finishing = 0, False
        self._unsaved: list[int] = []
        self._committing, self._began, self._took = False, 0.0, self._bytes() / SAVED
        self._left = self._least = sum((self._last - s.level) * self._updates(i) for i, s in enumerate(self._stripes))
        for name, hello in workers.items():
            self._came(name, hello)

    def run(self) -> None:
        """Go through the rounds until all rows are in the store.

        Raises:
            Cancelled: the monitor asked to stop; what was done is committed if it was much.
            BelowZero: the graph has a negative cycle.
            SolveFailed: the scheduler is lost, or all workers; the last commit stays.
            StorageFailed: a worker or the driver could not read or write.
        """
        self._monitor.begin("relax", self._left, "updates")
        try:
            while any(stripe.level < self._last for stripe in self._stripes):
                self._turn()
            self._monitor.begin("finish", self._n, "rows")
            self._finishing = True
            self._monitor.step(sum(self._height(i) for i, s in enumerate(self._stripes) if s.finished))
            while not all(stripe.finished for stripe in self._stripes):
                self._turn()
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

    # ---- who works ---------------------------------------------------------------------------------------------------

    def _join(self, name: str, hello: Hello) -> None:
        rate = hello.relax_rate.get(self._job.plan.dtype, 1e10)
        self._workers[name] = Worker(
            hello, rate, capacity(self._streaming, self._n, self._writer.dtype.itemsize, hello.memory, self._pace)
        )
        share_out(self._stripes, self._workers)

    def _leave(self, name: str) -> None:
        """A worker is gone with all that it held."""
        if self._workers.pop(name, None) is None:
            return
        self._lost(name)
        for number, stripe in enumerate(self._stripes):
            if stripe.owner == name:
                stripe.owner, stripe.held, stripe.ticket, stripe.saving = "", False, None, None
                if not stripe.finished:
                    self._left += (stripe.level - stripe.stored) * self._updates(number)
                    stripe.level = stripe.stored
        if self._leader == name:  # the stripe may have another owner by now
            self._leading, self._led = -1, self._closed
        share_out(self._stripes, self._workers)

    def _move(self, number: int, name: str) -> None:
        """A stripe is another worker's from now on, and its old one need not keep it."""
        stripe = self._stripes[number]
        if stripe.held:
            self._order(stripe.owner, "forget", Order(stripes=(number,)), urgent=True)
        stripe.owner, stripe.held = name, False

    # ---- what there is to do -----------------------------------------------------------------------------------------

    def _feed(self, name: str) -> None:
        worker, turn = self._workers[name], self._led + 1
        if turn <= self._last and self._stripes[turn].owner == name and self._may_lead(name, turn):
            self._hand(name, "lead", [turn], turn)  # before all that waits: everybody waits for panels in the end
        most = self._pace.ahead
        while sum(t.note.verb != "lead" for t in worker.tickets) < most and (task := self._next(name)) is not None:
            self._hand(name, *task)
        if worker.saving is None and self._unsaved:
            self._save_some(name)

    def _next(self, name: str) -> tuple[str, list[int], int] | None:
        """What a worker should do next: verb, stripes, round."""
        turn = self._led + 1
        mine = [
            (i, s)
            for i, s in enumerate(self._stripes)
            if s.owner == name and s.ticket is None and not s.finished and i != turn
        ]
        behind = [(i, s) for i, s in mine if s.level < self._closed]
        if behind:
            level = min(s.level for _, s in behind)
            now = sorted((i for i, s in behind if s.level == level), key=lambda i: (i - turn) % len(self._stripes))
            return "relax", self._some(name, now, len(mine)), level + 1
        done = [i for i, s in mine if s.level == self._last and s.saving is None]
        if done and self._closed == self._last and not self._committing:  # what waits to be saved must still be there
            height = self._streaming.height * self._n * self._writer.dtype.itemsize
            return "finish", done[: max(1, PIECE // height)], self._last
        return None

    def _may_lead(self, name: str, turn: int) -> bool:
        """A panel is closed ahead of time, but not so far that the others are not of use yet.

        One is closed at a time, once the one before is there: closed by the same worker, or in the store.
        """
        if self._leading >= 0 or (self._led > self._closed and self._leader != name):
            return False
        floor = min((s.level for i, s in enumerate(self._stripes) if i != turn and s.held), default=self._last)
        # nor so far ahead of the store that its worker, which keeps few, would lose one that is not there yet
        return self._stripes[turn].ticket is None and turn <= min(floor, self._closed) + self._pace.early

    def _some(self, name: str, stripes: list[int], all_: int) -> list[int]:
        """As many as take a while, and leave some for the next task."""
        seconds = self._updates(stripes[0]) / self._workers[name].rate
        most = max(-(-all_ // self._pace.ahead), int(self._pace.task / max(seconds, 1e-9)) + 1)
        return stripes[: 1 if self._streamed(name) & set(stripes) else most]

    def _streamed(self, name: str) -> set[int]:
        """Stripes of a worker that it has no room to keep."""
        own = [i for i, s in enumerate(self._stripes) if s.owner == name and not s.finished]
        return set(own[self._workers[name].room :])

    def _hand(self, name: str, verb: str, stripes: list[int], level: int) -> None:
        absent = [i for i in stripes if not self._stripes[i].held]
        low = min([self._stripes[i].stored for i in absent] + [self._stripes[i].level for i in stripes])
        order = Order(
            tuple(stripes),
            level,
            {turn: self._panels[turn] for turn in range(low + 1, level + 1) if turn in self._panels},
            {i: self._whereabouts(i) for i in absent},
            # what is being saved stays until it is, and is left the next time
            frozenset(i for i in self._streamed(name) & set(stripes) if self._stripes[i].saving is None)
            if verb != "finish"
            else frozenset(),
        )
        ticket = self._order(name, verb, order, urgent=verb == "lead")
        self._workers[name].tickets.append(ticket)
        for i in stripes:
            self._stripes[i].ticket = ticket
        if verb == "lead":
            self._leading, self._leader = level, name

    def _order(self, name: str, verb: str, order: Order, *, urgent: bool) -> Ticket:
        return self._send(name, verb, order, device=self._job.device, share=self._pace.share, urgent=urgent)

    def _whereabouts(self, number: int) -> Stored:
        stripe, band = self._stripes[number], self._writer.tile[0]
        first, last = self._streaming.rows(number, self._n)
        return Stored(stripe.stored, self._writer.marks(first // band, -(-last // band)), stripe.upper)

    # ---- what has come -----------------------------------------------------------------------------------------------

    def _done(self, done: Done) -> None:
        name, note = done.ticket.worker, done.ticket.note
        worker = self._workers.get(name)
        if worker is None:
            return
        if done.ticket in worker.tickets:
            worker.tickets.remove(done.ticket)
        if worker.saving is done.ticket:
            worker.saving = None
        for i in note.order.stripes:
            stripe = self._stripes[i]
            stripe.ticket = None if stripe.ticket is done.ticket else stripe.ticket
            stripe.saving = None if stripe.saving is done.ticket else stripe.saving
        report = result_of(done)
        if report is None:  # cancelled by somebody else: what the worker holds is not known
            for i in note.order.stripes:
                self._stripes[i].held &= self._stripes[i].owner != name
            report = Report()
        self._losses = 0
        getattr(self, f"_after_{note.verb}")(name, note.order, report)

    def _after_relax(self, name: str, order: Order, report: Report) -> None:
        self._progress(name, order, report)

    def _after_lead(self, name: str, order: Order, report: Report) -> None:
        self._progress(name, order, report)
        self._leading = -1
        if order.level not in report.levels or order.level != self._led + 1:  # not closed, or after one that was lost
            self._led = self._closed
            return
        self._led = order.level
        self._serial += 1
        panels = {order.level: f"panel-{order.level}-{self._serial}"}
        self._send(name, "publish", Order(level=order.level, panels=panels), device=None, urgent=True)

    def _after_publish(self, name: str, order: Order, report: Report) -> None:
        if report.panel is None:  # the worker is not what it was
            self._led = self._closed
            return
        turn = order.level
        self._panels[turn] = report.panel
        while self._closed + 1 in self._panels:  # one may have come before the one that it follows
            self._closed += 1
        self._led = max(self._led, self._closed)
        for other in self._workers:
            if other != name and any(s.owner == other and s.level < turn for s in self._stripes):
                self._send(other, "fetch", Order(level=turn, panels={turn: report.panel}), device=None, urgent=True)

    def _after_fetch(self, name: str, order: Order, report: Report) -> None:
        """It was only meant to save time."""

    def _after_forget(self, name: str, order: Order, report: Report) -> None:
        """What was forgotten is somebody else's by now."""

    def _after_save(self, name: str, order: Order, report: Report) -> None:  # noqa: ARG002
        for i, files in report.files.items():
            # what was left or finished meanwhile is newer: late files stay in the room, and go with it
            if not self._stripes[i].finished and report.levels[i] >= self._stripes[i].stored:
                self._adopt(i, report.levels[i], files)
        self._missed(report)

    def _after_finish(self, name: str, order: Order, report: Report) -> None:
        self._progress(name, order, report)
        if report.files and self._job.reduced:
            self._journal.forget()  # rows whose potentials are taken off are no state of the rounds
        for i, files in report.files.items():
            self._writer.adopt(self._room, files)
            self._stripes[i].finished, self._stripes[i].held = True, False
            self._monitor.advance(self._height(i) if self._finishing else 0)
        for part in report.parts:
            self._summary.join(part)

    def _progress(self, name: str, order: Order, report: Report) -> None:
        worker = self._workers[name]
        for i, level in report.levels.items():
            stripe = self._stripes[i]
            self._left -= max(0, level - stripe.level) * self._updates(i)
            stripe.level, stripe.held = max(level, stripe.level), True
        self._missed(report)
        if order.level >= 0 and not report.parts:
            for i, files in report.files.items():
                self._adopt(i, report.levels[i], files)
                self._stripes[i].held = False
        self._tell()
        if report.updates:
            worker.learn(report.updates, report.seconds, self._pace.task)

    def _tell(self) -> None:
        """Updates beyond all that was told before: those that are done again for a lost worker were told once."""
        self._monitor.advance(max(0, self._least - self._left))
        self._least = min(self._least, self._left)

    def _missed(self, report: Report) -> None:
        """Stripes that a worker does not have after all are as they are in the store."""
        for i in report.missing:
            if self._stripes[i].finished:
                continue
            self._stripes[i].held = False
            self._left += (self._stripes[i].level - self._stripes[i].stored) * self._updates(i)
            self._stripes[i].level = self._stripes[i].stored

    # ---- commits -----------------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        if self._committing:
            if not self._unsaved and all(s.saving is None for s in self._stripes):
                self._commit()
            return
        due = now - self._saved >= max(self._journal.interval, self._took / COST) or self._crowded()
        if due and self._closed < self._last and any(s.level > s.stored for s in self._stripes):
            self._begin_commit()

    def _crowded(self) -> bool:
        """Whether the panels, which lie in the store until a commit, take more than half of the space left."""
        taken = len(self._panels) * self._streaming.width * self._n * self._writer.dtype.itemsize
        return taken > self._bytes() // 4 and taken > shutil.disk_usage(self._room).free

    def _begin_commit(self) -> None:
        self._committing, self._began = True, time.monotonic()
        self._unsaved = [i for i, s in enumerate(self._stripes) if s.held and (s.level > s.stored or s.upper)]

    def _save_some(self, name: str) -> None:
        mine = [i for i in self._unsaved if self._stripes[i].owner == name]
        size = self._streaming.height * self._n * self._writer.dtype.itemsize
        some = mine[: max(1, PIECE // size)]
        self._unsaved = [i for i in self._unsaved if i not in some and self._stripes[i].held]
        some = [i for i in some if self._stripes[i].held and not self._stripes[i].finished]
        if some:
            ticket = self._send(name, "save", Order(stripes=tuple(some)), device=None)
            self._workers[name].saving = ticket
            for i in some:
                self._stripes[i].saving = ticket

    def _adopt(self, number: int, level: int, files: tuple[TileFile, ...]) -> None:
        self._writer.adopt(self._room, files)
        stripe = self._stripes[number]
        stripe.stored, stripe.upper = max(level, stripe.stored), False

    def _commit(self) -> None:
        """All that could be saved is in its place: say so."""
        self._committing = False
        self._took, self._saved = time.monotonic() - self._began, time.monotonic()
        if any(s.upper for s in self._stripes):  # the record could not say which; the one before is as good
            return
        if self._job.reduced and any(s.finished for s in self._stripes):
            return
        levels = np.array([s.stored for s in self._stripes])
        if (levels >= 0).any():
            self._journal.commit(progress_of(levels, self._streaming))
        # one beyond a gap, that came before the one that it follows, is still to be counted as closed
        floor = min(self._closed, *(s.stored for s in self._stripes if not s.finished), self._last)
        for turn in [t for t in self._panels if t <= floor]:
            remove_panel(self._room / self._panels.pop(turn))
        for number, other in level_out(self._stripes, self._workers):
            self._move(number, other)

    def _stop(self) -> None:
        """The solve was cancelled: have tasks end, and commit once more if that is soon done."""
        self._halt()
        reduced = self._job.reduced and any(s.finished for s in self._stripes)
        if not self._journal.worth() or reduced or self._took > LAST:
            return
        until = time.monotonic() + LAST
        if not self._committing:
            self._begin_commit()
        while self._committing and time.monotonic() < until:
            for name in list(self._workers):
                if self._workers[name].saving is None and self._unsaved:
                    self._save_some(name)
            for event in self._cluster.events(PAUSE):
                if isinstance(event, Came):
                    continue
                if isinstance(event, Done) and isinstance(event.result, Failure):
                    self._workers[event.ticket.worker].tickets.clear()
                    continue
                if isinstance(event, Went):
                    self._leave(event.worker)
                else:
                    self._done(event)
            if not self._unsaved and all(s.saving is None for s in self._stripes):
                self._commit()

    # ---- sizes -------------------------------------------------------------------------------------------------------

    def _height(self, stripe: int) -> int:
        first, last = self._streaming.rows(stripe, self._n)
        return last - first

    def _updates(self, stripe: int) -> int:
        """Of one round, the last of which may be narrower."""
        return stripe_entries(self._streaming, stripe, self._n) * min(self._streaming.width, self._n)

    def _bytes(self) -> int:
        return self._n * self._n * self._writer.dtype.itemsize
