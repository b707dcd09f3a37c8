"""Finds the weight among the named attributes of edges (GML, GraphML, GEXF, Pajek, JSON and others)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import AnyArray
from storage.readers import fields
from storage.readers.formula import Formula
from storage.readers.left_out import LeftOut
from storage.readers.lengths import length_among
from storage.readers.parsed import ReadOptions

#: The attribute whose default value a format may define, as GEXF and Pajek do.
OWN = "weight"


class EdgeWeights:
    """Collects the weight of each edge from the attribute that the user has named.

    If the user named none, the first edge that has an attribute with a usual name for a weight decides which attribute
    it is.

    ``default`` is the weight that the format defines for an edge without a weight.  If it is None, an edge without a
    weight is refused once another edge has one.
    """

    def __init__(self, options: ReadOptions, *, default: int | None = None) -> None:
        self._wanted = options.column
        self._formula = options.length_of
        self._unweighted = options.unweighted
        self._default = default
        self._defaulted = 0
        self._name: str | None = None
        self._count = 0
        self._weights: list[int | float] = []
        self._lines: list[int] = []
        self._left_out = LeftOut("attributes of edges")

    @property
    def formula(self) -> str | None:
        """Return the text of the formula that computes the lengths; None without a formula."""
        return None if self._formula is None else self._formula.text

    def add(self, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        """Add the next edge; its ``attributes`` are pairs (value, line of the file) by name."""
        if self._count == 0 and not self._unweighted:
            self._name = self._wanted if self._wanted is not None else _usual(attributes)
        self._count += 1
        self._left_out.add(attributes if self._name is None else (k for k in attributes if k != self._name))
        if self._name is None:
            late = None if self._unweighted else _usual(attributes)
            if late is None:
                return
            self._begin_late(late, line)
        self._take(attributes, line)

    def _take(self, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        found = None if self._name is None else attributes.get(self._name)
        if found is not None:
            self._check_own(attributes, line)
            token, at = found
            self._weights.append(fields.weight(token.strip('"').strip(), at))
            self._lines.append(at)
        elif self._default is not None and self._name == OWN:
            self._weights.append(self._default)
            self._lines.append(line)
            self._defaulted += 1
        else:
            self._refuse_missing(attributes, line)

    def _begin_late(self, name: str, line: int) -> None:
        """Give the format's default weight to all edges before the first edge that has a weight; raise InvalidGraph if
        the format defines no default.
        """
        if self._default is None or name != OWN:
            raise InvalidGraph(
                f"an edge with {name!r}, while the first has no weight; add the missing weights, or say --unweighted",
                line=line,
                field="weight",
            )
        self._name = name
        self._defaulted = self._count - 1
        self._weights = [self._default] * self._defaulted
        self._lines = [line] * self._defaulted

    def _check_own(self, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        if self._default is not None and self._wanted is None and self._name != OWN and OWN in attributes:
            raise InvalidGraph(
                f"an edge with {OWN!r}, while the first has {self._name!r} only; say which with --weight",
                line=line,
                field="weight",
            )

    def _refuse_missing(self, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        if self._count == 1:
            have = ", ".join(attributes) or "none"
            raise InvalidRequest(f"edges have no attribute {self._name!r}; they have {have}", field="weight")
        raise InvalidGraph(f"an edge without {self._name!r}, its weight", line=line, field="weight")

    def finish(self) -> tuple[str | None, AnyArray | None]:
        """Return the name of the attribute and the weights, or None and None if the graph has no weights."""
        if self._name is None:
            return None, None
        if self._count and self._defaulted == self._count:
            raise InvalidRequest(f"edges have no attribute {self._name!r}", field="weight")
        kind = np.float64 if any(isinstance(w, float) for w in self._weights) else np.int64
        weights = np.array(self._weights, kind)
        return self._name, weights if self._formula is None else self._lengths(self._formula, weights)

    def _lengths(self, formula: Formula, values: AnyArray) -> AnyArray:
        lengths = formula(values)
        wrong = np.flatnonzero(~np.isfinite(lengths))
        if len(wrong):
            line, message = self._lines[wrong[0]], f"{formula.text} is {lengths[wrong[0]]}, which is no length"
            raise InvalidGraph(message, line=line, field="length_of")
        return lengths

    def notes(self) -> list[str]:
        """Return notes for the receipt about unused attributes, and about edges that got the default weight."""
        notes = self._left_out.notes()
        if self._defaulted:
            notes.append(
                f"edges without weight, which take the format's default of {self._default}: {self._defaulted:,}"
            )
        if self._count and self._name is None and not self._unweighted and notes:
            notes.append("no attribute of edges is a usual weight, so every arc weighs 1")
        return notes


def _usual(attributes: Mapping[str, tuple[str, int]]) -> str | None:
    """Return the attribute whose name stands for a length, or None; raise an error if the only known name stands for a
    similarity.
    """
    names = [name for name in attributes if name.lower() == "weight" or _number(attributes[name]) is not None]
    found = length_among(names, [_number(attributes[name]) or 0.0 for name in names])
    return None if found is None else names[found]


def _number(attribute: tuple[str, int]) -> float | None:
    token = attribute[0].strip('" ')
    return float(token) if fields.is_number(token) else None
