"""Routes with short answers about one result: manifest, summary, histogram, distances, paths, neighbours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, Field

from service.api.problems import documented
from service.api.schemas.results import (
    AskedSemiring,
    Distance,
    Distances,
    Histogram,
    Manifest,
    Nearest,
    PairsRequest,
    PathDocument,
    Paths,
    PointsRequest,
    PointsTaken,
    SummaryDocument,
    SumsDocument,
    TableManifest,
)
from service.api.schemas.wire import SnapLimit, plain
from service.http.bodies import BodyRoute
from service.http.etags import TAGGED, Tagged
from service.http.parameters import known_parameters
from service.settings import variable
from service.state import Opened, OpenedAny, OpenedValues, Shared
from service.views.media_types import choose_format
from storage.errors import Conflict, LimitExceeded

router = APIRouter(
    prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)], route_class=BodyRoute
)

if TYPE_CHECKING:
    from service.jobs.results import ResultReader

VertexName = Annotated[
    str | None, Field(max_length=1000, description="A vertex as the file names it.", examples=["17"])
]
PointText = Annotated[
    str | None,
    Field(
        max_length=100, description="In place of it a point, which means the vertex nearest to it: lon,lat (or x,y)."
    ),
]
_KNOWN = {304: {"description": "The client has the answer"}, **documented(404, 409, 410)}
#: the responses of ``_KNOWN``, and those of a prepared result whose answer would take too much computing (413) or
#: memory (507)
_NONE = {**_KNOWN, **documented(413, 507)}
_PATH = {
    **_NONE,
    **documented(406),
    200: {
        "description": "The path",
        "content": {"application/json": {}, "application/geo+json": {"schema": {"type": "object"}}},
    },
}


class SourceQuery(BaseModel):
    """One source: a vertex, or a point."""

    source: VertexName = None
    source_point: PointText = None
    snap_limit: SnapLimit = None


class EndsQuery(SourceQuery):
    """A source and a target, each a vertex or a point."""

    target: VertexName = None
    target_point: PointText = None


class PairQuery(EndsQuery):
    """A source and a target, and the semiring of their value."""

    semiring: AskedSemiring = None


class PathQuery(PairQuery):
    """A source and a target, and the format of the path between them."""

    format: Annotated[Literal["json", "geojson"] | None, Field(description="Takes precedence over Accept.")] = None


class NearestQuery(SourceQuery):
    """A source, and how many of its nearest vertices are wanted."""

    k: int = Field(10, ge=1, description="How many.")
    semiring: AskedSemiring = None


class HistogramQuery(BaseModel):
    """The distances of a histogram, and its number of bins."""

    source: str | None = Field(None, max_length=1000, description="Only the distances from this vertex.")
    source_point: PointText = None
    snap_limit: SnapLimit = None
    bins: int = Field(64, ge=1, le=10_000, description="Bins, with a source; one where all distances are equal.")


@router.get("/results", response_model=Manifest | TableManifest, responses=_KNOWN, dependencies=TAGGED)
def get_manifest(job_id: str, opened: OpenedAny) -> Manifest | TableManifest:
    """What the result is: shape, type, tiles or columns, bytes, digest, and where to read it."""
    if opened.table:
        return TableManifest(job=job_id, **opened.facts(), links=Manifest.links_of(job_id, opened.kind))
    facts = opened.facts()
    links = Manifest.links_of(job_id, opened.kind, also=bool(facts["also"]))
    return Manifest(job=job_id, **facts, links=links)


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
        counted: whether all rows of a prepared result are counted; other results store their summary.
    """
    matrix = opened.matrix
    unit = str(matrix.attributes.get("unit"))
    dtype = str(matrix.attributes["dtype"]) if opened.table else matrix.dtype.name
    return SummaryDocument(
        job=job_id, result=opened.kind, shape=list(matrix.shape), dtype=dtype, directed=matrix.directed,
        unit=unit, weight_column=matrix.attributes.get("weight_column"),
        summary=opened.counted() if counted else matrix.summary,
    )  # fmt: skip


@router.get(
    "/histogram", response_model=Histogram, response_model_exclude_unset=True, responses=_NONE, dependencies=TAGGED
)
def get_histogram(*, opened: Opened, asked: Annotated[HistogramQuery, Query()]) -> Histogram:
    """How many pairs lie how far apart; of one source, or of the whole matrix.

    The whole matrix was counted while solving; a prepared result is counted when this is first asked for.

    Args:
        asked: a source, if only its distances are counted, and the number of bins.
    """
    from service.jobs.points import check_limit_is_used

    if asked.source is None and asked.source_point is None:
        check_limit_is_used(asked.snap_limit, points=False)
        return Histogram(**opened.histogram(None, asked.bins))
    [source], told = _ends(opened, asked, "source")
    return Histogram(**opened.histogram(source, asked.bins), **told)


@router.get("/distance", response_model=Distance, response_model_exclude_unset=True, responses=_NONE)
async def get_distance(opened: OpenedValues, asked: Annotated[PairQuery, Query()], tagged: Tagged) -> Response:
    """The distance from one vertex, or point, to another; or the value of the best path in the job's semiring.

    Args:
        asked: source and target.
    """

    opened.check_semiring(asked.semiring)

    def found() -> dict[str, Any]:
        (source, target), told = _ends(opened, asked, "source", "target")
        return {**opened.distance(source, target), **told}

    answer = await anyio.to_thread.run_sync(found)
    return Response(json.dumps(answer, separators=(",", ":")), headers=tagged, media_type="application/json")


