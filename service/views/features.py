"""Writes pairs of vertices or points with their geometry: GeoJSON, GeoParquet and GeoPackage, a batch at a time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import InvalidRequest
from storage.geography.geopackage import GEOPACKAGE, LayerForm, write_layer

if TYPE_CHECKING:
    from storage.geography.coordinates import Coordinates
    from storage.geography.snapping import SnappedPoints

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
#: The kind of a feature: a line from source to target, a point at the source, or a point at the target.
Features = Literal["lines", "sources", "targets"]
#: Decimal digits of degrees in GeoJSON: a unit of the last digit is about a centimetre.
_DECIMALS: Final = 7
#: Name of the geometry column in GeoParquet, and the version of that standard.
GEOMETRY: Final = "geometry"
GEOPARQUET: Final = "1.1.0"
#: The name of the layer in a GeoPackage.
LAYER: Final = "distances"
#: Endings of files that hold nothing but features.
FEATURE_FILES: Final = (".geojson", GEOPACKAGE)
#: The fewest bytes of a feature in a GeoJSON or GeoPackage file.
LEAST_FEATURE: Final = 120


@dataclass(frozen=True, eq=False)
class Ends:
    """The sources or the targets of pairs: vertices, or points that were snapped to vertices.

    Attributes:
        vertices: the vertex index of each end, shape (k,); several points may have the same vertex.
        keys: the label of each vertex, or the id of each point, shape (k,).
        x, y: coordinates of each end, NaN where they are not known, shape (k,); None without coordinates.
        names: the names of points, shape (k,); None for vertices and for points without names.
        snapped: how far each point is from its vertex, shape (k,); None for vertices.
        geographic: whether x and y are longitude and latitude.
    """

    vertices: Indices
    keys: pl.Series
    x: Floats | None
    y: Floats | None
    names: pl.Series | None = None
    snapped: Floats | None = None
    geographic: bool = True

    @classmethod
    def of_vertices(cls, vertices: Indices, labels: Array, coordinates: Coordinates | None) -> Ends:
        """Return vertices as ends.

        Args:
            vertices: indices of the vertices, shape (k,).
            labels: the labels of all vertices of the graph.
            coordinates: the coordinates of all vertices of the graph; None if it has none.
        """
        found = labels[vertices]
        keys = pl.Series(found if labels.dtype.kind in "iu" else [str(label) for label in found])
        if coordinates is None:
            return cls(vertices, keys, None, None)
        geographic = coordinates.geographic
        return cls(vertices, keys, coordinates.x[vertices], coordinates.y[vertices], geographic=geographic)

    @classmethod
    def of_points(cls, points: SnappedPoints) -> Ends:
        """Return points as ends.  The ids become integers if all of them are whole numbers."""
        keys = pl.Series(list(points.ids))
        whole = keys.cast(pl.Int64, strict=False)
        if not whole.null_count() and (whole.cast(pl.String) == keys).all():
            keys = whole
        named = points.names is not None and list(points.names) != list(points.ids)
        names = None if points.names is None or not named else pl.Series(list(points.names))
        return cls(points.vertices, keys, points.x, points.y, names, points.distances, points.geographic)

    def part(self, first: int, last: int) -> Ends:
        """Return the ends at positions ``first`` to ``last`` - 1."""
        some = slice(first, last)
        return Ends(
            self.vertices[some],
            self.keys[some],
            None if self.x is None else self.x[some],
            None if self.y is None else self.y[some],
            None if self.names is None else self.names[some],
            None if self.snapped is None else self.snapped[some],
            self.geographic,
        )

    def twins(self, others: Ends) -> Indices:
        """Return for each point the position of the same point (id and place) in ``others``, -1 for none, shape (k,).

        Vertices get -1, because their indices already say whether two of them are the same.
        """
        if self.snapped is None or others.snapped is None:
            return np.full(len(self.vertices), -1, np.int64)
        mine, theirs = (
            pl.DataFrame({"id": ends.keys.cast(pl.String), "x": ends.x, "y": ends.y}) for ends in (self, others)
        )
        found = mine.join(theirs.with_row_index("row"), on=["id", "x", "y"], how="left", maintain_order="left")
        return found["row"].cast(pl.Int64).fill_null(-1).to_numpy()

    def columns(self, side: str, rows: Indices) -> list[pl.Series]:
        """Return the columns of a table that describe one end of each of its lines.

        Args:
            side: ``source`` or ``target``; the names of the columns begin with this word.
            rows: for each line the position of its end among these ends, shape (k,).
        """
        found = [self.keys.gather(rows).rename(side)]
        if self.names is not None:
            found.append(self.names.gather(rows).rename(f"{side}_name"))
        if self.snapped is not None:
            found.append(pl.Series(f"{side}_snap", np.round(self.snapped[rows], 2)))
        return found


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a source and a target: ``rows`` and ``columns`` are their positions in ``sources`` and ``targets``.
    Each pair has a distance, and in ``also`` the sum of each quantity along its path.
    """

    sources: Ends
    targets: Ends
    rows: Indices
    columns: Indices
    distances: pl.Series
    also: tuple[pl.Series, ...] = ()

    def table(self) -> pl.DataFrame:
        """Return the pairs as a long table, one line for each pair."""
        ends = self.sources.columns("source", self.rows) + self.targets.columns("target", self.columns)
        return pl.DataFrame([*ends, self.distances, *self.also])

    def corners(self, features: Features) -> tuple[Floats, Floats]:
        """Return x and y of the corners of each feature, shape (pairs, 2) for lines, (pairs, 1) for points."""
        sides = {"lines": "both", "sources": "source", "targets": "target"}[features]
        x, y = [], []
        for side, ends, rows in (("source", self.sources, self.rows), ("target", self.targets, self.columns)):
            if sides in ("both", side):
                assert ends.x is not None
                assert ends.y is not None
                x.append(ends.x[rows])
                y.append(ends.y[rows])
        return np.stack(x, axis=1), np.stack(y, axis=1)


