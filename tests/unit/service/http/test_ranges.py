"""Ranges as RFC 9110 means them."""

from __future__ import annotations

import pytest

from service.http.ranges import MAX_RANGES, ByteRange, Refusal, matches, parse_ranges, unchanged


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=2-", [(2, 10)]),
        ("bytes=-3", [(7, 10)]),
        ("bytes=-99", [(0, 10)]),
        ("bytes=5-99", [(5, 10)]),
        ("BYTES = 1-2", [(1, 3)]),
        ("bytes=8-9, ,0-1", [(8, 10), (0, 2)]),
        ("bytes=0-1,50-60", [(0, 2)]),
        ("bytes=0-9", [(0, 10)]),
    ],
)
def test_parts(header: str, parts: list[tuple[int, int]]):
    assert parse_ranges(header, 10) == tuple(ByteRange(*part) for part in parts)


@pytest.mark.parametrize("header", [None, "rows=0-1", "bytes=0-,0-,0-", "bytes=0-9,-1"])
def test_the_whole_file(header: str | None):
    assert parse_ranges(header, 10) is None


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("bytes=10-", 416), ("bytes=-0", 416), ("bytes=99-100,10-", 416), (f"bytes={10**30}-", 416),
        ("bytes", 400), ("bytes=", 400), ("bytes=,", 400), ("bytes=-", 400), ("bytes=a-b", 400), ("bytes=5-2", 400),
        ("bytes=1-2-3", 400), ("bytes=+1-2", 400), ("bytes=١-٢", 400), (f"bytes={'9' * 50}-", 400),
        ("bytes=" + ",".join(["0-0"] * (MAX_RANGES + 1)), 400), ("bytes=0x1-0x2", 400),
    ],
)  # fmt: skip
def test_refusals(header: str, status: int):
    found = parse_ranges(header, 10)
    assert isinstance(found, Refusal)
    assert found.status == status


def test_an_empty_file_has_no_range():
    found = parse_ranges("bytes=0-", 0)
    assert isinstance(found, Refusal)
    assert found.status == 416


def test_conditions():
    assert matches('"a", W/"b"', '"b"')
    assert matches("*", '"b"')
    assert not matches('"a"', '"b"')
    assert not matches("", '"b"')
    assert unchanged(None, '"a"', "then")
    assert unchanged('"a"', '"a"', "then")
    assert unchanged("then", '"a"', "then")
    assert not unchanged('W/"a"', '"a"', "then")
    assert not unchanged('"b"', '"a"', "then")
