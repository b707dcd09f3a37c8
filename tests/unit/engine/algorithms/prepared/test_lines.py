"""Merging lines against a loop over common ancestors, in every working type."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.prepared.lines import block_lengths, pair_lengths
from engine.model.dtypes import WORK_TYPES

#: A forest of six parts of one to three vertices: 0, 1 below 3; 3, 2 below 4; 5 apart.
PARENTS = np.array([3, 3, 4, 4, -1, -1], np.int32)
SIZES = np.array([2, 1, 3, 2, 2, 1])


def lines_of(dtype, seed):
    """Random tables, some entries unreachable, and the kernels' view of them."""
    kind, rng = WORK_TYPES[dtype], np.random.default_rng(seed)
    wide = SIZES.copy()
    for i in range(len(SIZES) - 1, -1, -1):
        wide[i] += wide[PARENTS[i]] if PARENTS[i] >= 0 else 0
    size = int(SIZES @ wide)
    tables = []
    for _ in range(2):
        table = rng.integers(0, 1000, size).astype(kind.dtype)
        table[rng.random(size) < 0.3] = kind.sentinel()
        tables.append(table)
    part = np.repeat(np.arange(6, dtype=np.int32), SIZES)
    ends = np.cumsum(wide[part])
    limit = kind.dtype.type(kind.largest)
    side = part, ends
    return (PARENTS, wide), tuple(tables), (limit, kind.sentinel()), side, side


def expected(lines, u, v):
    (parents, wide), (forward, backward), (limit, sentinel), (part, ends), _ = lines

    def above(j):
        found = [int(j)]
        while parents[found[-1]] >= 0:
            found.append(int(parents[found[-1]]))
        return found

    common = [j for j in above(part[u]) if j in above(part[v])]
    if not common:
        return sentinel
    count = wide[common[0]]
    sums = forward[ends[u] - count : ends[u]].astype(float) + backward[ends[v] - count : ends[v]]
    return sentinel if sums.min() > limit or np.isinf(sums.min()) else sums.min()


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("seed", range(5))
def test_every_pair(dtype, seed):
    lines = lines_of(dtype, seed)
    n = int(SIZES.sum())
    want = np.array([[expected(lines, u, v) for v in range(n)] for u in range(n)], dtype)
    assert (want == lines[2][1]).any()
    assert (want != lines[2][1]).any()
    everything = np.arange(n)
    block, pairs = np.empty((n, n), dtype), np.empty(n * n, dtype)
    block_lengths(lines, everything, everything, block)
    pair_lengths(lines, *np.divmod(np.arange(n * n), n), pairs)
    np.testing.assert_array_equal(block, want)
    np.testing.assert_array_equal(pairs.reshape(n, n), want)
    one = np.empty((2, 3), dtype)[:, ::-1]
    block_lengths(lines, everything[3:5], everything[:3], one)
    np.testing.assert_array_equal(one, want[3:5, :3])
