"""The door of the engine: plan a solve, run it into a sink or a store, and say what was found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import breadth_first, dijkstra, floyd_warshall, johnson, partitioned, squaring
from engine.execution import in_memory_cuda, streamed
from engine.execution.survey import survey
from engine.execution.trials import calibrate
from engine.graph.analysis import describe, statistics
from engine.graph.compiling import announcing
from engine.graph.ordering import hops_of
from engine.graph.partition import ENTRY_BYTES, with_bridges, with_parts, with_trial
from engine.graph.potentials import Potentials, find_potentials, for_products
from engine.graph.selection import Narrow, Rectangle, check_cutoff, check_vertices
from engine.graph.terminals import open_rectangle
from engine.model.algorithms import ALGORITHMS, by_rows
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem
from engine.model.progress import Monitor, PhaseClock
from engine.model.rows import Sink
from engine.model.system import available_memory
from engine.planning.cost import DEVICE_START
from engine.planning.planner import ESTIMATES, choose, choose_type
from engine.rows.dense import weight_matrix, write_rows
from engine.rows.summary import Summary, SummarySink
from engine.streaming.checkpoint import Continued, Journal, RowCommits, bound_to, rest, resumable, suits, take_up_whole
from storage.errors import Cancelled, DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import matrix_bytes
from storage.matrix.working import open_working

if TYPE_CHECKING:
    from engine.model.backend import Backend


@dataclass(frozen=True)
class Outcome:
    """A finished solve: the plan that was followed, wall seconds of each phase, and facts about the matrix."""

    plan: Plan
    seconds: dict[str, float]
    summary: dict[str, object]


@dataclass(frozen=True)
class Task:
    """The inputs of one algorithm's run."""

    graph: Graph
    plan: Plan
    rectangle: Rectangle
    sink: Sink
    backend: Backend
    monitor: Monitor

    @property
    def sources(self) -> npt.NDArray[np.int64] | None:
        """The vertex indices of the rows of the result; None for all vertices."""
        return self.rectangle.sources

    @property
    def unit(self) -> bool:
        """Whether every arc weighs 1."""
        return bool((self.graph.weights == 1).all())

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The vertex index of each row of the result."""
        return self.rectangle.rows


def make_plan(graph: Graph, options: Options, *, out: Path | None = None, resume: bool = False) -> Plan:
    """Plan a solve, and refuse it before any work is done if it cannot succeed.

    Args:
        graph: the graph.
        options: the user's options.
        out: path of the store; None where the result stays in memory.
        resume: continue from the checkpoint at ``out``, if there is one.

    Raises:
        Conflict: the options contradict that checkpoint.
        InvalidRequest: the options contradict the graph, or no type holds the distances.
        NegativeCycle: the graph has a negative cycle, which the error names.
        DoesNotFit: memory or disk is too small.
    """
    check_vertices("sources", options.sources, graph.labels)
    check_vertices("targets", options.targets, graph.labels)
    check_cutoff(options.cutoff)
    if over_workers(options):
        if graph.terminals:
            raise InvalidRequest(
                f"executor dask does not know the {graph.terminals:,} vertices that no path may pass through; "
                "solve with executor local, or read the graph with --centroids-through",
                field="executor",
            )
        from engine.distributed.planning import make_plan as plan_over_workers

        return plan_over_workers(graph, options, out=out, resume=resume)
    found = resumable(out, resume=resume)
    options = bound_to(found, options)
    graph, rectangle = open_rectangle(graph, Rectangle.of(options, graph.n))
    rows, targets = (None if side is None else len(side) for side in (rectangle.sources, rectangle.targets))
    problem = describe(graph, rows=rows, targets=targets, max_hops=options.max_hops, cutoff=options.cutoff)
    half, hops = found is not None and bool(found.record.get("symmetric")), hops_of(graph) if problem.unit else 0
    problem = replace(problem, half=half, hops=hops, permuted=rectangle.permuted)
    if options.algorithm == "partitioned" and problem.max_hops is None:
        problem = with_parts(graph, problem, available_memory() // ENTRY_BYTES)
    kind, _ = choose_type(problem, options.dtype)
    store = _store_bytes(graph, matrix_bytes((problem.rows, problem.columns), kind.itemsize))
    machine = _survey(problem, options, out, store)
    if machine.cuda is not None and not problem.unit:
        problem = replace(problem, hops=hops_of(graph))
    if found is not None and machine.disk is not None:
        machine = replace(machine, disk=machine.disk + found.bytes)
    plan = choose(problem, machine, options, store=store)
    if problem.negative:
        find_potentials(graph)
    bridged = with_bridges(graph, problem, plan, machine) if options.algorithm == "auto" else problem
    if bridged is not problem:
        problem, plan = bridged, choose(bridged, machine, options, store=store)
    measured = calibrate(graph, problem, kind, machine, plan, device=options.device, rectangle=rectangle, out=out)
    if measured is not machine:
        # measuring took memory, too; it had room beside the plan, so it is no reason to refuse that
        now = survey(out=out, memory=options.memory, threads=options.threads)
        most = machine.resident + machine.memory - plan.memory
        machine = replace(measured, memory=now.memory, resident=min(now.resident, most))
        plan = choose(problem, machine, options, store=store)
    tried = with_trial(graph, problem, plan, machine)
    plan = plan if tried is problem else choose(tried, machine, options, store=store)
    return replace(plan, statistics=statistics(graph, tried))


def over_workers(options: Options) -> bool:
    """Return whether workers of a Dask scheduler solve, not this process.

    Raises:
        InvalidRequest: the executor is unknown, or contradicts the scheduler.
    """
    if options.executor not in ("local", "dask"):
        raise InvalidRequest(f"executor {options.executor!r} is unknown; use local, dask", field="executor")
    if options.executor == "local" and options.scheduler is not None:
        raise InvalidRequest("a scheduler is of use with executor dask only", field="scheduler")
    return options.executor == "dask"


def _survey(problem: Problem, options: Options, out: Path | None, store: int) -> Machine:
    """The machine; a GPU is looked for if it was asked for, or if the CPU takes longer than a GPU takes to start."""
    machine = survey(out=out, memory=options.memory, threads=options.threads)
    if options.device not in ("auto", "cuda"):
        return machine
    if options.device == "auto" and options.algorithm in ("auto", *ESTIMATES):
        try:
            is_short = choose(problem, machine, options, store=store).seconds < DEVICE_START
        except DoesNotFit:
            is_short = False
        if is_short:
            return replace(machine, no_cuda="it is done sooner than a GPU is started")
    return survey(
        out=out,
        memory=options.memory,
        threads=options.threads,
        device=options.device,
        device_memory=options.device_memory,
    )


def _store_bytes(graph: Graph, tiles: int) -> int:
    """Disk that a store takes: tiles, arcs, three sets of labels, and what the file system adds to each file."""
    arcs = graph.heads.nbytes + graph.weights.nbytes + graph.indptr.nbytes
    return int(tiles * 1.005) + arcs + 4 * graph.labels.nbytes + 2**20


def solve(
    graph: Graph, plan: Plan, options: Options, sink: Sink, monitor: Monitor | None = None, *, facts: bool = True
) -> Outcome:
    """Execute a plan; the sink is neither sealed nor closed.

    Args:
        graph: the graph.
        plan: from :func:`make_plan`.
        options: the options of the plan.
        sink: receives the rows.
        monitor: receives the progress.
        facts: gather the summary; without it the outcome's summary may be empty, and no row is read a second time.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    clock = PhaseClock(monitor or Monitor())
    asked = Rectangle.of(options, graph.n)
    inner, rectangle = open_rectangle(graph, asked)
    summary: Summary | SummarySink
    if plan.device == "cpu" and not facts:
        _on_cpu(inner, plan, rectangle, sink, clock)
        clock.stop()
        return Outcome(plan, clock.seconds, {})
    if plan.device == "cpu":
        summary = _collector(sink, asked, graph)
        _on_cpu(inner, plan, rectangle, summary, clock)
    elif rectangle.narrow:  # rows leave the device whole; their facts are those of what stays of them
        summary = _collector(sink, asked, graph)
        wide = Narrow(summary, rectangle)
        in_memory_cuda.run(inner, plan, rectangle.sources, wide, clock, memory=options.device_memory)
    else:
        summary = in_memory_cuda.run(graph, plan, rectangle.sources, sink, clock, memory=options.device_memory)
    clock.stop()
    return Outcome(plan, clock.seconds, summary.summary(graph.labels))


