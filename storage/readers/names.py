"""Names vertices by one of their attributes (``--labels``) instead of by the id that edges use."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import AnyArray, IntArray, is_label
from storage.graph.inputs import search_text
from storage.readers.fields import shown
from storage.readers.parsed import Parsed, ReadOptions


class VertexNames:
    """Collects the name of each vertex while nodes are read; without ``--labels`` it does nothing."""

    def __init__(self, options: ReadOptions) -> None:
        self._attribute = options.labels
        self._names: dict[str, str] = {}
        self._lines: dict[str, int] = {}

    @property
    def wanted(self) -> bool:
        """Return whether the options select an attribute that names the vertices."""
        return self._attribute is not None

    def add(self, vertex: int | str, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        """Record the name of the next vertex; without ``--labels`` this does nothing.

        Args:
            vertex: the id of the vertex.
            attributes: pairs (value, line of the file), by the name of the attribute.
            line: the line of the vertex, for errors.

        Raises:
            InvalidRequest: the first vertex does not have the attribute that ``--labels`` selects.
            InvalidGraph: a later vertex does not have this attribute, or a name is empty or occurs twice.
        """
        if self._attribute is None:
            return
        if self._attribute not in attributes:
            if not self._names:
                have = ", ".join(attributes) or "none"
                raise InvalidRequest(
                    f"vertices have no attribute {self._attribute!r}; they have {have}", field="labels"
                )
            raise InvalidGraph(f"vertex {vertex} has no {self._attribute!r}", line=line, field=self._attribute)
        token, at = attributes[self._attribute]
        name = html.unescape(token.strip().strip('"').strip())
        if not name:
            raise InvalidGraph(f"the {self._attribute!r} of vertex {vertex} is empty", line=at, field=self._attribute)
        if name in self._lines:
            message = f"{self._attribute} {shown(name)} stands also on line {self._lines[name]}, so it names no vertex"
            raise InvalidGraph(message, line=at, field=self._attribute)
        self._names[str(vertex)], self._lines[name] = name, at

    def rename(self, parsed: Parsed) -> Parsed:
        """Return ``parsed`` with the names of all vertices in place of their ids; unchanged without ``--labels``."""
        if self._attribute is None or parsed.labels is None:
            return parsed
        parsed.labels, place = order_names([self._names[str(label)] for label in parsed.labels.tolist()])
        if parsed.coordinates is not None:
            parsed.coordinates = parsed.coordinates.taken(np.argsort(place))
        parsed.arcs.tails, parsed.arcs.heads = (
            place[side - parsed.base] + parsed.base for side in (parsed.arcs.tails, parsed.arcs.heads)
        )
        parsed.notes.append(f"the vertices are named by their attribute {self._attribute!r}")
        return parsed


def note_quotes(labels: AnyArray) -> list[str]:
    """Return a note that single quotes around names are kept as part of the names; an empty list if no name has them.

    Args:
        labels: all names, in ascending order of code points.  If the labels are numbers, there is no note.

    Raises:
        InvalidGraph: a name occurs both with and without quotes, so that one vertex would become two.
    """
    if labels.dtype.kind in "iu" or not len(labels):
        return []
    # In the order of code points, names that begin with ' are adjacent, and ( is the character after '.
    first, end = search_text(labels, "'"), search_text(labels, "(")
    quoted = [name for name in map(str, labels[first:end]) if len(name) > 2 and name.endswith("'")]
    for name in quoted:
        at = search_text(labels, name[1:-1])
        if at < len(labels) and str(labels[at]) == name[1:-1]:
            raise InvalidGraph(
                f"vertex {shown(name[1:-1])} stands with and without single quotes, and would be two: leave them out",
                field="vertex",
            )
    if not quoted:
        return []
    return [f"single quotes are kept as part of the names that they enclose, such as {quoted[0]}"]


def order_names(names: list[str]) -> tuple[AnyArray, IntArray]:
    """Return the sorted labels of distinct names, and the position of each name among them.

    The labels are int64 if every name is a whole number in its only accepted spelling (``is_label``), else text.
    """
    numbers = all(is_label(name) for name in names)
    order = sorted(range(len(names)), key=(lambda i: int(names[i])) if numbers else names.__getitem__)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    ordered = [names[i] for i in order]
    if numbers:
        return np.array([int(name) for name in ordered], np.int64), place
    return np.array(ordered, np.dtypes.StringDType()), place
