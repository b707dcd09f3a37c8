"""Results: summary, distances, rows, routes."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response, StreamingResponse

from service.formats import MEDIA_TYPES, choose_format
from service.names import split_names
from service.parameters import known_parameters
from service.problems import documented
from service.schemas import Distance, Distances, PairsRequest, Path, Summary
from service.settings import variable
from service.state import Shared
from storage.errors import InvalidRequest, LimitExceeded

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)])

Vertex = Annotated[str, Query(description="A vertex as the file names it.", examples=["17"])]
Vertices = Annotated[
    list[str] | None,
    Query(description='Vertices, separated by commas or repeated; quote (") names that hold a comma.'),
]


@router.get("/summary", response_model=Summary, responses=documented(404, 409))
def get_summary(job_id: str, service: Shared) -> Summary:
    """Pairs, mean, diameter, radius, histogram."""
    matrix = service.result(job_id).matrix
    unit = str(matrix.attributes.get("unit"))
    return Summary(
        job=job_id, shape=matrix.shape, dtype=matrix.dtype.name, directed=matrix.directed, unit=unit,
        summary=matrix.summary,
    )  # fmt: skip


@router.get("/distance", response_model=Distance, responses=documented(404, 409))
def get_distance(job_id: str, source: Vertex, target: Vertex, service: Shared) -> Distance:
    """The distance from one vertex to another."""
    return Distance(**service.result(job_id).distance(source, target))


@router.post("/distances", response_model=Distances, responses=documented(404, 409, 413))
def get_distances(job_id: str, body: PairsRequest, service: Shared) -> Distances:
    """The distances of many pairs."""
    limit = service.settings.max_pairs
    if len(body.pairs) > limit:
        message = f"{len(body.pairs)} pairs are asked for, at most {limit} go in one request"
        raise LimitExceeded(message, limit=limit, requested=len(body.pairs), setting=variable("max_pairs"))
    return Distances(distances=service.result(job_id).distances(body.pairs))


@router.get(
    "/rows",
    response_class=Response,
    responses={
        200: {"description": "The rows", "content": {media_type: {} for media_type in MEDIA_TYPES.values()}},
        **documented(404, 406, 409, 413, 422),
    },
)
def get_rows(
    *,
    job_id: str,
    service: Shared,
    sources: Vertices = None,
    targets: Vertices = None,
    format: Annotated[  # noqa: A002 - the name on the wire
        Literal["json", "csv", "npy", "parquet", "arrow"] | None, Query(description="Goes before Accept.")
    ] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Whole rows, or the entries of some targets: JSON, CSV, npy, Parquet or Arrow.

    A whole row has the targets that were solved, in their order.
    """
    kind = choose_format(format, accept)
    if sources is None:
        raise InvalidRequest("sources is missing: name at least one vertex", field="sources")
    result = service.result(job_id)
    wanted = result.vertices(split_names(sources, "sources"))
    columns = None if targets is None else result.vertices(split_names(targets, "targets"))
    from service.encode import ENCODERS, Selection

    rows = Selection(result, wanted, columns)
    cells, limit = len(wanted) * rows.width, service.settings.max_cells
    if cells > limit:
        message = f"{cells} entries are asked for, at most {limit} go in one answer; read the store for more"
        raise LimitExceeded(message, limit=limit, requested=cells, setting=variable("max_cells"))
    result.check_sources(wanted)
    if columns is not None:
        result.check_targets(columns)
    body = ENCODERS[kind](rows)
    # Header and first entries are made before the answer begins, so that damage is still told by its status.
    begun = itertools.chain(list(itertools.islice(body, 2)), body)
    return StreamingResponse(begun, media_type=MEDIA_TYPES[kind], headers={"Vary": "Accept"})


@router.get("/path", response_model=Path, responses=documented(404, 409))
def get_path(job_id: str, source: Vertex, target: Vertex, service: Shared) -> Path:
    """One shortest path."""
    return Path(**service.result(job_id).path(source, target))