def _collector(sink: Sink, rectangle: Rectangle, graph: Graph) -> SummarySink:
    return SummarySink(sink, rectangle.rows, graph.n, integral=graph.integral, targets=rectangle.targets)


def _on_cpu(graph: Graph, plan: Plan, rectangle: Rectangle, sink: Sink, clock: PhaseClock) -> None:
    from engine.devices.cpu.backend import CpuBackend

    # searches end where the rectangle does; all others send whole rows
    whole = not ALGORITHMS[plan.algorithm].searches and rectangle.narrow
    inner: Sink = Narrow(sink, rectangle) if whole else sink
    backend = CpuBackend(plan.threads)
    try:
        with _told_of_compiling(clock):
            RUN[plan.algorithm](Task(graph, plan, rectangle, inner, backend, clock))
    finally:
        backend.shutdown()


def _told_of_compiling(clock: PhaseClock) -> AbstractContextManager[None]:
    """Make the compilation of kernels a phase of its own: it can take longer than the solve, once a machine."""
    return announcing(lambda _kernel: clock.aside("compile", "kernels"))


def solve_to_store(
    graph: Graph,
    options: Options,
    path: Path,
    *,
    plan: Plan | None = None,
    overwrite: bool = False,
    resume: bool = False,
    compression: str = "none",
    monitor: Monitor | None = None,
    address: str | None = None,
    claim: int = 0,
) -> Outcome:
    """Plan (unless given), solve into a new store at ``path`` and seal it.

    Long solves commit how far they are.  If one fails or is stopped, what was committed stays beside ``path``; a solve
    that has committed nothing leaves nothing.

    Args:
        graph, options: what is solved, and how.
        path: where the store goes.
        plan: as from :func:`make_plan`; a plan that cannot go on from the checkpoint is made anew.
        overwrite: replace a store at ``path``, and a checkpoint that may not be resumed.
        resume: go on from the checkpoint of the same matrix, if there is one.
        compression: of the tiles, ``none`` or ``zstd``.
        monitor: told of progress, asked whether to stop.
        address: where the store goes instead, in an object store (``s3://``); ``path`` is then only where it is worked
            on, and what is committed is sent there, too.
        claim: number of the claim on that address (see ``open_working``).

    Raises:
        Conflict: ``path`` exists and ``overwrite`` was not asked for; there is a checkpoint, and neither ``resume`` nor
            ``overwrite`` was, or it is of something else.
        Cancelled: the monitor asked to stop; what was done is committed if it was much.
        Others: as in :func:`make_plan` and :func:`solve`.
    """
    found = resumable(path, resume=resume)
    if plan is None or (found is not None and not suits(found, plan)):
        plan = make_plan(graph, options, out=path, resume=resume)
    clock = PhaseClock(monitor or Monitor())
    clock.begin("create", 1, "store")
    kind, rectangle = WORK_TYPES[plan.dtype], Rectangle.of(options, graph.n)
    spec = MatrixSpec(
        kind.dtype,
        kind.unreachable,
        sources=rectangle.sources,
        targets=rectangle.targets,
        attributes=store_attributes(graph, plan),
        compression=compression,
    )
    writer = open_working(path, graph, spec, overwrite=overwrite, resume=resume, address=address, claim=claim)
    with writer:
        clock.stop()
        journal = Journal(writer, plan, clock.so_far)
        with _told_of_compiling(clock):
            summary = _follow(graph, plan, options, journal, clock)
        clock.begin("seal", 1, "store")
        writer.seal(summary)
        clock.stop()
    return Outcome(plan, journal.total(), summary)


