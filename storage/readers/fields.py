"""Reads one field at a time: defines exactly what counts as a vertex or a weight, with errors that name the line.

The column parser is a fast version of this module; fields that it cannot read with certainty are read again here.
"""

from __future__ import annotations

import csv
import math
import re

from storage.errors import InvalidGraph
from storage.graph.cleaning import EXACT, is_label
from storage.number_texts import DECIMAL, INFINITE, TOO_SMALL, WHOLE, vanishes

_FORTRAN = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)[dD][+-]?[0-9]++")
_MISSING = frozenset({"", "na", "n/a", "#n/a", "null", "none", "-", "?", "nil", "\\n"})
_QUOTED_WORD = re.compile(r'(?:"[^"]*+"|[^ \t"])++')
_SHOWN = 60
#: White space that separates fields within a line.  All other white space (form feeds, no-break spaces) belongs to the
#: field.
BLANKS = " \t"
#: Maximum length of a row that is split into fields: bytes, or characters if the row is decoded already.
LONGEST_ROW = 1 << 20


class TextVertex(InvalidGraph):
    """A vertex is text, not a number; the reader of edge lists then reads the file again with all vertices as names."""


def shown(text: str) -> str:
    """Return a field or line as messages quote it, shortened where it is long."""
    text = text.strip("\r\n")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + " ...")


def whole(token: str, line: int, field: str) -> int:
    """Return ``token`` as a whole number that fits int64; raise InvalidGraph for any other text."""
    if not WHOLE.fullmatch(token):
        raise InvalidGraph(f"{field} {shown(token)} is not a whole number", line=line, field=field)
    value = int(token)
    if not -(2**63) <= value < 2**63:
        raise InvalidGraph(f"{field} {shown(token)} is beyond the range of int64", line=line, field=field)
    return value


def vertex(token: str, line: int, column: str = "") -> int:
    """Return a vertex that is written as a number; raise ``TextVertex`` if it looks like a name.  ``column`` is the
    name of its column, for messages.
    """
    if not WHOLE.fullmatch(token):
        place = f" (column {column!r})" if column else ""
        if token.lower() in _MISSING:
            raise InvalidGraph(f"the vertex is missing ({shown(token)}){place}", line=line, field="vertex")
        if is_number(token):
            message = f"vertex {shown(token)} is not a whole number{place}"
            raise InvalidGraph(message, line=line, field="vertex")
        raise TextVertex(f"vertex {shown(token)} is not a number{place}", line=line, field="vertex")
    return whole(token, line, "vertex")


def label(token: str, line: int, column: str = "") -> int:
    """Return a vertex whose label is a whole number; ``column`` is the name of its column, for messages.

    Also raises ``TextVertex`` for a whole number that is not in its canonical spelling: ``02138`` and ``2138`` are two
    vertices.
    """
    if is_whole(token) and not is_label(token):
        why = "is beyond the range of int64"
        if is_label(str(int(token))):
            why = "is written with a sign" if token[0] in "+-" else "is written with a leading zero"
        raise TextVertex(f"vertex {shown(token)} {why}", line=line, field="vertex")
    return vertex(token, line, column)


def is_whole(token: str) -> bool:
    """Return whether a token is written as a whole number."""
    return WHOLE.fullmatch(token) is not None


def is_number(token: str, decimal_comma: bool = False) -> bool:
    """Return whether a token can be read as a weight, including words for infinity and not-a-number."""
    if decimal_comma:
        token = token.replace(",", ".")
    return bool(DECIMAL.fullmatch(token) or INFINITE.fullmatch(token)) or token.lower() == "nan"


def is_missing(token: str) -> bool:
    """Return whether a field is empty, or a word for a missing value."""
    return token.lower() in _MISSING


def weight(
    token: str, line: int, *, integer: bool = False, decimal_comma: bool = False, field: str = "weight"
) -> int | float:
    """Return a weight: int for whole numbers, else float.  Words for infinity give +inf.

    With ``integer``, only whole numbers are accepted; ``field`` names the field in messages.  Raises InvalidGraph for
    text that is not a valid length.
    """
    if WHOLE.fullmatch(token):
        value = int(token)
        if abs(value) > EXACT:
            raise InvalidGraph(f"{field} {token} is beyond 2^53, so sums would not be exact", line=line, field=field)
        return value
    if token.lower() in _MISSING:
        raise InvalidGraph(f"the {field} is missing ({shown(token)})", line=line, field=field)
    if integer:
        raise InvalidGraph(f"{field} {shown(token)} is not a whole number", line=line, field=field)
    if decimal_comma and "." in token:
        raise InvalidGraph(
            f"{field} {shown(token)} has a point, and other numbers of the file have a decimal comma: it may mark "
            "thousands; write all numbers in one way",
            line=line,
            field=field,
        )
    plain = token.replace(",", ".") if decimal_comma else token
    if _FORTRAN.fullmatch(plain):
        plain = plain.lower().replace("d", "e")
    if infinite := INFINITE.fullmatch(plain):
        if infinite[1] == "-":
            raise InvalidGraph(f"{field} {shown(token)} is not a length", line=line, field=field)
        return math.inf
    if not DECIMAL.fullmatch(plain):
        raise InvalidGraph(f"{field} {shown(token)} is not a number", line=line, field=field)
    number = float(plain)
    if math.isinf(number):
        raise InvalidGraph(f"{field} {shown(token)} is beyond float64", line=line, field=field)
    if vanishes(plain, number):
        message = f"{field} {shown(token)} {TOO_SMALL}: give all of them in a smaller unit, or write 0"
        raise InvalidGraph(message, line=line, field=field)
    return number


def split(text: str, separator: str | None, quoted: bool, line: int) -> list[str]:
    """Return the fields of one line; a ``separator`` of None is any run of blanks."""
    if len(text) > LONGEST_ROW:
        raise InvalidGraph(f"a row of more than {LONGEST_ROW:,} bytes: {shown(text)}", line=line, field="row")
    if separator is None:
        return _quoted_words(text, line) if quoted and '"' in text else words(text)
    if quoted and '"' in text:
        try:
            rows = list(csv.reader([text], delimiter=separator, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise InvalidGraph(f"the quotes do not match: {error} ({shown(text)})", line=line) from None
        return [field.strip(BLANKS) for field in rows[0]] if rows else []
    return [field.strip(BLANKS) for field in text.split(separator)]


def words(text: str) -> list[str]:
    """Return the words of a line, which blanks and tabs separate."""
    return [word for word in text.replace("\t", " ").split(" ") if word]


def _quoted_words(text: str, line: int) -> list[str]:
    """Split a line at blanks, except within double quotes, which R's write.table writes around words."""
    if text.count('"') % 2:
        raise InvalidGraph(f"the quotes do not match ({shown(text)})", line=line)
    found = _QUOTED_WORD.findall(text)
    if any('"' in word.removeprefix('"').removesuffix('"') for word in found):
        raise InvalidGraph(f"a quote inside of a field: {shown(text)}", line=line, field="row")
    return [word.strip('"') for word in found]
