"""Runs solves in this process's memory or in its GPU's, for any algorithm that is not streamed."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from engine.algorithms.context import SolveContext
from engine.algorithms.registry import ON_PROCESSORS
from engine.execution.in_memory_cuda import ON_DEVICE
from engine.graph.selection import Narrow, Rectangle
from engine.model.algorithms import ALGORITHMS
from engine.model.dtypes import SUM_TYPES, WORK_TYPES
from engine.model.problem import changed
from engine.model.rows import Sink
from engine.rows.floats import UnitsToFloats
from engine.rows.summary import SummarySink
from engine.rows.sums import FactSumSink, PathSums, SumSink, cutoff_in_units
from engine.streaming.checkpoint import Continued, RowCommits, StoredSolve, take_up_whole
from storage.errors import Cancelled


def run(context: SolveContext) -> dict[str, object]:
    """Solve into the context's sink; returns the summary of all rows, empty if no summary is wanted.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
        NegativeCycle, DoesNotFit, SolveFailed: the algorithm raised it.
    """
    graph, asked, sink, summary = context.profile.graph, context.rectangle, context.sink, None
    if context.facts:
        sink = summary = SummarySink(context.sink, asked.rows, graph.n, integral=graph.integral, targets=asked.targets)
    if context.plan.counted is not None:
        context, sink = _in_units(context, sink)
        graph, asked = context.profile.graph, context.rectangle
    # sums along paths need the distances to all vertices, even if only some targets are asked for
    profile, rectangle = context.profile.open(replace(asked, targets=None) if context.also else asked)
    on_device = context.plan.device == "cuda"
    if on_device and not rectangle.narrow:
        found = ON_DEVICE[context.plan.algorithm](context)
        return found.summary(graph.labels) if context.facts else {}
    if context.also:
        # the types are those of the arrays, which a program that knew other types may have begun
        types = {name: SUM_TYPES[sums.dtype.name] for name, sums in context.also.items()}
        sums = PathSums(graph, types, context.kind, limited=asked.cutoff is not None, targets=asked.targets)
        kind = FactSumSink if asked.targets is None and hasattr(sink, "gather") else SumSink
        sink = kind(sink, sums, asked, context.also, context.first)
    # searches on processors compute just the rectangle; other algorithms send whole rows, which ``Narrow`` cuts
    whole = rectangle.narrow and (on_device or not ALGORITHMS[context.plan.algorithm].searches)
    inner = changed(context, profile=profile, rectangle=rectangle, sink=Narrow(sink, rectangle) if whole else sink)
    if on_device:
        ON_DEVICE[context.plan.algorithm](inner)
    else:
        _on_processors(inner)
    return {} if summary is None else summary.summary(graph.labels)


def _in_units(context: SolveContext, sink: Sink) -> tuple[SolveContext, Sink]:
    """Return the context of the same solve in whole units, and the sink of its rows, which passes them on as floats."""
    asked, (searched, per) = context.rectangle, cast("tuple[str, int]", context.plan.counted)
    columns = asked.n if asked.targets is None else len(asked.targets)
    floats = UnitsToFloats(sink, per, WORK_TYPES[searched], context.kind, columns)
    plan = changed(context.plan, dtype=searched, counted=None)
    rectangle = replace(asked, cutoff=cutoff_in_units(asked.cutoff, per))
    return changed(context, profile=context.profile.counted(per), plan=plan, rectangle=rectangle), floats


def _on_processors(context: SolveContext) -> None:
    from engine.devices.cpu.backend import CpuBackend

    backend = CpuBackend(context.plan.threads)
    try:
        ON_PROCESSORS[context.plan.algorithm](context, backend)
    finally:
        backend.shutdown()


def run_whole(context: StoredSolve) -> dict[str, object]:
    """Solve into a working store by an algorithm that works on the whole matrix until the end."""
    take_up_whole(context.journal, context.plan)
    return run(context)


def run_by_rows(context: StoredSolve) -> dict[str, object]:
    """Solve into a working store row by row: continue after the rows that its record counts, and commit at
    intervals.
    """
    sink = RowCommits(context.journal)
    try:
        if sink.done == 0:
            return run(replace(context, sink=sink))
        graph, wanted = context.profile.graph, context.rectangle
        every = Continued(sink, wanted.rows, graph.n, integral=graph.integral, targets=wanted.targets)
        every.read_back(context.journal.writer)
        if sink.done < len(wanted.rows):
            left = Rectangle(wanted.n, wanted.rows[sink.done :], wanted.targets, wanted.cutoff)
            run(replace(context, sink=every, rectangle=left, first=sink.done))
        return every.summary(graph.labels)
    except Cancelled:
        if context.journal.worth():
            sink.commit()
        raise
