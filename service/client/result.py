"""The methods of a result: distances, paths, rows, arrays, the store.  Vertices are named as in the caller's graph."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from service.client import fetching
from service.client.asking import ask
from service.client.displays import Path
from service.client.flows import Document, job_path, question
from service.client.methods import ClientMethods, asks
from service.client.names import Label, Names, checked_limit, same_ends, several
from service.client.steps import Flow, Request, Work
from service.client.tables import TABLES, TableMethods
from service.units import format_bytes, parse_size
from service.views.pictures.figures import draw_histogram, draw_matrix, new_figure
from storage.arguments import check_flags, check_given_paths, check_texts, check_whole
from storage.errors import InvalidRequest, LimitExceeded
from storage.graph.units import measured_words, said_unit
from storage.semirings import MIN_PLUS, SEMIRINGS

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from xarray import DataArray

#: the most pairs in one request
_PAIRS: Final = 10_000


def number(value: float | None, semiring: str = MIN_PLUS, *, itself: bool = False) -> float:
    """Return a distance in an answer as a float; +inf where there is no path.

    Args:
        value: the distance, or the value of another semiring; None for no path, and for infinite values.
        semiring: the semiring of the value.
        itself: whether None stands for the infinite value from a vertex to itself, and not for a missing path.
    """
    if value is not None:
        return value
    return SEMIRINGS[semiring].itself if itself and semiring != MIN_PLUS else SEMIRINGS[semiring].unreachable


def warn_of_far(answer: Document) -> None:
    """Warn of the points of an answer that are far from their vertices."""
    told = [answer[side] for side in ("source_point", "target_point") if side in answer]
    told += [one for side in ("source_points", "target_points") for one in answer.get(side, ())]
    far = [one for one in told if one["far"]]
    if far:
        worst = max(far, key=lambda one: float(one["snap"]))
        text = f"{len(far)} of {len(told)} points are far from the network: {worst['lon']:g},{worst['lat']:g} is "
        warnings.warn(f"{text}{worst['snap']:,.0f} m from vertex {worst['vertex']}", stacklevel=2)


def _pair(pair: Any) -> tuple[Any, Any]:
    ends = several("pairs", pair)
    if len(ends) != 2:
        raise InvalidRequest(f"pairs must be a list of pairs of vertices, found {pair!r:.80}", field="pairs")
    return ends[0], ends[1]


def _have_points(pairs: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(end, Mapping) for pair in pairs for end in pair)


class ResultMethods(TableMethods):
    """A result on the service, a matrix or a table; its methods take and return vertices as the caller's graph names
    them.
    """

    def __init__(self, client: ClientMethods[Any, Any], facts: Document, names: Names | None = None) -> None:
        super().__init__(facts)
        self._belong(client, names)

    def _question(self, method: str, what: str, **more: Any) -> Flow[Document]:
        return question(method, job_path(self.job, what), self._patience, **more)

    @property
    def semiring(self) -> str:
        """The semiring of the values: ``min-plus`` for distances, else the semiring that the job asked for."""
        return str(self.facts["summary"].get("semiring", MIN_PLUS))

    @property
    def _said(self) -> Document:
        """The parameter of questions that names the semiring; empty for distances."""
        return {} if self.semiring == MIN_PLUS else {"semiring": self.semiring}

    @asks
    def distance(self, source: Any, target: Any, *, snap_limit: float | None = None) -> Flow[float]:
        """Return one distance; +inf where there is no path.  For a job of another semiring, the value of the best path.

        In all questions a vertex may be a point, ``{"lon": 24.94, "lat": 60.17}`` (or ``x`` and ``y``), which means the
        vertex nearest to it; there is a warning if that vertex is far away.

        Args:
            source, target: vertices or points.
            snap_limit: the farthest that a point may be from its vertex, in metres or units of the plane.
        """
        answer = yield from self._question(
            "GET", "distance", params={**self._names.asked(snap_limit, source=source, target=target), **self._said}
        )
        warn_of_far(answer)
        return number(answer["distance"], self.semiring, itself=answer["reachable"])

    @asks
    def also(self, source: Any, target: Any, *, snap_limit: float | None = None) -> Flow[dict[str, float]]:
        """Return the sum of each quantity along the path of a pair, by name; +inf where there is no path.

        Raises ServiceError if the job has summed nothing.

        Args:
            source, target: vertices or points, as in :meth:`distance`.
            snap_limit: the farthest that a point may be from its vertex, in metres or units of the plane.
        """
        asked = self._names.asked(snap_limit, source=source, target=target)
        answer = yield from self._question("GET", "also", params=asked)
        warn_of_far(answer)
        return {name: number(value) for name, value in answer["also"].items()}

    @asks
    def distances(self, pairs: Sequence[tuple[Any, Any]], *, snap_limit: float | None = None) -> Flow[list[float]]:
        """Return the distances of many pairs, in their order; vertices and points are given as in :meth:`distance`."""
        found: list[float] = []
        pairs, snap_limit = [_pair(pair) for pair in several("pairs", pairs)], checked_limit(snap_limit)
        for first in range(0, len(pairs), _PAIRS):
            some = [[self._names.place(u), self._names.place(v)] for u, v in pairs[first : first + _PAIRS]]
            body: Document = {"pairs": some, **self._said}
            # The service refuses a limit without points, so the limit is sent only with batches that have points.  If
            # no batch has points, the limit is sent with every batch, so that the service refuses it.
            if snap_limit is not None and (_have_points(some) or not _have_points(pairs)):
                body["snap_limit"] = snap_limit
            answer = yield from self._question("POST", "distances", json=body)
            warn_of_far(answer)
            values = zip(answer["distances"], same_ends(some, answer), strict=True)
            found += [number(value, self.semiring, itself=same) for value, same in values]
        return found

    @asks
    def path(self, source: Any, target: Any, *, snap_limit: float | None = None) -> Flow[Path | None]:
        """Return one shortest path; None if there is none.  Vertices and points are given as in :meth:`distance`."""
        answer = yield from self._question(
            "GET", "path", params={**self._names.asked(snap_limit, source=source, target=target), **self._said}
        )
        warn_of_far(answer)
        if not answer["reachable"]:
            return None
        length = number(answer["length"], self.semiring, itself=True)
        return Path(self._names.vertices(answer["vertices"]), answer["weights"], length)

    @asks
    def path_feature(self, source: Any, target: Any, *, snap_limit: float | None = None) -> Flow[Document]:
        """Return one shortest path as a feature of GeoJSON, for graphs with longitudes and latitudes.

        The properties of the feature name vertices as the service does; the geometry is None where there is no path.
        Vertices and points are given as in :meth:`distance`.
        """
        asked = {**self._names.asked(snap_limit, source=source, target=target), "format": "geojson"}
        answer = yield from self._question("GET", "path", params=asked)
        warn_of_far(answer["properties"])
        return answer

    @asks
    def row(self, source: Any, *, snap_limit: float | None = None) -> Flow[dict[Any, float]]:
        """Return the distances from one vertex, or point, to each target that was solved; for a job of another
        semiring, the values of the best paths.
        """
        body: Document = {"sources": [self._names.place(source)], **self._said}
        if snap_limit is not None:
            body["snap_limit"] = checked_limit(snap_limit)
        answer = yield from self._question("POST", "submatrix", json=body, params={"format": "json"}, seconds=300.0)
        warn_of_far(answer)
        [name], [values] = answer["sources"], answer["distances"]
        own = (target == name for target in answer["targets"])
        values = [number(value, self.semiring, itself=itself) for value, itself in zip(values, own, strict=True)]
        return dict(zip(self._names.vertices(answer["targets"]), values, strict=True))

    @asks
    def nearest(self, source: Any, k: int = 10, *, snap_limit: float | None = None) -> Flow[list[tuple[Any, float]]]:
        """Return the ``k`` vertices nearest to a vertex, or point, with their distances, the nearest first.

        In a job of another semiring these are the vertices with the best values, the best first.
        """
        asked = {**self._names.asked(snap_limit, source=source), "k": check_whole("k", k, 1), **self._said}
        answer = yield from self._question("GET", "nearest", params=asked)
        warn_of_far(answer)
        return list(zip(self._names.vertices(answer["targets"]), answer["distances"], strict=True))

    @asks
    def nearest_vertices(
        self, points: Sequence[Any], *, snap_limit: float | None = None
    ) -> Flow[tuple[list[Any], list[float]]]:
        """Return the vertex nearest to each point, and how far it is: metres (great circles), or units of the plane.

        Args:
            points: dicts with ``lon`` and ``lat``, or ``x`` and ``y``.
            snap_limit: the farthest that a point may be from its vertex.
        """
        found: list[Document] = []
        points, snap_limit = several("points", points), checked_limit(snap_limit)
        for first in range(0, len(points), _PAIRS):
            body: Document = {"points": self._names.places(points[first : first + _PAIRS])}
            if snap_limit is not None:
                body["snap_limit"] = snap_limit
            found += (yield from self._question("POST", "points", json=body))["points"]
        return self._names.vertices([one["vertex"] for one in found]), [one["snap"] for one in found]

    @asks
    def labels(self) -> Flow[tuple[list[Any], list[Any]]]:
        """Return two lists: the vertices of the rows, and the vertices of the columns, in the order of the matrix."""
        down, across = yield from self._sides()
        return self._names.vertices(down), self._names.vertices(across)

    def _sides(self) -> Flow[tuple[list[Label], list[Label]]]:
        """Return the labels of rows and of columns, read from the store and checked against the seal of the store."""
        from storage.matrix.download import labels_of, side_files

        self._need_distances()
        address, patience = job_path(self.job, self._folder), self._patience
        answer = yield from ask(Request("GET", f"{address}/zarr.json"), patience)
        down, across = ("vertex", "vertex") if self._folder == "prepared" else ("source", "target")
        files: dict[str, bytes] = {}
        for name in side_files(answer.content, (down, across)):
            files[name] = (yield from ask(Request("GET", f"{address}/{name}", seconds=300.0), patience)).content
        found: tuple[list[Label], list[Label]] = yield Work(
            lambda: (labels_of(answer.content, files, down), labels_of(answer.content, files, across))
        )
        return found

    def _need_distances(self) -> None:
        if self.result in TABLES:
            raise InvalidRequest("the result is a table, which has no distances of all pairs; ask for its frame()")

    @property
    def _folder(self) -> str:
        """Return the name of the folder, below the path of the job, that holds the files of the result.

        An older service does not name the kind of a result, which is then a matrix.
        """
        return "prepared" if self.facts.get("result") == "prepared" else "zarr"

    @asks
    def to_numpy(
        self,
        sources: Sequence[Any] | None = None,
        targets: Sequence[Any] | None = None,
        *,
        most: int | str = "1GiB",
        also: str | None = None,
    ) -> Flow[Any]:
        """Return the distances as a NumPy array of floats, shape (sources, targets), +inf where there is no path.

        For a job of another semiring these are the values of the best paths, and the value of that semiring for *no
        path*.  Rows and columns are in the order given, else as in :meth:`labels`.  Raises LimitExceeded if the array
        would have more bytes than ``most``.

        Args:
            sources, targets: the rows and columns; None for all.
            most: the most bytes that the array may have, a number or text such as ``1GiB``.
            also: the quantity whose sums along the paths are wanted in place of distances.
        """
        most = parse_size(most, field="most") if isinstance(most, str) else check_whole("most", most, 1)
        check_texts(also=also)
        rows, columns = (
            None if some is None else self._names.labels(several(side, some))
            for side, some in (("sources", sources), ("targets", targets))
        )
        return (yield from self._submatrix(rows, columns, most, also))

    def _submatrix(
        self, rows: list[Label] | None, columns: list[Label] | None, most: int, also: str | None = None
    ) -> Flow[Any]:
        """Return the distances, or the sums of a quantity, as floats, +inf where there is no path.

        None stands for all rows or all columns.
        """
        import numpy as np

        self._need_distances()
        facts = yield from self._question("GET", "results")
        kind: np.dtype[np.floating[Any]] = np.dtype(
            np.float64 if also is not None or facts["dtype"] in ("int32", "float64") else np.float32
        )
        down, across = facts["shape"]
        shape = (down if rows is None else len(rows), across if columns is None else len(columns))
        _check_size(shape, kind.itemsize, most)
        whole = columns is None
        if rows is None or columns is None:
            all_rows, all_columns = yield from self._sides()
            rows, columns = all_rows if rows is None else rows, all_columns if columns is None else columns
        cells = (yield from question("GET", "v1/limits", self._patience))["limits"]["max_cells"]["value"]
        found = np.empty(shape, kind)
        for part in _parts(shape, cells):
            body: Document = {"sources": rows[part[0]], "targets": columns[part[1]], **self._said}
            if whole and len(body["targets"]) == across:
                del body["targets"]  # the service answers with whole rows if no targets are named
            address = job_path(self.job, "submatrix")
            request = Request("POST", address, {"format": "npy", "also": also}, json=body, seconds=300.0)
            answer = yield from ask(request, self._patience)
            found[part] = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return found

    @asks
    def to_xarray(self, /, **options: Any) -> Flow[DataArray]:
        """Return the distances as a lazy labelled array; entries are read through the service when they are used.

        Values are as stored: for integers, *no path* is the number in the attribute ``unreachable``.  Options go to
        ``xarray.open_zarr``.  A vertex that is no number or text, such as a tuple, appears under its label on the wire.
        Needs xarray, fsspec and aiohttp.
        """
        found: DataArray = yield Work(lambda: self._opened(options))
        return found

    def _opened(self, options: dict[str, Any]) -> DataArray:
        """Open the array ``distances`` of the store; this reads metadata and labels, not tiles."""
        self._need_distances()
        if self.semiring != MIN_PLUS:
            raise InvalidRequest(
                f"the values are of semiring {self.semiring}, and no distances: fetch the store, and open it with "
                f"apsp.open(FOLDER, semiring={self.semiring!r})"
            )
        try:
            import aiohttp  # noqa: F401 - what fsspec speaks HTTP with
            import fsspec  # noqa: F401
            import xarray
        except ImportError as error:
            raise InvalidRequest(f"to_xarray needs xarray, fsspec and aiohttp: {error}") from error
        headers = self._client._http.headers.items()
        key = {name: value for name, value in headers if name.lower() == "authorization"}
        asked: dict[str, Any] = {"chunks": None, **options, "storage_options": {"headers": key}}
        found: DataArray = xarray.open_zarr(f"{self._client.url}/{job_path(self.job, 'zarr')}", **asked)["distances"]
        return found

    @asks
    def fetch(
        self, folder: str | PathLike[str], *, overwrite: bool = False, meter: fetching.Meter | None = None
    ) -> Flow[FilePath]:
        """Fetch the whole store into a folder, and check each file; after an interruption, the next call continues.

        For a prepared result the store is the prepared graph, which ``apsp.open`` opens.  For a table it is a folder
        with ``table.parquet``; for near pairs the folder also has a Zarr group of their sparse rows.

        Args:
            folder: path of the store; it appears once it is complete.
            overwrite: whether an existing store is replaced.
            meter: called with the bytes fetched so far and the bytes in all.
        """
        check_given_paths(folder=folder)
        check_flags(overwrite=overwrite)
        place = job_path(self.job, self._folder)
        return fetching.fetch(place, FilePath(folder), self._patience, overwrite=overwrite, meter=meter)

    @asks
    def plot(self, size: int = 256) -> Flow[Figure]:
        """Return a heat map of at most ``size`` rows and columns, and the histogram of all distances; needs
        matplotlib.
        """
        size = check_whole("size", size, 1)
        down, across = yield from self._sides()
        distances = yield from self._submatrix(_some(down, size), _some(across, size), 8 * size * size)
        bins = yield from self._question("GET", "histogram")
        figure = new_figure(10, 4)
        left, right = figure.subplots(1, 2)
        name = f"distance {measured_words(said_unit(self.unit), self.measured)}".strip()
        draw_matrix(left, distances, self.shape, name)
        left.set(title="distances (light: near, hatched: no path)", xlabel="target", ylabel="source")
        draw_histogram(right, bins["edges"], bins["counts"], name)
        right.set_title("all pairs")
        return figure


def _some(labels: list[Label], size: int) -> list[Label]:
    """Return at most ``size`` of the labels, evenly spaced."""
    if len(labels) <= size:
        return labels
    return [labels[k * len(labels) // size] for k in range(size)]


def _check_size(shape: tuple[int, int], itemsize: int, most: int) -> None:
    size = shape[0] * shape[1] * itemsize
    if size > most:
        message = (
            f"the array would have {shape[0]:,} x {shape[1]:,} entries, {format_bytes(size)}, and the limit is "
            f"{format_bytes(most)}: give a higher most=, or fewer sources or targets, or use to_xarray or fetch"
        )
        raise LimitExceeded(message, limit=most, requested=size, setting="most")


def _parts(shape: tuple[int, int], cells: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rectangles of at most ``cells`` entries that cover the matrix; whole rows where possible."""
    width = max(1, min(shape[1], cells))
    height = max(1, cells // width)
    for top in range(0, shape[0], height):
        for left in range(0, shape[1], width):
            yield slice(top, top + height), slice(left, left + width)
