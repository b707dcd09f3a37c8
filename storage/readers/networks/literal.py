"""Parses dictionaries as Python writes them, ``{'weight': 1, 'name': 'x'}``, without evaluating anything."""

from __future__ import annotations

import re
from collections.abc import Iterator

from storage.errors import InvalidGraph
from storage.readers.fields import shown

#: Strings, numbers and words, and the signs between them; a number may be within a NumPy type: ``np.float64(1.5)``.
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
    r"""|np\.\w+\((?P<number>[\w.+-]+)\)|(?P<word>[\w.+-]+)|(?P<sign>[{}\[\]():,]))"""
)
_OPEN, _CLOSE = "{[(", "}])"
_DEPTH = 100

Token = tuple[str, str]


def parse_dict(text: str, line: int) -> dict[str, tuple[str, int]]:
    """Return the items of one dictionary: for each key, the value as text and the line; nested collections become
    ``[...]``.

    Raises InvalidGraph if ``text`` is not a dictionary of literals.
    """
    tokens = _tokens(text, line)
    members: dict[str, tuple[str, int]] = {}
    if next(tokens) != ("sign", "{"):
        raise _fault(text, line)
    kind, key = next(tokens)
    while (kind, key) != ("sign", "}"):
        if kind == "sign" or next(tokens) != ("sign", ":"):
            raise _fault(text, line)
        if key in members:
            raise InvalidGraph(f"the attribute {shown(key)} stands twice", line=line, field=key)
        kind, value = next(tokens)
        if kind == "sign":
            _skip(value, tokens, text, line)
            value = "[...]"
        members[key] = value, line
        sign = next(tokens)
        if sign == ("sign", ","):
            sign = next(tokens)
        elif sign != ("sign", "}"):
            raise _fault(text, line)
        kind, key = sign
    if next(tokens) != ("end", ""):
        raise _fault(text, line)
    return members


def _tokens(text: str, line: int) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _fault(text, line)
        word = found[found.lastgroup]
        yield found.lastgroup, word[1:-1] if found.lastgroup == "text" else word
        at = found.end()
    while True:
        yield "end", ""


def _skip(opened: str, tokens: Iterator[Token], text: str, line: int) -> None:
    """Skip the rest of a list, tuple or dictionary whose opening bracket has been read."""
    if opened not in _OPEN:
        raise _fault(text, line)
    expected = [_CLOSE[_OPEN.index(opened)]]
    while expected:
        kind, word = next(tokens)
        if kind == "end" or len(expected) > _DEPTH:
            raise _fault(text, line)
        if kind == "sign" and word in _OPEN:
            expected.append(_CLOSE[_OPEN.index(word)])
        elif kind == "sign" and word in _CLOSE and expected.pop() != word:
            raise _fault(text, line)


def _fault(text: str, line: int) -> InvalidGraph:
    return InvalidGraph(f"{shown(text)} is no dictionary of numbers and texts", line=line, field="attributes")
