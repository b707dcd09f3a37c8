"""Plans how a graph is prepared: finds type, bytes and seconds of its tables, or raises an error with these numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.api.planning import with_fixed
from engine.execution.survey import survey
from engine.graph.analysis import describe, statistics
from engine.graph.partition import CPU_GRAIN, ENTRY_BYTES, Parts, find_parts
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_lengths
from engine.model.dtypes import WorkType, relaxes_reduced
from engine.model.plan import Candidate, Plan
from engine.model.problem import (
    Machine,
    Options,
    PartsFacts,
    Problem,
    given_options,
    over_workers,
    refuse_also,
    refuse_semiring,
)
from engine.model.progress import working_time
from engine.planning.binding import bind_plan
from engine.planning.constants import RESIDENT_SPREAD
from engine.planning.cost import Setting
from engine.planning.cost_partitioned import estimate_prepared
from engine.planning.planner import choose_type
from engine.planning.refusal import gib
from engine.streaming.part_journal import take_dissection
from storage.errors import ApspError, DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.prepared.writer import TABLE_CHUNK

#: Tables of at most this number of bytes are accepted even if they are larger than the matrix.
SMALL_TABLES: Final = 256 << 20
#: The refusal of a matrix mentions a prepared graph if its tables take at most this share of the matrix's bytes.
FAVOURABLE: Final = 0.05
#: When a matrix is refused, the size of the tables is predicted only up to OFFERED_ENTRIES entries of borders, and up
#: to OFFERED_SIZE vertices and arcs.  This takes up to about ten seconds.
OFFERED_ENTRIES: Final = 1 << 27
OFFERED_SIZE: Final = 5_000_000
#: Options of a solve that preparing a graph does not support.
_WHOLE: Final = ("sources", "targets")


def plan_prepared(
    graph: Graph | GraphProfile, options: Options | None = None, *, out: Path | None = None, compact: bool = False
) -> Plan:
    """Plan how a graph is prepared, and refuse it before any work is done if that cannot succeed.

    This finds the parts of the graph, which takes about 5 microseconds for each vertex and arc; a profile keeps them.

    Args:
        graph: the graph, or its profile.
        options: type, memory, threads and cutoff; a prepared graph answers all pairs, so nothing else may be limited.
        out: the folder of the prepared graph, whose disk must have space for it; None for no folder.
        compact: whether to plan the compact form, which stores only closed parts.

    Returns:
        The plan: type, bytes of memory and disk, seconds.

    Raises:
        InvalidRequest: the options limit the sources or targets, or a weight is a negative fraction.
        NegativeCycle: the graph has a negative cycle; the error names it.
        DoesNotFit: the tables do not fit memory or disk, or are larger than the matrix; the error has the numbers.
    """
    profile, options = GraphProfile.of(graph), given_options(options)
    _check(options)
    check_lengths(profile.graph)
    inner, _ = profile.open(Rectangle.of(options, profile.graph.n))
    if out is not None and inner.given_parts is None:
        take_dissection(profile, inner, str(out))
    problem = describe(inner, cutoff=options.cutoff)
    kind, why = choose_type(problem, options.dtype)
    _check_weights(inner, problem, kind)
    machine = _machine(options, out)
    found = prepared_candidate(inner, problem, kind, machine, compact=compact)
    if isinstance(found, DoesNotFit):
        try:
            raise found
        finally:
            del found  # see ``storage.errors.raised``
    candidate, facts = found
    plan = Plan(
        algorithm="prepared",
        dtype=kind.name,
        device="cpu",
        threads=machine.threads,
        shape=(profile.graph.n, profile.graph.n),
        memory=candidate.memory,
        disk=candidate.disk,
        seconds=candidate.seconds,
        reason=_reason(facts, kind, inner.graph, compact=compact),
        dtype_reason=why,
        device_reason=_device_reason(inner, Setting(problem, machine, kind, 0), candidate, compact=compact),
        tier=candidate.tier,
        phases=candidate.phases,
        candidates=(candidate,),
        cutoff=options.cutoff,
        workers=candidate.workers,
        statistics=statistics(inner, replace(problem, parts=facts)),
    )
    return bind_plan(with_fixed(plan, stored=True), profile.graph, options)


def _check_weights(inner: GraphProfile, problem: Problem, kind: WorkType) -> None:
    """Raise InvalidRequest for negative weights that are added as floats, and NegativeCycle for a negative cycle."""
    if relaxes_reduced(kind, problem):
        what = f"weights cannot be prepared in {kind.name}" if problem.integral else "fractions cannot be prepared"
        raise InvalidRequest(
            f"a graph with negative {what} (the least weight is {problem.min_weight:g}): "
            "its distances are found over reduced weights; solve it with apsp solve",
            field="weight",
        )
    if problem.negative:
        _ = inner.potentials  # this raises NegativeCycle, which names the cycle


def _machine(options: Options, out: Path | None) -> Machine:
    """Survey this machine, and the workers of the scheduler if they will prepare the graph."""
    if not over_workers(options):
        return survey(out=out, memory=options.memory, threads=options.threads)
    from engine.distributed.planning import survey_workers

    return survey_workers(replace(options, device="cpu"), out)


def _device_reason(inner: GraphProfile, setting: Setting, candidate: Candidate, *, compact: bool) -> str:
    workers = setting.machine.workers
    if workers is None and candidate.tier != "store":
        return "a graph is prepared by processors"
    from engine.distributed.prepared.planning import SpansForm, files_reason, planned_spans, workers_reason

    form = SpansForm(setting.kind.itemsize, 1 + inner.graph.directed, compact)
    facts = planned_spans(inner.parts(CPU_GRAIN), setting, form)
    return files_reason(facts) if workers is None else workers_reason(facts, workers)


def _check(options: Options) -> None:
    refuse_also(options, "a prepared graph", "use apsp solve")
    refuse_semiring(options, "a prepared graph")
    for name in _WHOLE:
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InvalidRequest(
                f"a prepared graph answers all pairs, so {flag} cannot be said; use apsp solve", field=name
            )
    if options.max_hops is not None:
        raise InvalidRequest(
            "a prepared graph adds lengths without knowing how many arcs they have, so --max-hops cannot be kept; "
            "use apsp solve",
            field="max_hops",
        )
    over_workers(options)  # this raises InvalidRequest if a scheduler is given without executor dask
    if options.device == "cuda":
        raise InvalidRequest("a graph is prepared by processors, and device cuda was asked for", field="device")
    if options.algorithm not in ("auto", "partitioned"):
        message = f"a graph is prepared by its parts, and algorithm {options.algorithm} was asked for"
        raise InvalidRequest(message, field="algorithm")


def _reason(facts: PartsFacts, kind: WorkType, graph: Graph, *, compact: bool) -> str:
    full, closed = gib(_table_bytes(facts, kind, graph)), gib(facts.closed * kind.itemsize)
    if compact:
        return f"closed parts of {closed} answer every pair; tables, faster by far to ask, would be {full}"
    return f"tables of {full} answer every pair; the compact form (--compact) would be {closed}, slower to ask"


def _table_bytes(facts: PartsFacts, kind: WorkType, graph: Graph) -> int:
    return facts.table * kind.itemsize * (1 + graph.directed)


def prepared_candidate(
    profile: GraphProfile, problem: Problem, kind: WorkType, machine: Machine, most: int | None = None, *,
    compact: bool = False,
) -> tuple[Candidate, PartsFacts] | DoesNotFit:  # fmt: skip
    """Find the parts of a graph, and estimate bytes and seconds of its tables.

    Args:
        profile: the opened graph (``GraphProfile.open``).
        problem: the facts about the graph.
        kind: the working type.
        machine: memory and disk.
        most: the largest total number of border entries of all vertices; None for as many as fit in memory.
        compact: whether to plan the compact form.

    Returns:
        The estimate and the facts of the parts; or, if the tables do not fit, the error that says why.
    """
    most, began = most or machine.memory // ENTRY_BYTES, working_time()
    parts = find_parts(profile, CPU_GRAIN, most)
    if parts is None:
        return _too_many_entries(most, machine)
    graph, facts = profile.graph, parts.facts(CPU_GRAIN, working_time() - began)
    tables = facts.closed * kind.itemsize if compact else _table_bytes(facts, kind, graph)
    estimate = _estimated(
        Setting(problem, machine, kind, _disk(parts, facts, kind, graph, tables)), facts, graph, compact
    )
    where = f"{parts.count} parts with borders of at most {facts.border} vertices"
    if machine.workers is not None or estimate.memory > machine.memory:
        from engine.distributed.prepared.planning import SpansForm, by_workers, in_files

        change = in_files if machine.workers is None else by_workers
        form = SpansForm(kind.itemsize, 1 + graph.directed, compact)
        changed = change(estimate, parts, Setting(problem, machine, kind, 0), form)
        if isinstance(changed, DoesNotFit):
            return changed
        estimate = changed
        where += ", which pass through files span by span" if machine.workers is None else ""
    largest = max(problem.n**2 * kind.itemsize, SMALL_TABLES)
    refusal = _shortage(estimate, machine, (tables, largest), where, _smaller(facts, kind, tables))
    return (estimate, facts) if refusal is None else refusal


def _too_many_entries(most: int, machine: Machine) -> DoesNotFit:
    """Return the error for borders that have more than ``most`` entries."""
    return DoesNotFit(
        f"the graph cannot be prepared in {machine.memory} bytes ({gib(machine.memory)}) of memory: the borders of "
        f"all vertices have more than {most} entries; give it more memory (--memory), which does not help "
        "where its separators are large",
        resource="memory",
        needed=(most + 1) * ENTRY_BYTES,
        available=machine.memory,
        candidates=[],
    )


def _shortage(
    estimate: Candidate, machine: Machine, tables: tuple[int, int], where: str, smaller: str
) -> DoesNotFit | None:
    """Return the error for tables that do not fit memory or disk, or are larger than the matrix; None if they fit.

    Args:
        estimate: bytes and seconds of preparing.
        machine: memory and disk.
        tables: bytes of the tables, and the most bytes that they may have.
        where: words for the message that describe the parts of the graph.
        smaller: the sentence of the message about the compact form; empty if that is not smaller.
    """
    short = [(estimate.memory, machine.memory, "memory", "may be used")]
    short += [] if machine.disk is None else [(estimate.disk, machine.disk, "disk", "are free")]
    short += [(*tables, "the matrix itself", "are all of its entries")]
    for needed, available, resource, there in short:
        if needed > available:
            asked = needed + (RESIDENT_SPREAD if resource == "memory" else 0)
            return DoesNotFit(
                f"the graph cannot be prepared: {asked} bytes ({gib(asked)}) are needed for tables of {where}, "
                f"and of {resource} {available} ({gib(available)}) {there}{smaller}",
                resource=resource,
                needed=asked,
                available=available,
                candidates=[replace(estimate, feasible=False, rejected=f"needs {gib(asked)} of {resource}")],
            )
    return None


def _disk(parts: Parts, facts: PartsFacts, kind: WorkType, graph: Graph, tables: int) -> int:
    """Return the bytes of all files of a prepared graph; its tables take ``tables`` bytes."""
    arrays = graph.heads.nbytes + graph.weights.nbytes + graph.indptr.nbytes + 2 * graph.labels.nbytes
    padding = 2 * TABLE_CHUNK * kind.itemsize if facts.table > TABLE_CHUNK else 0
    lengths = kind.itemsize * int((2 * parts.sizes + parts.depths) @ parts.depths)
    return tables + padding + arrays + lengths + 4 * len(parts.borders) + 32 * graph.n + 2**20


def _estimated(setting: Setting, facts: PartsFacts, graph: Graph, compact: bool) -> Candidate:
    if not compact:
        return estimate_prepared(setting, facts, directed=graph.directed)
    entries = facts.entries - facts.table + facts.closed
    return estimate_prepared(
        setting, replace(facts, prepare=facts.prepare - facts.above, above=0, entries=entries), directed=False
    )


def _smaller(facts: PartsFacts, kind: WorkType, tables: int) -> str:
    """Return the sentence about the compact form for the refusal of tables of ``tables`` bytes."""
    closed = facts.closed * kind.itemsize
    return f"; in the compact form (--compact) they are {gib(closed)}" if closed < tables else ""


def offered(refusal: DoesNotFit, graph: Graph | GraphProfile, options: Options, out: Path | None) -> DoesNotFit:
    """Return the refusal of a solve, with an offer to prepare the graph if that fits and takes far less space.

    Args:
        refusal: the error that says why the matrix does not fit.
        graph: the graph, or its profile.
        options: the options of the refused solve.
        out: path of the store.

    Returns:
        ``refusal`` itself if preparing does not help, or if predicting the size of the tables would take too long.
    """
    found = _offer(GraphProfile.of(graph), options, out) if refusal.resource in ("disk", "memory") else None
    if found is None:
        return refusal
    candidate, tables = found
    says = f"{tables / 1e9:.2g} GB" if tables >= 1e8 else f"{tables / 1e6:.2g} MB"
    return refusal.offering(
        candidate,
        f"prepared: {says}, {max(candidate.seconds, 0.1):.2g} s (apsp prepare answers every distance without a matrix)",
    )


def _offer(profile: GraphProfile, options: Options, out: Path | None) -> tuple[Candidate, int] | None:
    graph = profile.graph
    try:
        _check(replace(options, algorithm="auto"))
        if options.executor != "local" or graph.n + graph.arcs > OFFERED_SIZE:
            return None
        inner, _ = profile.open(Rectangle.of(options, graph.n))
        problem = describe(inner, cutoff=options.cutoff)
        kind, _ = choose_type(problem, options.dtype)
        if relaxes_reduced(kind, problem):
            return None
        machine = survey(out=out, memory=options.memory, threads=options.threads)
        most = min(machine.memory // ENTRY_BYTES, int(FAVOURABLE * graph.n**2), OFFERED_ENTRIES)
        found = prepared_candidate(inner, problem, kind, machine, most)
    except ApspError:  # the original refusal explains more
        return None
    if isinstance(found, DoesNotFit):
        return None
    candidate, facts = found
    tables = _table_bytes(facts, kind, inner.graph)
    if tables > FAVOURABLE * graph.n**2 * kind.itemsize:
        return None
    return replace(candidate, rejected="makes no matrix, but answers every distance: apsp prepare"), tables


def beside(profile: GraphProfile, options: Options, out: Path | None) -> Candidate | None:
    """Return the estimate of preparing the graph, as a candidate; None if its parts are unknown or tables do not fit.

    Args:
        profile: the graph, with the facts that planning has found.
        options: the options of the solve.
        out: path of the store.
    """
    if not profile.dissected:
        return None
    found = _offer(profile, options, out)
    return None if found is None else found[0]
