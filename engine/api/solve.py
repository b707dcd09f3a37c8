"""The entry point of the engine: carries out a plan, with a sink or a store for the rows, and returns the outcome."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict, Unpack

from engine.algorithms.context import SolveContext
from engine.api.planning import make_plan
from engine.execution import in_memory
from engine.execution.compiling import compile_for, hasten, needed
from engine.execution.sums import also_of, is_of, types_of_sums, with_quantities
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options, over_workers, refuse_also
from engine.model.progress import Monitor, PhaseClock, given_monitor, told_of_compiling
from engine.model.rows import Sink
from engine.planning.binding import check_plan
from engine.streaming.checkpoint import Journal, StoredSolve, resumable, suits
from storage.graph.graph import Graph
from storage.graph.units import WEIGHT
from storage.matrix.frame import MatrixSpec, unit_of
from storage.matrix.working import Checkpoint, open_working
from storage.semirings import MIN_PLUS, SEMIRINGS

__all__ = ["EXECUTORS", "Outcome", "StoreOptions", "make_plan", "solve", "solve_to_store", "store_attributes"]


@dataclass(frozen=True)
class Outcome:
    """A finished solve: the plan that was followed, wall seconds of each phase, and a summary of the matrix."""

    plan: Plan
    seconds: dict[str, float]
    summary: dict[str, object]


class StoreOptions(TypedDict, total=False):
    """Options of a store; each has a default.

    Attributes:
        overwrite: whether to replace a store, or a checkpoint that is not resumed, at the path.
        resume: whether to continue from the checkpoint of the same matrix, if there is one.
        compression: the compression of tiles, ``none`` or ``zstd``.
        address: an address in an object store (``s3://``) for the store; the path is then only a working folder, and
            commits are sent to the address, too.
        claim: number of the claim on the address (see ``open_working``).
    """

    overwrite: bool
    resume: bool
    compression: str
    address: str | None
    claim: int


# each function imports its module when it is called: only some solves need it, and imports delay the first answer


def _streamed(context: StoredSolve) -> dict[str, object]:
    from engine.execution.streamed import run

    return run(context)


def _semiring(context: StoredSolve) -> dict[str, object]:
    from engine.api.semirings.solving import run_by_rows

    return run_by_rows(context)


def _over_workers(context: StoredSolve) -> dict[str, object]:
    from engine.distributed.run import run

    return run(context)


#: For each kind of execution, the function that solves into a working store and returns the summary of all rows.
EXECUTORS: Final[dict[str, Callable[[StoredSolve], dict[str, object]]]] = {
    "whole": in_memory.run_whole,
    "by-rows": in_memory.run_by_rows,
    "streamed": _streamed,
    "distributed": _over_workers,
    "semiring": _semiring,
}


def solve(
    graph: Graph | GraphProfile,
    plan: Plan,
    options: Options,
    sink: Sink,
    monitor: Monitor | None = None,
    *,
    facts: bool = True,
) -> Outcome:
    """Execute a plan; the sink is neither sealed nor closed.

    Args:
        graph: the graph, or its profile, which has the facts that planning found.
        plan: from :func:`make_plan`.
        options: the options of the plan.
        sink: receives the rows.
        monitor: receives the progress.
        facts: whether to gather the summary.  If not, the summary may be empty, and no row is read again for it.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
        InvalidRequest: the plan was made for another graph, or for other options.
    """
    refuse_also(options, "a solve into memory", "solve into a store")
    clock, profile = PhaseClock(given_monitor(monitor)), GraphProfile.of(graph)
    if not isinstance(plan, Plan) or (plan.task and plan.task != profile.task(options)):
        check_plan(plan, profile.graph, options, profile.content)
    rectangle = Rectangle.of(options, profile.graph.n)
    context = SolveContext(profile, plan, options, rectangle, sink, clock, facts=facts)
    with told_of_compiling(clock):
        compile_for(needed(plan), clock)
        if plan.semiring == MIN_PLUS:
            summary = in_memory.run(context)
        else:
            from engine.api.semirings.solving import run

            summary = run(context)
    clock.stop()
    return Outcome(plan, clock.seconds, summary)


def solve_to_store(
    graph: Graph | GraphProfile,
    options: Options,
    path: Path,
    *,
    plan: Plan | None = None,
    monitor: Monitor | None = None,
    **store: Unpack[StoreOptions],
) -> Outcome:
    """Plan (unless given), solve into a new store at ``path`` and seal it.

    Long solves commit their progress.  If such a solve fails or is stopped, the last commit remains in a folder next to
    ``path``; a solve without a commit leaves no files.

    Args:
        graph: the graph, or its profile, which has the facts that planning found.
        options: the options of the solve.
        path: the folder of the store.
        plan: a plan from :func:`make_plan`; if it cannot continue from the checkpoint, a new plan is made.
        monitor: receives progress, and is asked whether to stop.
        store: options of the store.

    Raises:
        Conflict: ``path`` exists, without ``overwrite``; or there is a checkpoint, without ``resume`` or ``overwrite``;
            or the checkpoint is that of another matrix.
        Cancelled: the monitor asked to stop; finished work is committed first, unless it took very little time.
        All other errors: as in :func:`make_plan` and :func:`solve`.
    """
    resume = store.get("resume", False)
    profile, found = GraphProfile.of(graph), resumable(path, resume=resume)
    if plan is not None:
        check_plan(plan, profile.graph, options, profile.content if plan.task else None)
    if plan is None or (found is not None and not suits(found, plan) and _resumes(found, profile, options)):
        plan = make_plan(profile, options, out=path, resume=resume, monitor=monitor)
    clock = PhaseClock(given_monitor(monitor))
    clock.begin("create", 1, "store")
    rectangle = Rectangle.of(options, profile.graph.n)
    spec = _matrix_spec(profile.graph, plan, rectangle, store.get("compression", "none"))
    with (
        open_working(
            path,
            *_with_sums(profile, options, spec, found),
            overwrite=store.get("overwrite", False),
            resume=resume,
            address=store.get("address"),
            claim=store.get("claim", 0),
        ) as writer,
        ExitStack() as after,
        after,  # entered twice: if an interrupt ends its first exit, the second one does the rest (``storage.threads``)
    ):
        hasten(writer)
        clock.stop()
        journal = Journal(writer, plan, clock.so_far)
        context = StoredSolve(profile, plan, options, rectangle, writer, clock, journal, after, also=writer.also)
        with told_of_compiling(clock):
            compile_for(needed(plan), clock)
            summary = EXECUTORS[_execution(plan, options)](context)
        clock.begin("seal", 1, "store")
        writer.seal(summary)
        clock.stop()
    return Outcome(plan, journal.total(), summary)


def _resumes(found: Checkpoint, profile: GraphProfile, options: Options) -> bool:
    """Return whether a plan of distances is to suit a checkpoint, because that is of the same matrix; plans of other
    semirings are to suit any.
    """
    if options.semiring != MIN_PLUS:
        return True
    return is_of(found, profile.graph, options, types_of_sums(profile, options, found))


def _matrix_spec(graph: Graph, plan: Plan, rectangle: Rectangle, compression: str) -> MatrixSpec:
    """Return the specification of a planned solve's store: types, rows and columns, and how it is solved."""
    semiring = WORK_TYPES[plan.dtype] if plan.semiring == MIN_PLUS else SEMIRINGS[plan.semiring]
    return MatrixSpec(
        plan.dtype,
        semiring.unreachable,
        sources=rectangle.sources,
        targets=rectangle.targets,
        attributes=store_attributes(graph, plan),
        compression=compression,
    )


def _with_sums(
    profile: GraphProfile, options: Options, spec: MatrixSpec, found: Checkpoint | None
) -> tuple[Graph, MatrixSpec]:
    """Return the graph with the quantities that are summed, and ``spec`` with the types of the sums."""
    types = types_of_sums(profile, options, found)
    return with_quantities(profile.graph, options), replace(spec, also=also_of(types))


def _execution(plan: Plan, options: Options) -> str:
    """Return the key in ``EXECUTORS`` of the function that carries out a plan."""
    if plan.semiring != MIN_PLUS:
        return "semiring"
    return "distributed" if over_workers(options) else plan.execution


def store_attributes(graph: Graph, plan: Plan) -> dict[str, object]:
    """Return the attributes in which a store records how it was solved."""
    known = SEMIRINGS[plan.semiring].measures(weighted=graph.weighted)
    return {
        "unit": unit_of(graph) if known else WEIGHT,
        **({} if known else {"weight_column": None}),
        **({} if plan.semiring == MIN_PLUS else {"semiring": plan.semiring}),
        "algorithm": plan.algorithm,
        "max_hops": plan.max_hops,
        "cutoff": plan.cutoff,
        "plan": plan.to_dict(),
    }
