"""Writes near pairs whose sources or targets are points, or that are features: a line for each pair of points."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest
from storage.geography.geopackage import GEOPACKAGE, check_geopackage
from storage.graph.units import unit_metadata
from storage.pairs.saving import FORMS, check_pairs_target, save_file, save_pairs

if TYPE_CHECKING:
    from service.views.features import Ends, Features, Pairs
    from storage.geography.snapping import SnappedPoints
    from storage.graph.graph import Graph
    from storage.pairs.near_pairs import NearPairs

Indices = npt.NDArray[np.int64]
#: Forms that have columns for points.
TABLES: Final = (".csv", ".parquet", ".geojson", GEOPACKAGE)
#: Forms that hold nothing but features.
_FEATURES: Final = {".geojson": "GeoJSON", GEOPACKAGE: "GeoPackage"}


class PointForm:
    """How near pairs are written: as rows of vertices, or line by line where there are points or features."""

    def __init__(self, out: Path, features: Features | None) -> None:
        """``out`` is the file; ``features`` is the form that was asked for, None for the usual one."""
        self._out, self._kind = out, out.suffix.lower()
        self._features: Features | None = "lines" if self._kind in _FEATURES and features is None else features
        self._graph: Graph | None = None
        self._points: Mapping[str, SnappedPoints | None] = {}

    @property
    def name(self) -> str:
        """The name of the format of the file."""
        if self._kind in _FEATURES:
            return _FEATURES[self._kind]
        return "GeoParquet table" if self._features is not None else FORMS[self._out.suffix]

    def check(self, *, overwrite: bool) -> None:
        """Refuse a target that cannot be written, and features of a form that has none.

        Raises:
            InvalidRequest, NotFound, Conflict: as ``check_pairs_target``.
        """
        if self._features is not None and self._kind not in (*_FEATURES, ".parquet"):
            message = f"--features is for {', '.join(_FEATURES)} and .parquet, not for {self._kind}"
            raise InvalidRequest(message, field="features")
        if self._kind == GEOPACKAGE:
            check_geopackage()
        check_pairs_target(self._out, overwrite=overwrite, forms={**FORMS, **_FEATURES})

    def take(self, graph: Graph, points: Mapping[str, SnappedPoints | None]) -> None:
        """Take the graph and the points of ``sources`` and ``targets``; refuse what the form cannot hold."""
        self._graph, self._points = graph, points
        if any(points.values()) and self._kind not in TABLES:
            raise InvalidRequest(
                f"{self._kind} holds vertices, and points have names of their own; write {', '.join(TABLES)}",
                field="out",
            )
        if self._features is not None:
            from service.views.features import check_features

            every = np.arange(graph.n)
            check_features(self._ends("sources", every), self._ends("targets", every), self._kind)

    @property
    def spill(self) -> Path | None:
        """The folder of the result, on whose disk pairs may wait for being saved; None where all must be in memory."""
        return self._out.absolute().parent if self._features is None and not any(self._points.values()) else None

    def save(self, pairs: NearPairs, targets: Sequence[int] | None, *, overwrite: bool) -> tuple[int, int]:
        """Write the pairs; return how many there are, and of how many sources.

        Args:
            pairs: what was found, between vertices.
            targets: the vertices that were wanted; None for all.
            overwrite: whether a file may be replaced.

        Raises:
            StorageFailed: the file system refused.
        """
        if self._features is None and not any(self._points.values()):
            save_pairs(pairs, self._out, overwrite=overwrite, unit=None if self._graph is None else self._graph.unit)
            return pairs.entries, len(pairs.sources)
        found = self._lines(pairs, targets)
        self._write(found)
        return len(found.rows), len(found.sources.vertices)

    def _ends(self, side: str, vertices: Indices) -> Ends:
        from service.views.features import Ends

        points, graph = self._points.get(side), self._graph
        assert graph is not None
        return Ends.of_points(points) if points else Ends.of_vertices(vertices, graph.labels, graph.coordinates)

    def _lines(self, pairs: NearPairs, targets: Sequence[int] | None) -> Pairs:
        """Return a line for each pair of a source and a target, see :func:`lines_of`."""
        sources = self._ends("sources", pairs.sources)
        ends = self._ends("targets", np.arange(len(pairs.labels)))
        return lines_of(pairs, sources, ends, targets, points=any(self._points.values()))

    def _write(self, found: Pairs) -> None:
        from service.views.features import geo_metadata, with_geometry, write_geojson, write_geopackage

        features, graph = self._features, self._graph
        assert graph is not None
        table, metadata = found.table(), unit_metadata(graph.unit)

        def write(out: io.BufferedWriter) -> None:
            if self._kind == ".geojson":
                write_geojson(iter([(1, found)]), out, lambda _: None, features or "lines", graph.unit)
            elif self._kind == GEOPACKAGE:
                whole = io.BytesIO()
                write_geopackage(
                    iter([(1, found)]),
                    whole,
                    lambda _: None,
                    features or "lines",
                    found.sources.geographic,
                    unit=graph.unit,
                )
                out.write(whole.getbuffer())
            elif self._kind == ".csv":
                table.write_csv(out)
            else:
                table.write_parquet(out, metadata=metadata)

        if features is not None and self._kind == ".parquet":
            table = with_geometry(found, features)
            metadata |= geo_metadata(features, found.sources.geographic)
        save_file(self._out, write, int(table.estimated_size()))


def ways_between(pairs: NearPairs, sources: Ends, ends: Ends, targets: Sequence[int] | None) -> int:
    """Return how many lines :func:`lines_of` makes of points, before it keeps only the nearest.

    Args:
        pairs, sources, ends, targets: as for :func:`lines_of`.
    """
    n = len(pairs.labels)
    down, across = np.bincount(sources.vertices, minlength=n), np.bincount(ends.vertices, minlength=n)
    summed = np.concatenate([[0], np.cumsum(across[pairs.indices.astype(np.int64)])])
    own = pairs.sources if targets is None else np.intersect1d(pairs.sources, np.asarray(targets, np.int64))
    found = down[pairs.sources] @ (summed[pairs.indptr[1:]] - summed[pairs.indptr[:-1]]) + down[own] @ across[own]
    return int(found)


def lines_of(pairs: NearPairs, sources: Ends, ends: Ends, targets: Sequence[int] | None, *, points: bool) -> Pairs:
    """Return a line for each pair of a source and a target.

    A source vertex is no target of itself.  But a point may be: where either side has points, those at the same
    vertex are at distance 0 of each other.

    Args:
        pairs: what was found, between vertices.
        sources, ends: the sources, and what may be targets.
        targets: the vertices that were wanted as targets; None for all.
        points: whether either side has points.
    """
    import polars as pl

    from service.views.features import Pairs

    rows = np.repeat(np.arange(len(pairs.sources)), np.diff(pairs.indptr))
    tails, heads, lengths = pairs.sources[rows], pairs.indices.astype(np.int64), pairs.lengths
    if points:
        own = pairs.sources if targets is None else np.intersect1d(pairs.sources, np.asarray(targets, np.int64))
        tails, heads = np.concatenate([own, tails]), np.concatenate([own, heads])
        lengths = np.concatenate([np.zeros(len(own), lengths.dtype), lengths])
    found = pl.DataFrame({"tail": tails, "head": heads, "distance": lengths})
    for name, side in (("tail", sources), ("head", ends)):
        numbered = pl.DataFrame({name: side.vertices, f"{name}_row": np.arange(len(side.vertices))})
        found = found.join(numbered, on=name, how="inner")
    if pairs.nearest is None:
        found = found.sort("tail_row", "head_row")
    else:
        found = found.sort("tail_row", "distance", "head_row")
        found = found.filter(pl.int_range(pl.len()).over("tail_row") < pairs.nearest)
    columns: list[Any] = [found[name].to_numpy() for name in ("tail_row", "head_row")]
    return Pairs(sources, ends, columns[0], columns[1], found["distance"])
