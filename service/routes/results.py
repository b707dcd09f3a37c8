"""Routes with short answers about one result: manifest, summary, histogram, distances, paths, neighbours."""

from __future__ import annotations

import json
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Response

from service.api.problems import documented
from service.api.schemas.results import (
    Distance,
    Distances,
    Histogram,
    Manifest,
    Nearest,
    PairsRequest,
    PathDocument,
    Paths,
    SummaryDocument,
    TableManifest,
)
from service.http.bodies import BodyRoute
from service.http.etags import TAGGED, Tagged
from service.http.parameters import known_parameters
from service.settings import variable
from service.state import Opened, OpenedAny, Shared
from storage.errors import LimitExceeded

router = APIRouter(
    prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)], route_class=BodyRoute
)

Vertex = Annotated[str, Query(max_length=1000, description="A vertex as the file names it.", examples=["17"])]
_KNOWN = {304: {"description": "The client has the answer"}, **documented(404, 409, 410)}
#: 413 and 507 where computing an answer from a prepared result takes more than it may
_NONE = {**_KNOWN, **documented(413, 507)}


@router.get("/results", response_model=Manifest | TableManifest, responses=_KNOWN, dependencies=TAGGED)
def get_manifest(job_id: str, opened: OpenedAny) -> Manifest | TableManifest:
    """What the result is: shape, type, tiles or columns, bytes, digest, and where to read it."""
    links = Manifest.links_of(job_id, opened.kind)
    if opened.table:
        return TableManifest(job=job_id, **opened.facts(), links=links)
    return Manifest(job=job_id, **opened.facts(), links=links)


@router.get("/summary", response_model=SummaryDocument, responses=_NONE, dependencies=TAGGED)
def get_summary(
    job_id: str,
    opened: OpenedAny,
    counted: Annotated[
        bool, Query(description="Of a prepared result, count all rows once; without it only the pairs are told.")
    ] = False,
) -> SummaryDocument:
    """Pairs, mean, diameter, radius, histogram; of a table its rows and columns.

    Args:
        job_id: id of the job.
        opened: the open result of the job in the path.
        counted: whether all rows of a prepared result are counted; other results know their summary.
    """
    matrix = opened.matrix
    unit = str(matrix.attributes.get("unit"))
    dtype = str(matrix.attributes["dtype"]) if opened.table else matrix.dtype.name
    return SummaryDocument(
        job=job_id, result=opened.kind, shape=list(matrix.shape), dtype=dtype, directed=matrix.directed,
        unit=unit, summary=opened.counted() if counted else matrix.summary,
    )  # fmt: skip


@router.get("/histogram", response_model=Histogram, responses=_NONE, dependencies=TAGGED)
def get_histogram(
    *,
    opened: Opened,
    source: Annotated[str | None, Query(max_length=1000, description="Only the distances from this vertex.")] = None,
    bins: Annotated[int, Query(ge=1, le=10_000, description="Bins, with a source.")] = 64,
) -> Histogram:
    """How many pairs lie how far apart; of one source, or of the whole matrix.

    The whole matrix was counted while solving; a prepared result is counted when this is first asked for.

    Args:
        opened: the open result of the job in the path.
        source: count only the distances from this vertex.
        bins: number of bins, with a source.
    """
    return Histogram(**opened.histogram(source, bins))


@router.get("/distance", response_model=Distance, responses=_NONE)
async def get_distance(opened: Opened, source: Vertex, target: Vertex, tagged: Tagged) -> Response:
    """The distance from one vertex to another.

    Args:
        opened: the open result of the job in the path.
        source, target: vertices as the file names them.
        tagged: headers of the answer: its entity tag and how it may be cached.
    """
    found = await anyio.to_thread.run_sync(opened.distance, source, target)
    return Response(json.dumps(found, separators=(",", ":")), headers=tagged, media_type="application/json")


@router.post("/distances", response_model=Distances, responses=documented(404, 409, 410, 413, 507))
def get_distances(*, body: PairsRequest, service: Shared, opened: Opened) -> Distances:
    """The distances of many pairs.

    Args:
        body: the pairs.
        service: what the routes of this process share.
        opened: the open result of the job in the path.
    """
    _check(len(body.pairs), service.settings.max_pairs, "pairs", "max_pairs")
    return Distances(distances=opened.distances(body.pairs))


@router.get("/path", response_model=PathDocument, responses=_NONE, dependencies=TAGGED)
def get_path(opened: Opened, source: Vertex, target: Vertex) -> PathDocument:
    """One shortest path.

    Args:
        opened: the open result of the job in the path.
        source, target: vertices as the file names them.
    """
    return PathDocument(**opened.path(source, target))


@router.post("/paths", response_model=Paths, responses=documented(404, 409, 410, 413, 507))
def get_paths(*, body: PairsRequest, service: Shared, opened: Opened) -> Paths:
    """One shortest path for each of many pairs.

    Args:
        body: the pairs.
        service: what the routes of this process share.
        opened: the open result of the job in the path.
    """
    _check(len(body.pairs), service.settings.max_paths, "paths", "max_paths")
    return Paths(paths=[PathDocument(**opened.path(source, target)) for source, target in body.pairs])


@router.get("/nearest", response_model=Nearest, responses=_NONE, dependencies=TAGGED)
def get_nearest(
    *,
    service: Shared,
    opened: Opened,
    source: Vertex,
    k: Annotated[int, Query(ge=1, description="How many.")] = 10,
) -> Nearest:
    """The reachable vertices nearest to a source, the nearest first; among equals in the order of their labels.

    Args:
        service: what the routes of this process share.
        opened: the open result of the job in the path.
        source: a vertex as the file names it.
        k: the most vertices to return.
    """
    _check(k, service.settings.max_cells, "neighbours", "max_cells")
    return Nearest(**opened.nearest(source, k))


def _check(asked: int, limit: int, what: str, setting: str) -> None:
    if asked > limit:
        message = f"{asked} {what} are asked for, at most {limit} go in one request"
        raise LimitExceeded(message, limit=limit, requested=asked, setting=variable(setting))
