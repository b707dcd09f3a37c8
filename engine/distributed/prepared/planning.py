"""Plans how a graph is prepared in spans (runs of parts that one task computes): cuts the spans; predicts their costs.

The costs are memory, disk and transfers.  The tasks run on some workers, or in this process alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.algorithms.eliminated import Indices
from engine.algorithms.prepared.spans import SpanLimits, Spans, cut_into_spans
from engine.graph.partition import Parts
from engine.model.plan import Candidate
from engine.model.problem import Workers
from engine.planning.constants import PROCESS_BYTES
from engine.planning.cost import Setting
from engine.planning.refusal import gib
from storage.errors import DoesNotFit

#: Number of spans of several parts for each worker.  More spans need more messages and make the top larger; fewer spans
#: leave workers idle at the end.
SPANS: Final = 8
#: A span of several parts may always have this number of updates: one thread takes 15 to 90 ms for them at the rates
#: that planning assumes, depending on the type.
LEAST_UPDATES: Final = 2**29
#: Shares of a worker's memory that the tables of a span of several parts may take; they are tried in this order until
#: all spans fit.  With a share of 0 every part is a span alone, so these spans do not depend on the memory.
SHARES: Final = (0.25, 0.03, 0.0)
#: Bytes that a worker takes before it reads any part of the graph: program, kernels, buffers.
PROGRAM: Final = 256 << 20
#: The largest number of bytes of arrays that a worker keeps for later tasks, if it has this memory left.
KEPT: Final = 256 << 20
#: Seconds that a task takes in addition to its updates, to exchange messages and to write files durably.
TASK_SECONDS: Final = 0.02


@dataclass(frozen=True)
class SpansForm:
    """Which arrays are computed for each part.

    Attributes:
        size: bytes of an entry.
        ways: 2 if there are tables in both directions, else 1.
        compact: whether no tables are computed, but only closed parts and their borders.
    """

    size: int
    ways: int
    compact: bool


@dataclass(frozen=True)
class SpansFacts:
    """The memory, the disk and the transfers that preparing a graph by spans takes.

    Attributes:
        count: the number of spans.
        top: the number of spans in the top of the tree, which other spans need.
        top_share: the share of all updates that the spans in the top make.
        memory: the largest number of bytes of memory that a worker takes.
        passed: bytes that tasks write for other tasks, without the result, plus the bytes that tasks read.
        disk: the largest number of bytes of files that exist at the same time, the result not included.
    """

    count: int
    top: int
    top_share: float
    memory: int
    passed: int
    disk: int


def spans_for(parts: Parts, workers: Workers, arcs: int, form: SpansForm) -> tuple[Spans, SpansFacts]:
    """Cut parts into spans that suit some workers.

    Args:
        parts: the parts of the graph.
        workers: number, memory and rates of the workers.
        arcs: the number of arcs of the graph.
        form: which arrays are computed for each part.

    Returns:
        The spans, and the facts about them.  If no spans fit, ``memory`` in the facts exceeds the memory of a worker.
    """
    updates, entries = updates_of(parts, form), _entries(parts, form)
    most = max(LEAST_UPDATES, int(updates.sum()) // (SPANS * workers.count))
    for share in SHARES:
        memory = int(share * max(0, workers.memory - PROGRAM))
        spans = cut_into_spans(parts, updates, entries, SpanLimits(most, memory // form.size))
        facts = facts_of_spans(spans, arcs, form)
        if facts.memory <= workers.memory:
            break
    return spans, facts


def kept_bytes(facts: SpansFacts, workers: Workers) -> int:
    """Return the bytes that a worker may keep for later tasks."""
    return max(0, min(KEPT, workers.memory - facts.memory))


def on_this_machine(setting: Setting, *, planned: bool = False) -> Workers:
    """Return this process as the only worker, which shares its memory with the driver.

    Args:
        setting: the problem, the machine and the type.
        planned: whether planning has already made the parts in memory, so that they must not count twice.
    """
    machine = setting.machine
    if planned:
        machine = replace(machine, resident=max(0, machine.resident - _held_bytes(setting)))
        setting = replace(setting, machine=machine)
    return Workers(
        count=1,
        device="cpu",
        name="this machine",
        threads=machine.threads,
        memory=machine.memory - _driver_bytes(setting) + PROGRAM,
        relax_rate=machine.relax_rate,
    )


def _driver_bytes(setting: Setting) -> int:
    """Return the bytes of memory of the driver, including the graph and its parts."""
    return setting.machine.resident + PROCESS_BYTES + _held_bytes(setting)


def _held_bytes(setting: Setting) -> int:
    """Return the bytes of the parts of a graph, and of its arcs ordered by span."""
    return 76 * setting.problem.arcs + 64 * setting.problem.n


def updates_of(parts: Parts, form: SpansForm) -> Indices:
    """Return the number of updates to compute each part, shape (parts,)."""
    inside, above = parts.updates()
    return inside if form.compact else np.asarray(inside + form.ways * above)


def _entries(parts: Parts, form: SpansForm) -> Indices:
    """Return the number of entries that a worker holds for each part, shape (parts,)."""
    sizes, depths = parts.sizes, parts.depths
    found = sizes * sizes + 2 * sizes * depths + depths * depths
    return np.asarray(found if form.compact else found + form.ways * sizes * parts.widths())


def facts_of_spans(spans: Spans, arcs: int, form: SpansForm) -> SpansFacts:
    """Return the memory, the disk and the transfers that some spans take.

    Args:
        spans: the spans into which the parts were cut.
        arcs: the number of arcs of the graph.
        form: which arrays are computed for each part.
    """
    parts, top, ways = spans.parts, spans.in_top, 0 if form.compact else form.ways
    updates, tables = updates_of(parts, form), parts.sizes * parts.widths()
    chains = np.array([sum(int(tables[part]) for part in spans.above(s)) for s in range(spans.count)], np.int64)
    side = (parts.sizes + parts.depths) ** 2  # entries of each part's front; a task holds up to three times this number
    graph = 16 * arcs + 8 * (len(parts.borders) + 4 * parts.count)
    own = spans.sums(_entries(parts, form)) + 2 * ways * chains
    largest = int((own + 3 * np.maximum.reduceat(side, spans.cuts[:-1])).max()) if spans.count else 0
    eliminated = int((parts.sizes**2 + 2 * parts.sizes * parts.depths + parts.depths**2).sum())
    top_tables = ways * int(spans.sums(tables)[top].sum())
    read = 0 if form.compact else ways * int(chains.sum()) + eliminated
    return SpansFacts(
        count=spans.count,
        top=int(top.sum()),
        top_share=float(spans.sums(updates)[top].sum() / max(1, int(updates.sum()))),
        memory=PROGRAM + graph + form.size * largest,
        passed=2 * graph + form.size * (eliminated + top_tables + read),
        disk=graph + form.size * (eliminated + top_tables),
    )


def workers_refusal(facts: SpansFacts, workers: Workers, *, alone: bool = False) -> DoesNotFit | None:
    """Return the error that says how much memory the spans need, if workers have less; None if the spans fit.

    Args:
        facts: memory, disk and transfers of the spans.
        workers: number, memory and rates of the workers.
        alone: whether this process is the only worker.
    """
    if facts.memory <= workers.memory:
        return None
    there = (
        f"of memory, and {workers.memory} ({gib(workers.memory)}) may be used now; give it more (--memory)"
        if alone
        else f"of a worker's memory, and the one with least offers {workers.memory} ({gib(workers.memory)}); "
        "give workers more (apsp worker --memory), or start fewer on a node"
    )
    by = "in spans of parts" if alone else "by these workers"
    return DoesNotFit(
        f"the graph cannot be prepared {by}: its largest part needs {facts.memory} bytes ({gib(facts.memory)}) {there}",
        resource="memory",
        needed=facts.memory,
        available=workers.memory,
        candidates=[],
    )


def planned_spans(parts: Parts, setting: Setting, form: SpansForm) -> SpansFacts:
    """Return the facts about the spans for the workers of a plan, or for this process if the plan has no workers.

    Args:
        parts: the parts of the graph.
        setting: the problem, the machine, and the type.
        form: which arrays are computed for each part.
    """
    workers = setting.machine.workers or on_this_machine(setting)
    return spans_for(parts, workers, setting.problem.arcs, form)[1]


def by_workers(estimate: Candidate, parts: Parts, setting: Setting, form: SpansForm) -> Candidate | DoesNotFit:
    """Return the estimate of preparing the graph by all workers; or the error for spans that do not fit their memory.

    Args:
        estimate: the estimate for one process.
        parts, setting, form: the graph and the arrays to compute, as in :func:`planned_spans`.
    """
    workers, facts = setting.machine.workers, planned_spans(parts, setting, form)
    assert workers is not None  # callers have checked that there are workers
    refusal = workers_refusal(facts, workers)
    if refusal is not None:
        return refusal
    shared = facts.top_share + (1 - facts.top_share) / workers.count
    tasks = (1 if form.compact else 2) * facts.count * TASK_SECONDS / workers.count
    phases = tuple(
        replace(phase, seconds=phase.seconds * shared + tasks) if phase.name == "prepare" else phase
        for phase in estimate.phases
    )
    return replace(
        estimate,
        memory=_driver_bytes(setting),
        disk=estimate.disk + facts.disk,
        seconds=sum(phase.seconds for phase in phases),
        phases=phases,
        workers=workers.count,
    )


def in_files(estimate: Candidate, parts: Parts, setting: Setting, form: SpansForm) -> Candidate:
    """Return the estimate of preparing the graph by one process, span by span, with the tables in files.

    Args:
        estimate: the estimate for one process that holds all tables in memory.
        parts, setting, form: the graph and the arrays to compute, as in :func:`planned_spans`.
    """
    workers = on_this_machine(setting)
    _, facts = spans_for(parts, workers, setting.problem.arcs, form)
    passing = facts.count * 2 * TASK_SECONDS + facts.passed / setting.machine.write_rate
    phases = tuple(
        replace(phase, seconds=phase.seconds + passing) if phase.name == "prepare" else phase
        for phase in estimate.phases
    )
    return replace(
        estimate,
        memory=_driver_bytes(setting) - PROGRAM + facts.memory + kept_bytes(facts, workers),
        disk=estimate.disk + facts.disk,
        seconds=sum(phase.seconds for phase in phases),
        phases=phases,
        tier="store",
    )


def files_reason(facts: SpansFacts) -> str:
    """Return a sentence that says why tables pass through files, and how many bytes.

    Args:
        facts: memory, disk and transfers of the spans.
    """
    return (
        f"a graph is prepared by processors; all tables at once exceed the memory, so they pass through files in "
        f"{facts.count} spans of parts, and {gib(facts.passed)} are written and read besides the result"
    )


def workers_reason(facts: SpansFacts, workers: Workers) -> str:
    """Return a sentence that says which workers prepare a graph, and the memory and transfers that they need.

    Args:
        facts: memory, disk and transfers of the spans.
        workers: number, memory and rates of the workers.
    """
    many, threads = "s" if workers.count > 1 else "", "s" if workers.threads > 1 else ""
    return (
        f"{workers.count} worker{many} of a Dask scheduler on {workers.name}, {workers.threads} thread{threads} each, "
        f"all that there are: {facts.count} spans of parts, {facts.top} of them in the top of the tree with "
        f"{facts.top_share:.1%} of the work; at least {gib(facts.memory)} of a worker's memory; "
        f"{gib(facts.passed)} pass through the folder besides the result"
    )
