"""Writes near pairs (pairs up to a distance) line by line, if sources or targets are points, or if pairs become
features.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest
from storage.geography.geopackage import GEOPACKAGE, check_geopackage
from storage.graph.units import unit_metadata
from storage.pairs.saving import FORMS, check_pairs_target, save_file, save_pairs
from storage.tables.pieces import Pieces

if TYPE_CHECKING:
    from service.views.features import Ends, Features, Pairs
    from storage.geography.snapping import SnappedPoints
    from storage.graph.graph import Graph
    from storage.pairs.near_pairs import NearPairs

Indices = npt.NDArray[np.int64]
#: The most pairs that become lines at a time, and the approximate bytes of a line in a file.
PIECE: Final = 1 << 18
_LINE: Final = 64
#: Endings of the files that can hold points; other files hold only vertices.
TABLES: Final = (".csv", ".parquet", ".geojson", GEOPACKAGE)
#: Endings of the files that hold nothing but features, and what these files are called.
_FEATURES: Final = {".geojson": "GeoJSON", GEOPACKAGE: "GeoPackage"}


class PointForm:
    """Writes near pairs into a file: as sparse rows of vertices, or with a line for each pair if there are points or
    features.
    """

    def __init__(self, out: Path, features: Features | None) -> None:
        """``out`` is the file; ``features`` says what becomes a feature, None for the default of the file."""
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
        """Refuse a file that cannot be written, and features in a kind of file that cannot hold them.

        Raises:
            InvalidRequest, NotFound, Conflict: raised by ``check_pairs_target``.
        """
        if self._features is not None and self._kind not in (*_FEATURES, ".parquet"):
            message = f"--features is for {', '.join(_FEATURES)} and .parquet, not for {self._kind}"
            raise InvalidRequest(message, field="features")
        if self._kind == GEOPACKAGE:
            check_geopackage()
        check_pairs_target(self._out, overwrite=overwrite, forms={**FORMS, **_FEATURES})

    def take(self, graph: Graph, points: Mapping[str, SnappedPoints | None]) -> None:
        """Set the graph and the points of ``sources`` and ``targets``; InvalidRequest if the file cannot hold them."""
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
    def spill(self) -> Path:
        """The folder of the output file; pairs that do not fit into memory are kept there until they are saved."""
        return self._out.absolute().parent

    def save(self, pairs: NearPairs, targets: Sequence[int] | None, *, overwrite: bool) -> tuple[int, int]:
        """Write the pairs; return the number of pairs and the number of sources.

        Args:
            pairs: the near pairs of vertices.
            targets: the vertices that were wanted as targets; None for all.
            overwrite: whether a file may be replaced.

        Raises:
            StorageFailed: the file system has failed.
        """
        if self._features is None and not any(self._points.values()):
            save_pairs(pairs, self._out, overwrite=overwrite, unit=None if self._graph is None else self._graph.unit)
            return pairs.entries, len(pairs.sources)
        sources = self._ends("sources", pairs.sources)
        lines = NearLines(pairs, sources, self._ends("targets", np.arange(len(pairs.labels))), targets)
        count = lines.count(points=any(self._points.values()))
        self._write(lines.pieces(points=any(self._points.values())), count, sources.geographic)
        return count, len(sources.vertices)

    def _ends(self, side: str, vertices: Indices) -> Ends:
        from service.views.features import Ends

        points, graph = self._points.get(side), self._graph
        assert graph is not None
        return Ends.of_points(points) if points else Ends.of_vertices(vertices, graph.labels, graph.coordinates)

    def _write(self, pieces: Iterator[Pairs], count: int, geographic: bool) -> None:
        """Write the lines, ``count`` in all, which come in pieces."""
        from service.views.features import geo_metadata, with_geometry, write_geojson, write_geopackage

        features, graph = self._features, self._graph
        assert graph is not None
        kind: Features = features or "lines"

        def write(out: io.BufferedWriter) -> None:
            if self._kind == ".geojson":
                write_geojson(((1, piece) for piece in pieces), out, lambda _: None, kind, graph.unit)
            elif self._kind == GEOPACKAGE:
                with tempfile.TemporaryDirectory(dir=self.spill, prefix=f".{self._out.name}.") as folder:
                    whole = Path(folder) / self._out.name
                    batches = ((1, piece) for piece in pieces)
                    write_geopackage(batches, whole, lambda _: None, kind, geographic, unit=graph.unit)
                    with whole.open("rb") as written:
                        shutil.copyfileobj(written, out)
            elif self._kind == ".csv":
                for k, piece in enumerate(pieces):
                    piece.table().write_csv(out, include_header=k == 0)
            else:
                metadata = unit_metadata(graph.unit)
                if features is None:
                    Pieces(piece.table() for piece in pieces).write_parquet(out, said=metadata)
                else:
                    metadata |= geo_metadata(features, geographic)
                    Pieces(with_geometry(piece, features) for piece in pieces).write_parquet(out, said=metadata)

        save_file(self._out, write, count * _LINE)


class NearLines:
    """A line for each pair of a source and a target, made in pieces in the order of the sources.

    Args:
        pairs: the near pairs of vertices.
        sources: the sources, in the order of the lines.
        ends: the possible targets.
        targets: the vertices that were wanted as targets; None for all.
    """

    def __init__(self, pairs: NearPairs, sources: Ends, ends: Ends, targets: Sequence[int] | None) -> None:
        self._pairs, self._sources, self._ends, self._targets = pairs, sources, ends, targets

    def count(self, *, points: bool) -> int:
        """Return how many lines there are; ``points`` says whether either side has points."""
        return int(self._counts(points)[1].sum())

    def pieces(self, most: int = PIECE, *, points: bool) -> Iterator[Pairs]:
        """Yield the lines in pieces, at least one.

        Args:
            most: the most lines of a piece, unless one source has more.
            points: whether either side has points.
        """
        sizes, _ = self._counts(points)
        sums, first = np.cumsum(sizes), 0
        while True:
            limit = most + (int(sums[first - 1]) if first else 0)
            last = max(first + 1, int(np.searchsorted(sums, limit, "right")))
            yield lines_of(*self._part(first, last), self._ends, self._targets, points=points)
            first = last
            if first >= len(sizes):
                return

    def _rows(self) -> Indices:
        """Return for each source the row of its vertex in ``pairs``."""
        rows = np.full(len(self._pairs.labels), -1, np.int64)
        rows[self._pairs.sources] = np.arange(len(self._pairs.sources))
        return rows[self._sources.vertices]

    def _counts(self, points: bool) -> tuple[Indices, Indices]:
        """Return how many lines each source has, before and after the lines are limited to the nearest targets.

        The pairs are read some rows at a time, so that memory holds no more than these rows.
        """
        pairs = self._pairs
        across = np.bincount(self._ends.vertices, minlength=len(pairs.labels))
        found, first = np.zeros(len(pairs.sources), np.int64), 0
        while first < len(found):
            last = max(first + 1, int(np.searchsorted(pairs.indptr, pairs.indptr[first] + PIECE, "right")) - 1)
            bounds = pairs.indptr[first : last + 1]
            summed = np.concatenate([[0], np.cumsum(across[pairs.indices[bounds[0] : bounds[-1]]])])
            found[first:last] = np.diff(summed[bounds - bounds[0]])
            first = last
        if points:
            own = np.ones(len(across), bool) if self._targets is None else np.zeros(len(across), bool)
            own[list(self._targets or ())] = True
            found += np.where(own, across, 0)[pairs.sources]
        made = found[self._rows()] - (self._sources.twins(self._ends) >= 0)
        return made, made if pairs.nearest is None else np.minimum(made, pairs.nearest)

    def _part(self, first: int, last: int) -> tuple[NearPairs, Ends]:
        """Return the pairs of the sources at positions ``first`` to ``last`` - 1, and these sources."""
        pairs, rows = self._pairs, np.unique(self._rows()[first:last])
        starts, stops = pairs.indptr[rows], pairs.indptr[rows + 1]
        cuts = [slice(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return replace(
            pairs,
            indptr=np.concatenate([[0], np.cumsum(stops - starts)]),
            indices=np.concatenate([np.empty(0, np.int32), *(pairs.indices[cut] for cut in cuts)]),
            lengths=np.concatenate([np.empty(0, pairs.lengths.dtype), *(pairs.lengths[cut] for cut in cuts)]),
            sources=pairs.sources[rows],
        ), self._sources.part(first, last)


def lines_of(pairs: NearPairs, sources: Ends, ends: Ends, targets: Sequence[int] | None, *, points: bool) -> Pairs:
    """Return a line for each pair of a source and a target.

    A vertex, or a point, that is both a source and a target makes no pair with itself.  If either side has points, a
    source and another target at the same vertex are a pair with distance 0.

    Args:
        pairs: the near pairs of vertices.
        sources, ends: the sources, and the possible targets.
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
    found = found.filter(pl.Series(sources.twins(ends)[found["tail_row"].to_numpy()]) != found["head_row"])
    if pairs.nearest is None:
        found = found.sort("tail_row", "head_row")
    else:
        found = found.sort("tail_row", "distance", "head_row")
        found = found.filter(pl.int_range(pl.len()).over("tail_row") < pairs.nearest)
    columns: list[Any] = [found[name].to_numpy() for name in ("tail_row", "head_row")]
    return Pairs(sources, ends, columns[0], columns[1], found["distance"])
