"""Lengths computed from a column: ``1000 - combined_score``, ``1 / weight``, ``-log(probability)``.

The grammar is arithmetic over numbers and one column: ``+ - * /``, parentheses, ``log`` (natural), ``sqrt`` and
``exp``.  A column is a word, any text in double quotes, or ``$3`` for the third.  Nothing else can be expressed, so a
formula from an untrusted caller is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest
from storage.number_texts import decimal_number

Floats = npt.NDArray[np.float64]
#: A step of evaluation on a stack.  A string is an operation on the top entry or the two top entries, a number is
#: pushed, and None pushes the column.
Step = str | float | None

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r'|(?P<column>\$[0-9]+|"[^"]+")'
    r"|(?P<word>[^\W\d][\w.]*)"
    r"|(?P<sign>[-+*/()])"
)
_LONGEST: Final = 200
_DEEPEST: Final = 20
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "log": np.log,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "negative": np.negative,
}


@dataclass(frozen=True)
class Formula:
    """A length as a function of one column.

    Attributes:
        text: the formula as the user wrote it.
        column: the column's name, or its number from 1 as text.
        steps: the steps in the order of evaluation.
    """

    text: str
    column: str
    steps: tuple[Step, ...]

    def __call__(self, values: npt.ArrayLike) -> Floats:
        """Return the lengths as float64; an entry is not finite if the formula has no value for it."""
        column = np.asarray(values, np.float64)
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for step in self.steps:
                if step is None:
                    stack.append(column)
                elif isinstance(step, float):
                    stack.append(step)
                elif step in _UNARY:
                    stack.append(_UNARY[step](stack.pop()))
                else:
                    right = stack.pop()
                    stack.append(_BINARY[step](stack.pop(), right))
        return np.broadcast_to(np.asarray(stack.pop(), np.float64), column.shape)


def parse_formula(text: str) -> Formula:
    """Parse a formula.  Raises InvalidRequest, which names the position of the error, counted from 1."""
    if len(text) > _LONGEST:
        raise InvalidRequest(f"a formula has at most {_LONGEST} characters, this one {len(text)}", field="length_of")
    return _Parser(text).parse()


class _Parser:
    """Parses the tokens by recursive descent.  The limit ``_DEEPEST`` on nested parentheses bounds the recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._steps: list[Step] = []
        self._column: str | None = None
        self._token: re.Match[str] | None = None
        self._next()

    def parse(self) -> Formula:
        self._sum()
        if self._token is not None:
            raise self._wrong("an operator or the end")
        if self._column is None:
            raise InvalidRequest(f"the formula {self._text!r} names no column", field="length_of")
        return Formula(self._text.strip(), self._column, tuple(self._steps))

    def _next(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        self._token = _TOKEN.match(self._text, self._at)
        if self._token is None and self._at < len(self._text):
            raise self._wrong("a number, a column or an operator")
        if self._token is not None:
            self._at = self._token.end()

    def _wrong(self, expected: str) -> InvalidRequest:
        position = self._at if self._token is None else self._token.start()
        rest = self._text[position : position + 20]
        found = f"{rest!r}" if rest else "the end"
        message = f"the formula {self._text!r} is not understood at position {position + 1}"
        return InvalidRequest(f"{message}: expected {expected}, found {found}", field="length_of")

    def _sign(self, signs: str) -> str | None:
        """If the next token is one of ``signs``, consume and return it; otherwise return None."""
        sign = None if self._token is None else self._token["sign"]
        if sign is None or sign not in signs:
            return None
        self._next()
        return sign

    def _sum(self) -> None:
        self._product()
        while sign := self._sign("+-"):
            self._product()
            self._steps.append(sign)

    def _product(self) -> None:
        self._factor()
        while sign := self._sign("*/"):
            self._factor()
            self._steps.append(sign)

    def _factor(self) -> None:
        negative = False
        while sign := self._sign("+-"):
            negative ^= sign == "-"
        self._atom()
        if negative:
            self._steps.append("negative")

    def _atom(self) -> None:
        token = self._token
        if token is None:
            raise self._wrong("a number, a column or '('")
        if token["number"]:
            self._steps.append(self._number(token["number"]))
            self._next()
        elif token["sign"] == "(":
            self._brackets()
        elif token["column"]:
            self._use(token["column"].strip('$"'))
        elif token["word"] in ("log", "sqrt", "exp") and self._text[token.end() :].lstrip().startswith("("):
            self._next()
            self._brackets()
            self._steps.append(token["word"])
        elif token["word"]:
            self._use(token["word"])
        else:
            raise self._wrong("a number, a column or '('")

    def _brackets(self) -> None:
        if self._depth == _DEEPEST:
            raise self._wrong(f"at most {_DEEPEST} nested parentheses")
        self._depth += 1
        self._next()
        self._sum()
        if self._sign(")") is None:
            raise self._wrong("')'")
        self._depth -= 1

    def _number(self, text: str) -> float:
        try:
            return decimal_number(text)
        except ValueError as error:
            raise InvalidRequest(f"formula {self._text!r}: {error}", field="length_of") from None

    def _use(self, column: str) -> None:
        if self._column not in (None, column):
            raise self._wrong(f"the column {self._column!r} again, since a length comes from one column")
        self._column = column
        self._steps.append(None)
        self._next()
