"""Translates between the caller's vertices and their labels on the wire, which are whole numbers or text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import index
from typing import Any

from storage.errors import InvalidRequest

Label = int | str


def label_of(vertex: object) -> Label:
    """Return the label on the wire of a vertex that is a whole number (also of NumPy) or text.  Raises TypeError for
    others.
    """
    if isinstance(vertex, str):
        return str(vertex)
    return index(vertex)  # type: ignore[arg-type]


class Names:
    """Translates vertices to labels and back.

    If all vertices are numbers, or all are text, they are their own labels; otherwise (tuples, or both kinds) the label
    of each is its ``str``.
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
        """Return the label of a vertex.  Raises InvalidRequest if it has none."""
        if self._there and (known := self._there.get(vertex)) is not None:
            return known
        try:
            return label_of(vertex)
        except TypeError:
            raise InvalidRequest(f"a vertex is a whole number or text, not {vertex!r}", field="vertex") from None

    def labels(self, vertices: Iterable[Any]) -> list[Label]:
        """Return the labels of vertices, in their order."""
        return [self.label(vertex) for vertex in vertices]

    def vertex(self, label: Label) -> Any:
        """Return the vertex of a label."""
        return self._back.get(label, label)

    def vertices(self, labels: Sequence[Label]) -> list[Any]:
        """Return the vertices of labels, in their order."""
        return [self.vertex(label) for label in labels] if self._back else list(labels)


def _is_number(vertex: object) -> bool:
    try:
        return -(2**63) <= index(vertex) < 2**63  # type: ignore[arg-type]
    except TypeError:
        return False
