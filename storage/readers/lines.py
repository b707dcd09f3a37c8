"""Reads text line by line, for formats whose rows differ from each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from storage.errors import InvalidGraph
from storage.readers.fields import BLANKS, shown
from storage.readers.limits import ReadLimits
from storage.readers.source import Source

#: The characters that may separate the names and numbers of a line.
_BETWEEN: Final = re.compile(r"[\s,;|\t\"']+")


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of every line that is not empty, without blanks at its end.

    Raises InvalidGraph for text that is not valid UTF-8.
    """
    for block in source.blocks():
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            try:
                text = raw.decode().rstrip(BLANKS)
            except UnicodeDecodeError:
                raise InvalidGraph(f"not valid UTF-8: {shown(raw.decode('latin-1'))}", line=number) from None
            if text:
                yield number, text


def line_of(path: Path, first: str, second: str, limits: ReadLimits) -> int | None:
    """Return the number of the first line that contains two names as words.  A line with the names in the given order
    is preferred.

    Args:
        path: the file, plain or compressed.
        first, second: the names.
        limits: limits on the size of the content.

    Returns:
        The line number, counted from 1; None if no line has both names.
    """
    either = None
    for number, text in text_lines(Source(path, limits)):
        words = [word for word in _BETWEEN.split(text) if word]
        if first in words and second in words:
            if second in words[words.index(first) + 1 :]:
                return number
            either = either or number
    return either