def _follow(graph: Graph, plan: Plan, options: Options, journal: Journal, monitor: Monitor) -> dict[str, object]:
    """Solve, going on from the record and committing where that can be done; returns the summary."""
    if over_workers(options):
        from engine.distributed.run import run as run_over_workers

        return run_over_workers(graph, plan, options, journal, monitor).summary(graph.labels)
    if plan.streaming is not None:
        return streamed.run(graph, plan, journal, monitor).summary(graph.labels)
    if not by_rows(plan.algorithm):
        take_up_whole(journal, plan)
        return solve(graph, plan, options, journal.writer, monitor).summary
    sink = RowCommits(journal)
    try:
        if sink.done == 0:
            return solve(graph, plan, options, sink, monitor).summary
        wanted = Rectangle.of(options, graph.n)
        rows = wanted.rows
        every = Continued(sink, rows, graph.n, integral=graph.integral, targets=wanted.targets)
        every.read_back(journal.writer)
        if sink.done < len(rows):
            solve(graph, plan, rest(options, graph.n, sink.done), every, monitor)
        return every.summary(graph.labels)
    except Cancelled:
        if journal.worth():
            sink.commit()
        raise


def store_attributes(graph: Graph, plan: Plan) -> dict[str, object]:
    """Return the attributes in which a store records how it was solved."""
    return {
        "unit": "weight" if graph.weighted else "hops",
        "algorithm": plan.algorithm,
        "max_hops": plan.max_hops,
        "cutoff": plan.cutoff,
        "plan": plan.to_dict(),
    }


