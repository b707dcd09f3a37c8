"""Converts data frames of edges (columns of vertices, and optionally weights) to arcs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers.columns import TextLabels
from storage.readers.formula import Formula

if TYPE_CHECKING:
    import polars as pl

#: Number of rows that are read to find out what columns mean.
SAMPLE = 1000


def sample_of(frame: pl.DataFrame) -> list[list[str]]:
    """Return rows as text for ``choose_by_name``; a value that is neither number nor text becomes ``x``, a null is
    empty.
    """
    import polars as pl

    columns = []
    for column in frame:
        text = column.dtype.is_numeric() or column.dtype in (pl.String(), pl.Boolean())
        cells = column.cast(pl.String()).to_list() if text else ["x"] * len(column)
        columns.append(["" if cell is None else cell for cell in cells])
    return [list(row) for row in zip(*columns, strict=True)]


def arcs_of(
    frame: pl.DataFrame, top: int, text: bool, labels: TextLabels, formula: Formula | None
) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Return tails, heads and weights of a frame of edges; the weights are None if the frame has no third column.

    Args:
        frame: tails, heads and, if there is a third column, lengths; shape (k, 2) or (k, 3).
        top: number of rows before this frame, for messages.
        text: whether vertices are text, for which the codes of ``labels`` are returned; otherwise they are whole
            numbers.
        labels: the names of vertices so far; new names are added.
        formula: computes the lengths from the third column; None if the third column holds the lengths.

    Raises:
        InvalidGraph: a value is missing, no length, or beyond int64.
    """
    import polars as pl

    for column in frame:
        _refuse_gaps(column, top)
    weights = None
    if frame.width > 2:
        weights = weights_of(frame.to_series(2), top)
        if formula is not None:
            weights = formula(weights)
            wrong = np.flatnonzero(~np.isfinite(weights))
            if len(wrong):
                message = f"row {top + int(wrong[0]) + 1}: {formula.text} is {weights[wrong[0]]}, which is no length"
                raise InvalidGraph(message, field="length_of")
    ends = frame.to_series(0), frame.to_series(1)
    if text:
        return labels.encode(ends[0].cast(pl.String())), labels.encode(ends[1].cast(pl.String())), weights
    return _as_int64(ends[0], top).to_numpy(), _as_int64(ends[1], top).to_numpy(), weights


def weights_of(column: pl.Series, top: int) -> AnyArray:
    """Return a column of numbers as int64 or float64.

    Args:
        column: the numbers, shape (k,).
        top: number of rows before these, for messages.

    Raises:
        InvalidGraph: a value is missing, no length, or beyond int64.
    """
    import polars as pl

    _refuse_gaps(column, top)
    if column.dtype.is_integer():
        column = _as_int64(column, top)
    elif column.dtype.is_decimal():
        column = column.cast(pl.Float64())
    weights = column.to_numpy()
    if weights.dtype.kind == "f":
        wrong = np.isnan(weights) | (weights == -np.inf)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InvalidGraph(f"row {top + row + 1}: weight {weights[row]} is not a length", field="weight")
    return weights.astype(np.float64 if weights.dtype.kind == "f" else np.int64)


def _refuse_gaps(column: pl.Series, top: int) -> None:
    if column.null_count():
        row = top + int(column.is_null().arg_max() or 0)
        raise InvalidGraph(f"row {row + 1} of column {column.name!r} is empty", field=column.name)


def _as_int64(column: pl.Series, top: int) -> pl.Series:
    import polars as pl

    whole = column.cast(pl.Int64(), strict=False)
    if whole.null_count():
        row = int(whole.is_null().arg_max() or 0)
        message = f"row {top + row + 1}: {column[row]} in column {column.name!r} is beyond the range of int64"
        raise InvalidGraph(message, field=column.name)
    return whole
