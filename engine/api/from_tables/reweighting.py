"""Gives a prepared graph new weights; its parts, and the order in which they are eliminated, do not change.

Either all tables are computed again, by this process or by the workers of a Dask scheduler, or only the tables that may
change.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Unpack

import numpy as np
import numpy.typing as npt

from engine.algorithms.both_ways import FoundTables
from engine.algorithms.eliminated import Eliminated
from engine.algorithms.reweighting import Touched, change_tables
from engine.api.prepared import facts_of, found_anew, in_spans, spec_of, working, write_tables
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome
from engine.graph.partition import Parts
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.graph.terminals import arrivals
from engine.model.plan import Plan
from engine.model.problem import Options, given_options
from engine.model.progress import Monitor, PhaseClock, given_monitor
from engine.streaming.part_journal import identity_of
from storage.arguments import check_flags, check_given_paths, check_paths
from storage.errors import Conflict, InvalidRequest
from storage.files.writing import Writing
from storage.graph.new_weights import ArcWeights, NewGraph, arc_weights, read_weights, reweighted
from storage.matrix.sealed import SealedResult
from storage.options import ReadingOptions
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import TABLE_CHUNK, PreparedWriter
from storage.remote.generation import Generation
from storage.remote.objects import address_of
from storage.remote.places import reweighted_place

#: If more than this share of the parts hold changed arcs or lie above such a part, all tables are computed again.
MOST: Final = 0.5

_COMPACT: Final = (
    "{} is in the compact form, which keeps no tables to change; prepare the graph with its new weights again"
)

#: Weights as arrays: labels of tails and heads, and numbers.
Arrays = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]


def reweight(
    prepared: str | Path,
    weights: str | Path | Arrays,
    *,
    out: str | Path | None = None,
    changed: bool = False,
    overwrite: bool = False,
    options: Options | None = None,
    monitor: Monitor | None = None,
    **reading: Unpack[ReadingOptions],
) -> Outcome:
    """Give a prepared graph new weights; its vertices, arcs, parts and their order stay.

    A weight of +inf closes an arc; later weights may open it.  The result is the same, to the last bit, as that of
    preparing the graph anew with these parts.  Files that do not change are shared with ``prepared`` by hard links, so
    each of the two folders can be moved or removed alone.

    Args:
        prepared: the folder of a prepared graph, or its address in an object store.
        weights: a graph file of any format that lists the arcs, in any order; or three arrays: labels of tails, labels
            of heads, numbers.
        out: the new folder or address; None to replace ``prepared`` in one step once the new tables are sealed.
        changed: whether only arcs with new weights are given; if not, every arc that is not closed must be given.
        overwrite: whether to replace a store at ``out`` once the new one is done.
        options: type, memory, threads and cutoff; and the scheduler of workers, which then compute all tables.  If not
            given, the cutoff is that of ``prepared``; the type stays float64 if new weights are not whole.
        monitor: receives progress, and is asked whether to stop.
        reading: how the file is read, as in ``read_graph``.

    Returns:
        The plan, the seconds of each phase, and facts: the numbers of arcs whose weights changed, of closed arcs, of
        parts that were eliminated again, and of tables that changed.

    Raises:
        NotFound: an arc is given that the graph does not have, or an arc is missing; the error names it and its line.
        Conflict: ``out`` exists, or ``prepared`` was replaced by another process, or another process is writing it.
        Cancelled: the monitor asked to stop; existing folders are unchanged.
        StorageFailed: the disk refused to write, or ``prepared`` is damaged.
        InvalidRequest, DoesNotFit, NegativeCycle: as in ``prepare``.
    """
    check_flags(changed=changed, overwrite=overwrite)
    check_given_paths(prepared=prepared)
    if not isinstance(weights, tuple):
        check_given_paths(weights=weights)
    check_paths(out=out)
    replaces = overwrite or out is None
    clock, options = PhaseClock(given_monitor(monitor)), given_options(options)
    with ExitStack() as stack:
        found = _with_tables(stack.enter_context(open_result(address_of(prepared) or prepared)), prepared)
        target, sent = reweighted_place(found, out, overwrite=overwrite)
        stack.enter_context(Writing(target, "reweight"))
        clock.begin("weights", 1, "file")
        given = _given(weights, found, reading)
        new = reweighted(found.graph(), found.closed(), given, changed=changed)
        clock.step(1)
        clock.begin("plan", 1, "plan")
        base, options = _Base(found, new), _as_before(options, found, new)
        plan = plan_prepared(base.profile, options, out=target)
        clock.step(1)
        kept = stack.enter_context(PreparedJournal(target, {**identity_of(base.profile), "reweighted": True}))
        _check_current(found)
        facts = _sealed(base, (plan, options), clock, kept, (target, replaces, sent))
        kept.finish()
    clock.stop()
    return Outcome(plan, clock.seconds, facts)


class _Base:
    """The prepared graph that gets new weights, the graph with these weights, and its parts."""

    def __init__(self, old: PreparedMatrix, new: NewGraph) -> None:
        self.old, self.new, self.profile = old, new, GraphProfile(new.graph)
        self.inner, _ = self.profile.open(Rectangle.of(Options(), new.graph.n))
        self.parts = self.inner.given_parts = old.parts()

    def holds(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the parts that hold changed arcs, shape (parts,)."""
        graph, position = self.new.graph, self.parts.position
        tails, heads = np.divmod(self.new.changed, max(1, graph.n))
        heads = arrivals(heads, graph.n, graph.terminals)
        holds = np.zeros(self.parts.count, np.bool_)
        holds[self.parts.owner()[np.minimum(position[tails], position[heads])]] = True
        return holds

    def tables(self, plan: Plan) -> FoundTables | None:
        """Return the old tables if the new ones can be made by changing them; None if all tables must be computed."""
        old, type_stays = self.old, np.dtype(plan.dtype) == self.old.dtype
        if not (type_stays and self.inner.nonnegative and old.least_weight >= 0):
            return None
        if _and_above(self.parts, self.holds()) > MOST * self.parts.count + 1:
            return None
        arrays, forward = old.eliminated(), old.table("forward")
        assert forward is not None  # no prepared graph opens without this table
        return (
            None if arrays is None else FoundTables(forward, old.table("backward"), Eliminated.of(self.parts, *arrays))
        )


