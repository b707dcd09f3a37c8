"""Lines in well-known binary: both byte orders, all spellings of heights and measures, and damaged ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from storage.errors import InvalidGraph
from storage.geography.lines import kind_of, read_lines
from tests.layers import line, multi, point

FLAT = [(1.0, 2.0), (3.0, 4.0), (3.0, 6.0)]


def where(row: int) -> str:
    return f"row {row + 1}"


def spelled(order: str, code: int, system: bool, points) -> bytes:
    """A line in any spelling."""
    head = struct.pack(f"{order}I", code | (0x20000000 if system else 0)) + (
        struct.pack(f"{order}I", 4326) if system else b""
    )
    body = b"".join(struct.pack(f"{order}{len(point)}d", *point) for point in points)
    return (b"\x01" if order == "<" else b"\x00") + head + struct.pack(f"{order}I", len(points)) + body


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize(
    ("code", "more", "height", "measured"),
    [
        (2, (), False, 0), (1002, (9.0,), True, 0), (2002, (7.0,), False, 1), (3002, (9.0, 7.0), True, 1),
        (0x80000002, (9.0,), True, 0), (0x40000002, (7.0,), False, 1), (0xC0000002, (9.0, 7.0), True, 1),
    ],
)  # fmt: skip
def test_spellings(order, system, code, more, height, measured):
    found = read_lines([spelled(order, code, system, [(*p, *more) for p in FLAT])], where)
    assert (found.x.tolist(), found.y.tolist()) == ([1, 3, 3], [2, 4, 6])
    np.testing.assert_array_equal(found.z, [9.0 if height else np.nan] * 3)
    assert (found.starts.tolist(), found.measured) == ([0, 3], measured)
    np.testing.assert_allclose(found.lengths(geographic=False), [8**0.5 + 2])


def test_lengths_of_several_lines():
    found = read_lines([line((0, 0), (3, 4)), multi(line((9, 9), (9, 10), (9, 12))), line((0, 0), (0, 0))], where)
    assert found.lengths(geographic=False).tolist() == [5, 3, 0]
    assert read_lines([], where).lengths(geographic=True).tolist() == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (line(*FLAT)[:-1], "the geometry is damaged"),
        (line(*FLAT)[:7], "the geometry is damaged"),
        (b"\x01", "the geometry is damaged"),
        (b"\x01" + struct.pack("<II", 2, 2**32 - 1), "the geometry is damaged"),
        (multi(line(*FLAT))[:12], "the geometry is damaged"),
        (point(1, 2), "a Point is no line"),
        (b"\x01" + struct.pack("<II", 8, 0), "a CircularString is no line"),
        (b"\x01" + struct.pack("<II", 99, 0), "a geometry of kind 99 is no line"),
        (multi(point(1, 2)), "a Point is no line"),
        (multi(), "the line is empty"),
        (multi(line(*FLAT), line(*FLAT)), "2 parts is no edge"),
        (None, "there is no geometry"),
        (b"", "there is no geometry"),
        (line((0, 0), (np.inf, 0)), "not finite"),
    ],
)
def test_what_is_no_line(data, why):
    with pytest.raises(InvalidGraph, match=f"row 2: .*{why}"):
        read_lines([line(*FLAT), data], where)


def test_kinds():
    assert [kind_of(data) for data in (line(*FLAT), multi(line(*FLAT)), point(1, 2))] == [
        "LineString", "MultiLineString", "Point",
    ]  # fmt: skip
