"""Results: summary, distances, rows, routes."""

from __future__ import annotations

import csv
import itertools
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse

from service.formats import MEDIA_TYPES, choose_format
from service.problems import documented
from service.schemas import Distance, Distances, PairsRequest, Path, Summary
from service.settings import variable
from service.state import Shared
from storage.errors import InvalidRequest, LimitExceeded

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"])

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
    """Whole rows, or the entries of some targets: JSON, CSV, npy, Parquet or Arrow."""
    kind = choose_format(format, accept)
    names = split_names(sources, "sources")
    if names is None:
        raise InvalidRequest("sources is missing: name at least one vertex", field="sources")
    result = service.result(job_id)
    wanted, columns = result.vertices(names), result.vertices(split_names(targets, "targets"))
    from service.encode import ENCODERS, Selection

    assert wanted is not None
    rows = Selection(result, wanted, columns)
    cells, limit = len(wanted) * rows.width, service.settings.max_cells
    if cells > limit:
        message = f"{cells} entries are asked for, at most {limit} go in one answer; read the store for more"
        raise LimitExceeded(message, limit=limit, requested=cells, setting=variable("max_cells"))
    result.matrix.rows(wanted[:1])  # a source that was not solved is refused before the answer begins
    body = ENCODERS[kind](rows)
    begun = itertools.chain([next(body)], body)
    return StreamingResponse(begun, media_type=MEDIA_TYPES[kind], headers={"Vary": "Accept"})


@router.get("/path", response_model=Path, responses=documented(404, 409))
def get_path(job_id: str, source: Vertex, target: Vertex, service: Shared) -> Path:
    """One shortest path."""
    return Path(**service.result(job_id).path(source, target))


def split_names(values: list[str] | None, field: str) -> list[int | str] | None:
    """Vertex names from repeated, comma-separated, possibly quoted query values; None if there is none."""
    if values is None:
        return None
    try:
        names: list[int | str] = [name for row in csv.reader(values, strict=True) for name in row if name]
    except csv.Error as error:
        raise InvalidRequest(f"{field} cannot be understood: {error}", field=field) from error
    if not names:
        raise InvalidRequest(f"{field} names no vertex", field=field)
    return names
