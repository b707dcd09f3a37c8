"""Edge lists with dictionaries, ``u v {'weight': 1}``, as ``networkx.write_edgelist`` writes them by default."""

from __future__ import annotations

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.lines import text_lines
from storage.readers.named import NO_DIRECTION, NamedGraph
from storage.readers.networks.literal import parse_dict
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

_SEPARATORS = ("\t", ",", ";", "|", ":")


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; raises the errors of ``read_graph``."""
    graph = NamedGraph(options, listed=False)
    entries = 0
    for line, text in text_lines(source):
        if text.startswith("#"):
            continue
        tail, head, attributes = _row(text, line)
        graph.edge(tail, head, line, attributes)
        entries += 1
    if entries == 0:
        raise InvalidGraph("there is no edge in the file: only comments and empty lines")
    parsed = graph.finish(True)
    parsed.notes.append(NO_DIRECTION)
    return parsed


def _row(text: str, line: int) -> tuple[str, str, dict[str, tuple[str, int]]]:
    """Return the two ends and the attributes of an edge.  The character before the brace is the separator of the
    fields.
    """
    ends, brace, rest = text.partition("{")
    separator = None if ends[-1:] not in _SEPARATORS else ends[-1:]
    words = (
        fields.words(ends) if separator is None else [word.strip(fields.BLANKS) for word in ends[:-1].split(separator)]
    )
    apart = ends[-1:] == " " or separator is not None
    if not (brace and apart) or len(words) != 2 or "" in words:
        message = f"expected 'u v {{attributes}}', found {fields.shown(text)}"
        raise InvalidGraph(message, line=line, field="row")
    return words[0], words[1], parse_dict(brace + rest, line)