def _dijkstra(task: Task) -> None:
    dtype = WORK_TYPES[task.plan.dtype].dtype
    dijkstra.solve(
        *(task.backend, task.graph, task.rectangle, dtype, task.sink, task.monitor, task.plan.batch),
        unit=task.unit, from_targets=task.plan.from_targets,
    )  # fmt: skip


def _johnson(task: Task) -> None:
    dtype, from_targets, batch = WORK_TYPES[task.plan.dtype].dtype, task.plan.from_targets, task.plan.batch
    johnson.solve(
        task.backend, task.graph, task.rectangle, dtype, task.sink, task.monitor, batch, from_targets=from_targets
    )


def _bfs(task: Task) -> None:
    dtype, from_targets, batch = WORK_TYPES[task.plan.dtype].dtype, task.plan.from_targets, task.plan.batch
    breadth_first.solve(
        task.backend, task.graph, task.rectangle, dtype, task.sink, task.monitor, batch, from_targets=from_targets
    )


def _partitioned(task: Task) -> None:
    kind = WORK_TYPES[task.plan.dtype]
    partitioned.run(task.backend, task.graph, task.rows, kind.dtype, task.sink, task.monitor, task.plan.batch)


def _dense(task: Task) -> tuple[npt.NDArray[np.generic], bool, Potentials | None]:
    """The weight matrix, whether no entry is negative, and the potentials that made it so (see decision 006)."""
    kind = WORK_TYPES[task.plan.dtype]
    relaxed = for_products(task.graph, kind, task.monitor, task.plan.max_hops)
    return weight_matrix(relaxed.graph, kind, task.monitor), relaxed.nonnegative, relaxed.potentials


def _floyd_warshall(task: Task, *, blocked: bool) -> None:
    matrix, nonnegative, potentials = _dense(task)
    order = floyd_warshall.blocked if blocked else floyd_warshall.recursive
    order(task.backend, matrix, nonnegative=nonnegative, symmetric=not task.graph.directed, monitor=task.monitor)
    write_rows(matrix, task.sources, task.sink, task.monitor, task.backend.threads, potentials=potentials)


def _squaring(task: Task) -> None:
    matrix, nonnegative, potentials = _dense(task)
    result = squaring.power(
        task.backend,
        matrix,
        task.plan.max_hops,
        rows=task.sources,
        nonnegative=nonnegative,
        symmetric=not task.graph.directed,
        monitor=task.monitor,
    )
    threads = task.backend.threads
    write_rows(result, task.sources, task.sink, task.monitor, threads, picked=True, potentials=potentials)


#: How each algorithm runs on processors.
RUN: Final[dict[str, Callable[[Task], None]]] = {
    "dijkstra": _dijkstra,
    "johnson": _johnson,
    "bfs": _bfs,
    "recursive-floyd-warshall": lambda task: _floyd_warshall(task, blocked=False),
    "blocked-floyd-warshall": lambda task: _floyd_warshall(task, blocked=True),
    "repeated-squaring": _squaring,
    "partitioned": _partitioned,
}
