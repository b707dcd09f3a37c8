"""Reads layers of GeoPackages (OGC 12-128), which are databases of SQLite.

Files may come from strangers, so only plain tables are read: a view of SQLite runs a query that the file defines.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from storage.errors import InvalidGraph, InvalidRequest, NotFound
from storage.geography.systems import UNKNOWN, ReferenceSystem, from_text

if TYPE_CHECKING:
    import polars as pl

    from storage.readers.limits import ReadLimits

MAGIC: Final = b"SQLite format 3\0"
#: Types of geometry: POINTS for layers of points, LINES for layers of lines, ANY for layers of points or lines.
POINTS: Final = frozenset({"POINT"})
LINES: Final = frozenset({"LINESTRING", "MULTILINESTRING", "CURVE", "MULTICURVE", "COMPOUNDCURVE"})
ANY: Final = frozenset({"GEOMETRY"})
_LAYERS: Final = (
    "SELECT c.table_name, g.column_name, g.geometry_type_name, s.organization || ':' || s.organization_coordsys_id, "
    "s.definition FROM gpkg_contents c LEFT JOIN gpkg_geometry_columns g ON g.table_name = c.table_name "
    "LEFT JOIN gpkg_spatial_ref_sys s ON s.srs_id = g.srs_id WHERE c.data_type IN ('features', 'attributes')"
)
#: Number of rows that are fetched at a time; the size of their values is checked before the next rows are fetched.
_ROWS: Final = 256
#: Most characters of a statement that defines a table.  The statement may contain a default value, which is repeated
#: for each row without a value; if that were long, a small file could fill the memory.
_LONGEST: Final = 1 << 18
#: Most layers of a file; a file with more layers is refused.
_MOST: Final = 1000
#: Most layers that a message names.
_NAMED: Final = 12
#: Bytes of the envelope (bounding box) before the well-known binary, by the code of its kind in the header's flags.
_ENVELOPES: Final = {0: 0, 1: 32, 2: 48, 3: 48, 4: 64}
_WHOLE: Final = ("INT",)
_REAL: Final = ("REAL", "FLOAT", "DOUBLE")


class LayerField(NamedTuple):
    """A column of a layer: its name, and its declared type in capital letters."""

    name: str
    kind: str

    @property
    def numeric(self) -> bool:
        """Whether the column holds numbers."""
        return any(word in self.kind for word in (*_WHOLE, *_REAL, "NUMERIC", "DECIMAL"))


@dataclass(frozen=True)
class LayerFacts:
    """The description of a layer in a GeoPackage.

    Attributes:
        name: the name of the layer.
        key: the column that numbers the features; None if there is no such column.
        fields: all other columns, except those of geometries and of bytes.
        geometry: the column of geometries; None for a table without geometries.
        shape: the type of the geometries in capital letters; empty for a table without geometries.
        system: the system of coordinates of the geometries.
    """

    name: str
    key: str | None
    fields: tuple[LayerField, ...]
    geometry: str | None
    shape: str
    system: ReferenceSystem

    def __str__(self) -> str:
        return f"{self.name} ({self.shape.lower() or 'no geometry'})"


class GeoPackage:
    """An open GeoPackage.  Its methods raise InvalidGraph for a file that is damaged."""

    def __init__(self, database: sqlite3.Connection, size: int, limits: ReadLimits | None) -> None:
        self._database = database
        self._size = size
        self._limits = limits

    def layers(self) -> list[LayerFacts]:
        """Return the descriptions of all layers with features, and of all tables without geometry."""
        for needed in ("gpkg_contents", "gpkg_geometry_columns", "gpkg_spatial_ref_sys"):
            if not self._is_plain(needed):
                raise InvalidGraph(f"this is a database of SQLite, but no whole GeoPackage: it has no table {needed}")
        rows = self._database.execute(_LAYERS).fetchmany(_MOST + 1)
        if len(rows) > _MOST:
            raise InvalidGraph(
                f"the GeoPackage has more than {_MOST:,} layers; save the one as a GeoPackage of its own"
            )
        return [self._facts(*row) for row in rows]

    def _is_plain(self, name: str) -> bool | None:
        """Return whether ``name`` is the name of a plain table; None if neither a table nor a view has this name."""
        query = "SELECT type, sql FROM sqlite_master WHERE lower(name) = lower(?) AND type IN ('table', 'view')"
        found = self._database.execute(query, (name,)).fetchall()
        return all(kind == "table" and sql.upper().startswith("CREATE TABLE") for kind, sql in found) if found else None

    def _facts(self, name: str, geometry: str | None, shape: str | None, code: str | None, text: str) -> LayerFacts:
        columns = self._database.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        fields = [LayerField(column, kind.upper()) for column, kind, pk in columns if not pk and column != geometry]
        return LayerFacts(
            name,
            next((column for column, _, pk in columns if pk), None),
            tuple(field for field in fields if not field.kind.startswith("BLOB")),
            geometry,
            (shape or "").upper(),
            UNKNOWN if code is None else from_text(code, str(text)),
        )

    def check(self, layer: LayerFacts) -> int:
        """Check that the table of a layer is plain and undamaged, and return the number of its rows.

        Raises:
            InvalidGraph: the layer is a view, or its table is missing or damaged.
        """
        plain = self._is_plain(layer.name)
        if plain is None:
            raise InvalidGraph(f"layer {layer.name} is announced, but has no table")
        if not plain:
            raise InvalidGraph(f"layer {layer.name} is a view, which is not read; save it as a layer of its own")
        longest = self._database.execute("SELECT max(length(sql)) FROM sqlite_master").fetchone()[0]
        if longest > _LONGEST:
            raise InvalidGraph(f"a definition of {longest:,} characters in the database; at most {_LONGEST:,} are read")
        [[told]] = self._database.execute(f"PRAGMA quick_check({_quoted(layer.name)})").fetchall()[:1] or [["nothing"]]
        if told != "ok":
            raise InvalidGraph(f"layer {layer.name} is damaged: {str(told).splitlines()[-1]}")
        query = f"SELECT count(*) FROM {_quoted(layer.name)} NOT INDEXED"  # noqa: S608 - it is quoted
        return int(self._database.execute(query).fetchone()[0])

    def read(
        self, layer: LayerFacts, fields: Sequence[LayerField], *, geometry: bool = False, most: int = -1
    ) -> LayerColumns:
        """Read columns of a layer that was checked.

        Args:
            layer: the layer.
            fields: the columns to read.
            geometry: whether the geometries are read.
            most: number of rows to read, from the first on; -1 for all.

        Raises:
            InvalidGraph: a value does not have the declared type of its column.
            LimitExceeded: the values are larger than the limits of the file allow.
        """
        import polars as pl

        wanted = [field.name for field in fields] + ([str(layer.geometry)] if geometry else [])
        found: list[list[Any]] = [[] for _ in wanted]
        if wanted:
            listed = ", ".join(map(_quoted, wanted))
            query = f"SELECT {listed} FROM {_quoted(layer.name)} NOT INDEXED LIMIT ?"  # noqa: S608 - all are quoted
            cursor, held = self._database.execute(query, (most,)), 0
            while rows := cursor.fetchmany(_ROWS):
                for column, values in zip(found, zip(*rows, strict=True), strict=True):
                    column.extend(values)
                    held += sum(len(value) for value in values if isinstance(value, (str, bytes)))
                if self._limits is not None:
                    self._limits.check_bytes(held, self._size)
        shapes = found.pop() if geometry else []
        table = pl.DataFrame([_series(layer, field, values) for field, values in zip(fields, found, strict=True)])
        return LayerColumns(table, [_unwrapped(layer, row, data) for row, data in enumerate(shapes)])

    def place(self, layer: LayerFacts, row: int) -> str:
        """Return a text for messages that says where a row is; ``row`` counts from 0."""
        if layer.key is None:
            return f"layer {layer.name}, row {row + 1}"
        key = _quoted(layer.key)
        query = f"SELECT {key} FROM {_quoted(layer.name)} NOT INDEXED LIMIT 1 OFFSET ?"  # noqa: S608 - both are quoted
        found = self._database.execute(query, (row,)).fetchone()
        return f"layer {layer.name}, row {row + 1}" + (f" ({layer.key} {found[0]})" if found else "")


class LayerColumns(NamedTuple):
    """Columns of a layer, and its geometries as well-known binary; ``geometry`` is empty if they were not asked for."""

    table: pl.DataFrame
    geometry: list[bytes | None]


@contextlib.contextmanager
def opened(path: Path, limits: ReadLimits | None = None) -> Iterator[GeoPackage]:
    """Open a GeoPackage for reading, as a context manager.

    Args:
        path: the file.
        limits: limits on the size of values; None for a trusted file, such as a file of the caller.

    Raises:
        NotFound: there is no such file.
        InvalidGraph: the file is no GeoPackage or damaged, or another program has not written its changes into it yet.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InvalidGraph("the file is no database of SQLite, which GeoPackages are")
        size = path.stat().st_size
    except OSError as error:
        raise NotFound(f"cannot open {path}: {error.strerror or error}") from error
    for ending in ("-wal", "-journal"):
        beside = path.with_name(path.name + ending)
        if beside.exists() and beside.stat().st_size:
            raise InvalidGraph(
                f"{beside.name} beside it holds changes that are not in it yet: close it in the other program"
            )
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON"):
                database.execute(f"PRAGMA {pragma}")
            yield GeoPackage(database, size, limits)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InvalidGraph(f"the GeoPackage is damaged: {error}") from error


