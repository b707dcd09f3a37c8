"""Reads text line by line, for formats whose rows differ from each other."""

from __future__ import annotations

from collections.abc import Iterator

from storage.errors import InvalidGraph
from storage.readers.fields import BLANKS, shown
from storage.readers.source import Source


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the number and the text, stripped of blanks, of every line that is not empty.

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
