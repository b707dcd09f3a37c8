"""Writes and reads tables with a row for each vertex or arc, as Parquet or CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.arguments import check_flags, check_given_paths
from storage.errors import Conflict, InvalidRequest, NotFound
from storage.files import atomic
from storage.files.csv_rows import place_of, read_rows, repeated_name
from storage.files.writing import Writing
from storage.graph.graph import index_of
from storage.graph.units import unit_metadata
from storage.number_texts import TOO_SMALL, looks_like_number, vanishes

if TYPE_CHECKING:
    import pandas
    import polars as pl
    import pyarrow

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]

#: Most characters of a number that messages show.
_SHOWN: Final = 40
#: Endings of the files that tables are written to and read from.
ENDINGS: Final = (".parquet", ".csv")


class Tabular:
    """Base of results that can be returned as data frames of several kinds, and written to a file.

    Attributes:
        unit: the unit of the distances; None if it is not known.
    """

    unit: str | None = None

    def to_polars(self) -> pl.DataFrame:
        """Return the table as a data frame of polars."""
        raise NotImplementedError

    def to_arrow(self) -> pyarrow.Table:
        """Return the table as :meth:`to_polars` does, for Arrow; pyarrow has to be installed."""
        return self.to_polars().to_arrow()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as :meth:`to_polars` does, for pandas; pandas and pyarrow have to be installed."""
        return self.to_polars().to_pandas()

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the table of :meth:`to_polars` as Parquet or CSV, as the ending of the path says.

        The metadata of Parquet names the unit of distances (``distance_unit``), if it is known.

        Args:
            path: a file name that ends in ``.parquet`` or ``.csv``.
            overwrite: whether an existing file is replaced.

        Raises:
            InvalidRequest: the path has neither ending.
            Conflict: the file exists, and ``overwrite`` is not set.
            StorageFailed: the disk refused.
        """
        check_given_paths(path=path)
        check_flags(overwrite=overwrite)
        write_table(self.to_polars(), Path(path), overwrite=overwrite, unit=self.unit)


def frame_of(labels: Array, vertices: Indices, columns: Mapping[str, Array], named: frozenset[str]) -> pl.DataFrame:
    """Return a data frame that has labels in place of vertex indices, and null in place of missing values.

    Args:
        labels: the labels of all vertices, shape (n,).
        vertices: the vertex index of each row, shape (rows,), for the first column, ``vertex``.
        columns: all other columns by name, each of shape (rows,); NaN stands for a missing value.
        named: the names of the columns that hold vertex indices, in which -1 stands for a missing vertex.
    """
    import polars as pl

    made = [_labelled("vertex", labels, vertices)]
    for name, column in columns.items():
        if name in named:
            made.append(_labelled(name, labels, column.astype(np.int64)))
        else:
            series = pl.Series(name, column)
            made.append(series.fill_nan(None) if column.dtype.kind == "f" else series)
    return pl.DataFrame(made)


def arc_frame_of(labels: Array, tails: Indices, heads: Indices, columns: Mapping[str, Array]) -> pl.DataFrame:
    """Return a table with a row for each arc: columns ``source`` and ``target``, then ``columns``.

    Args:
        labels: the labels of all vertices, shape (n,).
        tails, heads: the vertex indices of each row, shape (rows,).
        columns: all other columns by name, each of shape (rows,).
    """
    import polars as pl

    ends = [_labelled("source", labels, tails), _labelled("target", labels, heads)]
    return pl.DataFrame([*ends, *(pl.Series(name, column) for name, column in columns.items())])


def _labelled(name: str, labels: Array, vertices: Indices) -> pl.Series:
    """Return the labels of vertices as a column called ``name``; null where the vertex index is -1."""
    import polars as pl

    there = vertices >= 0
    found = labels[np.where(there, vertices, 0)] if len(labels) else labels
    if labels.dtype.kind in "iu":
        series = pl.Series(name, found.astype(np.int64))
    else:
        series = pl.Series(name, [str(label) for label in found], dtype=pl.String())
    if there.all():
        return series
    return pl.DataFrame([series, pl.Series("there", there)]).select(pl.when("there").then(name).alias(name))[name]


def check_table(path: Path, *, overwrite: bool) -> None:
    """Check that a table can be written to a path.

    Args:
        path: the file.
        overwrite: whether an existing file may be replaced.

    Raises:
        InvalidRequest: the ending is none of ``ENDINGS``.
        Conflict: the file exists and may not be replaced, or the path is a folder.
        NotFound: the parent folder does not exist.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InvalidRequest(f"{path} must end in {' or '.join(ENDINGS)}, which decides its format", field="out")
    if path.is_dir() or (path.exists() and not overwrite):
        way = "it is a folder" if path.is_dir() else "replace it with --overwrite, or name another file"
        raise Conflict(f"{path} exists already; {way}")
    if not path.absolute().parent.is_dir():
        raise NotFound(f"the folder {path.absolute().parent} does not exist")


