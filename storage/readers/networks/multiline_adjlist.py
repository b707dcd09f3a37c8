"""Adjacency lists over several lines, as ``networkx.write_multiline_adjlist`` writes them.

A line ``u degree`` is followed by a line ``v`` or ``v {'weight': 1}`` for each neighbour of u; ``#`` starts a comment
line.
"""

from __future__ import annotations

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.lines import text_lines
from storage.readers.named import NO_DIRECTION, NamedGraph
from storage.readers.networks.literal import parse_dict
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; raises the errors of ``read_graph``."""
    graph = NamedGraph(options, listed=False)
    name, left, begun = "", 0, 0
    for line, text in text_lines(source):
        if text.startswith("#"):
            continue
        if left == 0:
            name, left = _head(text, line)
            graph.node(name, line)
            begun = line
            continue
        ends, brace, rest = text.partition("{")
        words = fields.words(ends)
        if len(words) != 1:
            message = f"expected 'v' or 'v {{attributes}}', found {fields.shown(text)}"
            raise InvalidGraph(message, line=line, field="neighbours")
        graph.edge(name, words[0], line, parse_dict(brace + rest, line) if brace else {})
        left -= 1
    if begun == 0:
        raise InvalidGraph("there is no vertex in the file: only comments and empty lines")
    if left:
        raise InvalidGraph(f"{left} of the neighbours of {fields.shown(name)} are missing", line=begun, field="degree")
    parsed = graph.finish(True)
    parsed.notes.append(NO_DIRECTION)
    return parsed


def _head(text: str, line: int) -> tuple[str, int]:
    """Return the vertex and the number of neighbours from a line ``u degree``; each neighbour has a line of its own."""
    words = fields.words(text)
    if len(words) != 2:
        raise InvalidGraph(f"expected 'u degree', found {fields.shown(text)}", line=line, field="degree")
    degree = fields.whole(words[1], line, "degree")
    if degree < 0:
        raise InvalidGraph(f"a degree below zero: {degree}", line=line, field="degree")
    return words[0], degree
