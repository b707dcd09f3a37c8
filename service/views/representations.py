"""Encodes rows of a matrix as JSON, CSV, npy, Parquet or Arrow, a few rows at a time where the format allows it.

Tables (CSV, Parquet, Arrow) are long: one line ``source, target, distance`` for each entry, with a further column for
each quantity that is summed along the paths.  JSON and npy have distances, or the sums of one quantity.  *Unreachable*
is null in JSON and tables (empty in CSV); npy holds floats wide enough for every distance, and +inf for unreachable.
For semirings other than min-plus the column is called ``value``, infinite values are null in JSON, and npy holds the
values as they are stored.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from service.jobs.results import ResultReader
from storage.graph.units import unit_metadata
from storage.semirings import MIN_PLUS

#: the approximate number of entries that are read and encoded together
BATCH: Final = 1 << 18
#: number of entries that are read in whole rows in the time of reading one single entry
_ENTRY_COST: Final = 500
#: the prefix of a quantity's column if its name could be that of another column of a long table, and these names
_ALSO: Final = "also "
_TAKEN: Final = frozenset(
    ("source", "source_name", "source_snap", "target", "target_name", "target_snap", "distance", "geometry")
)
#: height of a tile: this many rows are read together, because they are in the same tiles
_BAND: Final = 64

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]
#: the float type that holds every value of each stored type exactly; reachability (uint8) stays as it is
FLOAT_VIEW: Final = {"uint8": "|u1", "uint16": "<f4", "int32": "<f8", "float32": "<f4", "float64": "<f8"}


@dataclass(frozen=True)
class Selection:
    """Rows of a result, restricted to some targets.

    ``sources`` and ``targets`` are vertex indices, shapes (k,) and (t,); ``targets`` is None for all targets that were
    solved.  ``told`` are further members of an answer in JSON.  ``also`` names a quantity whose sums JSON and npy have
    in place of distances.
    """

    result: ResultReader
    sources: Indices
    targets: Indices | None
    told: Mapping[str, Any] = field(default_factory=dict)
    also: str | None = None

    @property
    def width(self) -> int:
        """The number of entries in a row."""
        return self.result.matrix.shape[1] if self.targets is None else len(self.targets)

    def batches(self) -> Iterator[tuple[Indices, Array]]:
        """Yield sources and their entries, shape (len(sources), width), until all rows were read."""
        for some in self.bands():
            yield some, self.read(self.result.matrix, some)

    def bands(self) -> Iterator[Indices]:
        """Yield the sources in the groups that are read together."""
        step = max(1, BATCH // max(1, self.result.matrix.shape[1]))
        if self.targets is not None and self._few(self.targets):
            step = max(_BAND, BATCH // max(1, len(self.targets)) // _BAND * _BAND)
        for first in range(0, len(self.sources), step):
            yield self.sources[first : first + step]

    def read(self, array: Any, sources: Indices) -> Array:
        """Return the entries from some sources to the targets, shape (len(sources), width).

        Args:
            array: the matrix of the result, or the sums of a quantity along the shortest paths.
            sources: vertex indices, at most as many as :meth:`bands` yields at a time.
        """
        targets = self.targets
        found: Array
        if targets is None:
            found = array.rows(sources)
        elif self._few(targets):
            found = array.entries(np.repeat(sources, len(targets)), np.tile(targets, len(sources)))
            found = found.reshape(len(sources), len(targets))
        else:
            found = array.rows(sources)[:, self.result.matrix.target_positions(targets)]
        return found

    def _few(self, targets: Indices) -> bool:
        """Return whether entries are read one by one, because that is faster than reading whole rows."""
        return bool(len(targets) * _ENTRY_COST < self.result.matrix.shape[1])

    def source_names(self, sources: Indices) -> pl.Series:
        """Return the labels of some sources."""
        return _labels(self.result.matrix.labels[sources])

    def target_names(self) -> pl.Series:
        """Return the labels of the columns."""
        matrix = self.result.matrix
        return _labels(matrix.target_labels if self.targets is None else matrix.labels[self.targets])

    @property
    def name(self) -> str:
        """The name of the column of entries in a long table."""
        return "distance" if self.result.matrix.semiring == MIN_PLUS else "value"

    def values(self, entries: Array) -> pl.Series:
        """Return the entries, row after row, in one series; null where there is no path."""
        flat = entries.reshape(-1)
        series = pl.Series(self.name, flat)
        return series.set(pl.Series(~self.result.reached(flat)), None)


def column_name(quantity: str) -> str:
    """Return a name for the column of a quantity in a long table, different from the names of the other columns."""
    word = quantity
    while word.startswith(_ALSO):  # so that "distance" and "also distance" have different names, too
        word = word.removeprefix(_ALSO)
    return f"{_ALSO}{quantity}" if word in _TAKEN else quantity


def as_json(rows: Selection) -> Iterator[bytes]:
    """Yield ``{"sources": [...], "targets": [...], "distances": [[...], ...]}``.

    If ``rows.also`` names a quantity, a member ``also`` has this name, and ``sums`` stands in place of ``distances``.
    """
    matrix, also = rows.result.matrix, rows.also
    array = matrix if also is None else matrix.also[also]
    member = '"distances"' if also is None else f'"also":{json.dumps(also)},"sums"'
    sources, targets = rows.source_names(rows.sources).to_list(), rows.target_names().to_list()
    told = "".join(f"{json.dumps(name)}:{json.dumps(value)}," for name, value in rows.told.items())
    yield f'{{"sources":{json.dumps(sources)},"targets":{json.dumps(targets)},{told}{member}:['.encode()
    comma = ""
    for some in rows.bands():
        entries = rows.read(array, some)
        if also is None:
            values = rows.values(entries)
        else:
            flat = entries.reshape(-1)
            values = pl.Series(flat).set(pl.Series(flat == array.unreachable), None)
        if rows.result.said and entries.dtype.kind == "f":  # infinite from a vertex to itself, which JSON cannot say
            values = values.set(values.is_infinite(), None)
        texts = values.cast(pl.String).fill_null("null").to_list()
        width = rows.width
        lists = (",".join(texts[at : at + width]) for at in range(0, len(texts), width))
        yield (comma + ",".join(f"[{text}]" for text in lists)).encode()
        comma = ","
    yield b"]}"


def as_csv(rows: Selection) -> Iterator[bytes]:
    """Yield a header and lines ``source,target,distance``, followed by a column of sums for each quantity."""
    header = ("source", "target", rows.name, *map(column_name, rows.result.matrix.also))
    yield pl.DataFrame(schema=header).write_csv().encode()
    for table in _tables(rows):
        yield table.write_csv(include_header=False).encode()


def as_npy(rows: Selection) -> Iterator[bytes]:
    """Yield a NumPy file, shape (sources, targets), of distances or of the sums of a quantity."""
    matrix = rows.result.matrix
    array = matrix if rows.also is None else matrix.also[rows.also]
    dtype = np.dtype(FLOAT_VIEW[array.dtype.name])
    header = io.BytesIO()
    shape = (len(rows.sources), rows.width)
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    yield header.getvalue()
    for some in rows.bands():
        entries = rows.read(array, some)
        if not rows.result.said:
            entries = np.where(np.not_equal(entries, array.unreachable), entries, np.inf)
        yield entries.astype(dtype).tobytes()


def as_parquet(rows: Selection) -> Iterator[bytes]:
    """Yield a Parquet file of the long table."""
    out = io.BytesIO()
    pl.concat(_tables(rows)).write_parquet(out, metadata=unit_of(rows.result.matrix))
    yield out.getvalue()


def unit_of(matrix: Any) -> dict[str, str]:
    """Return table metadata with the unit of a result's values; empty if the unit is not known."""
    return unit_metadata(matrix.unit, "distance" if matrix.semiring == MIN_PLUS else "value")


