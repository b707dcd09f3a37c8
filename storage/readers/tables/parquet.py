"""Parquet edge lists: columns for source, target and perhaps a weight, by name or by position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import AnyArray
from storage.readers.columns import ArcColumns, TextLabels
from storage.readers.formula import Formula
from storage.readers.limits import HARMLESS_BYTES
from storage.readers.named import NO_DIRECTION
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.choose import choose_by_name, direction_of
from storage.readers.tables.matrix_shape import names_columns
from storage.readers.tables.sniff import names_ends

if TYPE_CHECKING:
    import polars as pl

_ROWS = 1 << 18
#: Rows that are read to find out what columns mean.
_SAMPLE = 1000


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file a slice of rows at a time; errors as ``read_graph``."""
    import polars as pl

    with source.local() as path:
        try:
            return _read(path, options)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            # polars panics on a file whose metadata and content disagree.
            raise InvalidGraph(f"the Parquet file is damaged: {f'{error} '.splitlines()[0].strip()}") from None


def _read(path: Path, options: ReadOptions) -> Parsed:
    import polars as pl

    table = pl.scan_parquet(path)
    schema = table.collect_schema()
    rows = int(table.select(pl.len()).collect().item())
    options.limits.check_arcs(rows)
    # Run-length encoding can pack a billion rows into one page; in memory each row takes three columns of 8 bytes.
    if 24 * rows > HARMLESS_BYTES:
        options.limits.check_bytes(24 * rows, path.stat().st_size)
    names = schema.names()
    numeric = [schema[name].is_numeric() for name in names]
    if len(names) < 2:
        raise InvalidGraph(f"an edge needs two columns, the file has {len(names)}", field="schema")
    _refuse_matrix(names, numeric, rows, options)
    selected = choose_by_name(names, numeric, options, _sample(table.head(_SAMPLE).collect()))
    source, target, weight = selected.source, selected.target, selected.weight
    for name in (names[source], names[target]):
        kind = schema[name]
        if not (kind.is_integer() or kind in (pl.String(), pl.Categorical()) or isinstance(kind, pl.Enum)):
            raise InvalidGraph(f"column {name!r} holds {kind}; vertices are whole numbers or text", field=name)
    if weight is not None and not numeric[weight]:
        raise InvalidRequest(f"column {names[weight]!r} holds {schema[names[weight]]}, not weights", field="weight")
    text = not (schema[names[source]].is_integer() and schema[names[target]].is_integer())
    wanted = [names[source], names[target]] + ([] if weight is None else [names[weight]])
    columns, labels = ArcColumns(options.limits, weight is not None), TextLabels()
    for top in range(0, rows, _ROWS):
        frame = table.select(wanted).slice(top, _ROWS).collect()
        columns.append(*_arcs(frame, top, text, labels, options.length_of))
    arcs = columns.take()
    directed, told = _direction(table, names, selected.kind, options)
    return Parsed(
        arcs,
        labels.finish(arcs) if text else None,
        directed,
        rows,
        weight_column=None if weight is None else names[weight],
        length_of=None if options.length_of is None else options.length_of.text,
        notes=[*selected.notes, *told],
    )


def _sample(frame: pl.DataFrame) -> list[list[str]]:
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


def _direction(table: pl.LazyFrame, names: list[str], kind: int | None, options: ReadOptions) -> tuple[bool, list[str]]:
    """Return whether the edges are directed, and notes about that for the receipt."""
    import polars as pl

    if options.directed is not None:
        return options.directed, []
    if kind is None:
        return True, [NO_DIRECTION]
    values = table.select(names[kind]).unique().collect().to_series().cast(pl.String())
    directed = direction_of(names[kind], ["" if value is None else value for value in values])
    return directed, [f"column {names[kind]!r}: all edges are {'directed' if directed else 'undirected'}"]


def _refuse_matrix(names: list[str], numeric: list[bool], rows: int, options: ReadOptions) -> None:
    """Refuse a table with equally many rows and columns of numbers, unless some column has a name as in edge lists."""
    if options.source or options.target or options.column or rows < 2:
        return
    if names_ends(names, letters=True) or names_columns(names):
        return
    values = sum(number and not name.startswith("__index_") for name, number in zip(names, numeric, strict=True))
    if rows == values and len(names) - values < 2:
        raise InvalidGraph(
            f"{rows} rows of {rows} numbers may be a matrix or an edge list: save a matrix as .npy or CSV, or name the "
            "columns of an edge list with --from and --to",
            field="schema",
        )


def _arcs(
    frame: pl.DataFrame, top: int, text: bool, labels: TextLabels, formula: Formula | None
) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    import polars as pl

    for column in frame:
        if column.null_count():
            row = top + int(column.is_null().arg_max() or 0)
            raise InvalidGraph(f"row {row + 1} of column {column.name!r} is empty", field=column.name)
    weights = None
    if frame.width > 2:
        column = frame.to_series(2)
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
        weights = weights.astype(np.float64 if weights.dtype.kind == "f" else np.int64)
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


def _as_int64(column: pl.Series, top: int) -> pl.Series:
    import polars as pl

    whole = column.cast(pl.Int64(), strict=False)
    if whole.null_count():
        row = int(whole.is_null().arg_max() or 0)
        message = f"row {top + row + 1}: {column[row]} in column {column.name!r} is beyond the range of int64"
        raise InvalidGraph(message, field=column.name)
    return whole
