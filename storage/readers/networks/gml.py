"""Graph Modelling Language (Himsolt, 1996): nested ``key value`` pairs, read as a stream of tokens.

The label of a vertex is the ``id`` of its node.  The weight is the attribute that the caller names, or else the
attribute with a usual name for a weight (``EdgeWeights``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import ArcList
from storage.readers import fields
from storage.readers.attributes import EdgeWeights
from storage.readers.left_out import LeftOut
from storage.readers.lengths import named_length
from storage.readers.named import with_directions
from storage.readers.names import VertexNames
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

_TOKEN = re.compile(r'"[^"]*+"|\[|\]|[^\s\[\]"]++')
_DEPTH = 100
#: Maximum number of characters of a string that spans several lines.
_STRING = 1 << 20
OPEN, CLOSE = "[", "]"

Token = tuple[str, int]


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a GML file; raises the errors of ``read_graph``."""
    reader = _Gml(options)
    tokens = _tokens(source)
    for key, line in tokens:
        if key == "graph":
            if reader.found:
                raise InvalidGraph("a second graph in one file", line=line, field="graph")
            reader.found = True
            reader.graph(tokens, line)
        else:
            _skip(tokens, key, line)
    if not reader.found:
        raise InvalidGraph("there is no 'graph [ ... ]'", field="graph")
    return reader.finish()


def _tokens(source: Source) -> Iterator[Token]:
    held: list[str] = []  # the lines of an unfinished string; they are joined once, so that this takes linear time
    size = start = 0
    for block in source.blocks():
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = _decoded(raw)
            if not held and text.lstrip().startswith("#"):
                continue
            ends = text.count('"') % 2 == 1
            if held or ends:
                start, size = (start, size + len(text) + 1) if held else (number, len(text))
                if size > _STRING:
                    raise InvalidGraph("a string that does not end", line=start)
                held.append(text)
                if len(held) == 1 or not ends:
                    continue
                text = " ".join(held)
                held.clear()
            for token in _TOKEN.findall(text):
                yield token, number
    if held:
        raise InvalidGraph("a string that does not end", line=start)


