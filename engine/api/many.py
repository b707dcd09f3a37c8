"""Solves many graphs in one call: a simple interface to ``engine.api.bulk`` for graphs that are all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from engine.api.bulk import BulkResult, Entry, make_bulk_plan, run
from engine.api.solve import StoreOptions
from engine.graph.profile import GraphProfile
from engine.model.problem import Options, given_options
from engine.model.progress import Monitor
from storage.arguments import check_choice, check_flags, check_paths, shown
from storage.errors import InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.format import COMPRESSIONS
from storage.remote.objects import is_address


def solve_many(
    graphs: Sequence[Graph],
    options: Options | None = None,
    *,
    out: Sequence[str | PathLike[str]] | None = None,
    overwrite: bool = False,
    compression: str = "none",
    monitor: Monitor | None = None,
) -> list[BulkResult]:
    """Solve many graphs; small graphs are solved at the same time.  A graph that fails does not affect the others.

    Args:
        graphs: each as from ``read_graph`` or ``build_graph``.
        options: the options of every graph; ``sources``, ``targets``, ``cutoff`` and workers are refused.
        out: the folder of each graph's store, in the order of the graphs; None for only summaries.
        overwrite: whether to replace existing stores.
        compression: the compression of tiles, ``none`` or ``zstd``.
        monitor: receives the number of finished graphs, and is asked whether to stop.

    Returns:
        For each graph, in order, its plan and the summary of its distances, or its ``failure``: kind and message.

    Raises:
        InvalidRequest: the options suit no graph, or ``out`` does not name one folder for each graph.
        Cancelled: the monitor asked to stop; sealed stores remain.
    """
    options, graphs = given_options(options), _listed(graphs)
    check_flags(overwrite=overwrite)
    check_choice("compression", compression, COMPRESSIONS)
    targets = _targets(len(graphs), out)
    entries = {i: Entry(graph, target) for i, (graph, target) in enumerate(zip(graphs, targets, strict=True))}
    folder = targets[0].parent if targets and targets[0] is not None else None
    plan = make_bulk_plan(dict(enumerate(graphs)), options, stores=folder is not None, out=folder)
    found = run(entries, plan, options, StoreOptions(compression=compression, overwrite=overwrite), monitor)
    return sorted(found, key=lambda result: result.index)


def _listed(graphs: Sequence[Graph]) -> list[Graph]:
    """Return the graphs as a list; raise InvalidRequest if something in it is not a graph."""
    if not isinstance(graphs, Sequence):
        raise InvalidRequest(f"graphs must be a list of graphs, found {shown(graphs)}", field="graphs")
    return [GraphProfile.of(graph).graph for graph in graphs]


def _targets(count: int, out: Sequence[str | PathLike[str]] | None) -> list[Path] | list[None]:
    """Return the folder of each store; raise InvalidRequest if ``out`` does not name one folder for each graph."""
    if out is None:
        return [None] * count
    if not isinstance(out, Sequence | PathLike):
        raise InvalidRequest(f"out must be a list of folders, found {shown(out)}", field="out")
    if isinstance(out, str | PathLike) or len(out) != count:
        found = f"the one place {out}" if isinstance(out, str | PathLike) else f"{len(out):,} places"
        raise InvalidRequest(f"out names a folder for each of {count:,} graphs; found {found}", field="out")
    targets: dict[Path, None] = {}
    for place in out:
        if place is None:
            raise InvalidRequest("out names a folder for each graph, and one is None", field="out")
        check_paths(out=place)
        path = Path(place).resolve()
        if is_address(place):
            raise InvalidRequest(f"out: {place} is no folder; stores of many graphs are made on a disk", field="out")
        if path in targets:
            raise InvalidRequest(f"out names {place} twice; each store needs a folder of its own", field="out")
        targets[path] = None
    return list(targets)
