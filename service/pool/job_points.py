"""Snaps the points in a job's request to vertices, describes them in the receipt, and writes them into tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.counted import counted
from storage.errors import InvalidRequest, LimitExceeded

if TYPE_CHECKING:
    import polars as pl

    from service.settings import Settings
    from service.views.features import Ends
    from storage.geography.snapping import SnappedPoints
    from storage.graph.graph import Graph
    from storage.pairs.near_pairs import NearPairs

SIDES: Final = ("sources", "targets")


def sides_with_points(options: Mapping[str, Any]) -> list[str]:
    """Return which of ``sources`` and ``targets`` are points; raise InvalidRequest if one list has both kinds."""
    found = []
    for side in SIDES:
        asked = options.get(side) or ()
        points = sum(isinstance(one, Mapping) for one in asked)
        if points and points < len(asked):
            given = f"{counted(points, 'points')} and {counted(len(asked) - points, 'vertices')}"
            message = f"{side}: {given} are given; all must be the one"
            raise InvalidRequest(f"{message}, or all the other", field=side)
        if points:
            found.append(side)
    if not found and options.get("snap_limit") is not None:
        message = f"snap_limit {options['snap_limit']:g} is for points, and neither sources nor targets are points"
        raise InvalidRequest(message, field="snap_limit")
    return found


def take_points(settings: Settings, graph_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a job with vertices in place of points, and the points in the member ``points``.

    Args:
        settings: the service's settings.
        graph_id: id of the graph.
        options: options of a request, whose ``sources``, ``targets`` or both are points.

    Raises:
        InvalidRequest: ``service.jobs.points.snap_points`` refuses the points, or one list has points and vertices.
        LimitExceeded: there are more points than the graph has vertices.
    """
    from storage.graph.graph_store import GraphStore

    graph, _ = GraphStore(settings.data_dir, settings.store_url).load(graph_id)
    return taken(graph, options)


def taken(graph: Graph, options: dict[str, Any]) -> dict[str, Any]:
    """Return what :func:`take_points` returns, for a graph that has been loaded already."""
    from service.jobs.points import snap_points, told_points
    from service.jobs.results import plain_label
    from storage.geography.snapping import VertexFinder

    found = {name: value for name, value in options.items() if name != "snap_limit"}
    finder = None if graph.coordinates is None else VertexFinder(graph.coordinates)
    receipts = {}
    for side in sides_with_points(options):
        points = options[side]
        if len(points) > graph.n:
            message = f"{len(points)} {side} are given as points, and the graph has {graph.n} vertices"
            raise LimitExceeded(message, limit=graph.n, requested=len(points), setting=side)
        snapped = snap_points(points, finder, side, options.get("snap_limit"), keyed=True)
        receipts[side] = told_points(points, snapped, lambda vertex: plain_label(graph.labels[vertex]))
        found[side] = list(dict.fromkeys(one["vertex"] for one in receipts[side]))
    return {**found, "points": receipts}


def lines_between_points(
    pairs: NearPairs, graph: Graph, options: Mapping[str, Any], targets: tuple[int, ...] | None
) -> tuple[int, Iterator[pl.DataFrame]]:
    """Return the table of near pairs of a job with points: a line for each pair of points, as ``apsp near`` writes it.

    Args:
        pairs: the near pairs of vertices.
        graph: the graph.
        options: options of the job, with the member ``points``.
        targets: the target vertices that the job asks for; None for all.

    Returns:
        The number of lines of the table, and the table in pieces, of which there is at least one.
    """
    import numpy as np

    from service.views.features import Ends
    from service.views.near_points import NearLines

    points = options["points"]

    def ends(side: str, vertices: Any) -> Ends:
        if side in points:
            return Ends.of_points(restored(points[side], graph, side))
        return Ends.of_vertices(vertices, graph.labels, graph.coordinates)

    lines = NearLines(pairs, ends("sources", pairs.sources), ends("targets", np.arange(graph.n)), targets)
    return lines.count(points=True), (piece.table() for piece in lines.pieces(points=True))


def source_ids(options: Mapping[str, Any]) -> Any:
    """Return the ids of the points that a job has as its sources, an array of strings; None if these are vertices.

    Args:
        options: options of the job, see :func:`taken`.
    """
    import numpy as np

    from service.jobs.points import point_table
    from storage.geography.snapping import ids_and_names

    told = (options.get("points") or {}).get("sources")
    if not told:
        return None
    ids, _ = ids_and_names(point_table(told, "sources", keyed=True), "sources")
    return np.array([str(one) for one in ids], np.dtypes.StringDType())


def restored(told: list[dict[str, Any]], graph: Graph, side: str) -> SnappedPoints:
    """Return the points of one side with their vertices, rebuilt from the facts that are stored with the job.

    Args:
        told: the facts about the points of one side, as :func:`taken` returns them.
        graph: the graph.
        side: ``sources`` or ``targets``.
    """
    import numpy as np

    from service.jobs.points import point_table
    from storage.geography.snapping import SnappedPoints, ids_and_names
    from storage.graph.graph import index_of

    table = point_table(told, side, keyed=True)
    ids, names = ids_and_names(table, side)
    vertices = np.array([index_of(graph, one["vertex"]) for one in told], np.int64)
    distances = np.array([one["snap"] for one in told], np.float64)
    return SnappedPoints(Path(side), ids, names, table.x, table.y, vertices, distances, "lon" in told[0])


def receipt_of(points: Mapping[str, list[dict[str, Any]]] | None) -> dict[str, Any] | None:
    """Return facts about a job's points: for each side, how many points, how many vertices, and the largest distance.

    Args:
        points: the member ``points`` of the options that :func:`taken` returns; None if the request has no points.
    """
    if not points:
        return None
    return {
        side: {
            "count": len(told),
            "vertices": len({one["vertex"] for one in told}),
            "farthest": max(one["snap"] for one in told),
            "unit": "m" if "lon" in told[0] else None,
            "far": [one for one in told if one["far"]],
            "points": told,
        }
        for side, told in points.items()
    }
