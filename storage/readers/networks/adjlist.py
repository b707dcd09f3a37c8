"""Adjacency lists: ``u v v v`` on each line, as ``networkx.write_adjlist`` writes them; ``#`` starts a comment."""

from __future__ import annotations

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.lines import text_lines
from storage.readers.named import NO_DIRECTION, NamedGraph
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; every word of a line after the first is a neighbour.  Raises the errors of ``read_graph``."""
    options.refuse_weight("adjacency list")
    graph = NamedGraph(options, listed=False)
    for line, text in text_lines(source):
        words = fields.words(text)
        if words[0].startswith("#"):
            continue
        if any(word.startswith("#") for word in words):
            raise InvalidGraph("a comment behind a list: neighbours and comment cannot be told apart", line=line)
        graph.node(words[0], line)
        for head in words[1:]:
            graph.edge(words[0], head, line)
    parsed = graph.finish(True)
    if parsed.entries == 0:
        raise InvalidGraph("there is no edge in the file: only vertices, comments and empty lines")
    parsed.notes.append(NO_DIRECTION)
    return parsed
