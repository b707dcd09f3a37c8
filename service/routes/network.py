"""The route that returns the network of a result for drawing: positions of vertices in a plane, and edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Depends
from starlette.responses import Response

from service.api.problems import documented
from service.http.etags import Tagged
from service.http.parameters import known_parameters
from service.settings import variable
from service.state import Opened, ReadPermit, Shared
from storage.errors import Conflict, LimitExceeded

if TYPE_CHECKING:
    from service.jobs.results import ResultReader

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)])

BINARY: Final = "application/octet-stream"
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The network", "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "The client has the answer"},
    **documented(404, 409, 410, 413, 507),
}


@router.get("/network", response_class=Response, responses=_ANSWERS)
def get_network(*, job_id: str, service: Shared, opened: Opened, tagged: Tagged, _permit: ReadPermit) -> Response:
    """The network in a plane, for maps: where the vertices are, and which of them an edge joins.

    The answer begins with the length of a JSON object in bytes, a little-endian uint32.  The JSON object follows, and
    then the arrays, little-endian and without gaps.

    Members of the object: `vertices` and `edges` are the numbers of both; `labels` are those of all vertices; `system`
    is `lonlat`, `plane`, or `layout` (places that were computed for a graph of at most 1,000 vertices without
    coordinates); `origin` is the point that coordinates are relative to; `directed` and `unit` are those of the graph;
    `sources` and `targets` are the numbers of rows and columns, null if they are all vertices.

    Arrays, in this order: `x` of all vertices, and then `y` of all (float32, NaN for a vertex without coordinates; if
    the system is `lonlat`, metres in a plane that touches the Earth in the middle of the network); the two ends of each
    edge (int32, positions in `labels`); the vertices of the rows, and then those of the columns (int32), each only if
    its number is not null.
    """
    from storage.geography.plane import packed_network

    matrix = opened.matrix
    _check_size(matrix, service.settings.max_cells)
    placed = opened.places
    if placed is None:
        from service.views.pictures.layout import MOST

        raise Conflict(
            f"the graph of job {job_id} has no coordinates, and places are found for graphs of up to {MOST:,} vertices "
            "that have arcs only, so there is no map of it; upload it in a format that has coordinates (GraphML of "
            "OSMnx, OpenStreetMap), and solve it again"
        )
    body = packed_network(matrix.graph(), placed, _about(opened))
    return Response(body, headers=tagged, media_type=BINARY)


def _check_size(matrix: Any, limit: int) -> None:
    """Refuse a network of too many numbers before any of them is read.  Raises LimitExceeded."""
    numbers = 2 * matrix.n + matrix.arcs
    if numbers > limit:
        raise LimitExceeded(
            f"the network has {matrix.n} vertices and {matrix.arcs} arcs: two numbers for each vertex and one for each "
            f"arc make {numbers}, at most {limit} go in one answer; apsp plot --map draws any network",
            limit=limit, requested=numbers, setting=variable("max_cells"),
        )  # fmt: skip


def _about(opened: ResultReader) -> dict[str, Any]:
    """Return the members of the answer other than vertices and edges."""
    matrix = opened.matrix
    selected = {
        name: None if matrix.attributes.get(name, "all") == "all" else getattr(matrix, name)
        for name in ("sources", "targets")
    }
    from service.views.pictures.layout import LAYOUT  # imported late: it loads NumPy, which would slow down the start

    laid_out = {"system": LAYOUT} if opened.laid_out else {}
    return {**laid_out, "directed": matrix.directed, "unit": opened.unit, **selected}