class PointLayer(NamedTuple):
    """A layer of points.

    Attributes:
        table: the columns of the layer, without the geometry.
        geometry: each point as well-known binary, null for a row without a point.
        system: ``lonlat`` or ``plane``; None if the file does not name the system.
    """

    table: pl.DataFrame
    geometry: pl.Series
    system: str | None


def read_points_of(path: Path) -> PointLayer:
    """Read the layer of points of a GeoPackage.  Of several such layers, ``nodes`` (as OSMnx calls it) is read.

    Args:
        path: the file.

    Raises:
        NotFound: there is no such file.
        InvalidRequest: the file is no GeoPackage, has no layer of points, or has several of which none is ``nodes``.
    """
    try:
        with opened(path) as package:
            layers = package.layers()
            points = [layer for layer in layers if layer.shape in POINTS | ANY]
            nodes = [layer for layer in points if layer.name == "nodes"]
            if len(points) != 1 and not nodes:
                there = named_layers(layers)
                wanted = "one layer of points, or one of them called nodes"
                raise InvalidGraph(f"the file should have {wanted}; its layers are: {there}")
            return point_layer(package, (nodes or points)[0])
    except InvalidGraph as error:
        raise InvalidRequest(f"{path} cannot be read as a GeoPackage: {error}", field="nodes") from error


