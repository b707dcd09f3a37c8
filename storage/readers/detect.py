"""Telling a format by content; the name breaks ties only."""

from __future__ import annotations

import re
from itertools import islice

from storage.errors import InvalidGraph
from storage.readers.fields import is_whole
from storage.readers.source import Source
from storage.readers.table import is_comment

_BINARY = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"PAR1": "parquet"}
_TSPLIB = re.compile(r"\s*(NAME|TYPE|COMMENT|DIMENSION|EDGE_WEIGHT_TYPE|EDGE_WEIGHT_FORMAT)\s*:")
_GML = re.compile(r"(?m)^\s*graph\s*(\[|$)|\bgraph\s*\[")
#: Formats that would otherwise pass for odd edge lists, by their first line.
_STRANGERS = {
    r"(strict\s+)?(di)?graph\b[^\[]*\{": "Graphviz DOT",
    r"[{\[]": "JSON",
    r"\*(vertices|network)\b": "a Pajek network",
}
#: Lines looked at; formats that need more than these are told by their first words.
_LINES = 200


def detect(source: Source) -> str:
    """The name of the format of ``source``.  InvalidGraph if it is plainly no graph."""
    for magic, name in _BINARY.items():
        if source.start.startswith(magic):
            return name
    lines = [line.strip() for line in source.head]
    first = next((line for line in lines if line), "")
    _refuse_strangers(first, lines)
    return _by_marks(first, lines) or _by_shape(lines, source.suffix) or "edges"


def _refuse_strangers(first: str, lines: list[str]) -> None:
    if first.lower().startswith(("<!doctype html", "<html")):
        raise InvalidGraph("this is an HTML page, not a graph: the download went wrong", line=1)
    if first.startswith("version https://git-lfs.github.com/"):
        raise InvalidGraph("this is a Git LFS pointer; fetch the file itself (git lfs pull)", line=1)
    for pattern, name in _STRANGERS.items():
        if re.match(pattern, first, re.IGNORECASE):
            raise InvalidGraph(f"this looks like {name}, which is not read; see docs/formats.md", line=1)
    if not any(lines):
        raise InvalidGraph("the file holds no text, only blanks")


def _by_marks(first: str, lines: list[str]) -> str | None:
    """Formats that say their name in their first words."""
    if first.lower().startswith("%%matrixmarket"):
        return "mtx"
    if first.startswith("<"):
        return "graphml" if re.match(r"<(\?xml|!--|!DOCTYPE|(\w+:)?graphml)", first) else "tntp"
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
    if re.match(r"[A-Za-z]\w*([\s\[]|$)|#", first) and _GML.search("\n".join(lines)):
        return "gml"
    return None


def _by_shape(lines: list[str], suffix: str) -> str | None:
    """Formats of bare numbers, told by how many stand on each line."""
    rows = [line.split() for line in islice((x for x in lines if x and x[0] not in "#%"), _LINES)]
    if len(rows) > 1 and any(re.fullmatch(r"\[-?\d+\]", word) for row in rows[1:4] for word in row):
        return "rcpsp-max"
    if not rows or not all(is_whole(word) for word in rows[0]):
        return None
    counts = len(rows) > 1 and len(rows[0]) == len(rows[1]) == 1 and is_whole(rows[1][0])
    if counts and (len(rows) == 2 or len(rows[2]) in (2, 3)):
        return "algs4"
    return "metis" if _like_metis(rows, lines, suffix) else None


def _like_metis(rows: list[list[str]], lines: list[str], suffix: str) -> bool:
    """A header of two to four counts, then lists whose lengths vary; regular graphs go by their name."""
    named = suffix in (".graph", ".metis")
    if not 2 <= len(rows[0]) <= 4 or any(line.startswith("#") for line in lines):
        return False
    if named:
        return True
    n = int(rows[0][0])
    lengths = {len(row) for row in rows[1:]}
    inside = all(is_whole(word) and 1 <= int(word) <= n for row in rows[1:] for word in row)
    return len(lengths) > 2 and inside and len(rows[0]) == 2
