"""Routes for tables: those that jobs make, by page or column, and uploaded tables of opportunities or demands."""

from __future__ import annotations

import time
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.problems import documented
from service.api.schemas.results import ColumnHistogram, TablePage
from service.api.schemas.tables import Holds, TableDocument, TableList
from service.api.schemas.wire import MOST_COLUMNS
from service.http import cursors
from service.http.etags import TAGGED, Tagged
from service.http.parameters import known_parameters
from service.http.upload import check_headers, receive
from service.name_lists import split_names
from service.pool.tasks import read_table_upload
from service.settings import Settings, variable
from service.state import KnownAsker, OpenedTable, ReadPermit, Shared
from service.views.media_types import TABLE_TYPES, choose_format, unit_headers
from storage.errors import InvalidRequest, LimitExceeded
from storage.graph.units import said_unit, unit_metadata
from storage.tables.uploaded import UploadedTables

if TYPE_CHECKING:
    from service.jobs.table_results import TableReader

results = APIRouter(prefix="/v1/jobs/{job_id}/table", tags=["results"], dependencies=[Depends(known_parameters)])
uploads = APIRouter(prefix="/v1/tables", tags=["tables"], dependencies=[Depends(known_parameters)])

#: rows of a page if the request does not say how many
_ROWS: Final = 1000
_PAGES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": TablePage,
        "description": "The rows",
        "content": {media_type: {} for media_type in TABLE_TYPES.values() if media_type != "application/json"},
        "headers": {"Link": {"description": "rel=next: the following rows.", "schema": {"type": "string"}}},
    },
    304: {"description": "The client has the answer"},
    **documented(404, 406, 409, 410, 413, 422),
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "The file itself: CSV with a header, or Parquet; vertices (of demands: origins, "
        "destinations), then columns of numbers.",
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "place,jobs,doctors\nstation,1200,2\nmarket,300,1\n",
            }
        },
    }
}
Name = Annotated[str, Field(max_length=1000)]


class TableQuery(BaseModel):
    """The rows and columns of a table that are wanted, their order, and the format."""

    columns: list[Name] | None = Field(
        None, description='Columns, separated by commas or repeated; quote (") names that hold a comma.'
    )
    vertices: list[Name] | None = Field(None, description="Only rows whose first column names one of these.")
    sort: Name | None = Field(None, description="Column; with - before it, the largest first.", examples=["-within_15"])
    limit: int | None = Field(None, ge=1, lt=2**53, description="Most rows; a thousand if left out.")
    cursor: str | None = Field(None, max_length=300, description="Where the page before this one ended.")
    format: Literal["json", "csv", "parquet", "arrow"] | None = Field(None, description="Takes precedence over Accept.")


@results.get("", response_class=Response, responses=_PAGES)
def get_table(
    *,
    request: Request,
    service: Shared,
    opened: OpenedTable,
    asked: Annotated[TableQuery, Query()],
    accept: Annotated[str | None, Header()] = None,
    tagged: Tagged,
    _permit: ReadPermit,
) -> Response:
    """Rows of a table that a job made, as JSON, CSV, Parquet or Arrow; `next` (and Link) leads on.

    Without `sort`, rows are in the order of the sources.  With `sort`, rows without a value come last, and rows with
    equal values stay in the order of the sources.  The whole table is the file `zarr/table.parquet`.

    Args:
        asked: rows, columns, order, format.
    """
    from service.views.table_pages import TABLE_ENCODERS, as_json

    kind = choose_format(asked.format, accept, TABLE_TYPES)
    part = _Part(opened, asked, service.settings)
    page = part.read()
    metadata = unit_metadata(said_unit(opened.matrix.attributes.get("unit")))
    headers, following = {**tagged, **unit_headers(metadata), "Vary": "Accept"}, None
    if part.first + page.height < opened.matrix.rows and asked.vertices is None:
        following = cursors.following(request, cursor=cursors.encode(part.first + page.height, part.mark))
        headers["Link"] = f'<{following}>; rel="next"'
    body = as_json(page, opened.matrix.rows, following) if kind == "json" else TABLE_ENCODERS[kind](page, metadata)
    return Response(body, media_type=TABLE_TYPES[kind], headers=headers)


