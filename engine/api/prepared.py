"""Prepares a graph: computes tables, about as large as the graph, that answer every distance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.algorithms.both_ways import FoundTables, find_tables
from engine.algorithms.part_lengths import PartWork
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome, store_attributes
from engine.graph.partition import CPU_GRAIN, Parts
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options, given_options
from engine.model.progress import Monitor, PhaseClock, given_monitor, told_of_compiling
from engine.planning.binding import check_plan
from engine.streaming.part_journal import PartJournal, identity_of, keep_dissection
from storage.arguments import check_flags, check_given_paths, check_paths
from storage.files.writing import Writing
from storage.graph.graph import Graph
from storage.matrix.frame import MatrixSpec
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import PreparedWriter
from storage.remote.generation import Generation
from storage.remote.places import prepared_place

__all__ = ["plan_prepared", "prepare"]

PART_ARRAYS = ("position", "starts", "parents", "ends", "borders")

#: A function that makes one form of a prepared graph: it computes the tables or lengths of this form in memory, writes
#: and seals them, and returns facts.  Its arguments are the graph, the plan, the clock, the journal with what an
#: earlier run has committed, and the writer.
Making = Callable[[GraphProfile, Plan, PhaseClock, PreparedJournal, PreparedWriter], dict[str, object]]


def prepare(
    graph: Graph | GraphProfile,
    out: str | Path | tuple[Path, Generation | None],
    options: Options | None = None,
    *,
    plan: Plan | None = None,
    overwrite: bool = False,
    monitor: Monitor | None = None,
    work: Path | None = None,
) -> Outcome:
    """Prepare a graph into a new folder and seal it; ``open`` answers every distance from it.

    A long run commits finished work about every ten seconds.  If it is stopped or killed, the next run with the same
    graph, type and folder continues from the last commit, with the same result to the last bit.

    Args:
        graph: the graph, or its profile, which keeps the facts that planning has found.
        out: the folder, whose parent must exist, or an address in an object store (``s3://BUCKET/PREFIX``);
            or what ``storage.remote.places.prepared_place`` returns: the folder to work in, and the objects to send.
        options: type, memory, threads and cutoff (longer distances are answered as unreachable); if ``executor`` is
            ``dask``, also the scheduler whose workers compute.  All of them must reach ``out`` under the same path.
        plan: from :func:`plan_prepared`; None to make one.
        overwrite: whether to replace a store at ``out`` once the new one is done.
        monitor: receives progress, and is asked whether to stop.
        work: with an address, the folder to work in, which keeps the commits; None for one in the user's cache.

    Returns:
        The plan that was followed, the seconds of each phase, and facts about the tables; ``resumed`` is the number of
        parts that an earlier run had done, for each step.

    Raises:
        Conflict: ``out`` exists, without ``overwrite``; or another process is writing it.
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk or the object store refused to write.
        InvalidRequest, DoesNotFit, NegativeCycle: as :func:`plan_prepared`.
    """
    profile, options = GraphProfile.of(graph), given_options(options)
    check_flags(overwrite=overwrite)
    if not isinstance(out, tuple):
        check_given_paths(out=out)
    check_paths(work=work)
    place = out if isinstance(out, tuple) else prepared_place(out, work, overwrite=overwrite)
    return prepared_at(
        profile, place, (options, plan), overwrite=overwrite, monitor=monitor, compact=False, make=_make_tables
    )


def prepared_at(
    profile: GraphProfile, place: tuple[Path, Generation | None], asked: tuple[Options, Plan | None], *,
    overwrite: bool, monitor: Monitor | None, compact: bool, make: Making,
) -> Outcome:  # fmt: skip
    """Prepare a graph, in the full or in the compact form; meanwhile no other process can write in the same place.

    Args:
        profile: the graph.
        place: the folder to work in; and the objects to send to an object store, or None for a plain folder.
        asked: the options, and the plan if there is one.
        overwrite: whether to replace a store that is in this place.
        monitor: receives progress.
        compact: whether the form is the compact one.
        make: computes the whole form in memory, writes and seals it; not called if spans are computed one by one.

    Returns:
        The plan, the seconds of each phase, and facts about what is stored.

    Raises:
        Conflict, Cancelled, StorageFailed, InvalidRequest, DoesNotFit, NegativeCycle: as :func:`prepare`.
    """
    (out, sent), (options, plan) = place, asked
    with Writing(out, "prepare"):
        if plan is None:
            plan = plan_prepared(profile, options, out=out, compact=compact)
        check_plan(plan, profile.graph, options)
        clock = PhaseClock(given_monitor(monitor))
        inner, _ = profile.open(Rectangle.of(options, profile.graph.n))
        clock.begin("partition", inner.graph.arcs, "arcs")
        parts = inner.parts(CPU_GRAIN)
        clock.step(inner.graph.arcs)
        with PreparedJournal(out, identity_of(profile)) as kept:
            keep_dissection(inner, kept)
            arrays, spec = {name: getattr(parts, name) for name in PART_ARRAYS}, spec_of(profile.graph, plan)
            with PreparedWriter(out, profile.graph, spec, arrays, overwrite=overwrite, remote=sent) as writer:
                if in_spans(plan):
                    from engine.distributed.prepared.run import SpansRun, prepare_in_spans

                    run = SpansRun(inner, parts, plan, options, kept, compact=compact)
                    facts = prepare_in_spans(run, writer, clock)
                else:
                    facts = make(inner, plan, clock, kept, writer)
            kept.finish()
    clock.stop()
    return Outcome(plan, clock.seconds, facts)


def _make_tables(
    inner: GraphProfile, plan: Plan, clock: PhaseClock, kept: PreparedJournal, writer: PreparedWriter
) -> dict[str, object]:
    """Compute, write and seal all tables, and return facts about them."""
    parts = inner.parts(CPU_GRAIN)
    found, resumed = found_anew(inner, parts, plan, clock, kept)
    write_tables(writer, found, clock)
    return {**facts_of(parts, found), "resumed": resumed}


def in_spans(plan: Plan) -> bool:
    """Return whether spans of parts are computed one by one, because workers do it or because memory is short."""
    return plan.workers > 0 or plan.tier == "store"


def spec_of(graph: Graph, plan: Plan) -> MatrixSpec:
    """Return the type and the attributes with which a prepared graph is stored."""
    kind = WORK_TYPES[plan.dtype]
    return MatrixSpec(kind.dtype, kind.unreachable, attributes=store_attributes(graph, plan))


@contextmanager
def working(inner: GraphProfile, parts: Parts, plan: Plan, clock: PhaseClock) -> Iterator[PartWork]:
    """Context manager: provide the object that computes the lengths of parts; its threads end with the context.

    Args:
        inner: the opened graph, which has a copy of each terminal where paths end.
        parts: the parts of this graph.
        plan: determines type and threads.
        clock: receives the progress.
    """
    from engine.devices.cpu.backend import CpuBackend

    backend = CpuBackend(plan.threads)
    try:
        with told_of_compiling(clock):
            yield PartWork(backend, inner.graph, parts, WORK_TYPES[plan.dtype], inner.nonnegative, clock)
    finally:
        backend.shutdown()


def found_anew(
    inner: GraphProfile, parts: Parts, plan: Plan, clock: PhaseClock, kept: PreparedJournal
) -> tuple[FoundTables, dict[str, int]]:
    """Compute the tables of all parts, except parts whose tables an earlier run has committed.

    Args:
        inner: the opened graph, which has a copy of each terminal where paths end.
        parts: the parts of this graph.
        plan: determines type and threads.
        clock: receives the progress.
        kept: holds the commits of an earlier run, and receives the commits of this run.

    Returns:
        The tables, and for each step the number of parts that were restored from commits.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused to write.
    """
    journal = PartJournal(kept)
    with working(inner, parts, plan, clock) as work:
        found = find_tables(work, journal)
    return found, journal.resumed


def write_tables(
    writer: PreparedWriter, found: FoundTables, clock: PhaseClock, same: dict[str, frozenset[int]] | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Write and seal tables and results of elimination.

    Args:
        writer: the writer of the prepared graph.
        found: the tables and the results of elimination.
        clock: receives the progress, in bytes.
        same: for each table, the chunks that equal those of the prepared graph whose weights are replaced; None for no
            chunk.
        check: called before the seal is written; it may raise an error.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused to write.
        Conflict: another result has appeared at the path meanwhile; or what ``check`` raises.
    """
    tables = (
        {"forward": found.forward} if found.backward is None else {"forward": found.forward, "backward": found.backward}
    )
    clock.begin("write", sum(table.nbytes for table in tables.values()), "bytes")
    for name, table in tables.items():
        writer.add_table(name, table, clock.step, (same or {}).get(name, frozenset()))
    writer.add_eliminated((found.eliminated.upward, found.eliminated.across, found.eliminated.rests))
    clock.begin("seal", 1, "store")
    check()
    writer.seal()
    clock.advance(1)


def facts_of(parts: Parts, found: FoundTables) -> dict[str, object]:
    """Return the number of parts, and the numbers of entries and bytes of the tables."""
    tables = [found.forward] if found.backward is None else [found.forward, found.backward]
    return {
        "parts": parts.count,
        "entries": sum(len(table) for table in tables),
        "bytes": sum(table.nbytes for table in tables),
    }
