"""Prepares a graph: tables that answer every distance of it, of the size of the graph and not of its square."""

from __future__ import annotations

from pathlib import Path

from engine.algorithms.both_ways import find_tables
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome, store_attributes
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor, PhaseClock, told_of_compiling
from engine.planning.binding import check_plan
from storage.errors import InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.frame import MatrixSpec
from storage.prepared.writer import PreparedWriter
from storage.remote.objects import is_address

__all__ = ["plan_prepared", "prepare"]


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

    A run that ends early leaves nothing: it takes less time than the first batch of a solve, so nothing is resumed.

    Args:
        graph: the graph, or its profile, which keeps what planning has found.
        out: the folder; its parent must exist.
        options: type, memory, threads and cutoff: longer distances are answered as unreachable.
        plan: from :func:`plan_prepared`; None to make one.
        overwrite: replace a store at ``out`` once the new one is done.
        monitor: is told of progress, and asked whether to stop.

    Returns:
        The plan that was followed, the seconds of each phase, and facts about the tables.

    Raises:
        Conflict: there is something at ``out``, and ``overwrite`` was not asked for.
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
        InvalidRequest, DoesNotFit, NegativeCycle: as :func:`plan_prepared`.
    """
    from engine.devices.cpu.backend import CpuBackend

    if is_address(str(out)):
        raise InvalidRequest(f"out: {out} is in an object store; a graph is prepared into a folder", field="out")
    profile, options = GraphProfile.of(graph), options or Options()
    if plan is None:
        plan = plan_prepared(profile, options, out=Path(out))
    check_plan(plan, profile.graph, options)
    clock, kind = PhaseClock(monitor or Monitor()), WORK_TYPES[plan.dtype]
    inner, _ = profile.open(Rectangle.of(options, profile.graph.n))
    clock.begin("partition", inner.graph.arcs, "arcs")
    parts = inner.parts(CPU_GRAIN)
    clock.step(inner.graph.arcs)
    arrays = {name: getattr(parts, name) for name in ("position", "starts", "parents", "ends", "borders")}
    spec = MatrixSpec(kind.dtype, kind.unreachable, attributes=store_attributes(profile.graph, plan))
    with PreparedWriter(out, profile.graph, spec, arrays, overwrite=overwrite) as writer:
        backend = CpuBackend(plan.threads)
        try:
            with told_of_compiling(clock):
                forward, backward = find_tables(
                    backend, inner.graph, parts, kind, nonnegative=inner.nonnegative, monitor=clock
                )
        finally:
            backend.shutdown()
        tables = {"forward": forward} if backward is None else {"forward": forward, "backward": backward}
        clock.begin("write", sum(table.nbytes for table in tables.values()), "bytes")
        for name, table in tables.items():
            writer.add_table(name, table, clock.step)
        clock.begin("seal", 1, "store")
        writer.seal()
        clock.advance(1)
    clock.stop()
    facts = {"parts": parts.count, "entries": sum(len(table) for table in tables.values())}
    return Outcome(plan, clock.seconds, {**facts, "bytes": sum(table.nbytes for table in tables.values())})
