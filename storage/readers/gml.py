"""Graph Modelling Language (Himsolt, 1996): nested ``key value`` pairs, read as a stream of tokens.

Vertices are the ``id`` of each node.  The weight is the attribute asked for, or the first of the usual names that
every edge has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from storage.cleaning import ArcList
from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.attributes import EdgeWeights
from storage.readers.parsed import Options, Parsed
from storage.readers.source import Source

_TOKEN = re.compile(r'"[^"]*"|\[|\]|[^\s\[\]"]+')
_DEPTH = 100
OPEN, CLOSE = "[", "]"

Token = tuple[str, int]


def read(source: Source, options: Options) -> Parsed:
    """Read a GML file; errors as ``read_graph``."""
    reader = _Gml(options)
    tokens = _tokens(source)
    for key, line in tokens:
        if key == "graph" and not reader.found:
            reader.found = True
            reader.graph(tokens, line)
        else:
            _skip(tokens, key, line)
    if not reader.found:
        raise InvalidGraph("there is no 'graph [ ... ]'", field="graph")
    return reader.finish()


def _tokens(source: Source) -> Iterator[Token]:
    held, start = "", 0
    for block in source.blocks():
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = raw.decode("utf-8", "replace")
            if held:
                text = f"{held} {text}"
            elif text.lstrip().startswith("#"):
                continue
            # A string may run over lines; hold the text until its closing quote.
            if text.count('"') % 2:
                held, start = text, start or number
                if len(held) > 1 << 20:
                    raise InvalidGraph("a string that does not end", line=start)
                continue
            held, start = "", 0
            for token in _TOKEN.findall(text):
                yield token, number
    if held:
        raise InvalidGraph("a string that does not end", line=start)


def _value(tokens: Iterator[Token], key: str, line: int) -> Token:
    token = next(tokens, None)
    if token is None or token[0] == CLOSE:
        raise InvalidGraph(f"{fields.shown(key)} has no value", line=line, field=key)
    return token


def _skip(tokens: Iterator[Token], key: str, line: int) -> None:
    """Pass over the value of a key, whatever it is."""
    if key in (OPEN, CLOSE):
        raise InvalidGraph(f"expected a key, found {key!r}", line=line)
    if _value(tokens, key, line)[0] == OPEN:
        _skip_list(tokens, key, line)


def _skip_list(tokens: Iterator[Token], key: str, line: int) -> None:
    """Pass over a list whose bracket is open."""
    depth = 1
    for token, _ in tokens:
        depth += (token == OPEN) - (token == CLOSE)
        if depth == 0:
            return
        if depth > _DEPTH:
            raise InvalidGraph(f"lists nested deeper than {_DEPTH}", line=line, field=key)
    raise InvalidGraph(f"the list of {fields.shown(key)} does not end", line=line, field=key)


class _Gml:
    """What has been read of the graph."""

    def __init__(self, options: Options) -> None:
        self.found = False
        self._options = options
        self._directed = False
        self._ids: dict[int, int] = {}
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._lines: list[int] = []
        self._weights = EdgeWeights(options)

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
                self._directed = _value(tokens, key, at)[0] == "1"
            else:
                _skip(tokens, key, at)
        raise InvalidGraph("the list of 'graph' does not end", line=line, field="graph")

    def _open(self, tokens: Iterator[Token], key: str, line: int) -> None:
        token, at = _value(tokens, key, line)
        if token != OPEN:
            raise InvalidGraph(f"expected '[' after {key!r}, found {fields.shown(token)}", line=at, field=key)

    def _pairs(self, tokens: Iterator[Token], key: str, line: int) -> dict[str, Token]:
        """The plain values of a list; lists in it (``graphics [ ... ]``) are passed over."""
        self._open(tokens, key, line)
        pairs: dict[str, Token] = {}
        for name, at in tokens:
            if name == CLOSE:
                return pairs
            token = _value(tokens, name, at)
            if token[0] == OPEN:
                _skip_list(tokens, name, at)
            else:
                pairs[name] = token
        raise InvalidGraph(f"the list of {key!r} does not end", line=line, field=key)

    def _node(self, tokens: Iterator[Token], line: int) -> None:
        pairs = self._pairs(tokens, "node", line)
        if "id" not in pairs:
            raise InvalidGraph("a node without id", line=line, field="id")
        label = fields.vertex(*pairs["id"])
        if label in self._ids:
            raise InvalidGraph(f"node {label} stands also on line {self._ids[label]}", line=line, field="id")
        self._ids[label] = line
        self._options.limits.check_vertices(len(self._ids), line)

    def _edge(self, tokens: Iterator[Token], line: int) -> None:
        pairs = self._pairs(tokens, "edge", line)
        for key in ("source", "target"):
            if key not in pairs:
                raise InvalidGraph(f"an edge without {key}", line=line, field=key)
        self._tails.append(fields.vertex(*pairs["source"]))
        self._heads.append(fields.vertex(*pairs["target"]))
        self._lines.append(line)
        self._options.limits.check_arcs(len(self._tails), line)
        self._weights.add({key: value for key, value in pairs.items() if key not in ("source", "target")}, line)

    def finish(self) -> Parsed:
        """The arcs, once all is read: edges may stand before their nodes."""
        for tail, head, line in zip(self._tails, self._heads, self._lines, strict=True):
            if tail not in self._ids or head not in self._ids:
                wrong = tail if tail not in self._ids else head
                raise InvalidGraph(f"there is no node {wrong}", line=line, field="vertex")
        labels = np.array(sorted(self._ids), np.int64)
        tails = np.searchsorted(labels, np.array(self._tails, np.int64))
        heads = np.searchsorted(labels, np.array(self._heads, np.int64))
        name, weights = self._weights.finish()
        arcs = ArcList(tails, heads, weights)
        return Parsed(arcs, labels, self._directed, len(tails), weight_column=name)