def check_features(sources: Ends, targets: Ends, kind: str) -> None:
    """Refuse features of ends without coordinates, and GeoJSON for coordinates of a plane, which it cannot describe.

    Args:
        sources, targets: the ends.
        kind: ending of the file.

    Raises:
        InvalidRequest: ends have no coordinates, or GeoJSON would have coordinates of a plane.
    """
    if sources.x is None or targets.x is None:
        raise InvalidRequest(
            "the graph has no coordinates, so its distances have no places: give them with --nodes TABLE when the "
            "graph is read, or write a table (.csv, .parquet) without --features",
            field="features",
        )
    if kind == ".geojson" and not (sources.geographic and targets.geographic):
        raise InvalidRequest(
            "GeoJSON holds longitude and latitude, and these coordinates are those of a plane; write .parquet with "
            "--features",
            field="features",
        )


def write_geojson(
    batches: Iterator[tuple[int, Pairs]],
    file: IO[bytes],
    tell: Callable[[int], None],
    features: Features,
    unit: str | None,
) -> None:
    """Write features with the columns of the long table as properties (RFC 7946).

    Args:
        batches: for each batch the number of its rows, and its pairs.
        file: the open file.
        tell: called with the number of rows of each batch.
        features: what becomes a feature: ``lines``, ``sources`` or ``targets``.
        unit: the unit of distances, a member of the collection; None if that is not known.
    """
    said = f'"distance_unit":{json.dumps(unit)},' if unit else ""
    file.write(f'{{"type":"FeatureCollection",{said}"features":['.encode())
    comma = "\n"
    for count, pairs in batches:
        x, y = pairs.corners(features)
        for row, properties in enumerate(pairs.table().iter_rows(named=True)):
            geometry = _geometry(x[row], y[row])
            text = json.dumps(properties, ensure_ascii=False, allow_nan=False)
            file.write(f'{comma}{{"type":"Feature","geometry":{geometry},"properties":{text}}}'.encode())
            comma = ",\n"
        tell(count)
    file.write(b"\n]}\n")


def _geometry(x: Floats, y: Floats) -> str:
    """Return the geometry of a feature as JSON; null if coordinates of a corner are not known."""
    if np.isnan(x).any():
        return "null"
    corners = [f"[{round(float(a), _DECIMALS)!r},{round(float(b), _DECIMALS)!r}]" for a, b in zip(x, y, strict=True)]
    if len(corners) == 1:
        return f'{{"type":"Point","coordinates":{corners[0]}}}'
    return f'{{"type":"LineString","coordinates":[{",".join(corners)}]}}'


def with_geometry(pairs: Pairs, features: Features) -> pl.DataFrame:
    """Return the long table with the geometry in a column of well-known binary."""
    x, y = pairs.corners(features)
    corners = x.shape[1]
    head = [("order", "u1"), ("kind", "<u4")] + ([("count", "<u4")] if corners > 1 else [])
    records = np.zeros(len(x), np.dtype([*head, ("corners", "<f8", (corners, 2))]))
    records["order"], records["kind"] = 1, corners
    if corners > 1:
        records["count"] = corners
    records["corners"] = np.stack([x, y], axis=2)
    data, size = records.tobytes(), records.itemsize
    missing = np.asarray(np.isnan(x).any(axis=1))
    geometry = [None if missing[i] else data[i * size : (i + 1) * size] for i in range(len(x))]
    return pairs.table().with_columns(pl.Series(GEOMETRY, geometry, dtype=pl.Binary))


def write_geopackage(
    batches: Iterator[tuple[int, Pairs]],
    file: Path | io.BytesIO,
    tell: Callable[[int], None],
    features: Features,
    geographic: bool,
    *,
    unit: str | None,
) -> None:
    """Write features with the columns of the long table into a GeoPackage, whose one layer is called ``distances``.

    Args:
        batches: for each batch the number of its rows, and its pairs.
        file: the file, or a buffer, which takes one batch only.
        tell: called with the number of rows of each batch.
        features: what becomes a feature: ``lines``, ``sources`` or ``targets``.
        geographic: whether coordinates are longitude and latitude.
        unit: the unit of distances, for the description of the layer; None if that is not known.

    Raises:
        InvalidRequest, StorageFailed: raised by ``write_layer``.
    """

    def tables() -> Iterator[pl.DataFrame]:
        for count, pairs in batches:
            yield with_geometry(pairs, features)
            tell(count)

    said = f"distance in {unit}" if unit else None
    write_layer(tables(), file, LayerForm(LAYER, GEOMETRY, geometry_type(features), geographic, said))


def geometry_type(features: Features) -> str:
    """Return the type of the geometry of features, as GeoJSON and GeoPackage name it."""
    return "LineString" if features == "lines" else "Point"


def geo_metadata(features: Features, geographic: bool) -> dict[str, str]:
    """Return the metadata of a GeoParquet file; ``crs`` is missing for OGC:CRS84, and null for an unknown system."""
    column: dict[str, object] = {"encoding": "WKB", "geometry_types": [geometry_type(features)]}
    if not geographic:
        column["crs"] = None
    return {"geo": json.dumps({"version": GEOPARQUET, "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})}
