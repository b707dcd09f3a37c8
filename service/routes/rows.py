"""Routes that give parts of a matrix: rows, columns and submatrices, in the format that the client wants."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from service.api.problems import documented
from service.api.schemas.results import AskedSemiring, SubmatrixRequest
from service.api.schemas.wire import SnapLimit, plain
from service.http.bodies import BodyRoute
from service.http.etags import Tagged
from service.http.parameters import known_parameters
from service.name_lists import split_names
from service.settings import variable
from service.state import OpenedValues, Service, Shared
from service.views.media_types import MEDIA_TYPES, choose_format, unit_headers
from storage.errors import InvalidRequest, LimitExceeded

if TYPE_CHECKING:
    from service.jobs.results import ResultReader

router = APIRouter(
    prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)], route_class=BodyRoute
)

Names = Annotated[
    list[str] | None,
    Field(
        description='Vertices, separated by commas or repeated; quote (") names that hold a comma.',
        examples=[["1,17"], ["1", "17"]],
    ),
]
PointTexts = Annotated[
    list[Annotated[str, Field(max_length=100)]] | None,
    Field(description="In place of vertices points, lon,lat (or x,y) each; repeat it for several."),
]
Format = Annotated[
    Literal["json", "csv", "npy", "parquet", "arrow"] | None, Field(description="Takes precedence over Accept.")
]
Also = Annotated[
    str | None, Field(max_length=200, description="Of npy and JSON: the sums of this quantity in place of distances.")
]
Accept = Annotated[str | None, Header()]
_PARTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The entries", "content": {media_type: {} for media_type in MEDIA_TYPES.values()}},
    **documented(404, 406, 409, 410, 413, 422, 507),
}
_TAGGED: Final[dict[int | str, dict[str, Any]]] = {**_PARTS, 304: {"description": "The client has the answer"}}


class ColumnsQuery(BaseModel):
    """The columns that are wanted, and the format."""

    targets: Names = None
    target_point: PointTexts = None
    snap_limit: SnapLimit = None
    format: Format = None
    also: Also = None
    semiring: AskedSemiring = None


class RowsQuery(ColumnsQuery):
    """The rows and columns that are wanted, and the format."""

    sources: Names = None
    source_point: PointTexts = None
    all: Annotated[bool, Field(description="Every row, in place of naming some.")] = False


@router.get("/rows", response_class=Response, responses=_TAGGED)
def get_rows(
    *,
    service: Shared,
    opened: OpenedValues,
    asked: Annotated[RowsQuery, Query()],
    accept: Accept = None,
    tagged: Tagged,
) -> Response:
    """Whole rows, or the entries of some targets: JSON, CSV, npy, Parquet or Arrow.

    CSV, Parquet and Arrow have a further column for each quantity that the job sums along its paths. A whole row has
    the targets that were solved, in their order.  Points are possible with JSON only. For a semiring other than
    min-plus, which the parameter `semiring` must name, the entries are the values of the best paths: the column is
    called `value`, and npy has the semiring's value where there is no path.
    One of `sources`, `source_point` and `all=true` must be given.

    Args:
        asked: rows, columns (all if none are named), and the format, which takes precedence over ``accept``.
    """
    kind = choose_format(asked.format, accept)
    rows = _places(asked.sources, asked.source_point, "source")
    if asked.all and rows is not None:
        raise InvalidRequest("all=true asks for every row: name no sources", field="all")
    if not asked.all and rows is None:
        message = "sources names no vertex; name some, give points as source_point, or ask for every row with all=true"
        raise InvalidRequest(message, field="sources")
    opened.check_semiring(asked.semiring)
    part = _Rectangle(opened, kind, asked.snap_limit, asked.also)
    part.sources, part.targets = rows, _places(asked.targets, asked.target_point, "target")
    return part.answer(service, tagged)


@router.get("/columns", response_class=Response, responses=_TAGGED)
def get_columns(
    *,
    service: Shared,
    opened: OpenedValues,
    asked: Annotated[ColumnsQuery, Query()],
    accept: Accept = None,
    tagged: Tagged,
) -> Response:
    """The distances from every source to some targets; sources down, targets across, as with rows.

    Either `targets` or `target_point` must be given.

    Args:
        asked: columns, and the format, which takes precedence over ``accept``.
    """
    kind, columns = choose_format(asked.format, accept), _places(asked.targets, asked.target_point, "target")
    if columns is None:
        raise InvalidRequest("targets names no vertex; name some, or give points as target_point", field="targets")
    opened.check_semiring(asked.semiring)
    part = _Rectangle(opened, kind, asked.snap_limit, asked.also)
    part.targets = columns
    return part.answer(service, tagged)


@router.post("/submatrix", response_class=Response, responses=_PARTS)
def get_submatrix(
    *,
    service: Shared,
    opened: OpenedValues,
    body: SubmatrixRequest,
    format: Format = None,  # noqa: A002
    also: Also = None,
    accept: Accept = None,
) -> Response:
    """The distances from some sources to some targets; for lists that are too long for an address.

    Args:
        body: sources and targets.
        format: name of the format; None selects it by ``accept``.
        also: the quantity whose sums are wanted in place of distances.
    """
    opened.check_semiring(body.semiring)
    part = _Rectangle(opened, choose_format(format, accept), body.snap_limit, also)
    part.sources = None if body.sources is None else plain(body.sources)
    part.targets = None if body.targets is None else plain(body.targets)
    return part.answer(service, {})


def _places(names: list[str] | None, points: list[str] | None, side: str) -> list[Any] | None:
    """Return the vertices or the points that a query names in one of two parameters; None if both are absent."""
    if points is None:
        return None if names is None else split_names(names, f"{side}s")
    if names is not None:
        message = f"{side}s and {side}_point are both given; name vertices, or give points"
        raise InvalidRequest(message, field=f"{side}_point")
    from service.jobs.points import read_point

    return [read_point(text, f"{side}_point") for text in points]


class _Rectangle:
    """The entries that a request asks for.  ``sources`` and ``targets`` list vertices and points; None means all."""

    sources: list[Any] | None = None
    targets: list[Any] | None = None

    def __init__(self, opened: ResultReader, kind: str, limit: float | None, also: str | None) -> None:
        self._opened, self._kind, self._limit, self._also = opened, kind, limit, also
        self._told: dict[str, Any] = {}
        if also is None:
            return
        if kind not in ("npy", "json"):
            message = f"also: {kind} has every quantity anyway; json and npy have the sums of one in place of distances"
            raise InvalidRequest(message, field="also")
        if also not in opened.matrix.also:
            there = ", ".join(opened.matrix.also) or "none"
            raise InvalidRequest(f"also: the result has no sums of {also!r}; it has {there}", field="also")

    def answer(self, service: Service, headers: dict[str, str]) -> Response:
        """Return the response with the entries."""
        from service.jobs.points import check_limit_is_used
        from service.views.representations import ENCODERS, Selection, unit_of

        opened = self._opened
        rows, columns = self._vertices("source", self.sources, service), self._vertices("target", self.targets, service)
        check_limit_is_used(self._limit, bool(self._told))
        if rows is None:
            rows = opened.matrix.sources
        selection = Selection(opened, rows, columns, {**self._told, **opened.said}, self._also)
        tables = self._kind in ("csv", "parquet", "arrow")  # these formats have a column for each quantity
        each = 1 + (len(opened.matrix.also) if tables else 0)
        cells, limit = len(rows) * selection.width * each, service.settings.max_cells
        if cells > limit:
            message = f"{cells} entries are asked for, at most {limit} go in one answer; read the store for more"
            raise LimitExceeded(message, limit=limit, requested=cells, setting=variable("max_cells"))
        opened.check_sources(rows)
        if columns is not None:
            opened.check_targets(columns)
        body = ENCODERS[self._kind](selection)
        # The header and the first entries are made before the answer starts, so that a damaged tile can still change
        # the status of the answer.  An answer from a prepared graph is computed completely first, so that it does not
        # break off if a helper process refuses.
        begun = itertools.chain(list(body if opened.prepared else itertools.islice(body, 2)), body)
        headers = {**headers, **unit_headers(unit_of(opened.matrix)), "Vary": "Accept"}
        return StreamingResponse(begun, media_type=MEDIA_TYPES[self._kind], headers=headers)

    def _vertices(self, side: str, asked: list[Any] | None, service: Service) -> Any:
        """Return the vertex indices of ``asked``, None for all.  ``answer`` gets the facts about snapped points."""
        if asked is None:
            return None
        points = sum(isinstance(one, dict) for one in asked)
        if not points:
            return self._opened.vertices(asked)
        if self._kind != "json":
            raise InvalidRequest(
                f"{self._kind} has no place for points and how far they are: ask for JSON, or take the points to "
                "vertices first (POST .../points) and name these",
                field="format",
            )
        if points > service.settings.max_pairs:
            message = f"{points} points are given, at most {service.settings.max_pairs} go in one request"
            raise LimitExceeded(
                message, limit=service.settings.max_pairs, requested=points, setting=variable("max_pairs")
            )
        from service.jobs.points import vertices_of

        found, self._told[f"{side}_points"] = vertices_of(self._opened, asked, f"{side}s", self._limit)
        return found
