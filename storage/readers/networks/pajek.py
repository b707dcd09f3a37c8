"""Pajek networks (.net; Batagelj and Mrvar), as Pajek, NetworkX and igraph write them.

The section ``*Vertices n`` has lines ``number "label" ...``.  ``*Arcs`` (directed) and ``*Edges`` (undirected) have
lines ``u v [value]``; ``*Arcslist`` and ``*Edgeslist`` have lines ``u v v v ...``.  ``*Matrix`` has a row for each
vertex; an entry of 0 is no arc.  An edge without a value has the value 1.  Vertices are the numbers 1 .. n.
"""

from __future__ import annotations

import re

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.left_out import LeftOut
from storage.readers.limits import check_plausible
from storage.readers.lines import text_lines
from storage.readers.named import NamedGraph
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

_TOKEN = re.compile(r'"[^"]*+"|[^ \t]++')
_SECTIONS = ("vertices", "arcs", "edges", "arcslist", "edgeslist", "matrix", "network")


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a Pajek network; raises the errors of ``read_graph``."""
    reader = _Pajek(options)
    for line, text in text_lines(source):
        if text.startswith("*"):
            reader.section(text, line)
        elif not text.lstrip().startswith("%"):
            reader.row(_TOKEN.findall(text), line)
    return reader.finish()


class _Pajek:
    """The parts of the network that have been read so far."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._graph = NamedGraph(options, default=1)
        self._section = ""
        self._n = -1
        self._n_line = 0
        self._vertices: dict[int, tuple[int, dict[str, str]]] = {}
        self._entries = 0
        self._directed: bool | None = None
        self._relation: str | None = None
        self._row = 0
        self._column = 0
        self._more = LeftOut("line parameters")
        self._drawn = False

    def section(self, text: str, line: int) -> None:
        """Read a line that begins with an asterisk."""
        words = _TOKEN.findall(text)
        name = words[0][1:].lower()
        if name not in _SECTIONS:
            known = ", ".join(f"*{section}" for section in _SECTIONS)
            raise InvalidGraph(f"the section {fields.shown(words[0])} is not read; {known} are", line=line, field="*")
        self._end_matrix(line)
        self._section = name
        if name == "vertices":
            self._declare(words, line)
        elif name != "network":
            if self._n < 0:
                raise InvalidGraph(f"{words[0]} stands before *Vertices", line=line, field="*")
            self._relations(words[1:], line)
            if name == "matrix":
                self._options.limits.check_arcs(self._n * self._n, line)
                self._row = self._column = 1

    def _declare(self, words: list[str], line: int) -> None:
        if self._n >= 0:
            raise InvalidGraph("a second *Vertices: two networks in one file", line=line, field="*Vertices")
        if len(words) == 3:
            raise InvalidGraph("a two-mode network, which has two kinds of vertices", line=line, field="*Vertices")
        if len(words) != 2:
            raise InvalidGraph("expected '*Vertices NUMBER'", line=line, field="*Vertices")
        self._n, self._n_line = fields.whole(words[1], line, "*Vertices"), line
        if self._n < 0:
            raise InvalidGraph(f"a count below zero: {self._n}", line=line, field="*Vertices")
        self._options.limits.check_vertices(self._n, line)

    def _relations(self, words: list[str], line: int) -> None:
        """Read the rest of a section line such as ``*Arcs :2 "name"``, which names a relation; refuse a file with
        several relations.
        """
        relation = words[0] if words and words[0].startswith(":") else None
        if self._relation not in (None, relation) and relation is not None:
            message = f"relations {self._relation} and {relation}: several networks in one file; keep one of them"
            raise InvalidGraph(message, line=line, field="*")
        self._relation = self._relation or relation

    def row(self, words: list[str], line: int) -> None:
        """Read a line of the current section."""
        if self._section in ("", "network"):
            raise InvalidGraph("expected a line that starts with '*'", line=line, field="*")
        if self._section == "vertices":
            self._vertex(words, line)
        elif self._section == "matrix":
            self._entries_of_row(words, line)
        elif self._section in ("arcs", "edges"):
            self._edge(words, line)
        else:
            for head in words[1:]:
                self._add(words[0], head, {}, line)
            if len(words) < 2:
                raise InvalidGraph("a list of neighbours with one vertex only", line=line, field="neighbours")

    def _vertex(self, words: list[str], line: int) -> None:
        number = self._number(words[0], line)
        if number in self._vertices:
            message = f"vertex {number} stands also on line {self._vertices[number][0]}"
            raise InvalidGraph(message, line=line, field="vertex")
        label = words[1].strip('"') if len(words) > 1 else None
        keep = label is not None and (label != words[0] or self._graph.labelled)
        self._vertices[number] = line, {"label": label} if keep and label is not None else {}
        if any(word.startswith("[") for word in words[2:]):
            raise InvalidGraph("a vertex with times: a network that changes is several graphs", line=line, field="[")
        self._drawn = self._drawn or len(words) > 2

    def _number(self, token: str, line: int) -> int:
        number = fields.vertex(token, line)
        if not 1 <= number <= self._n:
            span = f"1 .. {self._n} (line {self._n_line} declares {self._n})"
            raise InvalidGraph(f"vertex {number} is outside {span}", line=line, field="vertex")
        return number

    def _edge(self, words: list[str], line: int) -> None:
        if len(words) < 2:
            raise InvalidGraph(f"expected 'u v [value]', found {fields.shown(' '.join(words))}", line=line, field="row")
        rest = words[2:]
        attributes = {}
        # The value may be followed by pairs of words, which say how Pajek draws the edge.
        if rest and not rest[0].startswith("[") and (len(rest) == 1 or fields.is_number(rest[0])):
            attributes["weight"] = rest[0], line
            rest = rest[1:]
        if any(word.startswith("[") for word in rest):
            raise InvalidGraph("a line with times: a network that changes is several graphs", line=line, field="[")
        if len(rest) % 2:
            found = fields.shown(" ".join(rest))
            raise InvalidGraph(f"expected pairs of a parameter and its value, found {found}", line=line, field="row")
        self._more.add(rest[::2])
        self._add(words[0], words[1], attributes, line)

    def _add(self, tail: str, head: str, attributes: dict[str, tuple[str, int]], line: int) -> None:
        directed = self._section in ("arcs", "arcslist", "matrix")
        ends = str(self._number(tail, line)), str(self._number(head, line))
        self._graph.edge(*ends, line, attributes, directed=directed)
        self._entries += 1

    def _entries_of_row(self, words: list[str], line: int) -> None:
        """Read entries of the matrix; a row may span several lines."""
        for word in words:
            if self._row > self._n:
                raise InvalidGraph(f"more than {self._n} rows of {self._n}", line=line, field="*Matrix")
            value = fields.weight(word, line)
            if value != 0 and self._row != self._column:
                self._add(str(self._row), str(self._column), {"weight": (word, line)}, line)
            self._column += 1
            if self._column > self._n:
                self._row, self._column = self._row + 1, 1

    def _end_matrix(self, line: int) -> None:
        if self._section == "matrix" and self._row <= self._n:
            raise InvalidGraph(f"*Matrix ends in row {self._row} of {self._n}", line=line, field="*Matrix")

    def finish(self) -> Parsed:
        """Return the arcs; every number up to the n of ``*Vertices n`` is a vertex, even without a line of its own."""
        if self._n < 0:
            raise InvalidGraph("there is no *Vertices", field="*Vertices")
        self._end_matrix(self._n_line)
        check_plausible(self._n, self._entries + len(self._vertices), self._n_line)
        for number in range(1, self._n + 1):
            line, attributes = self._vertices.get(number, (self._n_line, {}))
            self._graph.node(str(number), line, attributes)
        parsed = self._graph.finish(True)
        if self._drawn:
            parsed.notes.append("not read: coordinates and shapes of vertices")
        parsed.notes += self._more.notes()
        return parsed