def point_layer(package: GeoPackage, layer: LayerFacts) -> PointLayer:
    """Read a layer of points.  Raises InvalidGraph and LimitExceeded as :meth:`GeoPackage.read` does."""
    import polars as pl

    package.check(layer)
    table, geometry = package.read(layer, layer.fields, geometry=True)
    return PointLayer(table, pl.Series("geometry", geometry, pl.Binary()), layer.system.kind)


def named_layers(layers: Sequence[LayerFacts]) -> str:
    """Return a text with the names of layers and what they hold, for messages; of many layers only the first ones."""
    more = f" and {len(layers) - _NAMED:,} more" if len(layers) > _NAMED else ""
    return (", ".join(map(str, layers[:_NAMED])) or "none") + more


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _series(layer: LayerFacts, field: LayerField, values: list[Any]) -> pl.Series:
    """Return the values of a column as a series of the column's declared type."""
    import polars as pl

    kind = (
        pl.Boolean() if field.kind == "BOOLEAN"
        else pl.Int64() if any(word in field.kind for word in _WHOLE)
        else pl.Float64() if any(word in field.kind for word in _REAL)
        else pl.String() if field.kind.startswith(("TEXT", "DATE"))
        else None
    )  # fmt: skip
    if kind == pl.Boolean():
        values = [bool(value) if value in (0, 1) else value for value in values]
    try:
        return pl.Series(field.name, values, kind, strict=kind is not None)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        message = f"layer {layer.name}: column {field.name!r} is declared as {field.kind}, but holds other values, too"
        raise InvalidGraph(message, field=field.name) from None


def _unwrapped(layer: LayerFacts, row: int, data: Any) -> bytes | None:
    """Return the well-known binary that a geometry of a GeoPackage contains; None if ``data`` is None."""
    if data is None:
        return None
    envelope = _ENVELOPES.get(data[3] >> 1 & 7) if isinstance(data, bytes) and len(data) >= 8 else None
    if envelope is None or data[:2] != b"GP" or len(data) < 13 + envelope:
        raise InvalidGraph(f"layer {layer.name}, row {row + 1}: the geometry is damaged", field="geometry")
    return bytes(data[8 + envelope :])
