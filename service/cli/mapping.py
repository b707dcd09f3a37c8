"""``apsp plot --map``: the network drawn from its coordinates, coloured by the distance from a vertex."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from service.cli.arguments import MapOptions
from service.cli.commands.output import emit, emit_json
from service.cli.commands.querying import at_points, store_folder
from service.jobs.results import ResultReader
from service.name_lists import split_names
from service.views.pictures.layout import MOST
from service.views.pictures.network_map import SCHEMES, NetworkMap, draw_map
from storage.counted import counted
from storage.errors import InvalidRequest
from storage.number_texts import decimal_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_map(given: MapOptions) -> None:
    """Refuse options of maps without ``--map``, and a map without a vertex to start from.  Raises InvalidRequest."""
    words = {"source": "--from", "target": "--to", "classes": "--classes", "points": "--points", "dark": "--dark"}
    said = [word for name, word in words.items() if given.get(name)]
    if not given["map"] and said:
        raise InvalidRequest(f"{said[0]} is for maps: say --map, too", field="map")
    if given["map"] and given["source"] is None:
        raise InvalidRequest("--map draws the distances from a vertex: name it with --from VERTEX", field="from")


def map_figure(store: str, given: MapOptions, *, as_json: bool, out: Path) -> Figure:
    """Return the picture of a map, and print what it shows.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph.
        given: what is drawn, checked by :func:`check_map`.
        as_json: whether to print one JSON object instead of text.
        out: the file of the picture.

    Raises:
        InvalidRequest: the graph has no coordinates and none can be computed for it, or the classes do not ascend.
        NotFound: no such store or vertex.
        StorageFailed: the store is damaged.
    """
    from engine.api.prepared_matrix import open_result

    classes = _classes(given["classes"])
    result = ResultReader(open_result(store_folder(store)))
    matrix = result.matrix
    placed = result.places
    if placed is None:
        raise InvalidRequest(
            f"{store} has no coordinates: give them with --nodes TABLE when the graph is solved or prepared; without "
            f"them, places are found for graphs of up to {MOST:,} vertices that have arcs only",
            field="map",
        )
    asked = [str(name) for name in (given["source"], given["target"]) if name is not None]
    names = at_points(result, given["points"] or [], asked) if given["points"] else asked
    source = int(matrix.vertex(names[0]))
    for name in names:
        if np.isnan(placed.x[matrix.vertex(name)]):
            raise InvalidRequest(f"vertex {name} has no coordinates", field="map")
    distances = _distances(matrix, source)
    path = result.path(names[0], names[1]) if len(names) > 1 else None
    route = [int(matrix.vertex(name)) for name in path["vertices"]] if path else []
    network = NetworkMap(
        graph=matrix.graph(),
        coordinates=placed,
        distances=distances,
        source=source,
        title=_title(asked, path, matrix.measured),
        subtitle=_subtitle(matrix, distances),
        route=[vertex for vertex in route if not np.isnan(placed.x[vertex])],
        ends=asked,
        classes=classes,
        unit=matrix.measured or None,
        dots=result.laid_out,
    )
    figure = draw_map(network, SCHEMES["dark" if given["dark"] else "light"])
    if result.laid_out:
        print("note: the graph has no coordinates, so short distances are drawn short; directions mean nothing",
              file=sys.stderr)  # fmt: skip
    if path is not None and not path["reachable"]:
        print(f"note: there is no path from {asked[0]} to {asked[1]}", file=sys.stderr)
    reached = int(np.count_nonzero(~np.isnan(distances)))
    if as_json:
        facts: dict[str, Any] = {"picture": str(out), "source": result.label(source), "unit": matrix.unit}
        emit_json({**facts, "reached": reached, "vertices": matrix.n, "length": path["length"] if path else None})
    else:
        emit(f"{out}: a map of {reached:,} of {counted(matrix.n, 'vertices')}, reached from {asked[0]}")
    return figure


def _classes(text: str | None) -> list[float]:
    """Return the distances that bound the isochrones; an empty list if there are none."""
    if text is None:
        return []
    try:
        bounds = [decimal_number(part) for part in split_names([text], "classes")]
    except ValueError:
        bounds = [float("nan")]
    if not all(np.isfinite(bounds)) or any(b <= a for a, b in zip([0.0, *bounds], bounds, strict=False)):
        raise InvalidRequest(f"--classes takes ascending distances above 0, such as 5,10,15; found {text!r}",
                             field="classes")  # fmt: skip
    return bounds


def _distances(matrix: Any, source: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the distance to each vertex; NaN if there is no path, or the vertex is no target of the matrix."""
    row = matrix.row(source)
    found = np.full(matrix.n, np.nan)
    found[matrix.targets] = np.where(np.equal(row, matrix.unreachable), np.nan, row.astype(np.float64))
    return found


def _title(asked: list[str], path: dict[str, Any] | None, unit: str | None) -> str:
    if path is None:
        return f"Distances from {asked[0]}"
    if not path["reachable"]:
        return f"Distances from {asked[0]}: no path to {asked[1]}"
    return f"{asked[0]} to {asked[1]}: {_rounded(path['length'])}{f' {unit}' if unit else ''}"


def _rounded(distance: float) -> str:
    """Return a distance as text for people: whole from 1,000 on, else with four digits."""
    return f"{distance:,.0f}" if abs(distance) >= 1000 else f"{distance:.4g}"


def _subtitle(matrix: Any, distances: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    reached = int(np.count_nonzero(~np.isnan(distances)))
    unit = f" {matrix.measured}" if matrix.measured else ""
    farthest = f"; the farthest is {_rounded(float(np.nanmax(distances)))}{unit} away" if reached > 1 else ""
    return f"{Path(str(matrix.path)).name}: {reached:,} of {counted(matrix.n, 'vertices')} reached{farthest}"
