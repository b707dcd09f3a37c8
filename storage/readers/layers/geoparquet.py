"""GeoParquet of edges: Parquet whose metadata say that a column holds lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph
from storage.geography.coordinates import Coordinates
from storage.geography.lines import kind_of
from storage.geography.systems import DEFAULT, ReferenceSystem, from_json
from storage.readers.layers.frames import SAMPLE, sample_of
from storage.readers.limits import ReadLimits

if TYPE_CHECKING:
    import polars as pl


def lines_of(path: Path, table: pl.LazyFrame, limits: ReadLimits) -> ParquetLines | None:
    """Return a GeoParquet file of lines in the form that ``read_edges`` takes; None for Parquet without lines.

    Args:
        path: the file.
        table: the content of the file.
        limits: limits on the size of its geometries.

    Raises:
        InvalidGraph: the metadata are no GeoParquet, or the lines have another encoding than well-known binary.
    """
    import polars as pl

    text = pl.read_parquet_metadata(path).get("geo")
    if text is None:
        return None
    try:
        about = json.loads(text)
        name, columns = str(about["primary_column"]), dict(about["columns"])
        column = dict(columns[name])
        kinds = {str(kind).removesuffix(" Z") for kind in column.get("geometry_types") or []}
        encoding = str(column["encoding"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidGraph(f"the metadata of the file are no GeoParquet ({error!r})", field="geo") from error
    if (kinds and not kinds & {"LineString", "MultiLineString"}) or name not in table.collect_schema():
        return None
    if encoding != "WKB":
        if encoding.lower() in ("linestring", "multilinestring"):
            raise InvalidGraph(f"lines encoded as {encoding!r} are not read, WKB is", field=name)
        return None
    if not kinds and _first_kind(table, name) not in ("LineString", "MultiLineString"):
        return None
    system = DEFAULT if "crs" not in column else from_json(column["crs"])
    return ParquetLines(path, table, (name, tuple(columns)), system, limits)


def _first_kind(table: pl.LazyFrame, name: str) -> str | None:
    """Return the kind of the first geometry, such as ``LineString``; None if there is no geometry."""
    import polars as pl

    found = table.select(pl.col(name).drop_nulls().first()).collect().item()
    return kind_of(found) if isinstance(found, bytes) and len(found) >= 5 else None


class ParquetLines:
    """A GeoParquet file of lines, as ``storage.readers.layers.edges.EdgeLayer`` describes it."""

    def __init__(
        self,
        path: Path,
        table: pl.LazyFrame,
        shapes: tuple[str, Sequence[str]],
        system: ReferenceSystem,
        limits: ReadLimits,
    ) -> None:
        """Set up the layer; ``shapes`` names the primary column of geometries, and all columns of geometries."""
        self._path, self._table, self._limits = path, table, limits
        self._primary, hidden = shapes
        schema = table.collect_schema()
        self.title = "the file"
        self.names = [name for name in schema.names() if name not in hidden]
        self.numeric = [schema[name].is_numeric() for name in self.names]
        self.system: ReferenceSystem | None = system

    def sample(self) -> list[list[str]]:
        """Return some rows as text."""
        return sample_of(self._table.select(self.names).head(SAMPLE).collect())

    def read(self, names: Sequence[str], *, geometry: bool) -> tuple[pl.DataFrame, list[bytes | None]]:
        """Return the columns ``names``, and the geometries as well-known binary (an empty list without
        ``geometry``).
        """
        import polars as pl

        table = self._table.select(names).collect() if names else pl.DataFrame()
        if not geometry:
            return table, []
        # Parquet may store one value for many rows, so the size is checked before ``to_list`` copies the bytes for each
        # row.
        column = self._table.select(pl.col(self._primary)).collect().to_series()
        held = int(column.bin.size().sum() or 0)
        self._limits.check_bytes(held, self._path.stat().st_size)
        shapes: list[Any] = column.to_list()
        return table, shapes

    def where(self, row: int) -> str:
        """Return a text for messages that says where a row is in the file; ``row`` counts from 0."""
        return f"row {row + 1}"

    def nodes(self, labels: npt.NDArray[np.generic], asked: str | None) -> tuple[Coordinates | None, list[str]]:
        """Return no coordinates: the file has edges only."""
        del labels, asked
        return None, []
