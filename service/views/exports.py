"""Writes parts of a matrix into files, a few rows at a time: long and wide tables (CSV, Parquet), NumPy arrays, and
features (GeoJSON, GeoParquet, GeoPackage).

An entry is kept if there is a path and it passes the filters.  Long tables have a line for each kept entry; without a
filter they have a line for every entry.  Wide tables and arrays are null (CSV: empty; npy: +inf) where an entry is not
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.graph.selection import first_beyond
from service.views.features import (
    FEATURE_FILES,
    LEAST_FEATURE,
    Ends,
    Features,
    Pairs,
    geo_metadata,
    with_geometry,
    write_geojson,
    write_geopackage,
)
from service.views.representations import FLOAT_VIEW, Selection, column_name
from storage.errors import InvalidRequest
from storage.geography.geopackage import GEOPACKAGE
from storage.graph.units import unit_metadata
from storage.semirings import MIN_PLUS

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
#: Called after each batch with the number of rows that it has written.
Tell = Callable[[int], None]
#: Most columns of a wide table: as many as a sheet of common spreadsheet programs has.
MOST_COLUMNS: Final = 16_384
#: The fewest bytes of a line of a long table: ``1,2,3`` and the end of the line.
LEAST_LINE: Final = 6


@dataclass(frozen=True)
class ExportedPart:
    """The part of a matrix to export: rows, columns, and a filter for their entries.

    Attributes:
        rows: the rows and columns of the matrix: sources and targets.
        within: the greatest distance that is kept, rounded to the type of the distances; None for no limit.
        nearest: how many nearest targets are kept for each source; ties are in the order of the columns.  None for all
            targets.
        itself: whether a source is among its own nearest targets.  If not, a point that is both source and target is
            left out as its own target, but another point at the same vertex stays.
        sources, targets: names and coordinates of rows and columns, in their order, if they are points, or if features
            are written; None if rows and columns are named by the labels of vertices.
        features: what becomes a feature: ``lines``, ``sources`` or ``targets``; None for tables without geometry.
        also: a quantity; wide tables and arrays have its sums in place of distances.  None for distances.
    """

    rows: Selection
    within: float | None = None
    nearest: int | None = None
    itself: bool = False
    sources: Ends | None = None
    targets: Ends | None = None
    features: Features | None = None
    also: str | None = None

    @property
    def measured(self) -> str:
        """The name of the entries: ``distance``, or ``value`` for semirings other than min-plus."""
        return "distance" if self.rows.result.matrix.semiring == MIN_PLUS else "value"

    @property
    def filtered(self) -> bool:
        """Whether a filter leaves out entries in addition to those without a path."""
        return self.within is not None or self.nearest is not None

    @cached_property
    def _columns(self) -> Array:
        """Vertex index of each column, shape (width,)."""
        return self.rows.result.matrix.targets if self.rows.targets is None else self.rows.targets

    def batches(self) -> Iterator[tuple[Array, Array, Mask]]:
        """Yield sources, shape (k,), their entries, shape (k, width), and a mask of the entries that are kept."""
        others, first = self._others(), 0
        for sources, entries in self.rows.batches():
            kept = self.rows.result.reached(entries)
            if self.within is not None:
                kept &= np.less(entries, first_beyond(self.within, entries.dtype))
            if self.nearest is not None:
                if not self.itself:
                    kept &= others[0] != others[1][first : first + len(sources), None]
                kept = self._nearest(entries, kept)
            first += len(sources)
            yield sources, entries, kept

    def _others(self) -> tuple[Array, Array]:
        """Return an identity for each column and each row; a target with the identity of a source is that source."""
        of_rows, of_columns = self._ends("source"), self._ends("target")
        if of_rows.snapped is None and of_columns.snapped is None:
            return self._columns, of_rows.vertices
        return np.arange(len(self._columns)), of_rows.twins(of_columns)

    def _nearest(self, entries: Array, kept: Mask) -> Mask:
        """Return a mask that keeps, of the kept entries of each row, the ``nearest`` smallest ones."""
        some = np.zeros_like(kept)
        for i in range(len(entries)):
            columns = np.flatnonzero(kept[i])
            some[i, columns[np.argsort(entries[i, columns], kind="stable")[: self.nearest]]] = True
        return some

    def _sums(self, name: str, sources: Array) -> Array:
        """Return the sums of a quantity from some sources, shape (len(sources), width)."""
        return self.rows.read(self.rows.result.matrix.also[name], sources)

    def _shown(self, sources: Array, entries: Array) -> Array:
        """Return the numbers that wide tables and arrays have: ``entries`` (distances), or the sums of ``also``."""
        return entries if self.also is None else self._sums(self.also, sources)

    def lines(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield long tables, each with the number of matrix rows that it contains.

        Sources are in the order of the rows.  The targets of a source are in the order of the columns, or with
        ``nearest`` in ascending order of their distances.
        """
        for count, pairs in self.pairs():
            yield count, pairs.table()

    def pairs(self) -> Iterator[tuple[int, Pairs]]:
        """Yield the pairs of the long table in batches, each with the number of matrix rows that it covers."""
        of_rows, of_columns, first = self._ends("source"), self._ends("target"), 0
        for sources, entries, kept in self.batches():
            row, column = np.nonzero(kept) if self.filtered else np.nonzero(np.ones_like(kept))
            if self.nearest is not None:
                order = np.lexsort((column, entries[row, column], row))
                row, column = row[order], column[order]
            values = self.rows.values(entries[row, column])
            also: list[pl.Series] = []
            for name in self.rows.result.matrix.also:
                sums = pl.Series(column_name(name), self._sums(name, sources)[row, column])
                also.append(sums.set(values.is_null(), None))
            yield len(sources), Pairs(of_rows, of_columns, row + first, column, values, tuple(also))
            first += len(sources)

    def _ends(self, side: str) -> Ends:
        """Return the names of the rows (``side`` is ``source``) or of the columns (``target``)."""
        given = self.sources if side == "source" else self.targets
        vertices = self.rows.sources if side == "source" else self._columns
        matrix = self.rows.result.matrix
        return Ends.of_vertices(vertices, matrix.labels, None) if given is None else given

    def wide(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield wide tables: a line for each source, a column for each target.

        Raises:
            InvalidRequest: there are too many targets, or a target has the same name as the column of the sources.
        """
        names, keys, first = [str(name) for name in self._ends("target").keys], self._ends("source").keys, 0
        if len(names) > MOST_COLUMNS:
            message = (
                f"{len(names):,} targets are too many for a wide table: {MOST_COLUMNS:,} at most; leave out --wide"
            )
            raise InvalidRequest(message, field="--wide")
        if "source" in names:
            message = "a target is called 'source', as the first column of a wide table is; leave out --wide"
            raise InvalidRequest(message, field="--wide")
        for sources, entries, kept in self.batches():
            columns, shown = {"source": keys[first : first + len(sources)]}, self._shown(sources, entries)
            first += len(sources)
            for j, name in enumerate(names):  # by name: in a list of series, one without a name gets another
                column = pl.Series(name, np.ascontiguousarray(shown[:, j]))
                columns[name] = column.set(pl.Series(~kept[:, j]), None)
            yield len(sources), pl.DataFrame(columns)

    def floats(self) -> Iterator[Array]:
        """Yield rows as floats wide enough for every distance, shape (k, width).

        Where an entry is not kept, there is +inf, or, for other semirings than min-plus, their value for no path.
        """
        matrix = self.rows.result.matrix
        lost = np.inf if matrix.semiring == MIN_PLUS else matrix.unreachable
        for sources, entries, kept in self.batches():
            yield np.where(kept, self._shown(sources, entries), lost).astype(self.float_type)

    @property
    def float_type(self) -> np.dtype[Any]:
        """The type of :meth:`floats`, little-endian."""
        matrix = self.rows.result.matrix
        return np.dtype(FLOAT_VIEW[(matrix if self.also is None else matrix.also[self.also]).dtype.name])

    def least_bytes(self, kind: str) -> int:
        """Return the least bytes of a file with the ending ``kind``; 0 if the size depends on the entries."""
        cells = len(self.rows.sources) * self.rows.width
        if kind == ".npy":
            return cells * self.float_type.itemsize
        if kind in FEATURE_FILES and not self.filtered:
            return cells * LEAST_FEATURE
        return cells * LEAST_LINE if kind == ".csv" and not self.filtered else 0


def write_csv(part: ExportedPart, path: Path, tell: Tell, wide: bool) -> None:
    """Write a table with a header.

    Args:
        part: what is written.
        path: the file.
        tell: called after each batch with the number of its rows.
        wide: whether the table has a column for each target instead of a line for each entry.
    """
    with path.open("wb") as file:
        for i, (count, table) in enumerate(part.wide() if wide else part.lines()):
            file.write(table.write_csv(include_header=i == 0).encode())
            tell(count)


def write_parquet(part: ExportedPart, path: Path, tell: Tell, wide: bool) -> None:
    """Write a table as Parquet; arguments as in ``write_csv``."""
    from polars.io.plugins import register_io_source

    matrix = part.rows.result.matrix
    features, metadata = part.features, {} if part.also else unit_metadata(matrix.unit, part.measured)
    tables: Iterator[tuple[int, pl.DataFrame]]
    if features is not None:
        tables = ((count, with_geometry(pairs, features)) for count, pairs in part.pairs())
        metadata |= geo_metadata(features, part.sources is None or part.sources.geographic)
    else:
        tables = part.wide() if wide else part.lines()
    first = next(tables)

    def batches(*_: object) -> Iterator[pl.DataFrame]:
        count, table = first
        yield table
        tell(count)
        for following, more in tables:
            yield more
            tell(following)

    with path.open("wb") as file:  # given a path, a thread of polars would create the file, even after an interrupt
        register_io_source(batches, schema=first[1].schema).sink_parquet(file, metadata=metadata)


def write_npy(part: ExportedPart, path: Path, tell: Tell, _: bool) -> None:
    """Write a NumPy array, shape (sources, targets); arguments as in ``write_csv``, but ``wide`` has no effect."""
    dtype = part.float_type
    shape = (len(part.rows.sources), part.rows.width)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        for rows in part.floats():
            file.write(rows.tobytes())
            tell(len(rows))


def write_features(part: ExportedPart, path: Path, tell: Tell, _: bool) -> None:
    """Write GeoJSON; arguments as in ``write_csv``, but ``wide`` has no effect."""
    with path.open("wb") as file:
        write_geojson(part.pairs(), file, tell, part.features or "lines", part.rows.result.matrix.unit)


def write_layer(part: ExportedPart, path: Path, tell: Tell, _: bool) -> None:
    """Write a GeoPackage; arguments as in ``write_csv``, but ``wide`` has no effect."""
    geographic = part.sources is None or part.sources.geographic
    unit = part.rows.result.matrix.unit
    write_geopackage(part.pairs(), path, tell, part.features or "lines", geographic, unit=unit)


#: The function that writes a file, by the ending of the file.
WRITERS: Final = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".npy": write_npy,
    ".geojson": write_features,
    GEOPACKAGE: write_layer,
}
