"""Solves many graphs in one call (a *bulk*): they are planned together; a graph that fails does not affect the others.

Small graphs are solved concurrently, each by one worker, or on a GPU in *stacks*, arrays of matrices that one launch
solves.  Every graph gives the same matrix as when it is solved alone: integers bit for bit, floats within rounding.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from engine.api.solve import StoreOptions, make_plan, solve, solve_to_store, store_attributes
from engine.execution.survey import survey
from engine.graph.analysis import describe
from engine.graph.potentials import Potentials
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_lengths
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem, refuse_also, refuse_semiring
from engine.model.progress import Monitor, given_monitor
from engine.model.rows import Array, NullSink
from engine.planning.binding import bind_plan, check_plan
from engine.planning.bulk import BulkPlan, Group, plan_bulk
from engine.planning.constants import DEVICE_START
from engine.rows.dense import ClosedRows, weight_matrix, write_rows
from engine.rows.summary import SummarySink
from storage.errors import ApspError, SolveFailed
from storage.graph.graph import Graph
from storage.matrix.reader import MatrixSpec, create_matrix

if TYPE_CHECKING:
    from engine.devices.cuda.bulk import DeviceStacks

#: Above this number of predicted seconds, processes are used instead of threads.  Processes take a second or two to
#: start.  But writing a small store takes mostly interpreter time, and threads share one interpreter.
PROCESSES: Final = 8.0
#: Number of graphs that are submitted in advance for each worker, so that no worker waits for its next graph.
AHEAD: Final = 4


@dataclass(frozen=True)
class Entry:
    """One graph of a bulk, and the path of its store; ``target`` is None for a summary without a store."""

    graph: Graph
    target: Path | None = None


@dataclass(frozen=True)
class BulkFailure:
    """Why one graph has no result; ``kind`` and ``details`` are as in ``storage.errors``."""

    kind: str
    message: str
    details: Mapping[str, object]


@dataclass(frozen=True)
class BulkResult:
    """The result of one graph: a plan and a summary, or a failure.

    Attributes:
        index: the graph's index in the bulk.
        plan: the plan that was followed.
        summary: statistics of the matrix.
        failure: why there is no result.
    """

    index: int
    plan: Plan | None = None
    summary: Mapping[str, object] | None = None
    failure: BulkFailure | None = None


def make_bulk_plan(graphs: Mapping[int, Graph], options: Options, *, stores: bool, out: Path | None = None) -> BulkPlan:
    """Return the plan of a bulk: groups of graphs, and an error for each graph without a plan or with a negative cycle.

    A GPU is considered if the options demand one, or if the CPU would take longer than a GPU takes to start.

    Args:
        graphs: the graphs, by their index in the bulk.
        options: the options of every graph.
        stores: whether each graph gets a store.
        out: the folder of the stores.

    Raises:
        InvalidRequest: the options suit no graph.
    """
    refuse_also(options, "a solve of many graphs", "solve each into its store")
    refuse_semiring(options, "a solve of many graphs")
    refused: dict[int, ApspError] = {}
    problems: dict[int, Problem] = {}
    for index, graph in graphs.items():
        try:
            check_lengths(graph)
            inner, wanted = GraphProfile(graph).open(Rectangle.of(options, graph.n))
            rows, targets = (None if side is None else len(side) for side in (wanted.sources, wanted.targets))
            problem = describe(inner, rows=rows, targets=targets, max_hops=options.max_hops)
            if problem.negative:
                _ = inner.potentials  # raises NegativeCycle
            problems[index] = problem
        except ApspError as error:
            refused[index] = error
    found = _planned(problems, options, stores, out)
    plans = {index: bind_plan(own, graphs[index], options) for index, own in found.plans.items()}
    return replace(found, plans=plans, refused={**refused, **found.refused})


def _planned(problems: Mapping[int, Problem], options: Options, stores: bool, out: Path | None) -> BulkPlan:
    look: Callable[..., Machine] = partial(survey, out=out, memory=options.memory, threads=options.threads)
    if options.device == "auto":
        machine = look()
        found = plan_bulk(problems, machine, options, stores=False)
        if found.seconds < DEVICE_START:
            return plan_bulk(problems, machine, options, stores=stores)
    if options.device == "cpu":
        return plan_bulk(problems, look(), options, stores=stores)
    return plan_bulk(problems, look(device=options.device, device_memory=options.device_memory), options, stores=stores)


def run(
    entries: Mapping[int, Entry], plan: BulkPlan, options: Options, stores: StoreOptions | None = None,
    monitor: Monitor | None = None,
) -> Iterator[BulkResult]:  # fmt: skip
    """Execute a plan and yield one result for each graph, in the order in which they finish.

    Args:
        entries: the graphs, by their index in the bulk.
        plan: from :func:`make_bulk_plan`.
        options: the options of every graph.
        stores: options of the stores; None for the defaults.
        monitor: receives the progress, in graphs.

    Raises:
        Cancelled: the monitor asked to stop; graphs that are being solved are finished first, and the others are not
            begun.
    """
    monitor, stores = given_monitor(monitor), stores or StoreOptions()
    monitor.begin("solve", len(entries), "graphs")
    for result in _results(entries, plan, options, stores, monitor):
        yield result
        monitor.step(1)


def _results(
    entries: Mapping[int, Entry], plan: BulkPlan, options: Options, stores: StoreOptions, monitor: Monitor
) -> Iterator[BulkResult]:
    for index, error in plan.refused.items():
        yield BulkResult(index, failure=failure_of(error))
    shared = [group for group in plan.groups if group.way != "alone"]
    if shared:
        seconds, launch = sum(group.seconds for group in shared), max(group.launch for group in shared)
        threads = options.threads or survey().threads
        with workers(min(threads, sum(len(g.members) for g in shared)), seconds) as pool:
            for group in shared:
                tasks = _beside if group.way == "beside" else _stacked
                yield from _gathered(pool, tasks(group, entries, plan, options, stores), AHEAD * min(threads, launch))
    for group in plan.groups:
        if group.way == "alone":
            for index in group.members:
                yield _alone(index, entries[index], options, stores, monitor)


# ---- workers --------------------------------------------------------------------------------------------------------

#: A graph's index in the bulk, a function of this module (so that processes can import it), and its arguments.
Work = tuple[int, Callable[..., "Solved"], tuple[Any, ...]]
Solved = tuple[Plan, dict[str, object]]


@contextmanager
def workers(count: int, seconds: float) -> Iterator[Executor]:
    """Context manager: provide ``count`` threads, or processes if the predicted ``seconds`` justify starting them."""
    pool: Executor
    if count > 1 and seconds > PROCESSES:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(count, context, initializer=_begin)
    else:
        pool = ThreadPoolExecutor(count, "apsp-bulk")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a new process: it ignores interrupts, which the parent handles, and ends when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()


def _gathered(pool: Executor, work: Iterator[Work | BulkResult], ahead: int) -> Iterator[BulkResult]:
    """Submit ``work``, and yield results as graphs finish; at most ``ahead`` submitted graphs are unfinished."""
    pending: dict[Future[Solved | BulkFailure], int] = {}
    for item in work:
        if isinstance(item, BulkResult):
            yield item
            continue
        index, function, arguments = item
        pending[_submitted(pool, function, arguments)] = index
        while len(pending) >= ahead:
            yield from _done(pending)
    while pending:
        yield from _done(pending)


def _submitted(
    pool: Executor, function: Callable[..., Solved], arguments: tuple[Any, ...]
) -> Future[Solved | BulkFailure]:
    try:
        return pool.submit(_guarded, function, arguments)
    except BrokenProcessPool as error:
        failed: Future[Solved | BulkFailure] = Future()
        failed.set_exception(error)
        return failed


def _done(pending: dict[Future[Solved | BulkFailure], int]) -> Iterator[BulkResult]:
    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        index = pending.pop(future)
        try:
            found = future.result()
        except BrokenProcessPool:
            message = "a process that solved graphs ended, probably because memory ran out; use a lower --threads"
            found = BulkFailure(SolveFailed.kind, message, {})
        yield BulkResult(index, failure=found) if isinstance(found, BulkFailure) else BulkResult(index, *found)


def _guarded(function: Callable[..., Solved], arguments: tuple[Any, ...]) -> Solved | BulkFailure:
    """Call ``function``, and return an exception as a failure, because not every exception can be pickled."""
    try:
        return function(*arguments)
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> BulkFailure:
    """Return an error as the failure of one graph."""
    if isinstance(error, ApspError):
        return BulkFailure(error.kind, str(error), error.details())
    if isinstance(error, MemoryError):
        return BulkFailure("does-not-fit", f"out of memory{f': {error}' if str(error) else ''}", {})
    if isinstance(error, OSError):
        return BulkFailure("storage-failed", str(error), {})
    return BulkFailure("internal", f"a fault in apsp, please report it: {type(error).__name__}: {error}", {})


# ---- three ways to solve graphs -------------------------------------------------------------------------------------


def _beside(
    group: Group, entries: Mapping[int, Entry], plan: BulkPlan, options: Options, stores: StoreOptions
) -> Iterator[Work | BulkResult]:
    for index in group.members:
        yield _on_cpu(index, entries, plan, options, stores)


def _on_cpu(index: int, entries: Mapping[int, Entry], plan: BulkPlan, options: Options, stores: StoreOptions) -> Work:
    own = replace(plan.plans[index], device_reason="one thread, because other graphs are solved at the same time")
    return index, _solve_one, (entries[index], own, replace(options, device="cpu", threads=1), stores)


def _solve_one(entry: Entry, plan: Plan, options: Options, stores: StoreOptions) -> Solved:
    """Solve one graph with one thread."""
    graph, target = entry.graph, entry.target
    if target is None:
        return plan, solve(graph, plan, options, NullSink(graph.n)).summary
    return plan, solve_to_store(graph, options, target, plan=plan, **stores).summary


def _stacked(
    group: Group, entries: Mapping[int, Entry], plan: BulkPlan, options: Options, stores: StoreOptions
) -> Iterator[Work | BulkResult]:
    """Run Floyd-Warshall on the GPU, one stack of matrices after the other.

    Workers write the matrices of one stack while the next stack is made and solved.
    """
    from engine.devices.cuda.bulk import device_stacks

    with device_stacks(memory=options.device_memory) as device:
        for first in range(0, len(group.members), group.launch):
            members = group.members[first : first + group.launch]
            try:
                for index in members:
                    check_plan(plan.plans[index], entries[index].graph, options)
                matrices, potentials = _closed(device, group, [entries[i].graph for i in members])
            except ApspError as error:
                for index in members:
                    if options.device == "auto":
                        yield _on_cpu(index, entries, plan, options, stores)
                    else:
                        yield BulkResult(index, failure=failure_of(error))
                continue
            for index, matrix, h in zip(members, matrices, potentials, strict=True):
                own = _device_plan(plan.plans[index], group, len(members))
                yield index, _finish_one, (entries[index], own, matrix, h, stores)


def _device_plan(plan: Plan, group: Group, graphs: int) -> Plan:
    """Return the plan that the store of one graph of a stack records."""
    return replace(
        plan,
        algorithm="blocked-floyd-warshall",
        device="cuda",
        device_reason=f"one of {graphs} graphs, padded to {group.side} vertices, in one launch",
        reason=group.reason,
        device_memory=group.device_memory,
        seconds=group.seconds / len(group.members),
        phases=(),
        candidates=(),
    )


def _closed(device: DeviceStacks, group: Group, graphs: Sequence[Graph]) -> tuple[list[Array], list[Potentials | None]]:
    """Return the matrices of some graphs, closed in one launch; and for each the potentials that reduce it, or None."""
    kind, potentials = WORK_TYPES[group.dtype], []
    stack = np.full((len(graphs), group.side, group.side), kind.sentinel(), kind.dtype)
    for matrix, graph in zip(stack, graphs, strict=True):
        relaxed = GraphProfile(graph).for_products(kind, Monitor())
        matrix[: graph.n, : graph.n] = weight_matrix(relaxed.graph, kind, Monitor())
        potentials.append(relaxed.reduced_by)
    device.close(stack, nonnegative=group.nonnegative)
    matrices = [matrix[: graph.n, : graph.n] for matrix, graph in zip(stack, graphs, strict=True)]
    for matrix, graph in zip(matrices, graphs, strict=True):
        if (
            not graph.directed and not kind.integer
        ):  # thread blocks run in any order, so the two halves of a symmetric matrix may differ in their last bits
            below = np.tril_indices(graph.n, -1)
            matrix[below] = matrix.T[below]
    return matrices, potentials


def _finish_one(entry: Entry, plan: Plan, matrix: Array, potentials: Potentials | None, stores: StoreOptions) -> Solved:
    """Make the summary of a matrix that the device has closed, and write its store."""
    graph, kind = entry.graph, WORK_TYPES[plan.dtype]
    if entry.target is None:
        rows = SummarySink(NullSink(graph.n), np.arange(graph.n), graph.n, integral=graph.integral)
        write_rows(ClosedRows(matrix, potentials=potentials), rows, Monitor(), 1)
        return plan, rows.summary(graph.labels)
    attributes, compression = store_attributes(graph, plan), stores.get("compression", "none")
    spec = MatrixSpec(kind.dtype, kind.unreachable, attributes=attributes, compression=compression)
    with create_matrix(entry.target, graph, spec, overwrite=stores.get("overwrite", False)) as writer:
        rows = SummarySink(writer, np.arange(graph.n), graph.n, integral=graph.integral)
        write_rows(ClosedRows(matrix, potentials=potentials), rows, Monitor(), 1)
        summary = rows.summary(graph.labels)
        writer.seal(summary)
    return plan, summary


class _OnlyCancels(Monitor):
    """Asks another monitor whether to stop, and reports no progress to it."""

    def __init__(self, other: Monitor) -> None:
        self._other = other

    def cancelled(self) -> bool:
        """Return whether the other monitor asks to stop."""
        return self._other.cancelled()


def _alone(index: int, entry: Entry, options: Options, stores: StoreOptions, monitor: Monitor) -> BulkResult:
    graph, target, quiet = entry.graph, entry.target, _OnlyCancels(monitor)
    try:
        profile = GraphProfile(graph)
        plan = make_plan(profile, options, out=target)
        if target is None:
            return BulkResult(index, plan, solve(profile, plan, options, NullSink(graph.n), quiet).summary)
        outcome = solve_to_store(profile, options, target, plan=plan, monitor=quiet, **stores)
        return BulkResult(index, plan, outcome.summary)
    except (ApspError, MemoryError, OSError) as error:
        if isinstance(error, ApspError) and error.kind == "cancelled":
            raise
        return BulkResult(index, failure=failure_of(error))
