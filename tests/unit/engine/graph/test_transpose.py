"""Reversed arcs, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from engine.graph.transpose import reverse, transposed
from engine.model.backend import Arcs


@settings(deadline=None)
@given(n=st.integers(0, 30), m=st.integers(0, 200), seed=st.integers(0, 2**32), writeable=st.booleans())
def test_the_transpose_is_that_of_scipy(n: int, m: int, seed: int, writeable: bool) -> None:
    """Parallel arcs and loops included, rows in any order, arrays that a file is mapped to, too."""
    rng = np.random.default_rng(seed)
    m = m if n else 0
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rng.integers(0, max(n, 1), m), minlength=n)[:n])))
    heads = rng.integers(0, max(n, 1), m).astype(np.int32)
    indptr.flags.writeable = heads.flags.writeable = writeable
    into, tails, places = transposed(indptr.astype(np.int64, copy=False), heads)
    expected = csr_array((np.arange(m), heads, indptr), shape=(n, n)).tocsc()
    np.testing.assert_array_equal(into, expected.indptr)
    np.testing.assert_array_equal(tails, expected.indices)
    np.testing.assert_array_equal(places, expected.data)
    assert (into.dtype, tails.dtype, places.dtype) == (np.int64, np.int32, np.int64)


@pytest.mark.parametrize("potentials", [None, np.array([3, 0, -2])])
def test_weights_and_potentials_are_reversed(potentials: np.ndarray | None) -> None:  # type: ignore[type-arg]
    big = 2**62 + 1  # exact in int64 only
    arcs = Arcs(np.array([0, 2, 2, 3]), np.array([1, 2, 0], np.int32), np.array([5, big, 7]), potentials)
    back = reverse(arcs)
    assert back.indptr.tolist() == [0, 1, 2, 3]
    assert back.heads.tolist() == [2, 0, 0]
    assert back.weights.tolist() == [7, 5, big]
    assert (back.potentials is None) == (potentials is None)
    assert potentials is None or back.potentials is not None
    if back.potentials is not None:
        assert back.potentials.tolist() == [-3, 0, 2]
