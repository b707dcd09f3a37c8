"""GraphML (Brandes et al., 2002) as a stream of XML events; entities, external ones above all, are refused.

Vertices are the ``id`` of each node, numbers if all are.  Edges are directed as ``edgedefault`` says; an edge that
says otherwise is refused, since a graph is one or the other.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from xml.sax import SAXParseException, handler, xmlreader

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.sax import make_parser

from storage.cleaning import AnyArray, ArcList
from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.attributes import EdgeWeights
from storage.readers.parsed import Options, Parsed
from storage.readers.source import Source

_VALUE = 4096


def read(source: Source, options: Options) -> Parsed:
    """Read a GraphML file; errors as ``read_graph``."""
    events = _Events(options)
    parser = make_parser()
    parser.forbid_dtd = False
    parser.forbid_entities = True
    parser.forbid_external = True
    parser.setFeature(handler.feature_namespaces, False)
    parser.setContentHandler(events)
    stream = xmlreader.InputSource()
    stream.setByteStream(_Stream(source.content()))
    try:
        parser.parse(stream)
    except SAXParseException as error:
        raise InvalidGraph(f"not well-formed XML: {error.getMessage()}", line=error.getLineNumber()) from None
    except DefusedXmlException as error:
        raise InvalidGraph(f"XML entities are refused: {error}", field="ENTITY") from None
    return events.finish()


class _Stream(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size`` of them."""
        if not self._rest:
            self._rest = next(self._pieces, b"")
        out, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return out


class _Events(handler.ContentHandler):
    """Collects nodes and edges; labels stay text until all are known."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options = options
        self._directed: bool | None = None
        self._keys: dict[str, str] = {}
        self._defaults: dict[str, tuple[str, int]] = {}
        self._codes: dict[str, int] = {}
        self._edges: list[tuple[str, str, int]] = []
        self._weights = EdgeWeights(options)
        self._attributes: dict[str, tuple[str, int]] | None = None
        self._name: str | None = None
        self._text: list[str] = []

    @property
    def _line(self) -> int:
        return self._locator.getLineNumber() or 0

    def setDocumentLocator(self, locator: xmlreader.Locator) -> None:  # noqa: N802 - SAX's name
        """SAX: where the parser is."""
        self._locator = locator

    def startElement(self, name: str, attrs: xmlreader.AttributesImpl) -> None:  # noqa: N802 - SAX's name
        """SAX: an element opens."""
        tag = name.rpartition(":")[2]
        if tag == "graph":
            self._graph(attrs)
        elif tag == "key" and attrs.get("for", "edge") in ("edge", "all"):
            self._name = self._keys[self._need(attrs, "id", tag)] = attrs.get("attr.name", attrs["id"])
        elif tag == "node":
            label = self._need(attrs, "id", tag)
            if label in self._codes:
                raise InvalidGraph(f"node {fields.shown(label)} stands twice", line=self._line, field="id")
            self._codes[label] = len(self._codes)
            self._options.limits.check_vertices(len(self._codes), self._line)
        elif tag == "edge":
            self._edge(attrs)
        elif tag == "hyperedge":
            raise InvalidGraph("hyperedges are no arcs", line=self._line, field="hyperedge")
        elif tag == "data" and self._attributes is not None:
            key = self._need(attrs, "key", tag)
            self._name, self._text = self._keys.get(key, key), []
        elif tag == "default":
            self._text = []

    def characters(self, content: str) -> None:
        """SAX: text."""
        if self._name is not None and len(self._text) < _VALUE:
            self._text.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802 - SAX's name
        """SAX: an element closes."""
        tag = name.rpartition(":")[2]
        if tag in ("data", "default") and self._name is not None:
            store = self._defaults if tag == "default" else self._attributes
            if store is not None:
                store[self._name] = "".join(self._text).strip(), self._line
            self._name = None if tag == "data" else self._name
        elif tag == "key":
            self._name = None
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
        if own is not None and (own == "true") != self._directed and self._options.directed is None:
            raise InvalidGraph(
                "edges both directed and undirected; say which with --directed or --undirected",
                line=self._line,
                field="directed",
            )
        self._edges.append((self._need(attrs, "source", "edge"), self._need(attrs, "target", "edge"), self._line))
        self._options.limits.check_arcs(len(self._edges), self._line)
        self._attributes = {}

    def _need(self, attrs: xmlreader.AttributesImpl, key: str, tag: str) -> str:
        if key not in attrs:
            raise InvalidGraph(f"<{tag}> without {key!r}", line=self._line, field=key)
        return str(attrs[key])

    def finish(self) -> Parsed:
        """The arcs; edges may stand before their nodes."""
        if self._directed is None:
            raise InvalidGraph("there is no <graph>", field="graph")
        for source, target, line in self._edges:
            for end in (source, target):
                if end not in self._codes:
                    raise InvalidGraph(f"there is no node {fields.shown(end)}", line=line, field="vertex")
        labels, rank = _labels(list(self._codes))
        tails = np.array([rank[source] for source, _, _ in self._edges], np.int64)
        heads = np.array([rank[target] for _, target, _ in self._edges], np.int64)
        name, weights = self._weights.finish()
        return Parsed(ArcList(tails, heads, weights), labels, self._directed, len(tails), weight_column=name)


def _labels(names: list[str]) -> tuple[AnyArray, dict[str, int]]:
    """Labels ascending and the position of each; numbers only if every name is written as one and no two are equal."""
    if all(fields.is_whole(name) and abs(int(name)) < 2**63 for name in names):
        ordered = sorted(names, key=int)
        numbers = np.array([int(name) for name in ordered], np.int64)
        if len(numbers) < 2 or bool(np.all(numbers[1:] > numbers[:-1])):
            return numbers, {name: i for i, name in enumerate(ordered)}
    ordered = sorted(names)
    return np.array(ordered, np.dtypes.StringDType()), {name: i for i, name in enumerate(ordered)}
