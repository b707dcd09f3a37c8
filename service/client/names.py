"""Translates between the caller's vertices and their labels on the wire, which are whole numbers or text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

from storage.arguments import check_distance, shown
from storage.errors import InvalidRequest

Label = int | str
#: a point on the wire; it is never taken for a vertex, because vertices are hashable and a dict is not
Point = dict[str, Any]
_AXES = ({"lon", "lat"}, {"x", "y"})


def label_of(vertex: object) -> Label:
    """Return the label, as sent to the service, of a vertex that is a whole number (also of NumPy) or text.

    Raises TypeError for any other vertex.
    """
    if isinstance(vertex, str):
        return str(vertex)
    return index(vertex)  # type: ignore[arg-type]


def several(field: str, given: Any) -> Sequence[Any]:
    """Return the items of a list, tuple, array or other iterable; a text is refused, because its items are letters.

    Args:
        field: name of the argument.
        given: what was given.

    Raises:
        InvalidRequest: ``given`` is a text, a dict, or nothing like a list.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise InvalidRequest(f"{field} must be a list, found {shown(given)}", field=field)
    return list(given)


def checked_limit(limit: float | None) -> float | None:
    """Return ``limit``, the farthest that a point may be from its vertex.  Raises InvalidRequest if it is invalid."""
    return None if limit is None else check_distance("snap_limit", limit)


def same_ends(pairs: Sequence[Sequence[Label | Point]], answer: Mapping[str, Any]) -> list[bool]:
    """Return for each pair of a request whether both of its ends are the same vertex.

    Args:
        pairs: the pairs as they were sent: labels, which may be numbers or their text, and points.
        answer: the answer of the service, which names the vertices nearest to the points.
    """
    ends: list[list[Any]] = []
    for column, side in enumerate(("source_points", "target_points")):
        told = {point["place"]: point["vertex"] for point in answer.get(side, ())}
        ends.append([told.get(place, pair[column]) for place, pair in enumerate(pairs)])
    return [str(source) == str(target) for source, target in zip(*ends, strict=True)]


class Names:
    """Translates vertices to labels and back.

    If all vertices are numbers, or all are text, they are their own labels; otherwise (tuples, or numbers and text) the
    label of each vertex is its ``str``.
    """

    def __init__(self, vertices: Iterable[Hashable] = ()) -> None:
        """Raises InvalidRequest if two vertices would have the same name."""
        self._there: dict[Hashable, str] = {}
        self._back: dict[Label, Any] = {}
        found = list(vertices)
        if all(isinstance(vertex, str) for vertex in found) or all(_is_number(vertex) for vertex in found):
            return
        for vertex in found:
            name = str(vertex)
            if name in self._back:
                raise InvalidRequest(f"two vertices are called {name!r}: {self._back[name]!r} and {vertex!r}")
            self._there[vertex], self._back[name] = name, vertex

    def label(self, vertex: Any) -> Label:
        """Return the label of a vertex.  Raises InvalidRequest if the vertex has none."""
        if self._there and (known := self._there.get(vertex)) is not None:
            return known
        try:
            if isinstance(vertex, bool):
                raise TypeError
            return label_of(vertex)
        except TypeError:
            raise InvalidRequest(f"a vertex is a whole number or text, not {vertex!r}", field="vertex") from None

    def labels(self, vertices: Iterable[Any]) -> list[Label]:
        """Return the labels of vertices, in the order given."""
        return [self.label(vertex) for vertex in several("vertices", vertices)]

    def place(self, vertex: Any) -> Label | Point:
        """Return the label of a vertex, or a point, ``{"lon": 24.94, "lat": 60.17}``, as it is sent to the service.

        Raises:
            InvalidRequest: the argument is neither vertex nor point, or the point has not two numbers.
        """
        if not isinstance(vertex, Mapping):
            return self.label(vertex)
        known = {name: value for name, value in vertex.items() if value is not None}
        axes = known.keys() - {"id", "name"}
        if axes not in _AXES:
            raise InvalidRequest(f"a point has lon and lat, or x and y; found {dict(vertex)!r}", field="point")
        try:
            return {**known, **{axis: float(known[axis]) for axis in axes}}
        except (TypeError, ValueError):
            raise InvalidRequest(f"coordinates must be numbers, found {dict(vertex)!r}", field="point") from None

    def places(self, vertices: Iterable[Any]) -> list[Label | Point]:
        """Return vertices and points as they are sent to the service, in the order given."""
        return [self.place(vertex) for vertex in several("points", vertices)]

    def asked(self, limit: float | None, **ends: Any) -> dict[str, Any]:
        """Return the parameters of a question: ``source`` for a vertex, ``source_point`` for a point, and the limit.

        Args:
            limit: the farthest that a point may be from its vertex; None for no limit.
            ends: ``source`` and ``target``, vertices or points.
        """
        found: dict[str, Any] = {"snap_limit": checked_limit(limit)}
        for side, vertex in ends.items():
            place = self.place(vertex)
            if isinstance(place, dict):
                axes = ("lon", "lat") if "lon" in place else ("x", "y")
                found[f"{side}_point"] = ",".join(repr(place[axis]) for axis in axes)
            else:
                found[side] = place
        return found

    def vertex(self, label: Label) -> Any:
        """Return the vertex of a label."""
        return self._back.get(label, label)

    def vertices(self, labels: Sequence[Label]) -> list[Any]:
        """Return the vertices of labels, in the order given."""
        return [self.vertex(label) for label in labels] if self._back else list(labels)


def _is_number(vertex: object) -> bool:
    try:
        return -(2**63) <= index(vertex) < 2**63  # type: ignore[arg-type]
    except TypeError:
        return False
