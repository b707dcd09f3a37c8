"""Rows of an edge list that are comments because of their first sign, although they look like arcs."""

from __future__ import annotations

import re

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers import fields
from storage.readers.source import Block
from storage.readers.tables.table import Layout

_LINE = re.compile(rb"(?m)^[ \t]*+[#%].*+$")
_ROW = re.compile(rb"(?m)^[ \t]*+[^ \t\n#%]")


class CommentedRows:
    """Counts comments below the first arc that have the fields of an arc: rows left out, or vertices such as ``#1``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._begun = False
        self._count = 0
        self._first: tuple[int, str] | None = None

    def look(self, block: Block) -> None:
        """Take the next block."""
        data = block.data
        if not self._begun and (begin := _first_row(data)) is None:
            return
        start = 0 if self._begun else begin or 0
        self._begun = True
        if b"#" not in data and b"%" not in data:
            return
        for found in _LINE.finditer(data, start):
            text = found[0].decode("utf-8", "replace").strip(fields.BLANKS)
            if self._is_row(text[1:].lstrip(fields.BLANKS)):
                self._count += 1
                if self._first is None:
                    self._first = block.line + data.count(b"\n", 0, found.start()), text

    def _is_row(self, text: str) -> bool:
        layout = self._layout
        if len(text) > fields.LONGEST_ROW:
            return False
        try:
            row = fields.split(text, layout.separator, layout.quoted, 1)
        except InvalidGraph:
            return False
        if len(row) != layout.width or (layout.weight and not fields.is_number(row[layout.weight], True)):
            return False
        return layout.text or (fields.is_whole(row[layout.source]) and fields.is_whole(row[layout.target]))

    def notes(self) -> list[str]:
        """What the receipt should say."""
        if self._first is None:
            return []
        line, text = self._first
        return [
            f"comments that have the fields of an arc: {self._count:,}, the first on line {line}: {fields.shown(text)}"
        ]

    def refuse_signs(self, names: AnyArray) -> None:
        """Refuse such comments where names of vertices begin with a sign of comments, too."""
        if self._first is None:
            return
        # in the order of code points: all names that begin with one sign stand together
        signed = next((name for name in names.tolist() if str(name).startswith(("#", "%"))), None)
        if signed is not None:
            line, text = self._first
            raise InvalidGraph(
                f"{fields.shown(text)} begins like a comment, but vertex {fields.shown(str(signed))} shows that names "
                "begin so: put such names in quotes, between commas, or rename them",
                line=line,
                field="vertex",
            )


def _first_row(data: bytes) -> int | None:
    """Where the first line begins that is neither empty nor a comment."""
    found = _ROW.search(data)
    return None if found is None else found.start()
