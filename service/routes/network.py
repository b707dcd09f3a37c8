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

    Four bytes are the length of a JSON object (little-endian uint32). The object follows; its members are `vertices`
    and `edges` (how many), `labels` (of all vertices), `system` (`lonlat`, `plane`, or `layout`: places that were found
    for a graph of at most 1,000 vertices without coordinates), `origin`, `directed`, `unit`, `sources` and `targets`
    (how many, null for all vertices). Then arrays without gaps, little-endian: `x` and `y`
    (float32, relative to `origin`, NaN for a vertex without coordinates; metres of a plane that touches the Earth in
    the middle of the network if the system is `lonlat`), `edges` (int32, the two ends of each, as positions in
    `labels`), `sources` and `targets` (int32, in the order of rows and columns, absent where null).
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
