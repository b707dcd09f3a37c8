"""Parquet edge lists: columns for source, target and perhaps a weight, by name or by position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import AnyArray, ArcList
from storage.readers.columns import ArcColumns, TextLabels
from storage.readers.layers.edges import read_edges
from storage.readers.layers.frames import SAMPLE, arcs_of, sample_of, weights_of
from storage.readers.layers.geoparquet import lines_of
from storage.readers.limits import HARMLESS_BYTES
from storage.readers.named import NO_DIRECTION
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.choose import Columns, choose_by_name
from storage.readers.tables.directions import direction_of
from storage.readers.tables.matrix_shape import names_columns
from storage.readers.tables.sniff import names_ends

if TYPE_CHECKING:
    import polars as pl

_ROWS = 1 << 18


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file a slice of rows at a time; raises the errors of ``read_graph``."""
    import polars as pl

    with source.local() as path:
        try:
            return _read(path, options)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            # polars panics on a file whose metadata and content disagree.
            raise InvalidGraph(f"the Parquet file is damaged: {f'{error} '.splitlines()[0].strip()}") from None


def _plain(table: pl.LazyFrame) -> pl.LazyFrame:
    """Return the table with plain columns: columns of an Arrow extension type, such as ``geoarrow.wkb``, are replaced
    by their stored values.
    """
    import polars as pl

    extended = [name for name, kind in table.collect_schema().items() if isinstance(kind, pl.BaseExtension)]
    return table.with_columns(pl.col(name).ext.storage() for name in extended) if extended else table


def _read(path: Path, options: ReadOptions) -> Parsed:
    import polars as pl

    table = _plain(pl.scan_parquet(path))
    schema = table.collect_schema()
    rows = int(table.select(pl.len()).collect().item())
    options.limits.check_arcs(rows)
    # Run-length encoding can pack a billion rows into one page, so the limits apply to the size in memory, which is
    # three columns of 8 bytes per row.
    if 24 * rows > HARMLESS_BYTES:
        options.limits.check_bytes(24 * rows, path.stat().st_size)
    lines = lines_of(path, table, options.limits)
    if lines is not None:
        return read_edges(lines, options)
    names = schema.names()
    numeric = [schema[name].is_numeric() for name in names]
    if len(names) < 2:
        raise InvalidGraph(f"an edge needs two columns, the file has {len(names)}", field="schema")
    _refuse_matrix(names, numeric, rows, options)
    sample = sample_of(table.head(SAMPLE).collect())
    selected = choose_by_name(names, numeric, options, sample)
    source, target, weight = selected.source, selected.target, selected.weight
    _refuse_types(schema, names[source], names[target])
    if weight is not None and not numeric[weight]:
        raise InvalidRequest(f"column {names[weight]!r} holds {schema[names[weight]]}, not weights", field="weight")
    text = not (schema[names[source]].is_integer() and schema[names[target]].is_integer())
    wanted = [names[source], names[target]] + ([] if weight is None else [names[weight]])
    further = _together(names, numeric, sample, selected, options)
    arcs, labels = _arcs(table, (wanted, further), rows, options, text=text)
    directed, told = _direction(table, names, selected.kind, options)
    return Parsed(
        arcs,
        labels,
        directed,
        rows,
        weight_column=None if weight is None else names[weight],
        length_of=None if options.length_of is None else options.length_of.text,
        notes=[*selected.notes, *told],
    )


def _refuse_types(schema: pl.Schema, *ends: str) -> None:
    """Refuse columns of vertices that hold neither whole numbers nor text."""
    import polars as pl

    for name in ends:
        kind = schema[name]
        if not (kind.is_integer() or kind in (pl.String(), pl.Categorical()) or isinstance(kind, pl.Enum)):
            raise InvalidGraph(f"column {name!r} holds {kind}; vertices are whole numbers or text", field=name)


def _together(
    names: list[str], numeric: list[bool], sample: list[list[str]], selected: Columns, options: ReadOptions
) -> dict[str, str]:
    """Return, for each name in ``also`` for which all other columns stay the same, the column that it means."""

    def find(as_weight: ReadOptions) -> int | None:
        other = choose_by_name(names, numeric, as_weight, sample)
        same = replace(other, weight=selected.weight, notes=selected.notes) == selected
        return other.weight if same and other.weight is not None and numeric[other.weight] else None

    return {column: names[position] for column, position in options.read_together(find).items()}


def _arcs(
    table: pl.LazyFrame, selected: tuple[list[str], dict[str, str]], rows: int, options: ReadOptions, *, text: bool
) -> tuple[ArcList, AnyArray | None]:
    """Return the arcs, and the labels of vertices that are text.

    ``selected`` are the two or three columns of the arcs, and the columns of quantities by name.
    """
    wanted, further = selected
    columns, labels = ArcColumns(options.limits, len(wanted) > 2, further), TextLabels()
    table = table.select(list(dict.fromkeys([*wanted, *further.values()])))
    for top in range(0, rows, _ROWS):
        frame = table.slice(top, _ROWS).collect()
        quantities = {name: weights_of(frame.get_column(column), top) for name, column in further.items()}
        columns.append(*arcs_of(frame.select(wanted), top, text, labels, options.length_of), quantities)
    arcs = columns.take()
    return arcs, labels.finish(arcs) if text else None


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
    """Refuse a table with as many rows as columns of numbers, which may be a matrix, unless a column is named as in
    edge lists.
    """
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