def _decoded(raw: bytes) -> str:
    """Decode UTF-8, or else Latin-1 as in old files; no character is lost, so different names stay different."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _value(tokens: Iterator[Token], key: str, line: int) -> Token:
    token = next(tokens, None)
    if token is None or token[0] == CLOSE:
        raise InvalidGraph(f"{fields.shown(key)} has no value", line=line, field=key)
    return token


def _skip(tokens: Iterator[Token], key: str, line: int) -> None:
    """Skip the value of a key, whether it is plain or a list."""
    if key in (OPEN, CLOSE):
        raise InvalidGraph(f"expected a key, found {key!r}", line=line)
    if _value(tokens, key, line)[0] == OPEN:
        _skip_list(tokens, key, line)


def _skip_list(tokens: Iterator[Token], key: str, line: int) -> None:
    """Skip the rest of a list whose opening bracket has been read."""
    depth = 1
    for token, _ in tokens:
        depth += (token == OPEN) - (token == CLOSE)
        if depth == 0:
            return
        if depth > _DEPTH:
            raise InvalidGraph(f"lists nested deeper than {_DEPTH}", line=line, field=key)
    raise InvalidGraph(f"the list of {fields.shown(key)} does not end", line=line, field=key)


def _one_way(value: str, line: int) -> bool:
    """Return whether the value of ``directed`` means directed."""
    if value not in ("0", "1"):
        raise InvalidGraph(f"'directed' {fields.shown(value)} is neither 0 nor 1", line=line, field="directed")
    return value == "1"


class _Gml:
    """The parts of the graph that have been read."""

    def __init__(self, options: ReadOptions) -> None:
        self.found = False
        self._options = options
        self._directed: bool | None = None
        self._ids: dict[int, int] = {}
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._lines: list[int] = []
        self._own: list[bool | None] = []
        self._weights = EdgeWeights(options)
        self._of_nodes = LeftOut("attributes of vertices")
        self._of_edges = LeftOut("lists of edges")
        self._of_graph = LeftOut("attributes of the graph")
        self._names = VertexNames(options)

    def graph(self, tokens: Iterator[Token], line: int) -> None:
        """Read the list after ``graph``."""
        self._open(tokens, "graph", line)
        for key, at in tokens:
            if key == CLOSE:
                return
            if key == "node":
                self._node(tokens, at)
            elif key == "edge":
                self._edge(tokens, at)
            elif key == "directed":
                self._direct(*_value(tokens, key, at))
            else:
                self._of_graph.add([key])
                _skip(tokens, key, at)
        raise InvalidGraph("the list of 'graph' does not end", line=line, field="graph")

    def _direct(self, value: str, line: int) -> None:
        if self._directed is not None:
            raise InvalidGraph("'directed' stands twice", line=line, field="directed")
        self._directed = _one_way(value, line)

    def _open(self, tokens: Iterator[Token], key: str, line: int) -> None:
        token, at = _value(tokens, key, line)
        if token != OPEN:
            raise InvalidGraph(f"expected '[' after {key!r}, found {fields.shown(token)}", line=at, field=key)

    def _pairs(self, tokens: Iterator[Token], key: str, line: int, lists: LeftOut) -> dict[str, Token]:
        """Return the plain values of a list; skip lists inside it (``graphics [ ... ]``) and record their names in
        ``lists``.
        """
        self._open(tokens, key, line)
        pairs: dict[str, Token] = {}
        for name, at in tokens:
            if name == CLOSE:
                return pairs
            token = _value(tokens, name, at)
            if (name in pairs or token[0] == OPEN) and self._matters(name):
                found = "stands twice" if name in pairs else "is a list"
                raise InvalidGraph(f"{fields.shown(name)} of this {key} {found}", line=at, field=name)
            if token[0] == OPEN:
                lists.add([name])
                _skip_list(tokens, name, at)
            else:
                pairs[name] = token
        raise InvalidGraph(f"the list of {key!r} does not end", line=line, field=key)

    def _matters(self, name: str) -> bool:
        """Return whether the graph depends on this key; all other keys are skipped, and may repeat or be lists."""
        column = self._options.column
        usual = named_length([name]) is not None if column is None else name == column
        return name in ("id", "source", "target", "directed", self._options.labels) or (
            usual and not self._options.unweighted
        )

    def _node(self, tokens: Iterator[Token], line: int) -> None:
        pairs = self._pairs(tokens, "node", line, self._of_nodes)
        if "id" not in pairs:
            raise InvalidGraph("a node without id", line=line, field="id")
        label = fields.label(*pairs["id"])
        if label in self._ids:
            raise InvalidGraph(f"node {label} stands also on line {self._ids[label]}", line=line, field="id")
        self._ids[label] = line
        self._of_nodes.add(key for key in pairs if key not in ("id", self._options.labels))
        self._names.add(label, pairs, line)
        self._options.limits.check_vertices(len(self._ids), line)

    def _edge(self, tokens: Iterator[Token], line: int) -> None:
        pairs = self._pairs(tokens, "edge", line, self._of_edges)
        for key in ("source", "target"):
            if key not in pairs:
                raise InvalidGraph(f"an edge without {key}", line=line, field=key)
        self._tails.append(fields.label(*pairs["source"]))
        self._heads.append(fields.label(*pairs["target"]))
        self._lines.append(line)
        self._own.append(_one_way(*pairs.pop("directed")) if "directed" in pairs else None)
        self._options.limits.check_arcs(len(self._tails), line)
        self._weights.add({key: value for key, value in pairs.items() if key not in ("source", "target")}, line)

    def finish(self) -> Parsed:
        """Return the arcs, after everything is read, because edges may come before their nodes."""
        for tail, head, line in zip(self._tails, self._heads, self._lines, strict=True):
            if tail not in self._ids or head not in self._ids:
                wrong = tail if tail not in self._ids else head
                raise InvalidGraph(f"there is no node {wrong}", line=line, field="vertex")
        labels = np.array(sorted(self._ids), np.int64)
        tails = np.searchsorted(labels, np.array(self._tails, np.int64))
        heads = np.searchsorted(labels, np.array(self._heads, np.int64))
        name, weights = self._weights.finish()
        one_way = np.array([self._directed is True if own is None else own for own in self._own], np.bool_)
        arcs = ArcList(tails, heads, weights)
        arcs, directed, notes = with_directions(arcs, one_way, self._directed is True, self._options)
        notes += self._weights.notes()
        for left_out in (self._of_edges, self._of_nodes, self._of_graph):
            notes += left_out.notes()
        found = Parsed(
            *(arcs, labels, directed, len(self._tails)),
            weight_column=name,
            length_of=self._weights.formula,
            notes=notes,
        )
        return self._names.rename(found)
