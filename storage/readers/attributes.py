"""The weight among the named attributes of edges (GML, GraphML)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from storage.cleaning import AnyArray
from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import fields
from storage.readers.parsed import Options
from storage.readers.sniff import WEIGHT_NAMES


class EdgeWeights:
    """Collects the weight of each edge: the attribute asked for, or the first usual name that the first edge has."""

    def __init__(self, options: Options) -> None:
        self._wanted = options.weight
        self._unweighted = options.unweighted
        self._name: str | None = None
        self._count = 0
        self._weights: list[int | float] = []

    def add(self, attributes: Mapping[str, tuple[str, int]], line: int) -> None:
        """Take the next edge, with its attributes and their lines."""
        if self._count == 0 and not self._unweighted:
            self._name = self._wanted if self._wanted is not None else _usual(attributes)
        self._count += 1
        if self._name is None:
            late = None if self._unweighted else _usual(attributes)
            if late is not None:
                message = (
                    f"an edge with {late!r}, while the first has no weight; read the graph as unweighted, or mend it"
                )
                raise InvalidGraph(message, line=line, field="weight")
            return
        if self._name not in attributes:
            if self._count == 1:
                have = ", ".join(attributes) or "none"
                raise InvalidRequest(f"edges have no attribute {self._name!r}; they have {have}", field="weight")
            raise InvalidGraph(f"an edge without {self._name!r}, its weight", line=line, field="weight")
        token, at = attributes[self._name]
        self._weights.append(fields.weight(token.strip('"').strip(), at))

    def finish(self) -> tuple[str | None, AnyArray | None]:
        """Name of the attribute and the weights; None, None if the graph has no weights."""
        if self._name is None:
            return None, None
        kind = np.float64 if any(isinstance(w, float) for w in self._weights) else np.int64
        return self._name, np.array(self._weights, kind)


def _usual(attributes: Mapping[str, tuple[str, int]]) -> str | None:
    lower = {name.lower(): name for name in attributes}
    for name in WEIGHT_NAMES:
        if name in lower and (name == "weight" or fields.is_number(attributes[lower[name]][0].strip('" '))):
            return lower[name]
    return None