def as_arrow(rows: Selection) -> Iterator[bytes]:
    """Yield an Arrow IPC stream of the long table."""
    out = io.BytesIO()
    pl.concat(_tables(rows)).write_ipc_stream(out, compat_level=pl.CompatLevel.oldest())
    yield out.getvalue()


ENCODERS: Final[dict[str, Callable[[Selection], Iterator[bytes]]]] = {
    "json": as_json,
    "csv": as_csv,
    "npy": as_npy,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def _tables(rows: Selection) -> Iterator[pl.DataFrame]:
    targets = rows.target_names().rename("target")
    width = len(targets)
    for some, entries in rows.batches():
        sources = rows.source_names(some).rename("source")
        repeated = sources.gather(np.repeat(np.arange(len(some)), width))
        values = rows.values(entries)
        columns: list[Any] = [repeated, targets.gather(np.tile(np.arange(width), len(some))), values]
        for name, quantity in rows.result.matrix.also.items():
            sums = pl.Series(column_name(name), rows.read(quantity, some).reshape(-1))
            columns.append(sums.set(values.is_null(), None))
        yield pl.DataFrame(columns)


def _labels(labels: Array) -> pl.Series:
    return pl.Series(labels if labels.dtype.kind in "iu" else [str(label) for label in labels])