def write_table(frame: pl.DataFrame, path: Path, *, overwrite: bool = False, unit: str | None = None) -> None:
    """Write a table atomically: the file appears complete or not at all.

    Args:
        frame: the table.
        path: the file; its ending decides the format.
        overwrite: whether an existing file is replaced.
        unit: the unit of the distances, for the metadata of Parquet; CSV has no metadata.

    Raises:
        InvalidRequest, Conflict, NotFound: as for :func:`check_table`.
        StorageFailed: the disk refused; DiskFull if it is full.
    """
    check_table(path, overwrite=overwrite)
    part = path.with_name(f".{path.name}.part")
    with Writing(path, "measure"):
        check_table(path, overwrite=overwrite)
        _write(frame, path, part, unit)


def _write(frame: pl.DataFrame, path: Path, part: Path, unit: str | None) -> None:
    try:
        if path.suffix.lower() == ".csv":
            frame.write_csv(part)
        else:
            frame.write_parquet(part, metadata=unit_metadata(unit))
        atomic.sync_path(part)
        part.replace(path)
        atomic.sync_path(path.absolute().parent)
    except OSError as error:
        raise atomic.failure("write", path, error) from error
    finally:
        part.unlink(missing_ok=True)


def read_table(path: Path, labels: Array, columns: Sequence[str] | None = None) -> dict[str, npt.NDArray[np.float64]]:
    """Read numbers of vertices from a table: the first column names vertices, and all other columns hold numbers.

    Args:
        path: a CSV file with a header, or a Parquet file.
        labels: the labels of the graph's vertices, ascending, shape (n,).
        columns: the names of the columns of numbers to read; None for all.

    Returns:
        For each column an array of shape (n,); 0 for vertices that the file does not name.

    Raises:
        NotFound: the file, a column, or a vertex of the file does not exist.
        InvalidRequest: the file is no table of this form, has no header or no rows, names a vertex twice, or holds a
            number that is not finite.
    """
    frame = frame_in(path)
    names = frame.columns
    if path.suffix.lower() == ".csv":
        check_header(path, names, labels, "opportunities")
    check_filled(path, frame, "opportunities")
    wanted = names[1:] if columns is None else list(columns)
    if not wanted:
        raise InvalidRequest(f"{path} has no column of numbers after {names[0]!r}", field="opportunities")
    for name in wanted:
        if name not in names[1:]:
            raise NotFound(f"{path} has no column {name!r} after the first; there are {', '.join(names[1:])}")
    vertices = _vertices(path, frame[names[0]], labels)
    found = {}
    for name in wanted:
        found[name] = np.zeros(len(labels))
        found[name][vertices] = numbers_in(path, frame[name])
    return found


