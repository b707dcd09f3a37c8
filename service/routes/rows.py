"""Routes that give parts of a matrix: rows, columns and submatrices, in the format that the client wants."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response, StreamingResponse

from service.api.problems import documented
from service.api.schemas.results import SubmatrixRequest
from service.api.schemas.wire import Label
from service.http.bodies import BodyRoute
from service.http.etags import Tagged
from service.http.parameters import known_parameters
from service.options import split_names
from service.settings import variable
from service.state import Opened, Service, Shared
from service.views.media_types import MEDIA_TYPES, choose_format
from storage.errors import LimitExceeded

if TYPE_CHECKING:
    from service.jobs.results import ResultReader

router = APIRouter(
    prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)], route_class=BodyRoute
)

_NAMED: Final = Query(
    description='Vertices, separated by commas or repeated; quote (") names that hold a comma.',
    examples=[["1,17"], ["1", "17"]],
)
Vertices = Annotated[list[str], _NAMED]
SomeVertices = Annotated[list[str] | None, _NAMED]
Format = Annotated[Literal["json", "csv", "npy", "parquet", "arrow"] | None, Query(description="Goes before Accept.")]
Accept = Annotated[str | None, Header()]
_PARTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The entries", "content": {media_type: {} for media_type in MEDIA_TYPES.values()}},
    **documented(404, 406, 409, 410, 413, 422, 507),
}
_TAGGED: Final[dict[int | str, dict[str, Any]]] = {**_PARTS, 304: {"description": "The client has the answer"}}


@router.get("/rows", response_class=Response, responses=_TAGGED)
def get_rows(
    *,
    service: Shared,
    opened: Opened,
    sources: Vertices,
    targets: SomeVertices = None,
    format: Format = None,  # noqa: A002 - the name on the wire
    accept: Accept = None,
    tagged: Tagged,
) -> Response:
    """Whole rows, or the entries of some targets: JSON, CSV, npy, Parquet or Arrow.

    A whole row has the targets that were solved, in their order.

    Args:
        service: what the routes of this process share.
        opened: the open result of the job in the path.
        sources: the rows, names separated by commas.
        targets: the columns; None for all.
        format: name of the format; chosen by ``accept`` if None.
        accept: the Accept header.
        tagged: headers of the answer: its entity tag and how it may be cached.
    """
    kind = choose_format(format, accept)
    rows = split_names(sources, "sources")
    columns = None if targets is None else split_names(targets, "targets")
    return _answer(service, opened, kind, sources=rows, targets=columns, headers=tagged)


@router.get("/columns", response_class=Response, responses=_TAGGED)
def get_columns(
    *,
    service: Shared,
    opened: Opened,
    targets: Vertices,
    format: Format = None,  # noqa: A002
    accept: Accept = None,
    tagged: Tagged,
) -> Response:
    """The distances from every source to some targets; sources down, targets across, as with rows.

    Args:
        service: what the routes of this process share.
        opened: the open result of the job in the path.
        targets: the columns, names separated by commas.
        format: name of the format; chosen by ``accept`` if None.
        accept: the Accept header.
        tagged: headers of the answer: its entity tag and how it may be cached.
    """
    kind, columns = choose_format(format, accept), split_names(targets, "targets")
    return _answer(service, opened, kind, sources=None, targets=columns, headers=tagged)


@router.post("/submatrix", response_class=Response, responses=_PARTS)
def get_submatrix(
    *,
    service: Shared,
    opened: Opened,
    body: SubmatrixRequest,
    format: Format = None,  # noqa: A002
    accept: Accept = None,
) -> Response:
    """The distances from some sources to some targets; for lists that are too long for an address.

    Args:
        service: what the routes of this process share.
        opened: the open result of the job in the path.
        body: sources and targets.
        format: name of the format; chosen by ``accept`` if None.
        accept: the Accept header.
    """
    kind = choose_format(format, accept)
    return _answer(service, opened, kind, sources=body.sources, targets=body.targets, headers={})


def _answer(
    service: Service,
    opened: ResultReader,
    kind: str,
    *,
    sources: list[str] | list[Label] | None,
    targets: list[str] | list[Label] | None,
    headers: dict[str, str],
) -> Response:
    """Return the entries of sources × targets, None meaning all of them."""
    rows = opened.matrix.sources if sources is None else opened.vertices(sources)
    columns = None if targets is None else opened.vertices(targets)
    from service.views.representations import ENCODERS, Selection

    selection = Selection(opened, rows, columns)
    cells, limit = len(rows) * selection.width, service.settings.max_cells
    if cells > limit:
        message = f"{cells} entries are asked for, at most {limit} go in one answer; read the store for more"
        raise LimitExceeded(message, limit=limit, requested=cells, setting=variable("max_cells"))
    opened.check_sources(rows)
    if columns is not None:
        opened.check_targets(columns)
    body = ENCODERS[kind](selection)
    # The header and the first entries are made before the answer starts, so that damage still changes its status.
    # An answer from a prepared graph is computed completely first, so that it does not break off if a helper process
    # refuses.
    begun = itertools.chain(list(body if opened.prepared else itertools.islice(body, 2)), body)
    return StreamingResponse(begun, media_type=MEDIA_TYPES[kind], headers={**headers, "Vary": "Accept"})
