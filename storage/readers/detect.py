"""Recognises a format by content; the name of the file decides only if the content suits two formats."""

from __future__ import annotations

import re
from itertools import islice

from storage.errors import InvalidGraph
from storage.readers.fields import is_number, is_whole, shown, split
from storage.readers.instances.metis import may_be_metis
from storage.readers.lookalikes import refuse_lookalikes
from storage.readers.source import Source
from storage.readers.tables.ends import looks_like_names, names_ends
from storage.readers.tables.text_rows import is_comment

_BINARY = {
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"PAR1": "parquet",
    b"SQLite format 3\0": "gpkg",
}
#: The first bytes of an OpenStreetMap PBF file: four bytes with the length of a header, then the type in that header.
_PBF = re.compile(rb"\0\0..\n\tOSMHeader", re.DOTALL)
# The patterns below are applied to lines stripped of blanks.
_TSPLIB = re.compile(r"(NAME|TYPE|COMMENT|DIMENSION|EDGE_WEIGHT_TYPE|EDGE_WEIGHT_FORMAT)\s*+:")
_GML = re.compile(r"(?m)^graph$|\bgraph\s*+\[")
#: Patterns of first lines of formats that apsp does not read and would otherwise mistake for edge lists, with a
#: description.
_STRANGERS = {
    r"(Weighted)?(AdjacencyGraph|EdgeArray)$": "a graph of PBBS or Ligra",
    r"<.* sparse (array|matrix) ": "a sparse matrix as SciPy prints it (save it with scipy.io.mmwrite)",
    r"\\(documentclass|begin|tikz)": "LaTeX",
    r">>(graph6|digraph6|sparse6)<<": "graph6 or sparse6",
    r"LEDA\.GRAPH\b": "a LEDA graph",
    r"DL\s++N\s*+=": "UCINET DL",
    r"nodedef\s*+>": "GDF",
    r"[^\W\d]\w*+\s*+=\s*+(?:[\[({]|\w++(?:\.\w++)*+\()|from\s++\w++\s++import\b|import\s++\w++(?:\s++as\b|$)": (
        "a program (let it save the graph, with networkx.write_edgelist or writematrix, say)"
    ),
    r"\[,1\]|IGRAPH |[0-9]++ x [0-9]++ sparse Matrix|# A tibble": "what R prints (save it with write.csv)",
    r"\"?SUID\"?\s*+[,\t]": "a table of Cytoscape, which names no sources and targets (export a network instead)",
}
_DOT = re.compile(r"(strict\s++)?(di)?graph\b\s*+(\"[^\"]*+\"|[\w.-]++)?\s*+\{", re.IGNORECASE)
#: Comments that may precede a DOT graph.  The pattern is matched only at the start of the text.  A search through the
#: text would scan to the end of the text for each unclosed ``/*``.
_C_COMMENTS = re.compile(r"(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|(?://|#)[^\n]*+)*+")
#: One item that may precede the root of an XML document: a declaration, a comment or a document type.
_PROLOG = re.compile(r"\s*+(<\?[^>]*+>|<!--(?:[^-]|-(?!->))*+-->|<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\])?[^>]*+>)")
_ROOT = re.compile(r"\s*+<(?:[\w.-]++:)?([\w.-]++)")
#: Adjacency lists of NetworkX are recognised by the comment with date and time above them.
_ADJLIST = re.compile(r"#\s?GMT \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}")
#: Files of Cytoscape (SIF) are recognised by these names of interactions.
_RELATIONS = frozenset({"pp", "pd", "pr", "rc", "cr", "gl", "pm", "mp", "xx", "interacts-with", "interacts with"})
#: Maximum number of lines that are examined to recognise a format by the shape of its rows.
_LINES = 200


def detect(source: Source) -> str:
    """Return the name of the format of ``source``.  Raises InvalidGraph if the content is no graph, or if two formats
    are possible.
    """
    for magic, name in _BINARY.items():
        if source.start.startswith(magic):
            return name
    if _PBF.match(source.start):
        return "osm"
    lines = [line.strip() for line in source.head]
    first = next((line for line in lines if line), "")
    _refuse_strangers(first, lines)
    found = _by_marks(first, lines) or _by_braces(lines)
    if found is not None:
        return found
    refuse_lookalikes(lines)
    return _by_shape(lines, source) or _by_relation(lines, source.suffix) or "edges"


