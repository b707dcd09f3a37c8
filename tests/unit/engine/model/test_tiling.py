"""The cut of a matrix into stripes and pivot blocks."""

from __future__ import annotations

import numpy as np
import pytest

from engine.model.tier import HostTier, mirror
from engine.model.tiling import (
    Tiling,
    pitch,
    stripe_entries,
    updates,
)


@pytest.mark.parametrize("n", [1, 64, 65, 640, 1000])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 192), (128, 256)])
def test_stripes_and_pivots_cover_every_vertex_once(n, height, width):
    cut = Tiling("host", height, width)
    assert [i for s in range(cut.stripes(n)) for i in range(*cut.rows(s, n))] == list(range(n))
    assert [i for k in range(cut.rounds(n)) for i in range(*cut.pivot(k, n))] == list(range(n))
    for k in range(cut.rounds(n)):
        rows = [i for s in cut.members(k, n) for i in range(*cut.rows(s, n))]
        assert rows == list(range(*cut.pivot(k, n)))


@pytest.mark.parametrize("wrong", [("disk", 64, 64), ("host", 63, 63), ("host", 64, 96), ("host", 128, 64)])
def test_odd_cuts_are_refused(wrong):
    with pytest.raises(ValueError, match=r"tier|multiples"):
        Tiling(*wrong)
    with pytest.raises(ValueError, match="resident"):
        Tiling("host", 64, 128, 3, resident=1)


def test_undirected_streams_half():
    whole, half = Tiling("host", 64, 128), Tiling("host", 64, 128, symmetric=True)
    n = 6400
    assert sum(stripe_entries(whole, s, n) for s in range(100)) == n * n
    assert 0.5 <= sum(stripe_entries(half, s, n) for s in range(100)) / n**2 <= 0.51
    assert 0.5 <= updates(half, n) / updates(whole, n) <= 0.52


@pytest.mark.parametrize(("n", "itemsize", "expected"), [(100, 4, 100), (101, 4, 104), (9, 2, 16), (9, 8, 10)])
def test_rows_begin_at_16_bytes(n, itemsize, expected):
    assert pitch(n, itemsize) == expected


@pytest.mark.parametrize("n", [1, 5, 64, 150])
@pytest.mark.parametrize("threads", [1, 3])
def test_mirror(n, threads):
    values = np.random.default_rng(n).integers(0, 99, (n, n))
    expected = np.triu(values) + np.triu(values, 1).T
    mirror(values, threads, 32)
    np.testing.assert_array_equal(values, expected)


def test_the_host_tier_hands_out_views_and_remembers_rounds():
    matrix = np.arange(150 * 150).reshape(150, 150)
    tier = HostTier(matrix, Tiling("host", 64, 64))
    rows = tier.take(2).result()
    assert np.shares_memory(rows, matrix)
    assert rows.shape == (22, 150)
    assert not tier.skip(0, 2)
    tier.give(0, 2, rows)
    assert tier.skip(0, 2)
    assert not tier.skip(1, 2)
    with pytest.raises(ValueError, match="square"):
        HostTier(matrix[:, :100], Tiling("host", 64, 64))
