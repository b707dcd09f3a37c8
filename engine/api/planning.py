"""Plans a solve: analyses the graph, surveys the machine or the workers, runs trials, and chooses the plan."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.execution.compiling import compile_for, needed, seconds_to_compile
from engine.execution.kernel_list import PLANNING, missing_for
from engine.execution.search_cuda import ALGORITHMS as SEARCHES
from engine.execution.sums import (
    is_of,
    searched_in_units,
    searched_options,
    sum_bytes,
    sum_memory,
    types_of_sums,
    units_searched,
    with_sums,
)
from engine.execution.survey import computes, survey
from engine.execution.trials import calibrate
from engine.graph.analysis import describe, statistics, with_shape
from engine.graph.kernels.plain import PLAIN
from engine.graph.partition import ENTRY_BYTES, with_bridges, with_parts, with_trial
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_lengths, check_vertices
from engine.model.algorithms import ALGORITHMS
from engine.model.device_layout import SHALLOW
from engine.model.dtypes import WorkType
from engine.model.plan import Phase, Plan
from engine.model.problem import Machine, Options, Problem, Trials, changed, over_workers, with_threads
from engine.model.progress import COMPILING, Monitor, PhaseClock, given_monitor, told_of_compiling
from engine.model.system import available_memory
from engine.planning.constants import CREATE_SECONDS, DEVICE_START, SEAL_SECONDS, START_SECONDS
from engine.planning.cost_dijkstra import is_lattice
from engine.planning.planner import ESTIMATES, choose, choose_type
from engine.streaming.checkpoint import bound_to, resumable, resumes_half
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.reader import matrix_bytes
from storage.matrix.working import Checkpoint
from storage.semirings import MIN_PLUS, check_understood


def make_plan(
    graph: Graph | GraphProfile,
    options: Options,
    *,
    out: Path | None = None,
    resume: bool = False,
    monitor: Monitor | None = None,
    dropped: bool = False,
) -> Plan:
    """Plan a solve, and refuse it before any work is done if it cannot succeed.

    Kernels that planning needs and that are not compiled yet are compiled first, in the phase ``compile``.

    Args:
        graph: the graph, or its profile, in which planning keeps facts that the solve can use.
        options: the user's options.
        out: path of the store; None if the result stays in memory.
        resume: whether to continue from the checkpoint at ``out``, if it is of this graph and these options.
        monitor: receives the phase ``compile``, and is asked whether to stop.
        dropped: whether rows are reduced where they are computed, so that nothing is written.

    Raises:
        Cancelled: the monitor asked to stop.
        Conflict: the options contradict the checkpoint.
        InvalidRequest: the options contradict the graph, or no type holds the distances.
        NegativeCycle: the graph has a negative cycle, which the error names.
        DoesNotFit: memory or disk is too small.
        SolveFailed: the options ask for workers, and no worker answers.
    """
    if options.semiring != MIN_PLUS:
        from engine.api.semirings.planning import plan_semiring

        with told_of_compiling(PhaseClock(given_monitor(monitor))):
            return plan_semiring(graph, options, out=out, resume=resume)
    profile = GraphProfile.of(graph)
    _check(profile.graph, options)
    found, clock = resumable(out, resume=resume), PhaseClock(given_monitor(monitor))
    with told_of_compiling(clock):
        if _walks(profile.graph):
            compile_for(missing_for(PLANNING), clock)
        if (
            clock.seconds
        ):  # planning has waited for kernels: end the phase ``compile``, so that later seconds do not count there
            clock.begin("plan", 0, "")
        graph = profile.graph
        if found is not None:
            check_understood(f"the checkpoint of {found.target}", found.identity, MIN_PLUS)
        types = types_of_sums(profile, options, found)
        # the tiles of another matrix are replaced or refused, so their type and algorithm do not matter
        own = found if found is not None and is_of(found, graph, options, types) else None
        bound = bound_to(own, options)
        per = units_searched(graph, bound.cutoff, own) if types else 0
        inner = searched_options(graph, bound, types, per) if types else bound
        stored = choose_type(_described(profile, bound), bound.dtype) if per else None
        searched = profile.counted(per) if per else profile
        try:
            half = resumes_half(own)
            plan = _plan(searched, inner, out, found, (bound, types, stored), half=half, dropped=dropped)
        except DoesNotFit as refusal:
            raise _with_ways_out(refusal, profile, options, out) from None
    if stored is not None:
        plan = searched_in_units(plan, per, stored, bound.cutoff)
    plan = with_sums(plan, graph, options, types) if types else plan
    return changed(with_fixed(plan, stored=out is not None), task=profile.task(options))


def _with_ways_out(refusal: DoesNotFit, profile: GraphProfile, options: Options, out: Path | None) -> DoesNotFit:
    """Add to the error ``refusal`` the ways to answer the same question without a matrix, if there are any."""
    if options.also:
        return refusal  # no other way sums quantities along paths
    from engine.api.measures_planning import with_measures  # only a refusal needs these modules
    from engine.api.prepared_planning import offered

    rows = profile.graph.n if options.sources is None else len(options.sources)
    told = with_measures(refusal, rows, survey(memory=options.memory).memory) if out is not None else refusal
    told = offered(told, profile, options, out)
    if options.cutoff is None:
        return told
    from engine.api.near import near_offered  # loads kernels, which other plans do not need

    return near_offered(told, profile, options)


def _walks(graph: Graph) -> bool:
    """Return whether planning needs compiled kernels, which find a bound on whole-number distances faster than plain
    Python.
    """
    return graph.n + graph.arcs > PLAIN and graph.arcs > 0 and bool(graph.integral)


def with_fixed(plan: Plan, *, stored: bool) -> Plan:
    """Add to a plan the time to compile kernels, and the costs that are the same for all candidates.

    Args:
        plan: the plan without these costs.
        stored: whether the result goes into a store.

    Returns:
        The plan with the phases before and after the solve, and with their seconds.
    """
    waiting = needed(plan)
    before = [Phase("create", CREATE_SECONDS)] if stored else []
    if waiting:
        before.append(Phase(COMPILING, seconds_to_compile(waiting)))
    if plan.device == "cpu" and not computes():
        before.append(Phase("start", START_SECONDS))
    after = [Phase("seal", SEAL_SECONDS)] if stored else []
    seconds = plan.seconds + sum(phase.seconds for phase in (*before, *after))
    return changed(plan, seconds=seconds, phases=(*before, *plan.phases, *after))


def _plan(
    profile: GraphProfile,
    options: Options,
    out: Path | None,
    found: Checkpoint | None,
    wanted: tuple[Options, Mapping[str, WorkType], tuple[WorkType, str] | None],
    *,
    half: bool,
    dropped: bool,
) -> Plan:
    """Make the plan; ``options`` already agree with the checkpoint ``found``, unless it is of another matrix.

    ``wanted`` are the options for the rows of the store, the types of the sums along paths, and the type of the store
    with its reason, None if it is that in which rows are searched.  If there are sums, ``options`` ask for the
    distances to all vertices instead, because the paths are found from these.  ``half`` is that of
    :func:`resumes_half`.  If rows are ``dropped``, no store is written.
    """
    original, (asked, types, stored) = profile.graph, wanted
    profile, rectangle = profile.open(Rectangle.of(options, profile.graph.n))
    problem = _problem(profile, rectangle, options, half=half)
    kind, _ = stored or choose_type(problem, options.dtype)
    columns = problem.columns
    if asked.also:
        columns = original.n if asked.targets is None else len(asked.targets)
    store = 0 if dropped else store_bytes(profile.graph, matrix_bytes((problem.rows, columns), kind.itemsize))
    if types:
        store += sum_bytes(original, asked, kind.name, types)
    short: Plan | None = None
    if over_workers(options):
        from engine.distributed.planning import survey_workers

        machine, options = survey_workers(options, out), replace(options, device="auto")
    else:
        machine, short = _survey(problem, options, out, store)
    if machine.cuda is not None:
        problem = replace(problem, hops=profile.hops)
    if found is not None and machine.disk is not None:
        machine = replace(machine, disk=machine.disk + found.bytes)
    draft = _Draft(profile, rectangle, options, out, store, _beside(original, asked, types))
    machine = draft.with_sums(machine)
    plan = draft.choose(problem, machine) if short is None or found is not None else short
    if problem.negative:
        _ = profile.potentials  # raises NegativeCycle
    if machine.workers is not None:
        plan = replace(plan, threads=machine.workers.threads)
    else:
        problem, plan = draft.refine(problem, with_threads(machine, plan.threads), plan)
    if plan.device != "cpu" or not ALGORITHMS[plan.algorithm].searches:
        profile.known = None  # free the rows that trials have found, because no search will use them
    return changed(plan, statistics=statistics(profile, problem, plan.seconds))


@dataclass(frozen=True)
class _Draft:
    """The inputs that stay the same while a plan is refined by further measurements.

    ``beside`` are the bytes of memory that sums along paths need in addition to the rows: those of the graph, and those
    of each thread.  They count as memory that the process has in use, so that refusals name budgets which suffice for
    rows and sums.
    """

    profile: GraphProfile
    rectangle: Rectangle
    options: Options
    out: Path | None
    store: int
    beside: tuple[int, int]

    def with_sums(self, machine: Machine) -> Machine:
        """Return the machine with the memory of sums counted as memory in use."""
        once, each = self.beside
        return changed(machine, resident=machine.resident + once + machine.threads * each, thread_bytes=each)

    def choose(self, problem: Problem, machine: Machine, trials: Trials | None = None) -> Plan:
        """Return the plan that the planner chooses from the facts so far."""
        return choose(problem, machine, self.options, store=self.store, trials=trials)

    def refine(self, problem: Problem, machine: Machine, plan: Plan) -> tuple[Problem, Plan]:
        """Refine the plan: look for bridges, time searches and products, try a partition; return problem and plan."""
        profile, options = self.profile, self.options
        bridged = with_bridges(profile, problem, plan, machine) if options.algorithm == "auto" else problem
        if bridged is not problem:
            problem, plan = bridged, self.choose(bridged, machine)
        elif options.algorithm == "auto":
            problem, plan = self._cut_before(problem, machine, plan)
        device, out = options.device, self.out
        measured, trials = calibrate(profile, problem, machine, plan, device=device, rectangle=self.rectangle, out=out)
        if measured is not machine or trials is not None:
            # the plan can use the memory that measuring has taken, so survey the memory again
            now = self.with_sums(survey(out=out, memory=options.memory, threads=machine.threads))
            most = machine.resident + machine.memory - plan.memory
            machine = replace(measured, memory=now.memory, resident=min(now.resident, most))
            plan = self.choose(problem, machine, trials)
        # if the options name an algorithm, a partition changes nothing, and making one may take longer than the solve
        if options.algorithm != "auto":
            return replace(problem, no_parts=f"{options.algorithm} was asked for"), plan
        if problem.parts is not None:
            return problem, plan
        tried = with_trial(profile, problem, plan, machine)
        return tried, _uncut(plan, tried) if tried.parts is None else self.choose(tried, machine, trials)

    def _cut_before(self, problem: Problem, machine: Machine, plan: Plan) -> tuple[Problem, Plan]:
        """Find parts before searches are tried, if that may save time; return problem and plan.

        This may save time for a lattice (a graph like a grid).  It also may for a graph with many hops across if
        ``plan`` searches on a GPU, where a trial of searches takes seconds.
        """
        if plan.device == "cuda" and plan.algorithm in SEARCHES and problem.hops > SHALLOW:
            cut = with_trial(self.profile, problem, plan, machine)
            return (problem, plan) if cut.parts is None else (cut, self.choose(cut, machine))
        shaped = with_shape(self.profile, problem, plan, machine)
        if shaped is problem or not is_lattice(shaped):
            return shaped, plan  # the number of hops across the graph changes only the estimates for lattices
        plan = self.choose(shaped, machine)
        if plan.algorithm != "dijkstra":
            return shaped, plan
        cut = with_trial(self.profile, shaped, plan, machine)
        return cut, _uncut(plan, cut) if cut.parts is None else self.choose(cut, machine)


def _beside(graph: Graph, options: Options, types: Mapping[str, WorkType]) -> tuple[int, int]:
    """Return the bytes that sums along paths need once, and those that they need for each thread."""
    if not types:
        return 0, 0
    once = sum_memory(graph, options, 0, types)
    return once, sum_memory(graph, options, 1, types) - once


def _uncut(plan: Plan, problem: Problem) -> Plan:
    """Return ``plan`` with the reason why there are no parts; everything else in the plan stays the same."""
    why = problem.no_parts
    told = (changed(c, rejected=why) if c.algorithm == "partitioned" else c for c in plan.candidates)
    return changed(plan, candidates=tuple(told))


def _check(graph: Graph, options: Options) -> None:
    check_lengths(graph)
    check_vertices("sources", options.sources, graph.labels)
    check_vertices("targets", options.targets, graph.labels)
    if over_workers(options) and graph.terminals:
        raise InvalidRequest(
            f"executor dask does not know the {graph.terminals:,} vertices that no path may pass through; "
            "solve with executor local, or read the graph with --centroids-through",
            field="executor",
        )


def _described(profile: GraphProfile, options: Options, rectangle: Rectangle | None = None) -> Problem:
    """Return the facts about the graph and the request, whose ``rectangle`` is opened or that of ``options``."""
    asked = options if rectangle is None else rectangle
    rows, targets = (None if side is None else len(side) for side in (asked.sources, asked.targets))
    return describe(profile, rows=rows, targets=targets, max_hops=options.max_hops, cutoff=options.cutoff)


def _problem(profile: GraphProfile, rectangle: Rectangle, options: Options, *, half: bool) -> Problem:
    """Return the facts about the graph and the request that planning needs, before the machine is surveyed."""
    problem = _described(profile, options, rectangle)
    hops = profile.hops if problem.unit else 0
    problem = changed(problem, half=half, hops=hops, permuted=rectangle.permuted)
    if options.algorithm == "partitioned" and problem.max_hops is None:
        problem = with_parts(profile, problem, available_memory() // ENTRY_BYTES)
    return problem


def _survey(problem: Problem, options: Options, out: Path | None, store: int) -> tuple[Machine, Plan | None]:
    """Survey the machine, with its GPU only if the options name it or the CPU takes longer than a GPU takes to start.

    Returns:
        The machine; and the plan for the CPU, if that would finish before a GPU could start, else None.
    """
    machine = survey(out=out, memory=options.memory, threads=options.threads)
    if options.device not in ("auto", "cuda"):
        return machine, None
    if options.device == "auto" and options.algorithm in ("auto", *ESTIMATES):
        without = changed(machine, no_cuda="it finishes before a GPU could start")
        with contextlib.suppress(DoesNotFit):
            plan = choose(problem, without, options, store=store)
            if plan.seconds < DEVICE_START:
                return without, plan
    machine = survey(
        out=out,
        memory=options.memory,
        threads=options.threads,
        device=options.device,
        device_memory=options.device_memory,
    )
    return machine, None


def store_bytes(graph: Graph, tiles: int) -> int:
    """Return the bytes of disk for a store: tiles, arcs, three sets of labels, and the file system's overhead per
    file.
    """
    arcs = graph.heads.nbytes + graph.weights.nbytes + graph.indptr.nbytes
    return int(tiles * 1.005) + arcs + 4 * graph.labels.nbytes + 2**20