def _with_tables(found: SealedResult, prepared: str | Path) -> PreparedMatrix:
    """Return ``found``, the result at ``prepared``; raise InvalidRequest if it is no graph that can get new weights."""
    if not isinstance(found, PreparedMatrix):
        raise InvalidRequest(f"{prepared} is a solved store; only prepared graphs get new weights", field="prepared")
    if found.compact:
        raise InvalidRequest(_COMPACT.format(found.path), field="prepared")
    return found


def _as_before(options: Options, found: PreparedMatrix, new: NewGraph) -> Options:
    """Return the options, with the cutoff and the precision of the prepared graph where the options set none."""
    if options.cutoff is None:
        options = replace(options, cutoff=found.attributes["cutoff"])
    if options.dtype == "auto" and found.dtype == np.float64 and not new.graph.integral:
        options = replace(options, dtype="float64")  # float32 would lose digits that the prepared graph has
    return options


def _given(weights: str | Path | Arrays, found: PreparedMatrix, reading: ReadingOptions) -> ArcWeights:
    if not isinstance(weights, tuple):
        if reading.get("unweighted"):
            raise InvalidRequest("new weights cannot be 'unweighted'", field="unweighted")
        return read_weights(weights, reading, directed=found.directed)
    if reading:
        raise InvalidRequest(f"{next(iter(reading))!r} says how a file is read, and arrays are given", field="weights")
    return arc_weights(*weights)