def _refuse_strangers(first: str, lines: list[str]) -> None:
    if first.lower().startswith(("<!doctype html", "<html")):
        raise InvalidGraph("this is an HTML page, not a graph: the download went wrong", line=1)
    if first.startswith("version https://git-lfs.github.com/"):
        raise InvalidGraph("this is a Git LFS pointer; fetch the file itself (git lfs pull)", line=1)
    # Graphviz files may begin with comments of C, and of the preprocessor.
    text = "\n".join(lines[:_LINES])
    text = text[_C_COMMENTS.match(text).end() :]  # type: ignore[union-attr]
    if _DOT.match(text):
        raise InvalidGraph("this looks like Graphviz DOT, which is not read; see docs/formats.md", line=1)
    word = text.partition("\n")[0]
    for pattern, name in _STRANGERS.items():
        if re.match(pattern, word, re.IGNORECASE):
            raise InvalidGraph(f"this looks like {name}, which is not read; see docs/formats.md", line=1)
    if not any(lines):
        raise InvalidGraph("the file holds no text, only blanks")
    _refuse_lgl([line for line in lines if line])


def _refuse_lgl(lines: list[str]) -> None:
    """Refuse igraph's LGL (``# vertex``, then its neighbours): an edge-list reader would skip its vertices as
    comments.
    """
    marks = [i for i, line in enumerate(lines) if line.startswith("#")]
    alternate = len(marks) > 1 and marks[0] == 0 and marks != list(range(len(marks)))
    separated = any(sign in line for line in lines for sign in ",;")
    if (
        alternate
        and not separated
        and all(len(line.split()) == 2 or (len(line.split()) == 1 and line[0] != "#") for line in lines)
    ):
        raise InvalidGraph(
            "this may be LGL of igraph, which is not read, or an edge list with comments, which --format edges reads",
            line=1,
        )


def _by_marks(first: str, lines: list[str]) -> str | None:
    """Return the format that words at the start of the text identify; None if they identify none."""
    if first.lower().startswith("%%matrixmarket"):
        return "mtx"
    if first.startswith("<"):
        return _by_root("\n".join(lines))
    if first.startswith(("{", "[")):
        return "json"
    if re.match(r"\*(vertices|network)\b", _uncommented(lines, "%"), re.IGNORECASE):
        return "pajek"
    if any(_TSPLIB.match(line) for line in lines[:20]):
        return "tsplib"
    body = (line.split() for line in lines if line and not is_comment(line, "c"))
    words = next(body, None)
    if words is None:
        return "dimacs"
    if words[0] == "p" and len(words) == 4 and is_whole(words[2]) and is_whole(words[3]):
        return "dimacs"
    if words[:2] in (["p", "sp"], ["p", "tw"]):
        return "dimacs"
    if words[0] == "a" and len(words) >= 3 and is_whole(words[1]):
        return "dimacs"
    if re.match(r"[A-Za-z]\w*+([\s\[]|$)|#", first) and _GML.search("\n".join(lines)):
        return "gml"
    return None


def _uncommented(lines: list[str], marks: str) -> str:
    """Return the first line that is neither empty nor a comment; an empty text if there is no such line."""
    return next((line for line in lines if line and not is_comment(line, marks)), "")


def _by_root(text: str) -> str:
    """Return the format for the name of the XML root element.  A text that begins with ``<KEY> value`` is not XML but
    the header of a TNTP link table.
    """
    at = 0
    while prolog := _PROLOG.match(text, at):
        at = prolog.end()
    root = _ROOT.match(text, at)
    name = root[1] if root else ""
    if name in ("graphml", "gexf", "osm"):
        return name
    if at == 0 and not text.lstrip().startswith("<!") and not (root and re.match(r"[^<>]*xmlns", text[root.end() :])):
        return "tntp"
    found = f"its root is <{name}>" if name else "its root does not come in the first lines"
    known = "neither GraphML, GEXF nor OpenStreetMap"
    raise InvalidGraph(f"this is XML, but {known}: {found}; see docs/formats.md", line=1)


