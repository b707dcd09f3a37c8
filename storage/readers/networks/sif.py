"""Simple interaction format (SIF, Cytoscape): ``source relation target target ...``, or a vertex alone.

Fields are separated by tabs if the file has one, else by blanks, as Cytoscape reads it.
"""

from __future__ import annotations

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.left_out import LeftOut
from storage.readers.lines import text_lines
from storage.readers.named import NO_DIRECTION, NamedGraph
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; raises the errors of ``read_graph``."""
    options.refuse_weight("SIF")
    graph = NamedGraph(options, listed=False)
    relations = LeftOut("the relations")
    separator = "\t" if any("\t" in text for _, text in text_lines(source)) else None
    for line, text in text_lines(source):
        words = [word.strip(" ") for word in text.split(separator)] if separator else fields.words(text)
        if len(words) == 2 or "" in words:
            message = f"expected 'source relation target ...', or a vertex alone, found {fields.shown(text)}"
            raise InvalidGraph(message, line=line, field="row")
        if len(words) > 1 and fields.is_number(words[1]):
            message = f"the relation {fields.shown(words[1])} is a number: this may be an edge list (--format edges)"
            raise InvalidGraph(message, line=line, field="relation")
        graph.node(words[0], line)
        relations.add(words[1:2])
        for target in words[2:]:
            graph.edge(words[0], target, line)
    parsed = graph.finish(True)
    if parsed.entries == 0:
        raise InvalidGraph("there is no edge in the file: only vertices and empty lines")
    parsed.notes += [*relations.notes(), NO_DIRECTION]
    return parsed