@router.get(
    "/also", response_model=SumsDocument, response_model_exclude_unset=True, responses=_NONE, dependencies=TAGGED
)
def get_also(job_id: str, opened: Opened, asked: Annotated[EndsQuery, Query()]) -> SumsDocument:
    """The distance between two vertices or points, and the sums along the path; 409 where the job asked for no sums.

    Args:
        asked: source and target.
    """
    if not opened.matrix.also:
        raise Conflict(
            f"job {job_id} has summed nothing along its paths; upload the graph with also=COLUMNS, and ask for a job "
            'with "also": [NAMES]'
        )
    (source, target), told = _ends(opened, asked, "source", "target")
    return SumsDocument(**opened.also(source, target), **told)


@router.post(
    "/distances",
    response_model=Distances,
    response_model_exclude_unset=True,
    responses=documented(404, 409, 410, 413, 507),
)
def get_distances(*, body: PairsRequest, service: Shared, opened: OpenedValues) -> Distances:
    """The distances of many pairs of vertices or points, or their values in the job's semiring.

    Args:
        body: the pairs.
    """
    opened.check_semiring(body.semiring)
    _check(len(body.pairs), service.settings.max_pairs, "pairs", "max_pairs")
    pairs, told = _pairs(opened, body)
    return Distances(distances=opened.distances(pairs), **told)


@router.get("/path", response_model=PathDocument, response_model_exclude_unset=True, responses=_PATH)
def get_path(
    *,
    opened: OpenedValues,
    asked: Annotated[PathQuery, Query()],
    accept: Annotated[str | None, Header()] = None,
    tagged: Tagged,
    response: Response,
) -> Any:
    """One shortest path between vertices or points, as JSON; a path of a distance also as a line of GeoJSON.

    The feature of GeoJSON has the coordinates of the vertices, in degrees. Its properties are `source`, `target`,
    `distance`, `unit` and `vertices`, and `without_coordinates` with the vertices that the line leaves out, if
    there are any. Where there is no path the geometry is null.

    Args:
        asked: source and target, and the format, which takes precedence over ``accept``.
    """
    from service.views.path_feature import PATH_TYPES, path_feature

    opened.check_semiring(asked.semiring)
    kind = choose_format(asked.format, accept, PATH_TYPES)
    if kind == "geojson":
        opened.check_semiring(None)
    (source, target), told = _ends(opened, asked, "source", "target")
    if kind == "geojson":
        feature = json.dumps(path_feature(opened, source, target, told), allow_nan=False)
        return Response(feature, headers={**tagged, "Vary": "Accept"}, media_type=PATH_TYPES[kind])
    response.headers["Vary"] = "Accept"
    return PathDocument(**opened.path(source, target), **told)


@router.post(
    "/paths", response_model=Paths, response_model_exclude_unset=True, responses=documented(404, 409, 410, 413, 507)
)
def get_paths(*, body: PairsRequest, service: Shared, opened: OpenedValues) -> Paths:
    """One shortest path for each of many pairs of vertices or points, or one that is best in the job's semiring.

    Args:
        body: the pairs.
    """
    opened.check_semiring(body.semiring)
    _check(len(body.pairs), service.settings.max_paths, "paths", "max_paths")
    pairs, told = _pairs(opened, body)
    return Paths(paths=[PathDocument(**opened.path(source, target)) for source, target in pairs], **told)


@router.get("/nearest", response_model=Nearest, response_model_exclude_unset=True, responses=_NONE, dependencies=TAGGED)
def get_nearest(*, service: Shared, opened: OpenedValues, asked: Annotated[NearestQuery, Query()]) -> Nearest:
    """The reachable vertices nearest to a source, the nearest first; among equals in the order of their labels.

    Of another semiring than min-plus these are the vertices with the best values, the best first.

    Args:
        asked: the source, and the most vertices to return.
    """
    opened.check_semiring(asked.semiring)
    _check(asked.k, service.settings.max_cells, "neighbours", "max_cells")
    [source], told = _ends(opened, asked, "source")
    return Nearest(**opened.nearest(source, asked.k), **told)


@router.post(
    "/points",
    response_model=PointsTaken,
    response_model_exclude_unset=True,
    responses=documented(404, 409, 410, 413),
)
def take_points(*, body: PointsRequest, service: Shared, opened: Opened) -> PointsTaken:
    """The vertex nearest to each of many points, and its distance. Every question takes points to vertices in this way.

    Args:
        body: the points.
    """
    from service.jobs.points import snap_points, told_points

    _check(len(body.points), service.settings.max_pairs, "points", "max_pairs")
    points = plain(body.points)
    snapped = snap_points(points, opened.snapper.finder, "points", body.snap_limit)
    return PointsTaken.model_validate({"points": told_points(points, snapped, opened.label)})


def _ends(opened: ResultReader, asked: SourceQuery | HistogramQuery, *sides: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the vertex of each of ``sides``, and the members of the answer that say where points were snapped to."""
    from service.jobs.points import ends_of

    return ends_of(opened, asked.model_dump(), *sides)


def _pairs(opened: ResultReader, body: PairsRequest) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    """Return pairs of vertices, and the members of the answer that say where points were snapped to."""
    from service.jobs.points import check_limit_is_used, vertices_of

    ends, told = [], {}
    for side, column in (("source", 0), ("target", 1)):
        asked = plain([pair[column] for pair in body.pairs])
        if not any(isinstance(one, dict) for one in asked):
            ends.append(asked)
            continue
        found, told[f"{side}_points"] = vertices_of(opened, asked, "pairs", body.snap_limit)
        ends.append([opened.label(vertex) for vertex in found.tolist()])
    check_limit_is_used(body.snap_limit, bool(told))
    return list(zip(*ends, strict=True)), told


def _check(asked: int, limit: int, what: str, setting: str) -> None:
    if asked > limit:
        message = f"{asked} {what} are asked for, at most {limit} go in one request"
        raise LimitExceeded(message, limit=limit, requested=asked, setting=variable(setting))
