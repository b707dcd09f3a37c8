"""Finds rows whose meaning is doubtful: comments that look like arcs, names that differ in blanks only, and points or
commas that may separate thousands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers import fields
from storage.readers.source import Block
from storage.readers.tables.table import Layout
from storage.readers.tables.text_rows import blanks_in_quotes, is_comment

_LINE = re.compile(rb"(?m)^[ \t]*+[#%].*+$")
_ROW = re.compile(rb"(?m)^[ \t]*+[^ \t\n#%]")


class CommentedRows:
    """Finds comments that have the fields of an arc: they may be arcs from a vertex such as ``#1``.

    A note counts such comments below the first arc, or below the header.  In a file without a header, a comment above
    the first arc may name the columns, so only ``refuse_signs`` uses it.
    """

    def __init__(self, layout: Layout, header: bool) -> None:
        self._layout = layout
        self._begun = header
        self._count = 0
        self._above: tuple[int, str] | None = None
        self._first: tuple[int, str] | None = None

    def look(self, block: Block) -> None:
        """Examine the next block."""
        data = block.data
        begin = 0 if self._begun else _first_row(data)
        if b"#" in data or b"%" in data:
            for found in _LINE.finditer(data):
                text = found[0].decode("utf-8", "replace").strip(fields.BLANKS)
                if self._is_row(text[1:].lstrip(fields.BLANKS)):
                    place = block.line + data.count(b"\n", 0, found.start()), text
                    self._take(place, begin is not None and found.start() >= begin)
        self._begun = begin is not None

    def _take(self, place: tuple[int, str], below: bool) -> None:
        """Record a comment (line and text); ``below`` says whether an arc or the header stands above the comment."""
        if below:
            self._count += 1
            self._first = self._first or place
        elif self._layout.weight is not None or self._layout.separator is not None:  # otherwise two words may be prose
            self._above = self._above or place

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
        if (row[layout.source], row[layout.target]) == layout.names:
            return False
        return layout.text or (fields.is_whole(row[layout.source]) and fields.is_whole(row[layout.target]))

    def notes(self) -> list[str]:
        """Return the notes for the receipt."""
        if self._first is None:
            return []
        line, text = self._first
        return [
            f"comments that have the fields of an arc: {self._count:,}, the first on line {line}: {fields.shown(text)}"
        ]

    def refuse_signs(self, names: AnyArray) -> None:
        """Refuse comments that look like arcs if names of vertices also begin with ``#`` or ``%``."""
        if (place := self._above or self._first) is None:
            return
        signed = next((name for name in names.tolist() if str(name).startswith(("#", "%"))), None)
        if signed is not None:
            line, text = place
            raise InvalidGraph(
                f"{fields.shown(text)} begins like a comment, but vertex {fields.shown(str(signed))} shows that names "
                "begin so: put such names in quotes, between commas, or rename them",
                line=line,
                field="vertex",
            )