def frame_in(path: Path, field: str = "opportunities") -> pl.DataFrame:
    """Return the table in a file.  All columns of a CSV file are texts.  Errors name the argument ``field``.

    Raises:
        NotFound: the file cannot be opened.
        InvalidRequest: the file is neither a CSV nor a Parquet table, or two of its columns have one name.
    """
    import polars as pl

    if path.suffix.lower() not in ENDINGS:
        raise InvalidRequest(f"{path} must end in {' or '.join(ENDINGS)}, which decides its format", field=field)
    try:
        with path.open("rb"):
            pass
        if path.suffix.lower() == ".csv":
            frame = read_rows(path)
            twice = repeated_name(path, frame.columns)
            if twice is not None:
                raise InvalidRequest(f"{path}, line 1: two columns are called {twice!r}; rename one", field=field)
            return frame
        return pl.read_parquet(path)
    except OSError as error:
        raise NotFound(f"cannot open {path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"{path} cannot be read as a table: {reason}", field=field) from error


def check_header(path: Path, names: list[str], labels: Array, field: str) -> None:
    """Refuse a CSV file without a header, because its first row would be read as the header.

    Args:
        path: the file.
        names: the names of the columns, from the first line of the file.
        labels: the labels of the vertices.
        field: the option that named the file.
    """
    numbers = [name for name in names[1:] if looks_like_number(name)]
    if not numbers:
        return
    try:
        index_of(labels, names[0])
    except NotFound:
        return
    raise InvalidRequest(
        f"{path}, line 1: {names[0]!r} is a vertex and {numbers[0]!r} a number; the first line must name the columns",
        field=field,
    )


def check_filled(path: Path, frame: pl.DataFrame, field: str) -> None:
    """Refuse a table without rows, because an empty file is more often a mistake than intended.

    Args:
        path: the file.
        frame: the table, without the rows that have no entry.
        field: the option that named the file.
    """
    if not frame.height:
        raise InvalidRequest(f"{path} has no row with an entry below the names of its columns", field=field)


def place_in(path: Path, row: int) -> str:
    """Return a text for messages that says where a row is in the file."""
    return f"{path}, {place_of(path, row)}"


def vertices_of(path: Path, column: pl.Series, labels: Array) -> Indices:
    """Return the index of the vertex that each entry of a column names.  If no label equals the entry, white space
    around the entry is ignored.  Raises NotFound, which names the line, for an unknown name.
    """
    import polars as pl

    found = np.empty(len(column), np.int64)
    known: dict[str, int] = {}
    if labels.dtype.kind not in "iu":
        known = {str(label): i for i, label in enumerate(labels)}
    for row, name in enumerate(column.cast(pl.String()).to_list()):
        text = name or ""
        if text not in known:
            try:
                known[text] = index_of(labels, text)
            except NotFound as error:
                raise NotFound(f"{place_in(path, row)}: {error}") from None
        found[row] = known[text]
    return found


def _vertices(path: Path, column: pl.Series, labels: Array) -> Indices:
    """Return the index of the vertex that each entry of a column names.  Raises InvalidRequest for a repeated name."""
    found = vertices_of(path, column, labels)
    order = np.argsort(found, kind="stable")
    twice = np.flatnonzero(np.diff(found[order]) == 0)
    if len(twice):
        row = int(order[twice[0] + 1])
        message = f"{place_in(path, row)}: vertex {column[row]} was named before; each may have one row"
        raise InvalidRequest(message, field="opportunities")
    return found


def numbers_in(path: Path, column: pl.Series, field: str = "opportunities") -> npt.NDArray[np.float64]:
    """Return a column as floats.  Raises InvalidRequest, which names ``field``, if an entry is no number, or is a text
    of one that float64 would take for 0.
    """
    import polars as pl

    text = column.dtype == pl.String()
    texts = column.str.strip_chars() if text else column
    numbers = texts.cast(pl.Float64(), strict=False)
    values = numbers.fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidRequest(
            f"{place_in(path, row)}: column {column.name!r} is {column[row]!r}, which is no finite number; "
            "name the columns that hold numbers where others hold texts",
            field=field,
        )
    if text:
        _refuse_vanished(path, texts, values, field)
    return np.asarray(values, np.float64)


def _refuse_vanished(path: Path, texts: pl.Series, values: npt.NDArray[np.float64], field: str) -> None:
    """Refuse a number that is not 0 where ``values`` has 0; ``texts`` are the numbers as they are written."""
    zeros = np.flatnonzero(values == 0)
    small = [text for text in texts.gather(zeros).unique() if vanishes(text, 0.0)]
    if small:
        row = int(texts.is_in(small).arg_true()[0])
        raise InvalidRequest(
            f"{place_in(path, row)}: column {texts.name!r} is {texts[row][:_SHOWN]!r}, which {TOO_SMALL}: give all of "
            "them in a smaller unit, or write 0",
            field=field,
        )