class _Part:
    """The part of a table that a query asks for, checked.

    Attributes:
        first: number of the first row, in the order that the query asks for.
        mark: identifies the order of the rows; a cursor that was made for a different order is refused.
    """

    def __init__(self, opened: TableReader, asked: TableQuery, settings: Settings) -> None:
        table = self._table = opened.matrix
        self._asked = asked
        self._columns = table.named(None if asked.columns is None else split_names(asked.columns, "columns"))
        most = settings.max_cells // len(self._columns)
        self._limit = min(_ROWS, max(1, most)) if asked.limit is None else asked.limit
        self._names = None if asked.vertices is None else split_names(asked.vertices, "vertices")
        if self._names is not None:
            self._limit = max(1, most) if asked.limit is None else asked.limit
        cells = min(self._limit, max(1, table.rows)) * len(self._columns)
        if cells > settings.max_cells:
            message = (
                f"{cells} entries are asked for, at most {settings.max_cells} go in one answer; ask for fewer rows "
                "(limit) or columns, or read the file zarr/table.parquet"
            )
            raise LimitExceeded(message, limit=settings.max_cells, requested=cells, setting=variable("max_cells"))
        self._check_order(settings.max_cells)
        self.mark = blake2b((asked.sort or "").encode(), digest_size=8).hexdigest()
        self.first = 0
        if asked.cursor is not None:
            first, mark = cursors.decode(asked.cursor)
            if mark != self.mark or first != int(first):
                raise InvalidRequest("the cursor is of another order than sort asks for", field="cursor")
            self.first = int(first)

    def _check_order(self, most: int) -> None:
        asked, rows = self._asked, self._table.rows
        for name in ("sort", "cursor"):
            if getattr(asked, name) is not None and asked.vertices is not None:
                raise InvalidRequest(f"rows of vertices come in the order of the table, without {name}", field=name)
        if asked.sort is None:
            return
        self._table.named([asked.sort.removeprefix("-")], "sort")
        if rows > most:
            message = f"the table has {rows} rows, and at most {most} are sorted; read the file zarr/table.parquet"
            raise LimitExceeded(message, limit=most, requested=rows, setting=variable("max_cells"))

    def read(self) -> Any:
        """Return the rows, a polars frame."""
        if self._names is None:
            return self._table.page(self._columns, self.first, self._limit, self._asked.sort)
        found = self._table.rows_of(self._names, self._columns, self._limit)
        if found.height > self._limit:
            message = f"these vertices have more than {self._limit} rows; ask for fewer vertices"
            raise LimitExceeded(message, limit=self._limit, requested=found.height, setting="limit")
        return found


@results.get(
    "/histogram",
    response_model=ColumnHistogram,
    responses={304: {"description": "The client has the answer"}, **documented(404, 409, 410)},
    dependencies=TAGGED,
)
def get_table_histogram(
    *,
    opened: OpenedTable,
    column: Annotated[str, Query(max_length=1000, description="A column of numbers.", examples=["within_15"])],
    bins: Annotated[int, Query(ge=1, le=10_000, description="Bins; one where all numbers are equal.")] = 64,
    _permit: ReadPermit,
) -> ColumnHistogram:
    """How many rows of a table have which numbers in a column.

    Args:
        column: the column.
        bins: number of bins.
    """
    from service.views.table_pages import column_histogram

    return ColumnHistogram(**column_histogram(opened.matrix, column, bins))


@uploads.post(
    "",
    status_code=201,
    response_model=TableDocument,
    responses={
        200: {"model": TableDocument, "description": "The same table is there already"},
        **documented(408, 413, 415, 422, 429, 507),
    },
    openapi_extra=_BODY,
)
async def upload_table(
    request: Request,
    response: Response,
    asker: KnownAsker,
    holds: Annotated[
        Holds,
        Query(description="What it holds: numbers by vertex, or flows from a first to a second vertex."),
    ] = "opportunities",
) -> TableDocument:
    """Upload a table as the raw body, for `opportunities` or `demands` of jobs; 200 if you have it already.

    Args:
        holds: what the table holds: opportunities at vertices, or demands between vertices.
    """
    service, owner = asker.service, asker.caller.owner
    settings = service.settings
    announced = check_headers(request, settings.max_table_bytes, "max_table_bytes")
    most = settings.max_arcs if holds == "demands" else settings.max_vertices
    with service.uploading.hold(owner, settings.max_uploads):
        path = await anyio.to_thread.run_sync(service.uploads.create, None, announced)
        made = path.with_name(f"{path.name}-normal.parquet")
        try:
            await receive(request, path, announced)
            await service.worker.run(
                read_table_upload, path, most, MOST_COLUMNS, holds, owner=owner, seconds=settings.read_seconds
            )
            tables, now = UploadedTables(settings.data_dir), time.time()
            record, new = await anyio.to_thread.run_sync(tables.add, made, owner, now, settings.max_tables)
        except LimitExceeded as error:
            setting = variable(error.setting) if error.setting in Settings.model_fields else error.setting
            raise LimitExceeded(str(error), limit=error.limit, requested=error.requested, setting=setting) from None
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, path, made)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/tables/{record.id}"
    return TableDocument.of(record)


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


@uploads.get("", response_model=TableList)
def list_tables(asker: KnownAsker) -> TableList:
    """Your uploaded tables, newest first."""
    found = UploadedTables(asker.service.settings.data_dir).listed(asker.caller.owner)
    return TableList(tables=[TableDocument.of(record) for record in found])


@uploads.get("/{table_id}", response_model=TableDocument, responses=documented(404))
def get_uploaded_table(table_id: str, asker: KnownAsker) -> TableDocument:
    """One uploaded table."""
    return TableDocument.of(UploadedTables(asker.service.settings.data_dir).get(table_id, asker.caller.owner))


@uploads.delete("/{table_id}", status_code=204, response_class=Response, responses=documented(404))
def delete_table(table_id: str, asker: KnownAsker) -> None:
    """Forget a table.  Results stay; a job that still waits with this table fails, and says so."""
    UploadedTables(asker.service.settings.data_dir).remove(table_id, asker.caller.owner)
