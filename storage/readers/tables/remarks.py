"""Reads the comments above the first row of an edge list: whether edges are directed, names of the columns, and kinds
of vertices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import fields
from storage.readers.fields import BLANKS, is_number, shown
from storage.readers.parsed import ReadOptions
from storage.readers.tables.ends import names_ends
from storage.readers.tables.text_rows import is_comment

__all__ = ["Remarks", "names_in_comment", "read_remarks", "stated_direction"]

#: Words that may accompany ``directed`` in a comment about the whole graph: "# an undirected graph".
_PLAIN: Final = frozenset({"a", "an", "the", "this", "it", "is", "are", "as", "all", "and", "type", "graph", "graphs",
                           "digraph", "multigraph", "network", "edge", "edges", "arcs", "links", "list", "simple",
                           "multi", "weighted", "unweighted", "signed", "temporal", "connected", "sparse", "dense",
                           "complete", "random", "planar", "small", "large", "treated"})  # fmt: skip
#: The text after one of these words describes the graph further, and need not consist of words of ``_PLAIN``.
_MORE: Final = frozenset({"of", "with", "in", "on", "from", "for", "between", "where"})
_VALUES: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NOT: Final = ("not", "non", "un")
#: Matches the words, numbers and signs of a comment such as "# directed: no", or SNAP's "# Undirected graph (each
#: unordered pair of nodes is saved once): x.txt".
_WORDS: Final = re.compile(r"[^\W\d_]+|[0-9]+|[^\s\w-]")
#: Words for undirected edges.  If a comment has such a word, but no comment clearly states that edges are undirected,
#: the caller must decide.
_BOTH_WAYS: Final = (
    *("undirected", "un directed", "non directed", "bidirectional", "bi directional", "two way", "both ways"),
    *("both directions", "symmetric", "ungerichtet", "non orient", "no dirigid"),
)
#: Matches the first line of a KONECT file: the kind of edges, and the meaning of the third column.
_KONECT: Final = re.compile(r"%\s*+(sym|asym|bip)\s*+([a-z]*+)\s*+")
#: Words in the first line of a KONECT file for a third column that holds counts of edges or signs instead of lengths.
_COUNTS: Final = frozenset({"positive", "signed", "multisigned", "multiweighted", "dynamic"})
_WORD: Final = re.compile(r"[^\W\d][^#%]{0,40}+")


@dataclass(frozen=True)
class Remarks:
    """Statements in the comments of a file.

    Attributes:
        directed: whether edges are directed; None if no comment says it.
        line: the line of the comment that says whether edges are directed.
        names: names of the columns from a comment; None if no comment has them.
        bipartite: whether rows join vertices of two kinds, which are numbered separately.
        counted: KONECT's word for a third column that holds no lengths, such as ``signed``; None for lengths.
        unweighted: whether KONECT says that there are no weights.
    """

    directed: bool | None = None
    line: int = 0
    names: list[str] | None = None
    bipartite: bool = False
    counted: str | None = None
    unweighted: bool = False

    def notes(self, options: ReadOptions) -> list[str]:
        """Return notes for the receipt about whether the file states that edges are directed."""
        if self.directed is None:
            return []
        kind = "directed" if self.directed else "undirected"
        if options.directed is None or options.directed == self.directed:
            return [f"line {self.line} says that the edges are {kind}"]
        return [f"line {self.line} says that the edges are {kind}; they are read the other way, as asked"]

    def refused(self, column: int) -> InvalidRequest:
        """Return the error for a third column that is no length according to KONECT."""
        return InvalidRequest(
            f"line {self.line} says {self.counted!r}, so column {column} holds counts or signs of edges, no lengths: "
            f"say --weight {column} to take it for the length, or --unweighted to count arcs",
            field="weight",
        )


def read_remarks(head: list[str], first: int, separator: str | None, width: int, options: ReadOptions) -> Remarks:
    """Read the comments in ``head`` above the first row, which is on line ``first`` and has ``width`` fields.

    Raises InvalidRequest if a comment mentions undirected edges in words that are not understood, or if KONECT says
    that the third column holds no lengths; the options can decide these questions in advance.
    """
    comments = _comments(head, first)
    directed, line = _direction(comments, options)
    konect = _KONECT.fullmatch(comments[0][1]) if comments else None
    if konect is None:
        return Remarks(directed, line, _names(comments, separator, width))
    kind, weights = konect[1], konect[2]
    decided = options.column is not None or options.unweighted
    return Remarks(
        directed=kind == "asym",
        line=comments[0][0],
        bipartite=kind == "bip",
        counted=weights if weights in _COUNTS and width > 2 and not decided else None,
        unweighted=weights == "unweighted" and options.column is None,
    )


def stated_direction(head: list[str], first: int, options: ReadOptions) -> tuple[bool | None, int]:
    """Return whether comments say that edges are directed.

    Args:
        head: the first lines of the file.
        first: the line of the first row.
        options: the caller's options.

    Returns:
        Whether edges are directed (None if no comment says), and the line of the comment that says it.

    Raises:
        InvalidRequest: a comment mentions undirected edges in words that are not understood.
    """
    comments = _comments(head, first)
    konect = _KONECT.fullmatch(comments[0][1]) if comments else None
    return _direction(comments, options) if konect is None else (konect[1] == "asym", comments[0][0])


def _comments(head: list[str], first: int) -> list[tuple[int, str]]:
    return [(i, text.strip()) for i, text in enumerate(head[: first - 1], 1) if is_comment(text.strip(), "#%")]


def _direction(comments: list[tuple[int, str]], options: ReadOptions) -> tuple[bool | None, int]:
    """Return whether the comments say that edges are directed, and the line of the comment."""
    stated = [(line, found) for line, text in comments if (found := _stated(text)) is not None]
    kinds = {kind for _, kind in stated}
    if len(kinds) == 1 and (kinds == {False} or not any(_speaks_of_both_ways(text) for _, text in comments)):
        return stated[0][1], stated[0][0]
    vague = next(((line, text) for line, text in comments if _speaks_of_both_ways(text)), None)
    if vague is not None and options.directed is None:
        raise InvalidRequest(
            f"line {vague[0]}: {shown(vague[1])} speaks of undirected edges, but not plainly of these: "
            "say --undirected or --directed",
            field="directed",
        )
    return None, 0


def _stated(text: str) -> bool | None:
    """Return whether a comment states that the edges are directed; None if it does not say."""
    words = _WORDS.findall(text.lower().lstrip("#% "))
    at = next((i for i, word in enumerate(words) if word in ("directed", "undirected")), None)
    if at is None or "?" in words:
        return None
    before, after = [word for word in words[:at] if word not in ":=,"], words[at + 1 :]
    directed = words[at] == "directed"
    if before and before[-1] in _NOT:
        if not directed:
            return None
        directed = False
        before.pop()
    if after[:1] in ([":"], ["="]) and (value := _VALUES.get("".join(after[1:2]))) is not None:
        directed, after = directed == value, after[2:]
    end = next((i for i, word in enumerate(after) if word in _MORE or not word.isalnum()), len(after))
    return directed if _PLAIN.issuperset([*before, *after[:end]]) else None


def _speaks_of_both_ways(text: str) -> bool:
    """Return whether a comment mentions edges that are not directed."""
    words = [word for word in _WORDS.findall(text.lower()) if word not in ":=,"]
    denied = any(first.endswith("directed") and second in ("false", "no", "0") for first, second in pairwise(words))
    plain = " ".join(["", *words])
    return denied or {"not", "directed"} <= {*words} or any(f" {word}" in plain for word in _BOTH_WAYS)


def _names(comments: list[tuple[int, str]], separator: str | None, width: int) -> list[str] | None:
    """Return the names of the columns from a comment; None unless the comment has a name for each field of a row, and
    names for both source and target.

    Words between separators without blanks are names, too, as ``numpy.savetxt`` writes them.
    """
    for place, (line, text) in enumerate(reversed(comments)):
        if not text.startswith("#"):
            continue
        words = text.lstrip("# \t")
        try:
            sign = separator or ("\t" if words.count("\t") == width - 1 else None)
            row = [field.strip('"' + BLANKS) for field in fields.split(words, sign, sign is not None, line)]
        except InvalidGraph:
            continue
        if len(row) != width or any(is_number(field) for field in row):
            continue
        plain = sign is not None and place == 0 and " " not in words and all(_WORD.fullmatch(field) for field in row)
        if names_ends(row, letters=True) or plain:
            return row
    return None


def names_in_comment(head: list[str], first: int, separator: str | None, n: int) -> tuple[list[str], int] | None:
    """Return the names that a comment may give to the columns of a matrix.

    Args:
        head: the first lines of the file.
        first: the line of the first row.
        separator: the separator of the rows; None for runs of blanks.
        n: the number of columns.

    Returns:
        The n different words of the last comment above the rows, and its line; None if it does not consist of n such
        words.
    """
    comments = _comments(head, first)
    if not comments:
        return None
    line, text = comments[-1]
    try:
        row = [word.strip('"') for word in fields.split(text.lstrip("#% \t"), separator, separator is not None, line)]
    except InvalidGraph:
        return None
    if len(row) != n or len(set(row)) != n or "" in row or any(map(is_number, row)):
        return None
    return row, line