def _check_current(old: PreparedMatrix) -> None:
    """Raise Conflict if another process has replaced the prepared graph."""
    if not old.current():
        raise Conflict(f"{old.path} was replaced by another process meanwhile; ask again")


def _and_above(parts: Parts, holds: npt.NDArray[np.bool_]) -> int:
    """Return the number of parts that are in ``holds`` or above such a part."""
    again = holds.copy()
    for i, above in enumerate(parts.parents.tolist()):
        if again[i] and above >= 0:
            again[above] = True
    return int(again.sum())


def _sealed(
    base: _Base, asked: tuple[Plan, Options], clock: PhaseClock, kept: PreparedJournal,
    place: tuple[Path, bool, Generation | None],
) -> dict[str, object]:  # fmt: skip
    """Make, write and seal the new tables, and return facts about them."""
    (plan, options), (target, replaces, sent), new = asked, place, base.new
    everything = Touched(*(np.ones(base.parts.count, np.bool_) for _ in range(3)))
    found = None if in_spans(plan) else _made(base, plan, clock, kept)
    spec = spec_of(new.graph, plan)
    with PreparedWriter(target, new.graph, spec, {}, overwrite=replaces, base=base.old, remote=sent) as writer:
        writer.add_closed(new.closed)
        in_place = target == Path(base.old.path).absolute()

        def check() -> None:
            if in_place:
                _check_current(base.old)

        if found is None:
            from engine.distributed.prepared.run import SpansRun, prepare_in_spans

            run = SpansRun(base.inner, base.parts, plan, options, kept)
            facts, touched = prepare_in_spans(run, writer, clock, check), everything
        else:
            tables, same, changed, facts = found
            touched = everything if changed is None else changed
            write_tables(writer, tables, clock, same, check)
    return {
        **facts,
        "changed": len(new.changed) if new.graph.directed else len(new.changed) // 2,
        "closed": len(new.closed) if new.graph.directed else len(new.closed) // 2,
        "eliminated": int(touched.eliminated.sum()),
        "differ": int((touched.forward | touched.backward).sum()),
    }


def _made(
    base: _Base, plan: Plan, clock: PhaseClock, kept: PreparedJournal
) -> tuple[FoundTables, dict[str, frozenset[int]] | None, Touched | None, dict[str, object]]:
    """Return the new tables, the chunks that do not change, the parts that change, and facts for the caller's report.

    If all tables are computed again, None stands for the chunks and for the parts.
    """
    clock.begin("read tables", 1, "store")
    tables = base.tables(plan)
    clock.step(1)
    if tables is None:
        tables, resumed = found_anew(base.inner, base.parts, plan, clock, kept)
        return tables, None, None, {**facts_of(base.parts, tables), "resumed": resumed}
    with working(base.inner, base.parts, plan, clock) as work:
        touched = change_tables(work, tables, base.holds())
    same = {"forward": _same_chunks(base, "forward", touched.forward)}
    if tables.backward is not None:
        same["backward"] = _same_chunks(base, "backward", touched.backward)
    return tables, same, touched, facts_of(base.parts, tables)


def _same_chunks(base: _Base, name: str, touched: npt.NDArray[np.bool_]) -> frozenset[int]:
    """Return the numbers of the chunks of a table that hold no entries of the parts in the mask ``touched``."""
    entries = base.parts.sizes * base.parts.widths()
    ends = np.cumsum(entries)
    total = int(ends[-1]) if len(ends) else 0
    chunk = max(1, min(TABLE_CHUNK, total))
    if base.old.chunk_of(name) != chunk:
        return frozenset()
    some = np.flatnonzero(touched & (entries > 0))
    spans = zip(((ends - entries)[some] // chunk).tolist(), ((ends[some] - 1) // chunk).tolist(), strict=True)
    written = {k for first, last in spans for k in range(first, last + 1)}
    return frozenset(range(-(-total // chunk))) - written
