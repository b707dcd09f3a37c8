"""Prepares a graph: tables that answer every distance of it, of the size of the graph and not of its square."""

from __future__ import annotations

from collections.abc import Iterator
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
from engine.model.problem import Options
from engine.model.progress import Monitor, PhaseClock, told_of_compiling
from engine.planning.binding import check_plan
from engine.streaming.part_journal import PartJournal, identity_of, keep_dissection
from storage.errors import InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.frame import MatrixSpec, check_target
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import PreparedWriter
from storage.remote.objects import is_address

__all__ = ["plan_prepared", "prepare"]

PART_ARRAYS = ("position", "starts", "parents", "ends", "borders")


def prepare(
    graph: Graph | GraphProfile,
    out: str | Path,
    options: Options | None = None,
    *,
    plan: Plan | None = None,
    overwrite: bool = False,
    monitor: Monitor | None = None,
) -> Outcome:
    """Prepare a graph into a new folder and seal it; ``open`` answers every distance from it.

    A long run commits what it has done about every ten seconds.  If it is stopped or killed, the next one of the same
    graph and type into the same folder goes on from there, with the same result to the last bit.

    Args:
        graph: the graph, or its profile, which keeps what planning has found.
        out: the folder; its parent must exist.
        options: type, memory, threads and cutoff: longer distances are answered as unreachable.
        plan: from :func:`plan_prepared`; None to make one.
        overwrite: replace a store at ``out`` once the new one is done.
        monitor: is told of progress, and asked whether to stop.

    Returns:
        The plan that was followed, the seconds of each phase, and facts about the tables; ``resumed`` is how many parts
        of each step an earlier run had done.

    Raises:
        Conflict: there is something at ``out``, and ``overwrite`` was not asked for; or another process writes it.
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
        InvalidRequest, DoesNotFit, NegativeCycle: as :func:`plan_prepared`.
    """
    refuse_address(out, "out")
    profile, options = GraphProfile.of(graph), options or Options()
    check_target(Path(out).absolute(), overwrite)
    if plan is None:
        plan = plan_prepared(profile, options, out=Path(out))
    check_plan(plan, profile.graph, options)
    clock = PhaseClock(monitor or Monitor())
    inner, _ = profile.open(Rectangle.of(options, profile.graph.n))
    clock.begin("partition", inner.graph.arcs, "arcs")
    parts = inner.parts(CPU_GRAIN)
    clock.step(inner.graph.arcs)
    with PreparedJournal(out, identity_of(profile)) as kept:
        keep_dissection(inner, kept)
        arrays = {name: getattr(parts, name) for name in PART_ARRAYS}
        with PreparedWriter(out, profile.graph, spec_of(profile.graph, plan), arrays, overwrite=overwrite) as writer:
            found, resumed = found_anew(inner, parts, plan, clock, kept)
            write_tables(writer, found, clock)
        kept.finish()
    clock.stop()
    return Outcome(plan, clock.seconds, {**facts_of(parts, found), "resumed": resumed})


def refuse_address(place: str | Path, field: str) -> None:
    """Refuse an address in an object store.

    Args:
        place: the place, as it was given.
        field: its name in the error.

    Raises:
        InvalidRequest: it is one.
    """
    if is_address(str(place)) or str(place).startswith("s3:"):
        where = str(place) if is_address(str(place)) else str(place).replace("s3:/", "s3://", 1)
        raise InvalidRequest(
            f"{field}: {where} is in an object store; a prepared graph is made in a folder", field=field
        )


def spec_of(graph: Graph, plan: Plan) -> MatrixSpec:
    """Return type and attributes of a prepared graph."""
    kind = WORK_TYPES[plan.dtype]
    return MatrixSpec(kind.dtype, kind.unreachable, attributes=store_attributes(graph, plan))


@contextmanager
def working(inner: GraphProfile, parts: Parts, plan: Plan, clock: PhaseClock) -> Iterator[PartWork]:
    """Context manager: what computing the lengths of parts takes, with threads of its own.

    Args:
        inner: the graph, opened.
        parts: its parts.
        plan: says type and threads.
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
    """Find all tables, going on from what was committed.

    Args:
        inner: the graph, opened.
        parts: its parts.
        plan: says type and threads.
        clock: receives the progress.
        kept: what an earlier run has committed; receives what this one does.

    Returns:
        The tables, and how many parts of each step were not computed again.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
    """
    journal = PartJournal(kept)
    with working(inner, parts, plan, clock) as work:
        found = find_tables(work, journal)
    return found, journal.resumed


def write_tables(
    writer: PreparedWriter, found: FoundTables, clock: PhaseClock, same: dict[str, frozenset[int]] | None = None
) -> None:
    """Write tables and what elimination found, and seal.

    Args:
        writer: of the prepared graph.
        found: the tables.
        clock: receives the progress, in bytes.
        same: the chunks of each table that are those of the prepared graph that the new one comes from.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
        Conflict: meanwhile something else has appeared at the path.
    """
    tables = (
        {"forward": found.forward} if found.backward is None else {"forward": found.forward, "backward": found.backward}
    )
    clock.begin("write", sum(table.nbytes for table in tables.values()), "bytes")
    for name, table in tables.items():
        writer.add_table(name, table, clock.step, (same or {}).get(name, frozenset()))
    writer.add_eliminated((found.eliminated.upward, found.eliminated.across, found.eliminated.rests))
    clock.begin("seal", 1, "store")
    writer.seal()
    clock.advance(1)


def facts_of(parts: Parts, found: FoundTables) -> dict[str, object]:
    """Return the number of parts, and entries and bytes of the tables."""
    tables = [found.forward] if found.backward is None else [found.forward, found.backward]
    return {
        "parts": parts.count,
        "entries": sum(len(table) for table in tables),
        "bytes": sum(table.nbytes for table in tables),
    }
