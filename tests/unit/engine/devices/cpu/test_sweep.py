"""How rows are handed out to the threads of a sweep."""

from __future__ import annotations

import itertools

import pytest

from engine.devices.cpu.sweep import PIECE_ROWS, _pieces


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("rows", [0, 1, 23, 24, 100, 8100])
def test_pieces_cover_all_rows_and_become_shorter_towards_the_end(rows: int, threads: int) -> None:
    high = 24
    pieces = list(_pieces(rows, high, threads))
    assert [first for first, _ in pieces] == [0, *(last for _, last in pieces)][: len(pieces)]
    assert sum(last - first for first, last in pieces) == rows
    sizes = [last - first for first, last in pieces]
    assert all(one >= two for one, two in itertools.pairwise(sizes))
    assert all(size <= PIECE_ROWS for size in sizes)
    for (first, last), size in zip(pieces, sizes, strict=True):
        assert size <= high or size <= (rows - first) // (2 * threads)
        assert size % high == 0 or last == rows