def _by_braces(lines: list[str]) -> str | None:
    """Recognise NetworkX's lists: edge lists by the dictionary in each row, adjacency lists by the date and time in
    their comments."""
    body = [line for line in lines if line and not line.startswith("#")]
    rows = body[:_LINES]
    braces = [line.endswith("}") and "{" in line for line in rows]
    if not any(_ADJLIST.fullmatch(line) for line in lines[:20]):
        return "nx-edgelist" if rows and braces[0] else None
    if any(braces):
        return "multiline-adjlist"
    if all(len(row.split()) == 2 and row.split()[1] == "0" for row in rows):
        raise InvalidGraph(
            "each line may be a list of neighbours, or a vertex with its degree of 0: "
            "say --format adjlist or --format multiline-adjlist",
        )
    return "adjlist"


def _by_relation(lines: list[str], suffix: str) -> str | None:
    """Recognise SIF by rows whose second field is a relation; raise InvalidGraph if the file may equally be an edge
    list.
    """
    body = [line for line in lines if line and line[0] not in "#%"][:_LINES]
    separator = "\t" if any("\t" in line for line in body) else None
    rows = [_fields(line, separator) for line in body]
    rows = [row for row in rows if len(row) != 1]
    if suffix == ".sif":
        _refuse_lengths(rows, 3)
        return "sif"
    if (
        not rows
        or min(map(len, rows)) < 3
        or looks_like_names(rows[0], rows[1:])
        or any("," in line or ";" in line for line in body)
    ):
        return None
    comments = [_fields(line.lstrip("# \t"), separator) for line in lines if line.startswith("#")]
    if any(len(row) == len(rows[0]) and names_ends(row) for row in comments):
        return None
    first, second, third = ({row[i] for row in rows} for i in range(3))
    if any(map(is_number, second)) or second & (first | third):
        return None
    known = second <= _RELATIONS
    _refuse_lengths(rows, 4)
    if any(map(is_number, third)) and not any(map(is_number, first)):
        # Two names and a number are a weighted edge list.  If the second name is a known relation, the file may also be
        # SIF whose targets are numbers, so the caller must decide.
        return _two_ways(rows[0]) if known and len(rows) > 1 else None
    if known or (third & first and not any(map(is_number, third))):
        return "sif"
    few, kinds = 2 * len(second) <= len(rows), 2 * len(third) <= len(rows)
    return None if kinds and not few else _two_ways(rows[0])


def _fields(line: str, separator: str | None) -> list[str]:
    try:
        return split(line, separator, True, 1)
    except InvalidGraph:
        return split(line, separator, False, 1)


def _refuse_lengths(rows: list[list[str]], width: int) -> None:
    """Refuse rows of names whose last field is a number: the number may be a length, and the other fields may be parts
    of names with blanks.
    """
    rows = rows[1:] if len(rows) > 1 and not is_number(rows[0][-1]) else rows
    if not rows or min(map(len, rows)) < width or not all(is_number(row[-1]) and not is_number(row[0]) for row in rows):
        return
    # In SIF, all targets may be numbers.  The second fields are taken for relations if none of them is also a first
    # field.
    lists = all(is_number(word) for row in rows for word in row[2:])
    if not lists or {row[1] for row in rows} & {row[0] for row in rows}:
        row = rows[0]
        raise InvalidGraph(
            f"{shown(' '.join(row))} ends in a number, a length or a vertex: if names hold blanks, separate the fields "
            "by tabs or commas, with a first row 'source target weight'; else say --format edges, or --format sif",
            field="format",
        )


def _two_ways(row: list[str]) -> str:
    raise InvalidGraph(
        f"{shown(' '.join(row))} may be a source, a relation and a target (--format sif), "
        "or a source, a target and what the edge is (--format edges): say which",
        field="format",
    )


def _by_shape(lines: list[str], source: Source) -> str | None:
    """Return the format of a file that consists of numbers, by the count of numbers in each line; None if unknown."""
    rows = [line.split() for line in islice((x for x in lines if x and x[0] not in "#%"), _LINES)]
    if len(rows) > 1 and any(re.fullmatch(r"\[-?[0-9]++\]", word) for row in rows[1:4] for word in row):
        return "rcpsp-max"
    if not rows or not all(is_whole(word) for word in rows[0]):
        return None
    counts = len(rows) > 1 and len(rows[0]) == len(rows[1]) == 1 and is_whole(rows[1][0])
    if counts and (len(rows) == 2 or len(rows[2]) in (2, 3)):
        return "algs4"
    if not 2 <= len(rows[0]) <= 4 or any(line.startswith("#") for line in lines):
        return None
    return "metis" if source.suffix in (".graph", ".metis") or may_be_metis(source) else None
