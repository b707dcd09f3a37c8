"""Collects vertices and edges one by one, for the readers of formats with attributes and of lists of names."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph
from storage.geography.nodes import VertexCoordinates
from storage.graph.cleaning import AnyArray, ArcList
from storage.readers import fields
from storage.readers.attributes import EdgeWeights
from storage.readers.left_out import LeftOut
from storage.readers.names import VertexNames, order_names
from storage.readers.parsed import Parsed, ReadOptions

NO_DIRECTION = (
    "the file does not say whether its edges are directed, so they are read as directed; --undirected reads both ways"
)

_AS_ALL = 2


class NamedGraph:
    """Collects vertices and edges in any order; an edge may come before its vertices.

    Args:
        options: the caller's options.
        listed: whether every vertex must be declared by ``node``; if not, names that occur only on edges are vertices,
            too.
        default: the format's weight for an edge without a weight (``EdgeWeights``); None if the format defines none.
    """

    def __init__(self, options: ReadOptions, *, listed: bool = True, default: int | None = None) -> None:
        self._options = options
        self._listed = listed
        self._codes: dict[str, int] = {}
        self._mentioned = array("q")
        self._declared = bytearray()
        self._tails = array("i")
        self._heads = array("i")
        self._one_way = bytearray()
        self._weights: EdgeWeights | None = None
        self._default = default
        self._names = VertexNames(options)
        self._node_attributes = LeftOut("attributes of vertices")
        self._coordinates = VertexCoordinates(options.coordinates)

    @property
    def labelled(self) -> bool:
        """Return whether the caller named an attribute of vertices whose values become the labels."""
        return self._names.wanted

    def _code(self, name: str, line: int) -> int:
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self._codes)
            self._options.limits.check_vertices(code + 1, line)
            self._mentioned.append(line)
            self._declared.append(0)
        return code

    def node(self, name: str, line: int, attributes: Mapping[str, str] | None = None) -> None:
        """Declare a vertex.  Raises InvalidGraph if it was declared before."""
        code = self._code(name, line)
        if self._declared[code] and self._listed:
            raise InvalidGraph(f"node {fields.shown(name)} stands twice", line=line, field="id")
        self._declared[code] = 1
        found = attributes or {}
        lined = {key: (value, line) for key, value in found.items()}
        self._names.add(name, lined, line)
        used = self._coordinates.add(name, lined) | {self._options.labels}
        self._node_attributes.add(key for key in found if key not in used)

    def edge(
        self,
        source: str,
        target: str,
        line: int,
        attributes: Mapping[str, tuple[str, int]] | None = None,
        *,
        directed: bool | None = None,
    ) -> None:
        """Add an edge.

        ``attributes`` are pairs (value, line of the file) by name, or None in formats without weights; ``directed`` is
        None if the edge does not say whether it is directed.
        """
        self._tails.append(self._code(source, line))
        self._heads.append(self._code(target, line))
        self._one_way.append(_AS_ALL if directed is None else directed)
        self._options.limits.check_arcs(len(self._tails), line)
        if attributes is not None:
            if self._weights is None:
                self._weights = EdgeWeights(self._options, default=self._default)
            self._weights.add(attributes, line)

    def finish(self, directed: bool, *, mirrored: bool = False) -> Parsed:
        """Return the arcs.  ``directed`` applies to edges that do not say whether they are directed; ``mirrored`` says
        whether the file of an undirected graph lists both arcs of each edge.

        Raises:
            InvalidGraph: an edge names a vertex that was never declared, or two vertices have the same label.
        """
        self._check_declared()
        labels, rank = order_names(list(self._codes))
        tails = rank[np.frombuffer(self._tails, np.int32)].astype(np.int64)
        heads = rank[np.frombuffer(self._heads, np.int32)].astype(np.int64)
        name, weights = (None, None) if self._weights is None else self._weights.finish()
        notes = [] if self._weights is None else self._weights.notes()
        notes += self._node_attributes.notes()
        arcs, entries = ArcList(tails, heads, weights), len(tails)
        kinds = np.frombuffer(self._one_way, np.uint8)
        one_way = np.where(kinds == _AS_ALL, directed, kinds == 1)
        arcs, directed, mixed = with_directions(arcs, one_way, directed, self._options)
        notes += mixed
        coordinates, about = self._coordinates.finish(labels)
        notes += about
        formula = None if self._weights is None else self._weights.formula
        parsed = Parsed(
            *(arcs, labels, directed, entries), mirrored=mirrored, weight_column=name, length_of=formula,
            coordinates=coordinates, notes=notes,
        )  # fmt: skip
        return self._names.rename(parsed)

    def _check_declared(self) -> None:
        if self._listed and 0 in self._declared:
            code = self._declared.index(0)
            name = next(name for name, at in self._codes.items() if at == code)
            raise InvalidGraph(f"there is no node {fields.shown(name)}", line=self._mentioned[code], field="vertex")


def with_directions(
    arcs: ArcList, one_way: npt.NDArray[np.bool_], directed: bool, options: ReadOptions
) -> tuple[ArcList, bool, list[str]]:
    """Return the arcs, whether the graph is directed, and notes.  ``one_way`` says for each edge whether it is
    directed.

    If only some edges are directed, each undirected edge becomes two arcs, unless the options decide for all edges.
    ``directed`` decides for graphs without edges.
    """
    if not len(one_way):
        return arcs, directed, []
    if one_way.all() == one_way.any():
        return arcs, bool(one_way[0]), []
    if options.directed is not None:
        return arcs, True, []
    note = f"undirected edges among directed ones, each of which became two arcs: {np.sum(~one_way):,}"
    return both_ways(arcs, ~one_way), True, [note]


def both_ways(arcs: ArcList, twice: AnyArray) -> ArcList:
    """Return the arcs, followed by the reverse of each arc that ``twice`` marks."""
    weights = None if arcs.weights is None else np.concatenate([arcs.weights, arcs.weights[twice]])
    tails = np.concatenate([arcs.tails, arcs.heads[twice]])
    return ArcList(tails, np.concatenate([arcs.heads, arcs.tails[twice]]), weights)
