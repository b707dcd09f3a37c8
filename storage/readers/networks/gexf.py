"""GEXF 1.1 to 1.3 (Bastian, Heymann and Jacomy), as Gephi and NetworkX write it.

The label of a vertex is the ``id`` of its node.  The ``type`` of an edge says whether it is directed; for edges without
a type, ``defaultedgetype`` does.  If both are missing, edges are undirected, the format's default.  The weight is the
edge's ``weight``, by default 1, unless the caller asks for an attribute.  Dynamic and hierarchical graphs are refused,
because they are several graphs in one.
"""

from __future__ import annotations

from xml.sax import xmlreader

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.left_out import LeftOut
from storage.readers.named import NamedGraph
from storage.readers.networks.xml import XmlEvents, parse_xml
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

_DIRECTED = {"directed": True, "undirected": False, "mutual": False}
_FRAME = frozenset({"gexf", "graph", "nodes", "edges", "attributes", "attribute", "default", "options", "attvalues"})
#: XML attributes that make a graph change with time.
_TIMES = ("start", "end", "startopen", "endopen", "timestamp", "timestamps", "intervals")
_VALUE = 4096


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a GEXF file; raises the errors of ``read_graph``."""
    events = _Events(options)
    parse_xml(source, events)
    return events.finish()


def _tag(name: str) -> str:
    """Return the element's name without the prefix of its namespace; only the prefix ``viz:`` of elements that describe
    pictures is kept.
    """
    return name if name.startswith("viz:") else name.rpartition(":")[2]


class _Events(XmlEvents):
    """Collects nodes and edges."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__()
        self._graph = NamedGraph(options, default=1)
        self._directed: bool | None = None
        self._root = False
        self._meta = False
        self._class = "node"
        self._titles: dict[tuple[str, str], str] = {}
        self._defaults: dict[str, dict[str, tuple[str, int]]] = {"node": {}, "edge": {}}
        self._title: str | None = None
        self._text: list[str] | None = None
        self._inside: str | None = None
        self._attributes: dict[str, tuple[str, int]] = {}
        self._own: dict[str, str] = {}
        self._pictures = LeftOut("elements")

    def startElement(self, name: str, attrs: xmlreader.AttributesImpl) -> None:  # noqa: N802 - SAX's name
        """Handle the start of an element (SAX)."""
        tag = _tag(name)
        if not self._root:
            if tag != "gexf":
                message = f"the root is <{fields.shown(tag)[1:-1]}>, not <gexf>"
                raise InvalidGraph(message, line=self._line, field="gexf")
            self._root = True
        elif tag == "meta":
            self._meta = True
        elif not self._meta:
            self._element(tag, attrs)

    def _element(self, tag: str, attrs: xmlreader.AttributesImpl) -> None:
        if tag in ("spell", "spells", "slice", "slices"):
            self._refuse_time(tag)
        if tag in ("parents", "parent"):
            raise InvalidGraph(f"<{tag}>: a hierarchical graph", line=self._line, field=tag)
        if tag == "graph":
            self._open_graph(attrs)
        elif tag == "attributes":
            self._class = attrs.get("class", "node")
            if self._class not in self._defaults:
                raise InvalidGraph(f"attributes of class {fields.shown(self._class)}", line=self._line, field="class")
            if attrs.get("mode") == "dynamic":
                self._refuse_time("mode='dynamic'")
        elif tag == "attribute":
            key = self._need(attrs, "id", tag)
            self._title = self._titles[self._class, key] = str(attrs.get("title", key))
        elif tag == "default":
            self._text = []
        elif tag in ("node", "edge"):
            self._open(tag, attrs)
        elif tag == "attvalue":
            self._value(attrs)
        elif tag not in _FRAME:
            if self._inside is None:
                raise InvalidGraph(f"unknown element <{fields.shown(tag)[1:-1]}>", line=self._line, field="element")
            self._pictures.add([tag])
        elif self._inside is not None and tag != "attvalues":
            raise InvalidGraph(
                f"<{tag}> inside of a {self._inside}: a hierarchical graph", line=self._line, field=self._inside
            )

    def characters(self, content: str) -> None:
        """Handle text (SAX)."""
        if self._text is not None and len(self._text) < _VALUE:
            self._text.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802 - SAX's name
        """Handle the end of an element (SAX)."""
        tag = _tag(name)
        if tag == "meta":
            self._meta = False
        elif tag == "default" and self._text is not None and self._title is not None:
            self._defaults[self._class][self._title] = "".join(self._text).strip(), self._line
            self._text = None
        elif tag in ("node", "edge") and tag == self._inside:
            self._close(tag)

    def _open_graph(self, attrs: xmlreader.AttributesImpl) -> None:
        if self._directed is not None:
            raise InvalidGraph("a second graph in one file", line=self._line, field="graph")
        kind = attrs.get("defaultedgetype", "undirected")
        if kind not in _DIRECTED:
            message = f"defaultedgetype {fields.shown(kind)} is unknown"
            raise InvalidGraph(message, line=self._line, field="defaultedgetype")
        if attrs.get("mode", "static") != "static":
            self._refuse_time(f"mode={attrs['mode']!r}")
        self._directed = _DIRECTED[kind]

    def _refuse_time(self, what: str) -> None:
        raise InvalidGraph(
            f"{what}: a graph that changes with time is several graphs; export one moment of it as static",
            line=self._line,
            field="mode",
        )

    def _open(self, tag: str, attrs: xmlreader.AttributesImpl) -> None:
        if self._inside is not None:
            message = f"<{tag}> inside of a {self._inside}: a hierarchical graph"
            raise InvalidGraph(message, line=self._line, field=self._inside)
        if self._directed is None:
            raise InvalidGraph(f"<{tag}> outside of <graph>", line=self._line, field="graph")
        for time in _TIMES:
            if time in attrs:
                self._refuse_time(f"a {tag} with {time!r}")
        if attrs.get("pid"):
            raise InvalidGraph(f"a {tag} with a parent: a hierarchical graph", line=self._line, field="pid")
        self._inside = tag
        self._own = dict(attrs.items())
        self._attributes = dict(self._defaults[tag])

    def _value(self, attrs: xmlreader.AttributesImpl) -> None:
        if self._inside is None:
            raise InvalidGraph("<attvalue> outside of a node or an edge", line=self._line, field="attvalue")
        for time in _TIMES:
            if time in attrs:
                self._refuse_time(f"an attvalue with {time!r}")
        key = attrs["id"] if "for" not in attrs and "id" in attrs else self._need(attrs, "for", "attvalue")
        title = self._titles.get((self._inside, key))
        if title is None:
            message = f"no attribute {fields.shown(key)} of class {self._inside!r} is declared"
            raise InvalidGraph(message, line=self._line, field="for")
        self._attributes[title] = self._need(attrs, "value", "attvalue"), self._line

    def _close(self, tag: str) -> None:
        """Add the node or edge whose element ends."""
        self._inside = None
        own, line = self._own, self._line
        if tag == "node":
            name = self._need(own, "id", tag)
            texts = {key: value for key, (value, _) in self._attributes.items()}
            if "label" in own and (own["label"] != name or self._graph.labelled):
                texts["label"] = own["label"]
            self._graph.node(name, line, texts)
            return
        kind = own.get("type", "")
        if kind and kind not in _DIRECTED:
            raise InvalidGraph(f"an edge of type {fields.shown(kind)}", line=line, field="type")
        for key in ("weight", "label", "kind"):
            if key not in own:
                continue
            if key == "weight" and key in self._attributes:
                raise InvalidGraph("an edge with two weights: its own and an attvalue", line=line, field="weight")
            self._attributes[key] = own[key], line
        ends = self._need(own, "source", tag), self._need(own, "target", tag)
        self._graph.edge(*ends, line, self._attributes, directed=_DIRECTED.get(kind))

    def finish(self) -> Parsed:
        """Return the arcs; called last, because edges may come before their nodes."""
        if self._directed is None:
            raise InvalidGraph("there is no <graph>", field="graph")
        parsed = self._graph.finish(self._directed)
        parsed.notes.extend(self._pictures.notes())
        return parsed
