"""Answers queries of one solved matrix, with vertices named as in the file.  Importing it loads NumPy."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from service.jobs.points import PointSnapper
from service.views.binning import in_bins
from service.views.pictures.layout import find_places, has_layout
from storage.errors import InvalidRequest
from storage.graph.units import HOPS
from storage.matrix.reader import open_matrix
from storage.matrix.sealed import SealedResult
from storage.prepared.reader import PreparedStore
from storage.semirings import MIN_PLUS, check_understood

if TYPE_CHECKING:
    from engine.api.routes import Router
    from service.api.schemas.wire import ResultKind
    from storage.geography.coordinates import Coordinates

#: advice for messages: how to ask about a semiring other than min-plus
_SAY_IT = "answers to questions that say so (semiring=NAME)"
Label = int | str
Array = npt.NDArray[np.generic]


class ResultReader:
    """An open result store; safe to use from many threads.

    Attributes:
        matrix: the open result.
        snapper: snaps points to the vertices of the result.

    Args:
        path: a folder or an address of a solved matrix; or a matrix or a prepared graph that is open already.
    """

    #: whether the result is a table, which holds no distances of pairs
    table = False

    def __init__(self, path: str | Path | SealedResult) -> None:
        self.matrix: Any = path if isinstance(path, SealedResult) else open_matrix(path)
        self._lock = threading.Lock()
        self.snapper = PointSnapper(lambda: self.matrix.coordinates)

    @cached_property
    def _router(self) -> Router:
        from engine.api.routes import Router

        return Router(self.matrix)

    @property
    def prepared(self) -> bool:
        """Whether the distances of the result are computed on request."""
        return isinstance(self.matrix, PreparedStore)

    @property
    def kind(self) -> ResultKind:
        """The kind of the result, as the job's option ``result`` names it."""
        return "prepared" if self.prepared else "matrix"

    @property
    def unit(self) -> str | None:
        """The unit of the distances, ``arcs`` if the distances count arcs; None if it is not known."""
        counts = self.matrix.attributes.get("unit") == HOPS and self.matrix.semiring == MIN_PLUS
        unit: str | None = self.matrix.unit or ("arcs" if counts else None)
        return unit

    @property
    def lines(self) -> bool:
        """Whether vertices have longitudes and latitudes, so that paths are lines on the Earth."""
        return bool(self.matrix.placed and self.matrix.coordinates.geographic)

    @property
    def laid_out(self) -> bool:
        """Whether the network is drawn at computed positions, because it has no coordinates and is small."""
        matrix = self.matrix
        return has_layout(matrix.n, matrix.arcs) and not (matrix.placed and matrix.coordinates.there.any())

    @cached_property
    def places(self) -> Coordinates | None:
        """The positions at which the network is drawn: its coordinates, or computed ones; None if it is not drawn."""
        if not self.laid_out:
            found: Coordinates | None = self.matrix.coordinates
            return found if found is not None and bool(found.there.any()) else None
        return find_places(self.matrix.graph())

    @property
    def said(self) -> dict[str, str]:
        """The field of answers that names the semiring; empty for distances."""
        found = self.matrix.semiring
        return {} if found == MIN_PLUS else {"semiring": found}

    def check_semiring(self, asked: str | None) -> None:
        """Raise Conflict if the values are of another semiring than the question asks for; None means min-plus."""
        check_understood("the result", self.matrix.attributes, asked or MIN_PLUS, _SAY_IT)

    def asked_by(self, who: str | None) -> ResultReader:  # noqa: ARG002 - reading is charged to nobody
        """Return a reader for the questions of one request by the caller ``who``."""
        return self

    def check_budget(self, who: str | None) -> None:
        """Do nothing, because reading takes no processor seconds that are limited."""

    def _route(self, source: int, target: int) -> Any:
        with self._lock:  # all threads share one router, which keeps the reversed arcs
            router = self._router
        return router.route(source, target)

    def label(self, index: int) -> Label:
        """Return the name of a vertex."""
        return plain_label(self.matrix.labels[index])

    def vertices(self, names: Sequence[Label]) -> npt.NDArray[np.int64]:
        """Return the vertex indices of names.  Raises NotFound for the first unknown name."""
        known: dict[Label, int] = {}
        for name in names:
            if name not in known:
                known[name] = self.matrix.vertex(name)
        return np.array([known[name] for name in names], np.int64)

    def check_sources(self, vertices: npt.NDArray[np.int64]) -> None:
        """Raise NotFound for the first of the vertices (indices) whose row was not solved."""
        for vertex in vertices[~np.isin(vertices, self.matrix.sources)][:1]:
            self.matrix.source_position(int(vertex))

    def check_targets(self, vertices: npt.NDArray[np.int64]) -> None:
        """Raise NotFound for the first of the vertices (indices) whose column was not solved."""
        self.matrix.target_positions(vertices)

    def distance(self, source: Label, target: Label) -> dict[str, Any]:
        """Return one distance; None if there is no path or the value is infinite, as from a vertex to itself in
        semirings max-min and min-max.
        """
        u, v = self.matrix.vertex(source), self.matrix.vertex(target)
        entries = self.matrix.entries([u], [v])
        reachable, value = bool(self.reached(entries)[0]), self.numbers(entries)[0]
        return {
            "source": self.label(u),
            "target": self.label(v),
            "reachable": reachable,
            "distance": value,
            **self.said,
        }

    def also(self, source: Label, target: Label) -> dict[str, Any]:
        """Return one distance, and the sums of quantities along its path; None where there is no path.

        Raises InvalidRequest if nothing was summed.
        """
        matrix = self.matrix
        if not matrix.also:
            message = "the store has distances only; apsp solve --also NAMES sums other columns along the paths"
            raise InvalidRequest(message, field="query")
        answer = self.distance(source, target)
        u, v = matrix.vertex(source), matrix.vertex(target)
        sums = {name: found.entries([u], [v])[0].item() if answer["reachable"] else None
                for name, found in matrix.also.items()}  # fmt: skip
        return {**answer, "also": sums}

    def peek_distance(self, source: Label, target: Label) -> dict[str, Any] | None:
        """Return the answer of :meth:`distance` if it can be read without waiting, else None.

        Raises BlockingIOError as ``Matrix.peek`` does.
        """
        u, v = self.matrix.vertex(source), self.matrix.vertex(target)
        entry = self.matrix.peek(u, v)
        if entry is None:
            return None
        reachable = bool(entry != self.matrix.unreachable)
        value = None
        if reachable:
            value = float(str(entry)) if entry.dtype == np.float32 else entry.item()
        return {"source": self.label(u), "target": self.label(v), "reachable": reachable, "distance": value}

    def distances(self, pairs: Sequence[tuple[Label, Label]]) -> list[int | float | None]:
        """Return the distances of many pairs, in their order."""
        sources, targets = self.vertices([u for u, _ in pairs]), self.vertices([v for _, v in pairs])
        return self.numbers(self.matrix.entries(sources, targets))

    def path(self, source: Label, target: Label) -> dict[str, Any]:
        """Return one shortest path: vertices, the weights between them, and their sum."""
        u, v = self.matrix.vertex(source), self.matrix.vertex(target)
        route = self._route(u, v)
        answer = {"source": self.label(u), "target": self.label(v), "reachable": route is not None}
        if route is None:
            return {**answer, "length": None, "vertices": [], "weights": [], **self.said}
        names = [self.label(vertex) for vertex in route.vertices]
        length = None if math.isinf(route.length) else route.length
        return {**answer, "length": length, "vertices": names, "weights": route.weights, **self.said}

    def nearest(self, source: Label, count: int) -> dict[str, Any]:
        """Return the ``count`` reachable vertices nearest to a source, without the source itself.

        Ties are in the order of the columns.  A vertex that is no target of the job is never among them.
        """
        u = self.matrix.vertex(source)
        vertices, distances = self.matrix.nearest(u, count)
        targets = [self.label(v) for v in vertices.tolist()]
        return {"source": self.label(u), "targets": targets, "distances": self.numbers(distances), **self.said}

    def within(self, source: Label, distance: float) -> dict[str, Any]:
        """Return the vertices whose distance from a source is at most ``distance``, the source too, the nearest first.

        As with a cutoff, ``distance`` is rounded to the type of the distances.  Equal distances are in the order of the
        columns.  Only targets that were solved count.  Raises InvalidRequest as ``check_within`` does.
        """
        from engine.graph.selection import first_beyond

        self.check_within(distance, "distance")
        u = self.matrix.vertex(source)
        row: Any = self.matrix.row(u)
        columns = np.flatnonzero(self.reached(row) & np.less(row, first_beyond(distance, row.dtype)))
        columns = columns[np.argsort(row[columns], kind="stable")]
        targets = [self.label(v) for v in self.matrix.targets[columns].tolist()]
        return {"source": self.label(u), "targets": targets, "distances": self.numbers(row[columns])}

    def check_within(self, distance: float, field: str) -> None:
        """Raise InvalidRequest if the result cannot tell which distances are at most ``distance``, and Conflict if its
        values are no distances.
        """
        self.check_semiring(MIN_PLUS)
        if math.isnan(distance):
            raise InvalidRequest(f"{field}: {distance} is no distance", field=field)
        cutoff = self.matrix.attributes.get("cutoff")
        if cutoff is not None and distance > cutoff:
            message = f"{field}: {distance:.15g} is asked for, but the result was solved with a cutoff of {cutoff:.15g}"
            raise InvalidRequest(f"{message}; it holds no longer distances", field=field)

    def histogram(self, source: Label | None, bins: int) -> dict[str, Any]:
        """Return a histogram of the finite distances of one row, or of the whole matrix, without the diagonal.

        The histogram of a matrix was counted while solving; the histogram of a prepared result is counted on the first
        request. ``edges`` has one number more than ``counts``; the last bin includes its upper edge.
        The bins of a row are those of ``in_bins``.
        """
        self.check_semiring(MIN_PLUS)
        if source is None:
            found = self.counted().get("histogram") or {"edges": [], "counts": []}
            return {"edges": found["edges"], "counts": found["counts"], "below_zero": found.get("below_zero", 0)}
        u = self.matrix.vertex(source)
        row: Any = self.matrix.row(u)
        wanted = self.reached(row) & (self.matrix.targets != u)
        edges, counts = np.zeros(0), np.zeros(0, np.int64)
        if wanted.any():
            counts, edges = in_bins(row[wanted].astype(np.float64), bins)
        below = int(np.count_nonzero(row[wanted] < 0))
        return {"edges": edges.tolist(), "counts": counts.tolist(), "below_zero": below}

    def counted(self) -> dict[str, Any]:
        """Return the summary of all rows: among others, mean, diameter, radius and histogram."""
        found: dict[str, Any] = self.matrix.summary
        return found

    def facts(self) -> dict[str, Any]:
        """Return a description of the store: shape, type, tiles, bytes, digest, and how it was solved."""
        matrix = self.matrix
        keys = (
            "unreachable",
            "unit",
            "weight_column",
            "directed",
            "algorithm",
            "max_hops",
            "cutoff",
            "graph",
            "sources",
            "targets",
            "compression",
            "software",
        )
        facts = {name: matrix.attributes.get(name) for name in keys}
        facts["semiring"] = matrix.semiring
        facts["also"] = {name: summed.stored_dtype.name for name, summed in matrix.also.items()}
        tiles = {"shape": list(matrix.grid.tile), "count": list(matrix.grid.counts)}
        facts["compression"] = facts["compression"] or "none"
        about = {"result": self.kind, "shape": list(matrix.shape), "dtype": matrix.dtype.name}
        return {**about, **facts, "tiles": tiles, "bytes": matrix.bytes,
                "digest": matrix.digest}  # fmt: skip

    def reached(self, entries: Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the entries for which there is a path."""
        mask: npt.NDArray[np.bool_] = np.not_equal(entries, self.matrix.unreachable)
        return mask

    def numbers(self, entries: Array) -> list[int | float | None]:
        """Return the entries, shape (k,), as plain numbers; None means no path, or an infinite value.

        A float32 becomes the number with the fewest digits that rounds to it.
        """
        if entries.dtype == np.float32:
            entries = entries.astype(np.dtypes.StringDType()).astype(np.float64)
        found: list[int | float | None] = entries.tolist()
        known = self.reached(entries) & np.isfinite(entries) if self.said else self.reached(entries)
        for i in np.flatnonzero(~known).tolist():
            found[i] = None
        return found


def plain_label(label: object) -> Label:
    """Return a label as a plain number or string."""
    return int(label) if isinstance(label, int | np.integer) else str(label)
