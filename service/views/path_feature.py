"""A shortest path as a feature of GeoJSON (RFC 7946): a line through the vertices that have coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from storage.errors import Conflict

if TYPE_CHECKING:
    from service.jobs.results import Label, ResultReader

#: The formats in which a path is answered.
PATH_TYPES: Final = {"json": "application/json", "geojson": "application/geo+json"}
#: Decimal digits of degrees: a unit of the last digit is about a centimetre.
_DECIMALS: Final = 7


def path_feature(opened: ResultReader, source: Label, target: Label, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shortest path as a feature; its geometry is None without a path, or if too few vertices have
    coordinates.

    Args:
        opened: the open result.
        source, target: vertices as the file names them.
        told: further properties, such as facts about points that were snapped to vertices.

    Raises:
        Conflict: the graph has no longitudes and latitudes.
        NotFound: there is no such vertex.
    """
    _check(opened)
    found = opened.path(source, target)
    names = found["vertices"]
    placed, vertices = opened.matrix.coordinates, opened.vertices(names)
    there = placed.there[vertices]
    line = [
        [round(float(placed.x[vertex]), _DECIMALS), round(float(placed.y[vertex]), _DECIMALS)]
        for vertex in vertices[there].tolist()
    ]
    if len(names) == 1:  # GeoJSON asks for at least two positions in a line
        line *= 2
    properties = {
        "source": found["source"], "target": found["target"], "distance": found["length"], "unit": opened.unit,
        "vertices": names, **told,
    }  # fmt: skip
    if not there.all():
        properties["without_coordinates"] = [names[k] for k in (~there).nonzero()[0].tolist()]
    geometry = {"type": "LineString", "coordinates": line} if len(line) > 1 else None
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def _check(opened: ResultReader) -> None:
    if opened.lines:
        return
    if opened.matrix.placed:
        raise Conflict(
            "GeoJSON holds longitude and latitude, and the coordinates of this graph are those of a plane, so its "
            "paths are no lines of GeoJSON; ask for format=json"
        )
    raise Conflict(
        "this graph has no coordinates, so its paths are no lines of GeoJSON; ask for format=json, or upload the graph "
        "in a format that has them (GraphML of OSMnx, OpenStreetMap), and solve it again"
    )
