"""Parses columns of rows with polars, and finds texts that polars may read in another way than the line parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.graph.cleaning import AnyArray

if TYPE_CHECKING:
    import polars as pl


def read_csv(
    data: bytes, schema: dict[str, pl.DataType], columns: list[int], separator: str, quotes: bool
) -> pl.DataFrame | None:
    """Parse some columns of rows, which have the columns of ``schema``; return None if a field is not of its type."""
    import polars as pl

    try:
        return pl.read_csv(
            data,
            has_header=False,
            columns=columns,
            separator=separator,
            quote_char='"' if quotes else None,
            schema=schema,
            empty_string_is_null=True,
        )
    except pl.exceptions.PolarsError:
        return None


def with_points(frame: pl.DataFrame) -> pl.DataFrame | None:
    """Return all columns but the first two, texts of numbers with decimal commas, as float64; None if there are
    points.
    """
    import polars as pl

    texts = pl.nth(range(2, frame.width))
    if frame.select(pl.any_horizontal(texts.str.contains(".", literal=True)).any()).item():
        return None
    return frame.with_columns(texts.str.replace(",", ".", literal=True).cast(pl.Float64(), strict=False))


def as_numbers(frame: pl.DataFrame) -> pl.DataFrame | None:
    """Return the first two columns as numbers; None if a number is not in its canonical spelling."""
    import polars as pl

    ends = [pl.nth(0), pl.nth(1)]
    spelled = [end.str.contains(r"^(?:0|-?[1-9][0-9]*)$") for end in ends]
    if not frame.select(pl.all_horizontal(spelled).all()).item():
        return None
    return frame.with_columns(*(end.cast(pl.Int64(), strict=False) for end in ends))


def even(data: bytes, separator: str, width: int, rows: int) -> bool:
    """Return whether ``data``, from which quoted text was removed, has ``rows`` lines of ``width`` fields each."""
    sign = separator.encode()
    others = bytes(set(range(256)) - {*sign, *b"\n"})
    return data.translate(None, delete=others) == (sign * (width - 1) + b"\n") * rows


def may_have_other_spellings(data: bytes) -> bool:
    """Return whether some number may have a leading zero or a plus sign, or be ``-0``, judging by single bytes only."""
    if b"+" in data or (b"-" in data and b"-0" in data):
        return True
    # A leading zero follows a separator or sign (ASCII codes below the point's) and precedes a digit (codes above the
    # slash's).  The semicolon has a code above the point's, so it is replaced by a comma.
    letters = np.frombuffer(data.replace(b";", b",") if b";" in data else data, np.uint8)
    found = letters[:-2] < ord(".")
    found &= letters[1:-1] == ord("0")
    found &= letters[2:] > ord("/")
    return bool(found.any()) or (data[:1] == b"0" and data[1:2].isdigit())


def may_have_vanished(values: AnyArray, data: bytes) -> bool:
    """Return whether some number in ``data`` may be so small that float64 took it for 0; ``values`` are the numbers.

    Only the texts of large negative exponents and of many zeros in a row are looked for, so the numbers may also be
    larger, or lie in other columns: the line parser examines them.
    """
    if values.dtype.kind != "f" or values.all():
        return False
    # at most 199 zeros and the exponent -99 make 1e-299, which float64 holds
    if b"0" * 200 in data:
        return True
    if b"-" not in data:
        return False
    letters = np.frombuffer(data + b"\n", np.uint8)
    signs = np.flatnonzero(letters[1:-4] == ord("-")) + 1
    signs = signs[letters[signs - 1] | 32 == ord("e")]  # capital letters lack the bit 32
    signs = signs[letters[signs + 3] - ord("0") < 10]  # no difference of bytes is negative
    first, second, fourth = (letters[signs + k] - ord("0") for k in (1, 2, 4))
    # three digits, of which the first is no 0, or four
    return bool(((first < 10) & (second < 10) & ((first > 0) | (fourth < 10))).any())
