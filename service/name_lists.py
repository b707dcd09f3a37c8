"""Reads lists of names with commas, as the command line, the API and the page take them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Final

from storage.errors import InvalidRequest

#: One name, and the comma or the end of the text after it.  Group 1 is a name in double quotes, group 2 any other name.
_NAME: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,]*))(?:,|\Z)')
#: Line breaks.  Module csv refuses them in names without quotes; here they are allowed, because a list is one line.
_BREAK: Final = re.compile(r"[\r\n]")


def split_names(texts: Iterable[str], field: str, kind: str = "vertex") -> list[str]:
    """Return the names in texts such as ``A,"B, c",D``: separated by commas, in double quotes where a name holds a
    comma, begins or ends with a blank, or is empty.

    Other blanks around names, and empty names without quotes, are dropped.  Raises InvalidRequest, naming ``field``, if
    no name of a ``kind`` is left or the quotes of a text do not match.
    """
    names = list[str]()
    for text in texts:
        try:
            list(csv.reader([_BREAK.sub(" ", text)], strict=True, skipinitialspace=True))
        except csv.Error as error:
            raise InvalidRequest(f"{field} cannot be understood: {error}", field=field) from error
        # The module csv only checks that quotes match.  It does not tell which names were quoted, and _NAME does: the
        # blanks of quoted names must stay.
        for found in _NAME.finditer(text):
            quoted, plain = found.groups()
            if quoted is not None:
                names.append(quoted.replace('""', '"'))
            elif plain.strip():
                names.append(plain.strip())
    if not names:
        raise InvalidRequest(f"{field} names no {kind}", field=field)
    return names


def quote_name(name: object) -> str:
    """Return a name for a list that :func:`split_names` reads: in double quotes if it needs them, else unchanged."""
    text = str(name)
    plain = text and text == text.strip() and not set(text) & set(',"\r\n')
    return text if plain else '"' + text.replace('"', '""') + '"'
