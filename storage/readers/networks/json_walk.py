"""Reads JSON as a stream: walks over the members of arrays and objects, and decodes only small values as a whole."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from storage.errors import InvalidGraph
from storage.readers.fields import shown

#: Maximum number of characters of a value that is decoded as a whole, such as a vertex or an edge with its attributes.
VALUE = 1 << 20
#: An error within this many characters before the end of the text read so far may only mean that the text continues in
#: the next piece.  The words of JSON, such as ``false``, are shorter.
_CUT = 16
_BLANK = re.compile(r"[ \t\r\n]*")


class Number(str):
    """A number as it is written, so that large numbers keep their digits and 1 differs from "1"."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidGraph(f"the member {shown(twice)} stands twice in one object", field="JSON")
    return members


class Walker:
    """A position in a JSON text.  Methods raise InvalidGraph, which names the line, for text that is not
    well-formed.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._line = 1
        self._counted = 0
        self._ended = False
        decoder = json.JSONDecoder(
            object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=Number
        )
        self._decode = decoder.raw_decode

    @property
    def line(self) -> int:
        """The line of the position, counted from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _more(self) -> bool:
        """Read another piece; return False at the end of the text.

        The piece is at least as long as the text held so far, so that repeated attempts to decode a long value take
        linear time in total.
        """
        if self._ended:
            return False
        line, held = self.line, self._text[self._at :]
        parts, length = [held], 0
        while length < max(1, len(held)):
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            length += len(piece)
        self._text, self._at, self._counted, self._line = "".join(parts), 0, 0, line
        return length > 0

    def peek(self) -> str:
        """Return the next character that is not white space; an empty string at the end of the text."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = self._at if blank is None else blank.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, sign: str) -> None:
        found = self.peek()
        if found != sign:
            raise InvalidGraph(f"not well-formed JSON: expected {sign!r}, found {found!r}", line=self.line)
        self._at += 1

    def value(self) -> Any:
        """Decode the next value as a whole: dict, list, str, ``Number``, bool or None."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError:
                raise InvalidGraph("JSON nested too deeply", line=self.line) from None
            except json.JSONDecodeError as error:
                if not self._cut(error):
                    raise self._fault(error) from None
            except InvalidGraph as error:
                raise InvalidGraph(str(error), line=self.line, field="JSON") from None
            else:
                # A number may continue in the next piece.
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value

    def _cut(self, error: json.JSONDecodeError) -> bool:
        """Return whether the error may only mean that the value continues in the next piece; if so, read that piece."""
        near = error.pos + _CUT >= len(self._text) or error.msg.startswith("Unterminated string")
        if near and len(self._text) - self._at > VALUE:
            raise InvalidGraph(f"a value of more than {VALUE >> 20} MiB of JSON", line=self.line)
        return near and self._more()

    def _fault(self, error: json.JSONDecodeError) -> InvalidGraph:
        line = self.line + self._text.count("\n", self._at, error.pos)
        return InvalidGraph(f"not well-formed JSON: {error.msg}", line=line)

    def members(self) -> Iterator[str]:
        """Yield the names of the members of an object; after each name the caller must read the value."""
        seen: set[str] = set()
        self._take("{")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                raise InvalidGraph("not well-formed JSON: expected the name of a member", line=self.line)
            line, name = self.line, self.value()
            if name in seen:
                raise InvalidGraph(f"the member {shown(name)} stands twice in one object", line=line, field="JSON")
            seen.add(name)
            self._take(":")
            yield name
            if self.peek() != ",":
                self._take("}")
                return
            self._take(",")

    def items(self) -> Iterator[int]:
        """Yield the positions of the elements of an array, from 0; after each position the caller must read the
        element.
        """
        self._take("[")
        if self.peek() == "]":
            self._at += 1
            return
        at = 0
        while True:
            yield at
            at += 1
            if self.peek() != ",":
                self._take("]")
                return
            self._take(",")

    def end(self) -> None:
        """Refuse any further text."""
        if self.peek():
            raise InvalidGraph("not well-formed JSON: text after the end", line=self.line)
