"""Parses lists of vertices in one line of text, from the command line and from URLs."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from storage.errors import InvalidRequest


def split_names(texts: Iterable[str], field: str) -> list[str]:
    """The names in texts such as ``A,"B, c",D``: separated by commas, in double quotes where a name holds a comma.

    Blanks around names and empty places are dropped.  InvalidRequest, naming ``field``, if no name is left or the
    quotes do not match.
    """
    try:
        rows = list(csv.reader(texts, strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise InvalidRequest(f"{field} cannot be understood: {error}", field=field) from error
    names = [name.strip() for row in rows for name in row if name.strip()]
    if not names:
        raise InvalidRequest(f"{field} names no vertex", field=field)
    return names
