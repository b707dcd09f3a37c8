"""Encodes pages of a table as JSON, CSV, Parquet or Arrow, and counts the numbers of a column."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from service.views.binning import in_bins
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from storage.tables.reader import SealedTable


def as_json(page: pl.DataFrame, total: int, following: str | None) -> bytes:
    """Return a page as ``TablePage`` describes it.

    Args:
        page: the rows.
        total: number of rows of the whole table.
        following: address of the next page; None on the last page.
    """
    columns = [series.fill_nan(None) if series.dtype.is_float() else series for series in page.get_columns()]
    rows = list(map(list, zip(*(series.to_list() for series in columns), strict=True)))
    found = {"columns": page.columns, "rows": rows, "total": total, "next": following}
    return json.dumps(found, separators=(",", ":"), allow_nan=False).encode()


def as_csv(page: pl.DataFrame, _metadata: Mapping[str, str]) -> bytes:
    """Return a page as CSV with a header; a missing value is an empty field."""
    return page.write_csv().encode()


def as_parquet(page: pl.DataFrame, metadata: Mapping[str, str]) -> bytes:
    """Return a page as a Parquet file.

    Args:
        page: the rows.
        metadata: texts by name, for the metadata of the file.
    """
    out = io.BytesIO()
    page.write_parquet(out, metadata=dict(metadata))
    return out.getvalue()


def as_arrow(page: pl.DataFrame, _metadata: Mapping[str, str]) -> bytes:
    """Return a page as an Arrow IPC stream."""
    out = io.BytesIO()
    page.write_ipc_stream(out, compat_level=pl.CompatLevel.oldest())
    return out.getvalue()


TABLE_ENCODERS: Final[dict[str, Callable[[pl.DataFrame, Mapping[str, str]], bytes]]] = {
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def column_histogram(table: SealedTable, column: str, bins: int) -> dict[str, Any]:
    """Return the histogram of the numbers in a column, as ``ColumnHistogram`` describes it.

    Args:
        table: the open table.
        column: name of a column of numbers.
        bins: number of bins; one where all numbers are equal, or too near together for more.

    Raises:
        InvalidRequest: there is no such column, or the column holds texts.
    """
    [column] = table.named([column], "column")
    if table.columns[column] == "text":
        numeric = ", ".join([name for name, kind in table.columns.items() if kind != "text"][:50])
        raise InvalidRequest(f"column {column!r} holds texts; there are numbers in {numeric}", field="column")
    values = table.values(column)
    numbers = values.drop_nulls().cast(pl.Float64()).to_numpy()
    numbers = numbers[np.isfinite(numbers)]
    edges, counts = np.zeros(0), np.zeros(0, np.int64)
    if len(numbers):
        counts, edges = in_bins(numbers, bins)
    missing = len(values) - len(numbers)
    return {"column": column, "edges": edges.tolist(), "counts": counts.tolist(), "missing": missing}
