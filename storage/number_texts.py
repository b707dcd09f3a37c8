"""Defines which texts are numbers: on the command line, in addresses, forms, headers, settings and files.

Python's ``int`` and ``float``, and pydantic, also take underscores between digits, digits of other scripts, blanks
around a number, ``inf`` and ``nan``.  A text with these is more often a mistake than a number, so it is refused.
This module imports nothing that takes long to import.
"""

from __future__ import annotations

import math
import re
from typing import Final

#: A whole number of at most 400 digits: no type holds longer numbers, and Python refuses to convert very long ones.
WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}+")
#: A decimal number, with or without an exponent.
DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
INFINITE: Final = re.compile(r"([+-]?)(inf|infinity)", re.IGNORECASE | re.ASCII)
_NOT_ZERO: Final = re.compile(r"[+-]?[0.]*+[1-9]")
#: Text for messages about such a number.
TOO_SMALL: Final = "is so small that float64 would take it for 0"
#: Most characters of a text that messages show.
_SHOWN: Final = 40


def whole_number(text: str) -> int:
    """Return the whole number that a text is.

    Raises:
        ValueError: the text is anything else.
    """
    if not WHOLE.fullmatch(text):
        raise ValueError(f"{text[:_SHOWN]!r} is no whole number")
    return int(text)


def decimal_number(text: str, *, infinite: bool = False) -> float:
    """Return the number that a text is, rounded to float64.

    Args:
        text: the text.
        infinite: whether the words ``inf`` and ``infinity``, with or without a sign, are numbers, too; they are for
            limits, where infinity means that there is none.

    Raises:
        ValueError: the text is anything else, or the number is too large for float64, or so small that it would be 0.
    """
    if infinite and INFINITE.fullmatch(text):
        return float(text)
    if not DECIMAL.fullmatch(text):
        raise ValueError(f"{text[:_SHOWN]!r} is no number")
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:_SHOWN]!r} is too large for float64")
    if vanishes(text, found):
        raise ValueError(f"{text[:_SHOWN]!r} {TOO_SMALL}: write 0 if that is meant")
    return found


def vanishes(text: str, found: float) -> bool:
    """Return whether a decimal number is not 0, but ``found``, which is that number in float64, is."""
    return found == 0 and _NOT_ZERO.match(text) is not None


def is_digits(text: str) -> bool:
    """Return whether a text is a whole number without a sign."""
    return text[:1] not in ("+", "-") and WHOLE.fullmatch(text) is not None


def looks_like_number(text: str) -> bool:
    """Return whether a text is a number, or is so similar to one that it can hardly be the name of a column.

    It decides whether the first line of a table is a header.  A header may be left out, so texts that are refused as
    numbers, such as ``1_000`` and ``nan``, count here.
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
