"""All-pairs shortest paths of graphs larger than memory: the interface for Python programs.

>>> import apsp
>>> graph, receipt = apsp.read_graph("examples/helsinki_drive.csv")
>>> outcome = apsp.solve_to_store(graph, "helsinki.zarr")
>>> with apsp.open("helsinki.zarr") as matrix:
...     u, v = matrix.vertex(1483296617), matrix.vertex(760466577)
...     print(matrix.entries([u], [v]))
[113.722]

Graphs come from files (``read_graph``) or arrays (``build_graph``).

- ``plan`` predicts memory, disk and time of a solve; ``warm`` compiles the code for which the first solve on a machine
  would otherwise wait.
- ``solve`` returns the matrix as an array.  ``solve_to_store`` writes a store, which ``open`` reads and ``verify``
  checks.  ``solve_many`` solves many graphs in one call.
- ``prepare`` makes a prepared graph: tables of about the size of the graph, which answer the same questions as a store.
  ``reweight`` gives a prepared graph new weights.
- ``near_pairs`` finds the distances up to a cutoff.  ``measure`` reduces every row to closeness, eccentricity, sums of
  opportunities and other measures, without the matrix.
- ``betweenness`` counts the shortest paths through vertices and arcs; ``assign`` puts demands on shortest paths.
- ``csgraph`` has the functions of ``scipy.sparse.csgraph``, ``Client`` and ``AsyncClient`` send requests to a service,
  and ``errors`` has the exceptions.

Everything is imported when it is first used; ``import apsp`` itself takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from apsp import csgraph as csgraph
    from apsp import errors as errors
    from engine.api.betweenness.assignment import Assignment as Assignment
    from engine.api.betweenness.assignment import assign as assign
    from engine.api.betweenness.centrality import BetweennessTable as BetweennessTable
    from engine.api.betweenness.centrality import betweenness as betweenness
    from engine.api.from_tables.reweighting import reweight as reweight
    from engine.api.in_memory import solve as solve
    from engine.api.many import solve_many as solve_many
    from engine.api.measuring import MeasureTable as MeasureTable
    from engine.api.measuring import measure as measure
    from engine.api.near import near_pairs as near_pairs
    from engine.api.prepared import prepare as prepare
    from engine.api.prepared_matrix import PreparedMatrix as PreparedMatrix
    from engine.api.prepared_matrix import open_result as open  # noqa: A004 - the word that people look for
    from engine.api.routes import Router as Router
    from engine.api.solve import Outcome as Outcome
    from engine.api.verify import verify_store as verify
    from engine.api.warming import warm as warm
    from engine.model.plan import Plan as Plan
    from engine.model.problem import Options as Options
    from engine.model.progress import Monitor as Monitor
    from service.client import AsyncClient as AsyncClient
    from service.client import Client as Client
    from storage.geography.coordinates import Coordinates as Coordinates
    from storage.geography.snapping import nearest_vertices as nearest_vertices
    from storage.graph.demand_table import Demands as Demands
    from storage.graph.demand_table import read_demands as read_demands
    from storage.graph.graph import Graph as Graph
    from storage.graph.graph import build_graph as build_graph
    from storage.matrix.reader import Matrix as Matrix
    from storage.pairs.near_pairs import NearPairs as NearPairs
    from storage.pairs.saving import save_pairs as save_pairs
    from storage.readers import ReadLimits as ReadLimits
    from storage.readers import read_graph as read_graph

    __version__: str

__all__ = [
    "Assignment",
    "AsyncClient",
    "BetweennessTable",
    "Client",
    "Coordinates",
    "Demands",
    "Graph",
    "Matrix",
    "MeasureTable",
    "Monitor",
    "NearPairs",
    "Options",
    "Outcome",
    "Plan",
    "PreparedMatrix",
    "ReadLimits",
    "Router",
    "__version__",
    "assign",
    "betweenness",
    "build_graph",
    "csgraph",
    "errors",
    "measure",
    "near_pairs",
    "nearest_vertices",
    "open",
    "plan",
    "prepare",
    "read_demands",
    "read_graph",
    "reweight",
    "save_pairs",
    "solve",
    "solve_many",
    "solve_to_store",
    "verify",
    "warm",
]

#: Maps each public name to the module that defines it; if the module uses another name, a colon and that name follow.
_HOMES = {
    "Assignment": "engine.api.betweenness.assignment",
    "AsyncClient": "service.client",
    "BetweennessTable": "engine.api.betweenness.centrality",
    "Client": "service.client",
    "Coordinates": "storage.geography.coordinates",
    "Demands": "storage.graph.demand_table",
    "Graph": "storage.graph.graph",
    "Matrix": "storage.matrix.reader",
    "MeasureTable": "engine.api.measuring",
    "Monitor": "engine.model.progress",
    "NearPairs": "storage.pairs.near_pairs",
    "Options": "engine.model.problem",
    "Outcome": "engine.api.solve",
    "Plan": "engine.model.plan",
    "ReadLimits": "storage.readers",
    "Router": "engine.api.routes",
    "assign": "engine.api.betweenness.assignment",
    "betweenness": "engine.api.betweenness.centrality",
    "build_graph": "storage.graph.graph",
    "PreparedMatrix": "engine.api.prepared_matrix",
    "measure": "engine.api.measuring",
    "near_pairs": "engine.api.near",
    "nearest_vertices": "storage.geography.snapping",
    "open": "engine.api.prepared_matrix:open_result",
    "prepare": "engine.api.prepared",
    "read_demands": "storage.graph.demand_table",
    "read_graph": "storage.readers",
    "reweight": "engine.api.from_tables.reweighting",
    "save_pairs": "storage.pairs.saving",
    "solve": "engine.api.in_memory",
    "solve_many": "engine.api.many",
    "verify": "engine.api.verify:verify_store",
    "warm": "engine.api.warming",
}


def __getattr__(name: str) -> object:
    """Import the attribute ``name`` on its first use; from then on it is an ordinary attribute."""
    found: object
    if name in _HOMES:
        module, _, called = _HOMES[name].partition(":")
        found = getattr(import_module(module), called or name)
    elif name in ("csgraph", "errors"):
        found = import_module(f"apsp.{name}")
    elif name == "__version__":
        from storage.version import VERSION

        found = VERSION
    else:
        raise AttributeError(f"module 'apsp' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


def plan(graph: Graph, options: Options | None = None, *, out: str | PathLike[str] | None = None) -> Plan:
    """Return what a solve would do, and the memory, disk and time that it would take; nothing is solved.

    Args:
        graph: as from ``read_graph`` or ``build_graph``.
        options: the options of the solve; None for all distances, with all that this machine has.
        out: the folder of the store, whose disk must have enough free space; None for a matrix that stays in memory.

    Returns:
        The plan: algorithm, type, bytes of memory and disk, seconds, the reason, and what was rejected and why.

    Raises:
        DoesNotFit: memory or disk is too small; the error names the least that any algorithm needs.
        InvalidRequest: the options contradict each other or the graph.
        NegativeCycle: the graph has a cycle of negative length, which the error names.
    """
    from pathlib import Path

    from engine.api.solve import make_plan
    from engine.model.problem import given_options
    from storage.arguments import check_paths
    from storage.errors import InvalidRequest
    from storage.remote.objects import is_address

    check_paths(out=out)
    if is_address(out):
        raise InvalidRequest(f"out: {out} is no folder; name the one that would be worked in", field="out")
    return make_plan(graph, given_options(options), out=None if out is None else Path(out))


def solve_to_store(
    graph: Graph,
    out: str | PathLike[str],
    options: Options | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    compression: str = "none",
    monitor: Monitor | None = None,
    work: str | PathLike[str] | None = None,
) -> Outcome:
    """Plan, solve into a new store and seal it; a long solve that fails or is stopped leaves a checkpoint.

    Args:
        graph: as from ``read_graph`` or ``build_graph``.
        out: the folder of the new store, or an address in an object store (``s3://BUCKET/PREFIX``).
        options: the options of the solve; None for all distances, with all that this machine has.
        overwrite: replace a store at ``out`` once the new one is done, and a checkpoint that cannot be resumed.
        resume: go on from the checkpoint of the same matrix, if there is one.
        compression: how tiles are compressed: ``none`` or ``zstd``.
        monitor: receives the progress, and can stop the solve.
        work: the working folder if ``out`` is an address; None for a folder in the user's cache.

    Returns:
        The plan that was followed, the seconds of each phase, and a summary of the distances.

    Raises:
        Conflict: there is a store or a checkpoint at ``out``, and neither ``overwrite`` nor ``resume`` is set; or the
            checkpoint is of another solve.
        Cancelled: the monitor has stopped the solve; a checkpoint is kept if much was done.
        StorageFailed: the disk or the object store has failed.
        DoesNotFit, InvalidRequest, NegativeCycle: as in ``plan``.
    """
    from pathlib import Path

    from engine.api.solve import solve_to_store
    from engine.model.problem import given_options
    from storage.arguments import check_choice, check_flags, check_given_paths, check_paths
    from storage.matrix.format import COMPRESSIONS
    from storage.remote.objects import is_address
    from storage.remote.places import place_of

    options = given_options(options)
    check_flags(overwrite=overwrite, resume=resume)
    check_choice("compression", compression, COMPRESSIONS)
    check_given_paths(out=out)
    check_paths(work=work)
    place, address = Path(out), None
    if work is not None or is_address(out):
        folder = None if work is None else Path(work)
        place, address = place_of(str(out), folder, overwrite=overwrite, resume=resume)
    return solve_to_store(
        graph,
        options,
        place,
        overwrite=overwrite,
        resume=resume,
        compression=compression,
        monitor=monitor,
        address=address,
    )
