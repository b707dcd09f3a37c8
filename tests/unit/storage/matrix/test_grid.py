"""The tile grid and the layout law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import InvalidRequest
from storage.matrix.grid import ALIGNMENT, SEGMENT_BYTES, TILE_ROWS, TileGrid, layout

SIDES = st.integers(0, 60)


@settings(deadline=None)
@given(SIDES, SIDES, st.integers(1, 70), st.integers(1, 70))
def test_slices_cover_every_entry_once(rows, columns, height, width):
    grid = TileGrid((rows, columns), (height, width))
    seen = np.zeros(grid.shape, int)
    down, across = grid.counts
    for i in range(down):
        for j in range(across):
            seen[grid.slices(i, j)] += 1
    assert (seen == 1).all()
    assert grid.tiles == down * across


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([2, 4, 8]))
def test_layout_keeps_rows_cheap_and_wastes_little(rows, columns, itemsize):
    grid = layout((rows, columns), itemsize)
    height, width = grid.tile
    assert 1 <= height <= TILE_ROWS
    assert width * itemsize <= SEGMENT_BYTES
    down, across = grid.counts
    assert down * height - rows < TILE_ROWS
    assert across * width - columns <= across * ALIGNMENT
    if across > 1:
        assert width % ALIGNMENT == 0
        band = across * grid.tile_bytes(itemsize)
        assert band <= 1.1 * TILE_ROWS * columns * itemsize


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_one_row_of_fifty_thousand_touches_at_most_a_tenth_more_than_64_rows(itemsize):
    grid = layout((50_000, 50_000), itemsize)
    assert grid.counts[1] * grid.tile_bytes(itemsize) <= 1.1 * 64 * 50_000 * itemsize


def test_bytes_are_those_of_padded_tiles_with_their_checksums():
    grid = layout((100, 10_000), 4)
    assert grid.tile == (64, 5056)
    assert grid.tile_bytes(4) == 64 * 5056 * 4 + 4
    assert grid.total_bytes(4) == 4 * grid.tile_bytes(4)


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 5), (3, 1)])
def test_degenerate_shapes_have_tiles_of_at_least_one_entry(shape):
    grid = layout(shape, 8)
    assert min(grid.tile) >= 1
    assert (grid.tiles == 0) == (0 in shape)


def test_covered_names_the_tiles_of_a_rectangle():
    grid = TileGrid((10, 10), (4, 3))
    assert list(grid.covered(4, 3, 6, 6)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert list(grid.covered(8, 9, 2, 1)) == [(2, 3)]
    assert list(grid.covered(4, 3, 0, 3)) == []


@pytest.mark.parametrize(
    ("rectangle", "message"),
    [
        ((1, 0, 4, 3), "rows 1 to 5 cut a tile: begin and end at a multiple of 4, or end at 10"),
        ((0, 0, 4, 4), "columns 0 to 4 cut a tile: begin and end at a multiple of 3, or end at 10"),
        ((8, 0, 4, 3), "rows 8 to 12 lie outside of the matrix, which has 10 rows"),
        ((-4, 0, 4, 3), "rows -4 to 0 lie outside"),
    ],
)
def test_covered_refuses_what_cuts_or_leaves(rectangle, message):
    with pytest.raises(InvalidRequest, match=message):
        TileGrid((10, 10), (4, 3)).covered(*rectangle)
