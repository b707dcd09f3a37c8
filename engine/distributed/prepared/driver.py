"""The driver of a graph that is prepared by workers: it decides which worker computes which span, and when.

A span is a run of parts.  It is eliminated as soon as all spans below it are eliminated; the tables of a span are
computed as soon as all tables above the span are computed.  Files of finished tasks are moved to the folder of the
run's journal at once, and listed in the journal's record from time to time.  A run that resumes does not repeat the
tasks whose files are listed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.algorithms.prepared.spans import Spans
from engine.distributed.dask_cluster import Cluster, TaskEnded, Ticket
from engine.distributed.driver import Driver, result_of
from engine.distributed.messages import ChunkFile, PreparedJob, SpanRequest, SpanResult, TaskRequest, WorkerInfo
from engine.distributed.prepared.worker import LOOKED_AT
from engine.distributed.this_process import ThisProcess
from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.streaming import part_journal
from storage.errors import ApspError, StorageFailed
from storage.files.checksum import crc32c
from storage.matrix.format import FileMark
from storage.prepared.arrays_file import ArraysFile, read_arrays
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import WrittenChunk

log = logging.getLogger("apsp.engine")

#: The largest number of tasks that a worker has at a time, running or queued.
AHEAD: Final = 2
#: Small spans are combined into tasks of at most this number of updates.
TASK_UPDATES: Final = 2**28
#: Names of the second and all later arrays in the file of an eliminated span, in the order of the file.  The first
#: array holds the numbers of the span's parts.
ARRAYS: Final = ("tables/closed", "elimination/upward", "elimination/across", "elimination/rests")


@dataclass
class _Member:
    """The driver's state of a worker: its tasks, and the spans that it has eliminated."""

    tickets: list[Ticket] = field(default_factory=list)
    eliminated: set[int] = field(default_factory=set)


class SpanRecord:
    """Which spans are done, and the files of their results; restored from a journal, and recorded there.

    Args:
        kept: the journal.
        spans: the spans: runs of parts that one task computes.
        of: fingerprint of the parts and of the type; entries of the journal with another fingerprint are ignored.
        new: entries that the next commit adds to the record of the journal.

    Attributes:
        eliminated: the file of each span that is eliminated.
        extended: the results for each span whose tables are computed.
        resumed: for each step, the number of parts that an earlier run had done.
    """

    def __init__(self, kept: PreparedJournal, spans: Spans, of: str, new: Sequence[Mapping[str, Any]] = ()) -> None:
        self._kept, self._about, self._spans = kept, {"of": of, "cuts": crc32c(spans.cuts)}, spans
        self.eliminated: dict[int, ArraysFile] = {}
        self.extended: dict[int, SpanResult] = {}
        self._new: list[Mapping[str, Any]] = list(new)
        self._last = time.monotonic()
        chunks: dict[str, ChunkFile] = {}
        for entry in kept.record:
            if any(entry.get(name) != value for name, value in self._about.items()):
                continue
            if entry["step"] == "chunk":
                chunks[entry["file"]] = ChunkFile(**{**entry["chunk"], "mark": FileMark(*entry["chunk"]["mark"])})
            elif entry["step"] == "span":
                pieces = tuple((name, at, number) for name, at, number in entry["pieces"])
                whole = tuple(chunks[name] for name in entry["chunks"])
                self.extended[entry["span"]] = SpanResult(entry["span"], ArraysFile.of(entry), whole, pieces)
            elif entry["step"] == "eliminate":
                self.eliminated[entry["span"]] = ArraysFile.of(entry)
        sizes = np.diff(spans.cuts)
        done = {"eliminate": list(self.eliminated), "extend": list(self.extended)}
        self.resumed = {step: int(sizes[known].sum()) for step, known in done.items()}

    @property
    def folder(self) -> Path:
        """The folder that holds the files of results."""
        return self._kept.folder

    def add(self, exchange: Path, action: str, found: SpanResult) -> None:
        """Move the files of a span to the folder of the journal, and note that the span is done.

        Args:
            exchange: the folder in which a worker has written the files.
            action: ``eliminate`` or ``extend``.
            found: the results of the worker.

        Raises:
            StorageFailed: the file system refused to move a file.
        """
        self._kept.adopt(exchange, [found.file.name, *(chunk.name for chunk in found.chunks)])
        about = {**self._about, "span": found.span}
        if action == "eliminate":
            self.eliminated[found.span] = found.file
            self._new.append({"step": "eliminate", **found.file.entry(), **about})
            return
        self.extended[found.span] = found
        for chunk in found.chunks:  # add chunks before their span, so that a record with the span also has its chunks
            file = ArraysFile(chunk.name, ((chunk.dtype, chunk.entries), ("int32", 1)), (), chunk.mark.checksum)
            self._new.append({"step": "chunk", **file.entry(), **self._about, "chunk": vars(chunk)})
        names = [chunk.name for chunk in found.chunks]
        self._new.append({"step": "span", **found.file.entry(), **about, "pieces": found.pieces, "chunks": names})

    def due(self) -> bool:
        """Return whether there are new entries and the interval since the last commit is over."""
        return bool(self._new) and time.monotonic() - self._last >= part_journal.EVERY

    def commit(self) -> None:
        """Add the spans that are done to the record.  Raises StorageFailed."""
        self._last = time.monotonic()
        if self._new:
            self._kept.note(self._new)
            self._new = []

    def pieces(self, name: str) -> Iterator[Array]:
        """Yield, in the order of spans, the pieces of an array of the result that the files of spans hold.

        The other pieces are whole chunks, which have files of their own (:meth:`chunks`).
        """
        for s in range(self._spans.count):
            if name in ARRAYS:
                yield read_arrays(self.folder, self.eliminated[s], [1 + ARRAYS.index(name)])[0]
            else:
                found = self.extended[s]
                for array, _, number in found.pieces:
                    if array == name:
                        yield read_arrays(self.folder, found.file, [number])[0]

    def chunks(self, name: str) -> dict[int, tuple[Path, WrittenChunk]]:
        """Return the whole chunks of an array of the result, with their paths, by number."""
        every = (chunk for found in self.extended.values() for chunk in found.chunks)
        return {chunk.number: (self.folder / chunk.name, _written(chunk)) for chunk in every if chunk.array == name}