class PaddedNames:
    """Finds names in quotes with blanks at their ends, such as ``"a "``, which are read without these blanks.

    A program that pads columns spells a name in one way everywhere.  If a file has ``"a "`` and also ``a`` or ``" a"``,
    the two spellings may mean two vertices.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._padded: dict[str, tuple[str, int]] = {}

    def look(self, block: Block) -> None:
        """Examine the next block."""
        layout = self._layout
        if layout.text and layout.quoted and layout.separator and blanks_in_quotes(block.data, layout.separator):
            for name, line in self._names(block):
                if name != name.strip(fields.BLANKS):
                    self._padded.setdefault(name.strip(fields.BLANKS), (name, line))

    def refuse_others(self, blocks: Iterable[Block]) -> None:
        """Refuse the file, whose rows are in ``blocks``, if it spells a padded name in another way, too."""
        if not self._padded:
            return
        for block in blocks:
            for name, line in self._names(block):
                padded, first = self._padded.get(name.strip(fields.BLANKS), (name, line))
                if name != padded:
                    raise InvalidGraph(
                        f"{name!r} differs from {padded!r} on line {first} in blanks only, so these may be two "
                        "vertices: write every name in one way, or rename one of them",
                        line=line,
                        field="vertex",
                    )

    def _names(self, block: Block) -> Iterator[tuple[str, int]]:
        """Yield the names of both ends of each arc, each with its line number; blanks inside quotes are kept."""
        sign, blank = re.escape(self._layout.separator or ""), "" if self._layout.separator == "\t" else r"[ \t]*+"
        cell = re.compile(rf'{blank}(?:"((?:[^"]|"")*+)"{blank}|([^{sign}]*+))(?:{sign}|$)')
        for line, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = raw.decode("utf-8", "replace")
            if is_comment(text.lstrip(fields.BLANKS), self._layout.comments):
                continue
            for place, found in enumerate(cell.finditer(text)):
                quoted, plain = found[1], found[2]
                if place == self._layout.width or (plain or "").startswith('"'):
                    break  # otherwise the end of an unclosed quote would be searched for again from every later cell
                if place in (self._layout.source, self._layout.target):
                    yield plain.strip(fields.BLANKS) if quoted is None else quoted.replace('""', '"'), line


class DecimalMarks:
    """Decides whether the points or commas in the numbers of a file may mark thousands instead of decimals.

    In a file whose fields are separated by semicolons, ``1.200`` can mean 1.2 or 1200.  If the file also contains a
    number such as ``1.25``, ``0.500`` or ``1500``, only 1.2 is possible.
    """

    _GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")

    def __init__(self) -> None:
        self._settled = False
        self._whole: str | None = None
        self._first: tuple[str, int] | None = None
        self._padded: tuple[str, int] | None = None

    def look(self, cells: list[str], line: int) -> bool:
        """Examine the numbers of a line; return whether the result of ``notes`` still depends on further lines."""
        for cell in cells:
            if "." not in cell and "," not in cell:
                if fields.is_whole(cell):
                    self._settled |= abs(int(cell)) >= 1000
                    self._whole = self._whole or (cell if int(cell) else None)
            elif self._GROUPED.fullmatch(cell):
                self._first = self._first or (cell, line)
                self._padded = self._padded or ((cell, line) if cell.endswith("0") else None)
            else:
                self._settled = True
        return not self._settled

    def look_at_block(self, block: Block, layout: Layout) -> None:
        """Examine the weights in a block of rows whose fields are separated by semicolons."""
        if self._settled or layout.separator != ";" or layout.weight is None:
            return
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = raw.decode("utf-8", "replace")
            if not text.strip() or is_comment(text.strip(), layout.comments):
                continue
            row = fields.split(text, layout.separator, layout.quoted, number)
            if len(row) == layout.width and not self.look([row[layout.weight]], number):
                return

    def notes(self) -> list[str]:
        """Return a note on how the comma or point was read, if it could be a decimal mark or separate thousands.

        Raises:
            InvalidGraph: some decimals end in 0, and other numbers are whole.  Programs that write trailing zeros write
                them everywhere, so the mark must separate thousands.
        """
        if self._settled or self._first is None:
            return []
        mark = "," if "," in self._first[0] else "."
        name = "comma" if mark == "," else "point"
        if self._padded is not None and self._whole is not None:
            cell, line = self._padded
            raise InvalidGraph(
                f"{cell} may be {cell.replace(mark, '')} or {float(cell.replace(',', '.')):g}, beside whole numbers "
                f"such as {self._whole}: write thousands without a {name}, or decimals without zeros at the end",
                line=line,
                field="weight",
            )
        return [f"the {name} in numbers such as {self._first[0]} is read as decimal {name}, not as mark of thousands"]


class DoubtfulRows:
    """Finds rows that are doubtful with one column of numbers: comments like arcs, and marks of decimals."""

    def __init__(self, layout: Layout, header: bool) -> None:
        self._layout = layout
        self._marks = DecimalMarks()
        self.commented = CommentedRows(layout, header)

    def look(self, block: Block) -> None:
        """Examine the next block.  Raises InvalidGraph for quotes that do not match."""
        self.commented.look(block)
        self._marks.look_at_block(block, self._layout)

    def notes(self) -> list[str]:
        """Return the notes for the receipt.  Raises InvalidGraph for numbers that must have marks of thousands."""
        return [*self.commented.notes(), *self._marks.notes()]


def _first_row(data: bytes) -> int | None:
    """Return the position of the first line that is neither empty nor a comment."""
    found = _ROW.search(data)
    return None if found is None else found.start()
