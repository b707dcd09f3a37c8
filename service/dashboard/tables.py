"""The part of a job's page that shows a table: some rows in an order, and the histogram of a column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.dashboard.charts import histogram
from service.dashboard.render import page
from service.dashboard.visiting import Known, PageRoute, Visitor
from service.state import ReadPermit
from storage.errors import Conflict

if TYPE_CHECKING:
    from storage.tables.reader import SealedTable

router = APIRouter(include_in_schema=False, route_class=PageRoute)

#: the most rows and columns that are shown at once, and the bins of the histogram
_ROWS: Final = 20
_COLUMNS: Final = 16
_BINS: Final = 48
#: columns, in addition to the first one, that name vertices: their whole numbers are names, so they get no histogram
_VERTICES: Final = re.compile(r"target|farthest|nearest_\d+")
#: columns whose histogram is shown first; a table without such a column shows its first column of numbers
_MAIN: Final = ("flow",)


class TableView(BaseModel):
    """The rows that are shown, their order, and the column of the histogram."""

    sort: str = Field("", max_length=1000)
    first: int = Field(0, ge=0, lt=2**53)
    column: str = Field("", max_length=1000)


@router.get("/jobs/{job_id}/table")
def get_table_part(
    *, request: Request, job_id: str, visitor: Known, asked: Annotated[TableView, Query()], _permit: ReadPermit
) -> Response:
    """Return some rows of a table and a histogram, a part of the job's page that is loaded separately.

    Args:
        asked: which rows, in which order, and whose histogram.
    """
    return page(request, "table_part.html", visitor=visitor, **table_part(visitor, job_id, asked))


def table_part(visitor: Visitor, job_id: str, asked: TableView) -> dict[str, Any]:
    """Return rows, their order, and the chart of a column.

    Args:
        visitor: the person who asks.
        job_id: id of the job.
        asked: which rows, in which order, and whose histogram.

    Raises:
        Conflict: the result is no table.
        InvalidRequest: there is no such column.
    """
    opened = visitor.service.result(job_id, visitor.caller)
    if not opened.table:
        raise Conflict(f"the result of job {job_id} is no table")
    table: SealedTable = opened.matrix
    sortable = table.rows <= visitor.service.settings.max_cells
    sort = asked.sort if sortable else ""
    if sort:
        table.named([sort.removeprefix("-")], "sort")
    shown = list(table.columns)[:_COLUMNS]
    first = min(asked.first, max(0, (table.rows - 1) // _ROWS * _ROWS))
    rows = table.page(shown, first, _ROWS, sort or None).rows()
    numeric = [name for name in shown if table.columns[name] != "text" and not _names_vertices(table, name)]
    column = asked.column or next((name for name in (*_MAIN, *numeric) if name in numeric), "")
    return {
        "job_id": job_id, "columns": [_column(table, name, sort) for name in shown], "rows": rows, "first": first,
        "last": first + len(rows), "total": table.rows, "step": _ROWS, "sort": sort, "sortable": sortable,
        "more": len(table.columns) - len(shown), "numeric": numeric, "column": column, "chart": _chart(table, column),
    }  # fmt: skip


def _column(table: SealedTable, name: str, sort: str) -> dict[str, Any]:
    """Return a column, its present order, and the order after a click on its name; a first click on numbers puts the
    largest first.
    """
    here = sort.removeprefix("-") == name
    down = here and sort.startswith("-")
    first = name if table.columns[name] == "text" else f"-{name}"
    return {
        "name": name, "number": table.columns[name] != "text", "vertex": _names_vertices(table, name),
        "order": ("descending" if down else "ascending") if here else None,
        "next": (name if down else f"-{name}") if here else first,
    }  # fmt: skip


def _names_vertices(table: SealedTable, name: str) -> bool:
    return name == table.key or _VERTICES.fullmatch(name) is not None


def _chart(table: SealedTable, column: str) -> dict[str, Any] | None:
    from service.views.table_pages import column_histogram

    if not column:
        return None
    found = column_histogram(table, column, _BINS)
    chart = histogram(found["edges"], found["counts"])
    return None if chart is None else {**chart, "missing": found["missing"]}
