"""Reduces rows of text to a simple form: without comments, and without superfluous blanks."""

from __future__ import annotations

import re

import numpy as np


def is_comment(text: str, marks: str) -> bool:
    """Return whether a line (stripped of blanks) is a comment, which begins with one of ``marks``.  The letter ``c``
    begins a comment only if it is a word of its own.
    """
    if not text or text[0] not in marks:
        return False
    return text[0] != "c" or len(text) == 1 or text[1].isspace()


def strip_comments(data: bytes, marks: str) -> bytes:
    """Drop comment lines, which begin with one of the characters ``marks``."""
    for mark in marks:
        sign = mark.encode()
        if sign not in data:
            continue
        if mark != "c":
            data = re.sub(rb"(?m)^[ \t]*+%s.*+\n" % re.escape(sign), b"", data)
        elif re.search(rb"(?m)^[ \t]*+c", data):
            data = re.sub(rb"(?m)^[ \t]*+c(?:[ \t].*+)?\n", b"", data)
    return data


def blanks_in_quotes(data: bytes, separator: str) -> bool:
    """Return whether ``normalise`` would change a quoted field, or keep a blank at the beginning or end of it."""
    inside = b'"%s"' % b'"'.join(data.split(b'"')[1::2])
    sign = separator.encode()
    return any(pattern in inside for pattern in (b"\t", b" " + sign, sign + b" ", b'" ', b' "'))


def tabs_in_fields(data: bytes, separator: str) -> bool:
    """Return whether a field contains a tab, which ``normalise`` would turn into a blank."""
    sign = separator.encode()
    return b"\t" in data and re.search(rb"[^ \t\n%s] *+\t[ \t]*+[^ \t\n%s]" % (sign, sign), data) is not None


def normalise(data: bytes, separator: str | None, blanks: str = "") -> bytes:
    """Reduce runs of blanks to one, remove blanks around separators and at the ends of lines, and remove empty
    lines.
    """
    for blank in blanks:
        data = data.replace(blank.encode(), b" ")
    if separator != "\t" and b"\t" in data:
        data = data.replace(b"\t", b" ")
    data = data.lstrip(b" \n")
    # Most files need no change; one pass over the bytes finds this out faster than the searches for pairs below.
    low = np.frombuffer(data, np.uint8) <= 32
    if not (low[1:] & low[:-1]).any() and (separator is None or b" " not in data):
        return data
    if separator is None:
        while b"  " in data:
            data = data.replace(b"  ", b" ")
    elif b" " in data:
        sign = separator.encode()
        data = _without(_without(data, b" %s", sign), b"%s ", sign)
    data = _without(_without(data, b" %s", b"\n"), b"%s ", b"\n")
    while b"\n\n" in data:
        data = data.replace(b"\n\n", b"\n")
    return data


def _without(data: bytes, pair: bytes, mark: bytes) -> bytes:
    """Remove the blanks next to each ``mark``; ``pair`` is ``b" %s"`` for blanks before the mark, ``b"%s "`` for blanks
    after it.

    Short runs of blanks are removed one blank per pass; longer runs, which may be megabytes in a hostile file, in a
    single pass.
    """
    for _ in range(4):
        if pair % mark not in data:
            return data
        data = data.replace(pair % mark, mark)
    sign = re.escape(mark)
    return re.sub(rb"(?<! ) ++(?=%s)" % sign if pair.startswith(b" ") else rb"(?<=%s) ++" % sign, b"", data)
