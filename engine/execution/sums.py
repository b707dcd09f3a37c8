"""Plans sums of quantities along the shortest paths (their memory, disk and time), and refuses options that exclude
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Final

from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.decimals import limit_on_paper
from engine.model.dtypes import SUM_TYPES, WORK_TYPES, WorkType
from engine.model.plan import Phase, Plan
from engine.model.problem import Options
from engine.planning.refusal import about_seconds
from engine.rows.hops.hop_sums import LINE, hop_bytes
from engine.rows.lane_sums import LANES, lane_bytes, side_by_side
from engine.rows.sums import (
    adds_whole,
    counts_hops,
    cutoff_in_units,
    exactness,
    rows_together,
    sum_types,
    sums_side_by_side,
    units_counted,
)
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.format import COMPRESSIONS
from storage.matrix.frame import MatrixSpec
from storage.matrix.grid import TILE_ROWS, layout
from storage.matrix.working import Checkpoint, resumes

#: Seconds of one thread if rows are summed side by side (decision 271).  TREE_SECONDS: for each vertex and arc of the
#: graph and each row; SUM_SECONDS: for each entry that is summed.
TREE_SECONDS: Final = 1e-9
SUM_SECONDS: Final = 4e-9
#: HOP_SECONDS and HOP_SUM_SECONDS: the same two numbers where every arc counts 1 (decision 262).
HOP_SECONDS: Final = 1e-10
HOP_SUM_SECONDS: Final = 2e-9
#: Seconds of one thread if rows are walked over one by one (decision 145).  WALK_SECONDS: for each vertex and arc of
#: the graph and each row; ENTRY_SECONDS: for each entry that is summed.
WALK_SECONDS: Final = 1.5e-8
ENTRY_SECONDS: Final = 2.0e-8
#: A bound on the arcs of paths is looked for where there are at least this number of entries for each vertex and arc;
#: the second number is that of directed graphs.  For each vertex and arc, the search takes 3e-9 to 8e-8 s of one
#: thread, and up to 1e-7 s in directed graphs (decision 273), so at most 2.5e-9 s for each entry, about as much as a
#: sum of 2 bytes saves.
BOUND_ENTRIES: Final = (32, 128)


#: The uses of the kernels that sum along the paths of rows: side by side over hops or over weights, or one by one.
HOPS: Final = "sums of hops"
WEIGHTS: Final = "sums of weights"
WALKED: Final = "sums one by one"
#: The use of the kernel that writes rows as floats which were searched in whole units.
FLOATS: Final = "floats of units"


def types_of_sums(profile: GraphProfile, options: Options, found: Checkpoint | None = None) -> dict[str, WorkType]:
    """Return the type of the sums of each quantity of a solve into a store.

    Sums are uint16 where every arc counts 1, and the largest value of an arc times a proven bound on the arcs of any
    shortest path fits.  A solve of the matrix of a checkpoint takes the types of the checkpoint, even if this program
    would choose others.  These are proven for that matrix only, so a solve of another one does not take them.

    Args:
        profile: the graph, with the quantities.
        options: ``also`` names the quantities; ``sources`` and ``targets`` decide the number of entries.
        found: the checkpoint from which the solve would resume; None if there is none.  It may be of another matrix.

    Raises:
        InvalidRequest: as :func:`engine.rows.sums.sum_types`.
    """
    graph = profile.graph
    types = sum_types(graph, options.also)
    if types and found is not None:
        recorded = {name: about["type"] for name, about in (found.identity.get("also") or {}).items()}
        earlier = types | {name: SUM_TYPES["uint16"] for name in types if recorded.get(name) == "uint16"}
        if is_of(found, graph, options, earlier):
            return earlier
    largest = {
        name: int(values.max())
        for name, values in graph.quantities.items()
        if name in types and values.dtype.kind == "i" and graph.arcs and values.min() >= 0
    }
    if not largest or not counts_hops(graph):
        return types
    # the bound has to suit the quantity of the least values, and may then suit others
    most = graph.n - 1
    limit = int(SUM_TYPES["uint16"].largest) // max(1, min(largest.values()))
    rows, columns = _shape(graph, options)
    fit = {kind.name for kind in sum_types(graph, list(largest), most).values()} == {"uint16"}
    if not fit and rows * columns >= BOUND_ENTRIES[graph.directed] * (graph.n + graph.arcs):
        proven = profile.most_arcs(limit)
        most = most if proven is None else min(most, proven)
    return sum_types(graph, options.also, most)


def is_of(found: Checkpoint, graph: Graph, options: Options, types: Mapping[str, WorkType]) -> bool:
    """Return whether a checkpoint is of the matrix of distances that is asked for, whatever its type and compression.

    Args:
        found: the checkpoint.
        graph: the graph, with the quantities.
        options: what was asked; the semiring is min-plus.
        types: the type of the sums of each quantity.
    """
    kind, compression = (str(found.identity.get(name)) for name in ("type", "compression"))
    if kind not in WORK_TYPES or compression not in COMPRESSIONS:
        return False
    rectangle = Rectangle.of(options, graph.n)
    spec = MatrixSpec(
        kind,
        WORK_TYPES[kind].unreachable,
        rectangle.sources,
        rectangle.targets,
        attributes={"max_hops": options.max_hops, "cutoff": options.cutoff},
        compression=compression,
        also=also_of(types),
    )
    return resumes(found, with_quantities(graph, options), spec)


def with_quantities(graph: Graph, options: Options) -> Graph:
    """Return the graph that a store of the sums holds: with the quantities that are summed, in the order asked for."""
    return replace(graph, quantities={name: graph.quantities[name] for name in options.also})


def also_of(types: Mapping[str, WorkType]) -> dict[str, tuple[str, float]]:
    """Return the types of sums, and their values for *no path*, as a store describes them."""
    return {name: (kind.name, kind.unreachable) for name, kind in types.items()}


def sum_bytes(graph: Graph, options: Options, dtype: str, types: Mapping[str, WorkType]) -> int:
    """Return the bytes of the tiles of all sums on the disk, uncompressed.

    Args:
        graph: the graph, with the quantities.
        options: ``sources`` and ``targets`` decide the shape.
        dtype: type of the distances, which decides the shape of the tiles.
        types: the type of the sums of each quantity.
    """
    grid = layout(_shape(graph, options), WORK_TYPES[dtype].itemsize)
    return sum(grid.total_bytes(kind.itemsize) for kind in types.values())


def sum_memory(graph: Graph, options: Options, threads: int, types: Mapping[str, WorkType]) -> int:
    """Return the bytes of memory that the sums take.

    Summing needs copies of the quantities and of the weights or arcs.  Each thread also holds trees of paths, a band of
    rows of distances, and sums twice: as they are found, of one band or more, and as the tiles of a band.

    Args:
        graph: the graph, with the quantities.
        options: ``targets`` decide the columns.
        threads: number of threads.
        types: the type of the sums of each quantity.
    """
    kinds = [kind.itemsize for kind in types.values()]
    sizes = sum(kinds)
    columns = _shape(graph, options)[1]
    # fractions may be held twice: in whole units, and as floats
    row = WORK_TYPES["float64"].itemsize + (0 if graph.integral else WORK_TYPES["int32"].itemsize)
    band, found = TILE_ROWS * (graph.n * row + columns * sizes), TILE_ROWS
    # rows that are walked over are summed in at least 4 bytes
    walked = sum(max(size, 4) for size in kinds)
    arcs, tree = graph.arcs * (walked + 8), graph.n * (16 + walked)
    if sums_side_by_side(graph):
        # bytes per arc: a copy of the arcs sorted by head with their quantities, and the order of the arcs while
        # sorting
        arcs, found = arcs + graph.arcs * (sizes + 24), rows_together(TILE_ROWS, graph.n, sizes)
        if counts_hops(graph):
            tree += hop_bytes(graph.n, graph.terminals, sizes)
        else:
            tree += lane_bytes(graph.n, graph.terminals, sizes)
    return arcs + 24 * graph.n + threads * (tree + band + found * columns * sizes)


def _uses(graph: Graph, rows: int) -> tuple[str, ...]:
    """Return the uses of the kernels that sum along the paths of rows, as in ``Plan.sums``."""
    if not sums_side_by_side(graph):
        return (WALKED,)
    use, lanes = (HOPS, LINE) if counts_hops(graph) else (WEIGHTS, LANES)
    return (use,) if side_by_side(rows, lanes) == rows else (use, WALKED)


def _shape(graph: Graph, options: Options) -> tuple[int, int]:
    rows, columns = (graph.n if side is None else len(side) for side in (options.sources, options.targets))
    return rows, columns


def _cuts_ties(graph: Graph, cutoff: float, per: int) -> bool:
    """Return whether a cutoff may separate two vertices at the same distance, although a path to one leads through the
    other.

    Such vertices are joined by arcs of length 0.  If weights are decimals, float64 may round the lengths to the two
    vertices differently.  The cutoff can lie between the rounded lengths only if it is a multiple of the unit.

    Args:
        graph: the graph.
        cutoff: the cutoff.
        per: how many units make 1; 0 if the weights are multiples of no unit.
    """
    if per % 10 or not per:
        return False
    return (Fraction(repr(float(cutoff))) * per).denominator == 1 and bool((graph.weights == 0).any())


def _why_unfit(graph: Graph, dtype: str, per: int) -> str:
    """Return why distances of a type do not tell the paths of a graph; empty if they do, or if no type is asked for.

    ``per`` is that of :func:`units_searched`.
    """
    if dtype == "float32" and not per:
        return "sums along paths need distances without rounding, and dtype float32 was asked for"
    if not graph.integral and dtype not in ("auto", "float32", "float64"):
        return f"dtype {dtype} cannot be used: the weights are not whole numbers"
    if dtype == "float64" and graph.integral and not adds_whole(graph):
        return "sums along paths need distances without rounding, and float64 would round these: leave out the dtype"
    return ""


def units_searched(graph: Graph, cutoff: float | None, found: Checkpoint | None) -> int:
    """Return how many units make 1 if rows are searched in whole units (``engine.rows.sums.units_counted``), else 0.

    Earlier versions compared rounded lengths with the cutoff, so they may have left out lengths that equal it on paper.
    A solve that goes on with their rows does the same, so that all rows of a matrix keep one rule.

    Args:
        graph: the graph, with the quantities.
        cutoff: the cutoff that was asked for; None for no limit.
        found: the checkpoint from which the solve would resume; None if there is none.

    Raises:
        InvalidRequest: some arcs are negative fractions.
    """
    rounded = found is not None and found.identity["type"] == "float64" and "per" not in found.record
    return 0 if rounded and cutoff is not None else units_counted(graph)


def searched_options(graph: Graph, options: Options, types: Mapping[str, WorkType], per: int) -> Options:
    """Return the options of a solve that comes first: its distances show along which paths quantities are summed.

    That solve finds distances to all vertices, on processors, in a type and by an algorithm whose rounding does not
    hide the paths.  If fractions are searched in whole units, the options are for a graph with these whole numbers as
    weights.

    Args:
        graph: the graph, with the quantities.
        options: what was asked.
        types: the type of the sums of each quantity.
        per: how many units make 1 (:func:`units_searched`); 0 if weights are searched as they are.

    Raises:
        InvalidRequest: sums along paths and another option exclude each other; the message says why.
        DoesNotFit: the sums alone take more memory than there is.
    """
    found = exactness(graph)
    unfit = _why_unfit(graph, options.dtype, per)
    for wrong, field, why in (
        (len(set(options.also)) < len(options.also), "also", "a quantity is named twice"),
        (options.device == "cuda", "device", "sums along paths are made by processors, and device cuda was asked for"),
        (options.executor != "local", "executor", f"this process sums along paths, not executor {options.executor}"),
        (options.max_hops is not None, "max_hops", "sums along paths of at most K arcs are not made: the rows of "
         "such paths do not say which paths they are"),
        (options.cutoff is not None and bool((graph.weights < 0).any()), "cutoff",
         "with negative arcs a path within the cutoff may pass through vertices beyond it, so nothing is summed"),
        (bool(unfit), "dtype", unfit),
        (found.rounded and not per and options.algorithm not in ("auto", "dijkstra"), "algorithm",
         f"the weights are no multiples of a decimal unit, so only dijkstra finds distances that tell the paths, and "
         f"{options.algorithm} was asked for"),
    ):  # fmt: skip
        if wrong:
            raise InvalidRequest(why, field=field)
    if options.cutoff is not None and not per and _cuts_ties(graph, options.cutoff, found.per):
        between = limit_on_paper(options.cutoff, graph.weights, graph.n)
        raise InvalidRequest(
            f"float64 rounds lengths that equal the cutoff, {options.cutoff:g}, to either side of it, and arcs of "
            f"length 0 join vertices there: give a cutoff between two lengths, such as {between:g}",
            field="cutoff",
        )
    machine = survey(memory=options.memory, threads=options.threads)
    needed = sum_memory(graph, options, 1, types)
    if needed >= machine.memory:
        raise DoesNotFit(
            f"sums of {len(options.also)} quantities along the paths need {needed} bytes of memory, and "
            f"{machine.memory} may be used; ask for fewer quantities",
            resource="memory",
            needed=needed,
            available=machine.memory,
        )
    inner = replace(options, targets=None, device="cpu")
    if per:
        return replace(inner, dtype="auto", cutoff=cutoff_in_units(options.cutoff, per))
    kind = options.dtype if graph.integral else "float64"
    return replace(inner, dtype=kind, algorithm="dijkstra" if found.rounded else options.algorithm)


def searched_in_units(plan: Plan, per: int, stored: tuple[WorkType, str], cutoff: float | None) -> Plan:
    """Return a plan for fractions, made from a plan for the same weights in whole units.

    Args:
        plan: the plan for the whole numbers, whose type its rows are searched in.
        per: how many units make 1.
        stored: the type of the distances in the store, and why it is safe.
        cutoff: the cutoff that was asked for.
    """
    kind, reason = stored
    why = f"{reason}; rows are searched in {plan.dtype} as multiples of {1 / per:g}, so that they tell the paths"
    return replace(plan, dtype=kind.name, dtype_reason=why, cutoff=cutoff, counted=(plan.dtype, per))


def with_sums(plan: Plan, graph: Graph, options: Options, types: Mapping[str, WorkType]) -> Plan:
    """Return the plan of the rows, increased by the time of the sums, and with the shape of the result.

    Args:
        plan: made from the options of :func:`searched_options`; its memory already includes the memory of the sums.
        graph: the graph, with the quantities.
        options: what was asked.
        types: the type of the sums of each quantity.

    Raises:
        InvalidRequest: the plan has the type float64, which would round the sum of two of the whole weights.
    """
    if graph.integral and plan.dtype == "float64" and graph.arcs and 2 * int(graph.weights.max()) > 2**53:
        raise InvalidRequest(
            "sums along paths need distances without rounding, and float64 would round these, which int32 does not "
            "hold: give the weights in a larger unit",
            field="also",
        )
    shape = _shape(graph, options)
    rows, columns = shape
    tree, entry = WALK_SECONDS, ENTRY_SECONDS
    if sums_side_by_side(graph):
        tree, entry = (HOP_SECONDS, HOP_SUM_SECONDS) if counts_hops(graph) else (TREE_SECONDS, SUM_SECONDS)
    work = rows * ((graph.n + graph.arcs) * tree + len(options.also) * columns * entry)
    phase = Phase("sum", work / plan.threads, bytes=sum_bytes(graph, options, plan.dtype, types))
    sums = ", ".join(f"{name} ({kind.name})" for name, kind in types.items())
    more = f"; then {sums} along the paths, {about_seconds(phase.seconds)}"
    return replace(
        plan,
        shape=shape,
        seconds=plan.seconds + phase.seconds,
        phases=(*plan.phases, phase),
        reason=plan.reason + more,
        sums=(*_uses(graph, rows), *([] if plan.counted is None else [FLOATS])),
        device_reason="the CPU, which alone sums along paths",
    )
