"""Prepares a graph in spans of parts, and writes their tables as one result.

The workers of a Dask scheduler compute the spans in parallel.  Without workers, this process computes them one after
the other, if all tables together exceed its memory.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.algorithms.prepared.spans import Spans, arcs_by_span
from engine.distributed.dask_cluster import Cluster
from engine.distributed.messages import PreparedJob, WorkerInfo, code_digest
from engine.distributed.planning import address_of, gather, summed_up
from engine.distributed.prepared.driver import ARRAYS, PreparedDriver, SpanRecord
from engine.distributed.prepared.planning import (
    SpansFacts,
    SpansForm,
    facts_of_spans,
    kept_bytes,
    on_this_machine,
    spans_for,
    workers_refusal,
)
from engine.distributed.prepared.worker import LOOKED_AT
from engine.distributed.this_process import ThisProcess, described
from engine.execution.survey import survey
from engine.graph.analysis import describe
from engine.graph.partition import Parts
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options, Workers
from engine.model.progress import PhaseClock
from engine.model.system import usable_processors
from engine.planning.constants import RESIDENT_SPREAD
from engine.planning.cost import Setting
from engine.streaming.part_journal import digest_of
from storage.errors import raised
from storage.matrix.format import Array
from storage.prepared.arrays_file import new_name, write_arrays
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import PreparedWriter, chunk_entries

_CUTS: Final = "cuts"


@dataclass(frozen=True)
class SpansRun:
    """A graph to prepare in spans, and how to prepare it.

    Attributes:
        inner: the opened graph.
        parts: the parts of the graph.
        plan: determines the type, the threads, and whether workers compute.
        options: the options, with the scheduler and the limit of memory.
        kept: the journal.
        compact: whether only closed parts are wanted, and no tables.
    """

    inner: GraphProfile
    parts: Parts
    plan: Plan
    options: Options
    kept: PreparedJournal
    compact: bool = False

    @property
    def form(self) -> SpansForm:
        """Which arrays are computed for each part."""
        return SpansForm(WORK_TYPES[self.plan.dtype].itemsize, 1 + self.inner.graph.directed, self.compact)

    def entries(self) -> dict[str, int]:
        """Return the number of entries of each array of the result, by name."""
        sizes, depths = self.parts.sizes, self.parts.depths
        border = int(sizes @ depths)
        arrays = dict(zip(ARRAYS, (int(sizes @ sizes), border, border, int(depths @ depths)), strict=True))
        if self.compact:
            return arrays
        del arrays[ARRAYS[0]]
        table = int(sizes @ self.parts.widths())
        return {"tables/forward": table, **({"tables/backward": table} if self.form.ways == 2 else {}), **arrays}


def prepare_in_spans(
    asked: SpansRun, writer: PreparedWriter, clock: PhaseClock, check: Callable[[], None] = lambda: None
) -> dict[str, object]:
    """Compute all tables with workers, or with this process alone; then write and seal the result.

    Args:
        asked: the graph, and how it is prepared.
        writer: the writer of the prepared graph.
        clock: receives the progress.
        check: called before the seal is written; it may raise an error.

    Returns:
        Facts: the numbers of parts, of entries and bytes of the tables, of spans and of workers; and ``resumed``, the
        number of parts that an earlier run had done, for each step.

    Raises:
        Cancelled: the monitor asked to stop.
        InvalidRequest: there is no scheduler, or no suitable worker.
        DoesNotFit: a span does not fit the memory of the present workers.
        SolveFailed: the scheduler or all workers are lost.
        StorageFailed: a worker or this process could not read or write, or no worker can use the folder.
    """
    exchange = asked.kept.make_exchange(secrets.token_hex(6))
    try:
        with _workers(asked) as (cluster, found):
            workers = summed_up(found)
            spans, taken, new = _spans(asked, workers)
            record = SpanRecord(asked.kept, spans, digest_of(asked.parts, asked.plan.dtype), new)
            job = _job(asked, spans, exchange, writer, (kept_bytes(taken, workers), workers.threads))
            driver = PreparedDriver(cluster, found, job, spans, record, clock)
            try:
                driver.run()
            finally:
                if asked.kept.record:
                    record.commit()
        several = {"workers": workers.count} if asked.plan.workers else {}
        return {**_written(asked, record, writer, clock, check), **several, "spans": spans.count}
    finally:
        shutil.rmtree(exchange.parent, ignore_errors=True)


@contextmanager
def _workers(asked: SpansRun) -> Iterator[tuple[Cluster | ThisProcess, dict[str, WorkerInfo]]]:
    """Context manager: provide a cluster and its workers; if the plan has no workers, this process as the only one."""
    if asked.plan.workers:
        with Cluster(address_of(asked.options)) as cluster:
            yield cluster, gather(cluster, "cpu", asked.plan.workers)
        return
    plan = asked.plan
    most = min(asked.options.memory or plan.memory, plan.memory) + RESIDENT_SPREAD
    machine = survey(memory=most, threads=min(plan.threads, usable_processors()))
    setting = Setting(describe(asked.inner, cutoff=plan.cutoff), machine, WORK_TYPES[plan.dtype], 0)
    with ThisProcess() as here, here:
        yield here, described(on_this_machine(setting, planned=True))


def _written(
    asked: SpansRun, record: SpanRecord, writer: PreparedWriter, clock: PhaseClock, check: Callable[[], None]
) -> dict[str, object]:
    """Write all arrays of the result, seal it, and return facts about it."""
    size, arrays = asked.form.size, asked.entries()
    clock.begin("write", size * sum(arrays.values()), "bytes")
    for name, entries in arrays.items():
        writer.add_assembled(name, entries, record.pieces(name), record.chunks(name), clock.step)
    writer.finish_eliminated()
    clock.begin("seal", 1, "store")
    check()
    writer.seal()
    clock.advance(1)
    entries = sum(count for name, count in arrays.items() if name.startswith("tables/"))
    resumed = {**record.resumed, "backward": record.resumed["extend"] if asked.form.ways == 2 else 0}
    return {"parts": asked.parts.count, "entries": entries, "bytes": entries * size, "resumed": resumed}


def _spans(asked: SpansRun, workers: Workers) -> tuple[Spans, SpansFacts, list[dict[str, Any]]]:
    """Return the spans of an earlier run if the workers have memory for them, else new spans.

    Returns:
        The spans; the facts about them; and, for new spans, their entry for the record.

    Raises:
        DoesNotFit: a part does not fit the memory of a worker.
    """
    arcs, form = asked.inner.graph.arcs, asked.form
    of = digest_of(asked.parts, asked.plan.dtype)
    for entry in reversed(asked.kept.record):
        if entry["step"] == _CUTS and entry["of"] == of and entry["compact"] == asked.compact:
            spans = Spans(asked.parts, np.asarray(asked.kept.read(entry)[0], np.int64))
            facts = facts_of_spans(spans, arcs, form)
            if facts.memory <= workers.memory:
                return spans, facts, []
    spans, facts = spans_for(asked.parts, workers, arcs, form)
    raised(workers_refusal(facts, workers, alone=not asked.plan.workers))
    file = write_arrays(asked.kept.folder, new_name(_CUTS), [spans.cuts])
    return spans, facts, [{"step": _CUTS, **file.entry(), "of": of, "compact": asked.compact}]


def _job(asked: SpansRun, spans: Spans, exchange: Path, writer: PreparedWriter, bounds: tuple[int, int]) -> PreparedJob:
    """Write the files that all workers read into the exchange folder, and return the job.  ``bounds`` are the bytes of
    arrays that a worker may keep, and the number of its threads.  Raises StorageFailed."""
    parts, (kept, threads) = asked.parts, bounds
    tree: list[Array] = [parts.starts, parts.parents, parts.ends, parts.borders, spans.cuts]
    columns = [column for each in arcs_by_span(asked.inner.graph, spans) for column in each]
    write_arrays(exchange, LOOKED_AT, [np.frombuffer(secrets.token_bytes(8), np.int64)])
    return PreparedJob(
        run=exchange.parent.name,
        code=code_digest(),
        exchange_dir=str(exchange),
        device="cpu",
        dtype=asked.plan.dtype,
        directed=asked.inner.graph.directed,
        nonnegative=asked.inner.nonnegative,
        compact=asked.compact,
        parts=write_arrays(exchange, "parts.bin", tree),
        arcs=write_arrays(exchange, "arcs.bin", columns),
        chunks={name: (entries, chunk_entries(entries)) for name, entries in asked.entries().items()},
        fill=writer.fill,
        threads=0 if asked.plan.workers else threads,
        kept=kept,
    )