def _written(chunk: ChunkFile) -> WrittenChunk:
    running = np.frombuffer(bytes.fromhex(chunk.running), "<u4").astype(np.uint32) if chunk.running else None
    return WrittenChunk(chunk.mark, running)


class PreparedDriver(Driver):
    """One graph that is prepared by workers, which may join and leave.

    Args:
        cluster: the connection to the workers, or an object that runs their tasks in this process.
        workers: the workers that are present.
        job: the description of the run for the workers.
        spans: the spans of the graph.
        record: the spans that are done, by an earlier run or by this one.
        monitor: receives progress, and is asked whether to stop.
    """

    def __init__(  # noqa: PLR0917
        self, cluster: Cluster | ThisProcess, workers: Mapping[str, WorkerInfo], job: PreparedJob, spans: Spans,
        record: SpanRecord, monitor: Monitor,
    ) -> None:  # fmt: skip
        super().__init__(cluster, job, monitor)
        self._spans, self._record, self._job = spans, record, job
        self._members: dict[str, _Member] = {}
        self._looking: dict[str, Ticket] = {}
        self._blind: dict[str, str] = {}
        self._given: dict[str, set[int]] = {"eliminate": set(), "extend": set()}
        inside, above = spans.parts.updates()
        ways = 0 if job.compact else 1 + job.directed
        self._updates = {"eliminate": spans.sums(inside), "extend": ways * spans.sums(above)}
        self._written = np.fromfile(self._exchange_dir / LOOKED_AT, np.int64)
        for name, info in workers.items():
            self._admit(name, info)

    def run(self) -> None:
        """Submit tasks until every span is eliminated and, unless the form is compact, has its tables.

        Raises:
            Cancelled: the monitor asked to stop.
            SolveFailed: the scheduler or all workers are lost.
            StorageFailed: a worker or this process could not read or write, or no worker can use the folder.
        """
        self._monitor.begin("prepare", sum(int(updates.sum()) for updates in self._updates.values()), "updates")
        done = (("eliminate", self._record.eliminated), ("extend", self._record.extended))
        self._monitor.step(sum(int(self._updates[action][s]) for action, known in done for s in known))
        try:
            while len(self._record.eliminated) < self._spans.count or (
                not self._job.compact and len(self._record.extended) < self._spans.count
            ):
                self._step()
                if self._record.due():
                    self._record.commit()
        finally:
            self._end()

    @property
    def _present(self) -> int:
        return len(self._members)

    def _join(self, name: str, info: WorkerInfo) -> None:  # noqa: ARG002
        self._looking[name] = self._submit(name, "look", TaskRequest(), device=None)

    def _worker_left(self, name: str) -> None:
        self._looking.pop(name, None)
        self._blind.pop(name, None)
        member = self._members.pop(name, None)
        if member is not None:
            self._count_loss(name)
            for ticket in member.tickets:
                self._take_back(ticket)

    def _take_back(self, ticket: Ticket) -> None:
        """Make the spans of a task available to other workers."""
        action, request = ticket.purpose.action, ticket.purpose.request
        self._given[action] -= {each.span for each in request.spans}

    def _hand_out(self) -> None:
        if self._blind and not self._members and not self._looking:
            name, why = next(iter(self._blind.items()))
            raise StorageFailed(
                f"no worker can use the folder {self._job.results}, which all nodes must reach under this path: "
                f"worker {name}: {why}"
            )
        for queued in range(AHEAD):
            for name, member in self._members.items():
                if len(member.tickets) <= queued and (found := self._next(member)):
                    action, some = found
                    request = TaskRequest(spans=tuple(self._request(action, s) for s in some))
                    self._given[action] |= set(some)
                    urgent = bool(self._spans.in_top[some[0]])
                    member.tickets.append(self._submit(name, action, request, device="cpu", urgent=urgent))

    def _next(self, member: _Member) -> tuple[str, list[int]] | None:
        """Return the next action and spans for a worker; None if there are none.

        Spans in the top of the tree come first, then spans that the worker itself has eliminated, then large spans.
        """
        for action in ("eliminate",) if self._job.compact else ("eliminate", "extend"):
            ready = self._ready(action)
            if ready:
                top, updates = self._spans.in_top, self._updates[action]
                ready.sort(key=lambda s: (not top[s], s not in member.eliminated, -updates[s]))
                some = [ready[0]]
                for s in ready[1:]:
                    if sum(int(updates[each]) for each in some) + updates[s] <= TASK_UPDATES and not top[some[0]]:
                        some.append(s)
                return action, some
        return None

    def _ready(self, action: str) -> list[int]:
        """Return the spans for which an action can begin now."""
        record, spans = self._record, self._spans
        finished = record.eliminated if action == "eliminate" else record.extended
        waiting = [s for s in range(spans.count) if s not in finished and s not in self._given[action]]
        if action == "eliminate":
            return [s for s in waiting if all(int(spans.owner[i]) in finished for i in spans.below[s])]
        return [s for s in waiting if s in record.eliminated and self._above_extended(s)]

    def _above_extended(self, s: int) -> bool:
        chain = self._spans.above(s)
        return not chain or int(self._spans.owner[chain[0]]) in self._record.extended

    def _request(self, action: str, s: int) -> SpanRequest:
        spans, record = self._spans, self._record
        if action == "eliminate":
            return SpanRequest(s, {k: record.eliminated[k] for k in {int(spans.owner[i]) for i in spans.below[s]}})
        above = {int(spans.owner[i]) for i in spans.above(s)}
        return SpanRequest(s, {s: record.eliminated[s]}, {k: record.extended[k].file for k in above})

    def _done(self, done: TaskEnded) -> None:
        name = done.ticket.worker
        if self._looking.get(name) is done.ticket:
            del self._looking[name]
            self._seen(name, done)
            return
        member = self._members.get(name)
        if member is None or done.ticket not in member.tickets:
            return  # the worker had left, so other workers repeat the task; the files of this task are not used
        member.tickets.remove(done.ticket)
        action, result = done.ticket.purpose.action, result_of(done)
        if result is None:
            self._take_back(done.ticket)
            return
        self._losses = 0
        for found in result.spans:
            self._record.add(self._exchange_dir, action, found)
            if action == "eliminate":
                member.eliminated.add(found.span)
            self._monitor.step(int(self._updates[action][found.span]))

    def _seen(self, name: str, done: TaskEnded) -> None:
        """Add a worker if the result of its task ``look`` shows that it can read and write the exchange folder."""
        try:
            result = result_of(done)
            if result is None:
                raise StorageFailed("it gave no answer")
            (seen,) = read_arrays(self._exchange_dir, result.spans[0].file)
            if not np.array_equal(seen, self._written):
                raise StorageFailed("it sees another folder of that name")
        except ApspError as error:
            self._blind[name] = str(error)
            log.warning("worker %s is not used: it cannot use the folder %s (%s)", name, self._job.results, error)
            return
        self._members[name] = _Member()
