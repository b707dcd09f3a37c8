"""Reads GraphML (Brandes et al., 2002) as a stream of XML events; entities, in particular external ones, are refused.

The label of a vertex is the ``id`` of its node; labels are numbers if all ids are numbers.  An edge may say whether it
is directed; for all other edges ``edgedefault`` says it.  If some edges are directed and some are not, each undirected
edge becomes two arcs.
"""

from __future__ import annotations

from typing import Final
from xml.sax import xmlreader

import numpy as np

from storage.errors import InvalidGraph
from storage.geography.nodes import VertexCoordinates
from storage.graph.cleaning import ArcList
from storage.readers import fields
from storage.readers.attributes import EdgeWeights
from storage.readers.left_out import LeftOut
from storage.readers.named import with_directions
from storage.readers.names import VertexNames, order_names
from storage.readers.networks.xml import XmlEvents, parse_xml
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

#: Attributes of the whole graph that are used; the receipt lists all others as not read.
_TOLD: Final = ("crs", "created_with")
#: Units of the attributes that OSMnx writes for edges, as its documentation states them.
_OSMNX_UNITS: Final = {"length": "m", "travel_time": "s"}
#: The XML parser delivers text in pieces; of one value, at most this number of pieces is kept.  A longer value is no
#: weight.
_VALUE = 4096
_DEPTH = 100
#: For each element of a graph, the elements that may directly contain it.  Elements that other programs add are within
#: ``data`` and are skipped.
_INSIDE = {"graph": ("graphml",), "node": ("graph",), "edge": ("graph",), "hyperedge": ("graph",), "default": ("key",)}


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a GraphML file; raises the errors of ``read_graph``."""
    events = _Events(options)
    parse_xml(source, events)
    return events.finish()


class _Events(XmlEvents):
    """Collects nodes and edges; labels remain text until the end, because they become numbers only if all are
    numbers.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__()
        self._options = options
        self._directed: bool | None = None
        self._keys: dict[str, str] = {}
        self._others: dict[str, str] = {}
        self._left_out = LeftOut("attributes of vertices and of the graph")
        self._defaults: dict[str, tuple[str, int]] = {}
        self._codes: dict[str, int] = {}
        self._edges: list[tuple[str, str, int]] = []
        self._one_way: list[bool] = []
        self._weights = EdgeWeights(options)
        self._names = VertexNames(options)
        self._coordinates = VertexCoordinates(options.coordinates)
        self._told: dict[str, str] = {}
        self._node: tuple[str, int] | None = None
        self._attributes: dict[str, tuple[str, int]] | None = None
        self._name: str | None = None
        self._of_graph: str | None = None
        self._text: list[str] = []
        self._open: list[str] = []

    def startElement(self, name: str, attrs: xmlreader.AttributesImpl) -> None:  # noqa: N802 - SAX's name
        """Handle the start of an element (SAX)."""
        tag = name.rpartition(":")[2]
        self._enter(tag)
        if "data" in self._open[:-1]:
            return
        if tag == "graph":
            self._graph(attrs)
        elif tag == "key" and attrs.get("for", "edge") in ("edge", "all"):
            key = self._need(attrs, "id", tag)
            self._name = self._keys[key] = attrs.get("attr.name", key)
        elif tag == "key":
            key = self._need(attrs, "id", tag)
            self._others[key] = attrs.get("attr.name", key)
        elif tag == "node":
            label = self._need(attrs, "id", tag)
            if label in self._codes:
                raise InvalidGraph(f"node {fields.shown(label)} stands twice", line=self._line, field="id")
            self._codes[label] = len(self._codes)
            self._node, self._attributes = (label, self._line), {}
            self._options.limits.check_vertices(len(self._codes), self._line)
        elif tag == "edge":
            self._edge(attrs)
        elif tag == "hyperedge":
            raise InvalidGraph("hyperedges are no arcs", line=self._line, field="hyperedge")
        elif tag == "data" and self._attributes is not None:
            key = self._need(attrs, "key", tag)
            self._name, self._text = self._keys.get(key) or self._others.get(key, key), []
        elif tag == "data":
            key = self._need(attrs, "key", tag)
            self._of_graph = self._others.get(key) or self._keys.get(key, key)
            self._text = []
            if self._of_graph not in _TOLD:
                self._left_out.add([self._of_graph])
        elif tag == "default":
            self._text = []

    def _enter(self, tag: str) -> None:
        """Record that an element begins; raise InvalidGraph if the enclosing element may not contain it."""
        within = self._open[-1] if self._open else ""
        self._open.append(tag)
        if len(self._open) > _DEPTH:
            raise InvalidGraph(f"elements nested deeper than {_DEPTH}", line=self._line, field=tag)
        if tag == "graph" and within in ("node", "edge"):
            raise InvalidGraph("a graph inside a node or an edge is no plain graph", line=self._line, field=tag)
        if tag in _INSIDE and within not in _INSIDE[tag] and "data" not in self._open:
            raise InvalidGraph(f"<{tag}> stands inside <{within}>", line=self._line, field=tag)

    def characters(self, content: str) -> None:
        """Handle text (SAX)."""
        if (self._name is not None or self._of_graph in _TOLD) and len(self._text) <= _VALUE:
            self._text.append(content if len(self._text) < _VALUE else " ...")

    def endElement(self, name: str) -> None:  # noqa: N802 - SAX's name
        """Handle the end of an element (SAX)."""
        tag = name.rpartition(":")[2]
        self._open.pop()
        if "data" in self._open:
            return
        if tag == "data" and self._of_graph is not None:
            if self._of_graph in _TOLD:
                self._told[self._of_graph] = "".join(self._text).strip()
            self._of_graph = None
        elif tag in ("data", "default") and self._name is not None:
            store = self._defaults if tag == "default" else self._attributes
            if store is not None:
                if self._name in store:
                    raise InvalidGraph(f"{fields.shown(self._name)} stands twice", line=self._line, field=self._name)
                store[self._name] = "".join(self._text).strip(), self._line
            self._name = None if tag == "data" else self._name
        elif tag == "key":
            self._name = None
        elif tag == "node" and self._node is not None and self._attributes is not None:
            self._names.add(self._node[0], self._attributes, self._node[1])
            used = self._coordinates.add(self._node[0], self._attributes) | {self._options.labels}
            self._left_out.add(key for key in self._attributes if key not in used)
            self._node = self._attributes = None
        elif tag == "edge" and self._attributes is not None:
            self._weights.add({**self._defaults, **self._attributes}, self._line)
            self._attributes = None

    def _graph(self, attrs: xmlreader.AttributesImpl) -> None:
        if self._directed is not None:
            raise InvalidGraph("a second graph in one file", line=self._line, field="graph")
        kind = attrs.get("edgedefault", "directed")
        if kind not in ("directed", "undirected"):
            raise InvalidGraph(f"edgedefault {fields.shown(kind)} is unknown", line=self._line, field="edgedefault")
        self._directed = kind == "directed"

    def _edge(self, attrs: xmlreader.AttributesImpl) -> None:
        own = attrs.get("directed")
        if own not in (None, "true", "false", "1", "0"):
            raise InvalidGraph(f"directed={fields.shown(own)} is unknown", line=self._line, field="directed")
        self._one_way.append(bool(self._directed) if own is None else own in ("true", "1"))
        self._edges.append((self._need(attrs, "source", "edge"), self._need(attrs, "target", "edge"), self._line))
        self._options.limits.check_arcs(len(self._edges), self._line)
        self._attributes = {}

    def finish(self) -> Parsed:
        """Return the arcs; called last, because edges may come before their nodes."""
        if self._directed is None:
            raise InvalidGraph("there is no <graph>", field="graph")
        for source, target, line in self._edges:
            for end in (source, target):
                if end not in self._codes:
                    raise InvalidGraph(f"there is no node {fields.shown(end)}", line=line, field="vertex")
        labels, place = order_names(list(self._codes))
        tails = place[np.array([self._codes[source] for source, _, _ in self._edges], np.int64)]
        heads = place[np.array([self._codes[target] for _, target, _ in self._edges], np.int64)]
        name, weights = self._weights.finish()
        coordinates, about = self._coordinates.finish(labels, self._told.get("crs"))
        unit = self._unit(name)
        used = {"crs": coordinates is not None, "created_with": unit is not None}
        self._left_out.add([told for told in self._told if not used[told]])
        notes = self._weights.notes() + self._left_out.notes() + about
        one_way = np.array(self._one_way, np.bool_)
        arcs, directed, mixed = with_directions(ArcList(tails, heads, weights), one_way, self._directed, self._options)
        notes += mixed
        found = Parsed(
            *(arcs, labels, directed, len(self._edges)),
            weight_column=name,
            length_of=self._weights.formula,
            coordinates=coordinates,
            unit=unit,
            notes=notes,
        )
        return self._names.rename(found)

    def _unit(self, weight: str | None) -> str | None:
        """Return the unit of the weight if OSMnx wrote the file: it defines the units of its attributes; otherwise
        None.
        """
        known = self._told.get("created_with", "").startswith("OSMnx") and self._weights.formula is None
        return _OSMNX_UNITS.get(weight or "") if known else None
