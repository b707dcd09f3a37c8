"""What every backend promises; a test class per backend inherits it and says how to make one."""

from __future__ import annotations

import numpy as np
import pytest

from engine.model.dtypes import WORK_TYPES, settle
from tests import oracle

TYPES = list(WORK_TYPES)
SIGNED = ["int32", "float32", "float64"]

#: Rows, depth and columns of products: one entry, thin, ragged on every side, whole tiles, past every packed block.
SHAPES = [(1, 1, 1), (1, 7, 300), (300, 1, 5), (13, 257, 65), (48, 64, 128), (131, 70, 197), (500, 600, 1100)]
SIZES = [1, 2, 63, 64, 65, 129, 200, 321]


def rectangle(rows, columns, seed, *, low=0, high=1000, density=0.7):
    rng = np.random.default_rng(seed)
    values = rng.integers(low, high, (rows, columns)).astype(np.float64)
    values[rng.random((rows, columns)) > density] = np.inf
    return values


class BackendContract:
    """``make`` gives a backend; one that shares its work tests each size that it shares."""

    def make(self):
        raise NotImplementedError

    @pytest.fixture
    def backend(self):
        made = self.make()
        yield made
        made.shutdown()

    def relaxed(self, backend, c, a, b, dtype, **options):
        out = oracle.encode(c, dtype)
        backend.relax(out, oracle.encode(a, dtype), oracle.encode(b, dtype), **options)
        return out

    def test_it_has_a_name_and_threads(self, backend):
        assert backend.name
        assert backend.threads >= 1

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_relax(self, backend, dtype, shape):
        rows, depth, columns = shape
        a, b = rectangle(rows, depth, 1), rectangle(depth, columns, 2)
        c = rectangle(rows, columns, 3, high=500)
        expected = oracle.encode(np.minimum(c, oracle.product(a, b)), dtype)
        for nonnegative in (True, False):
            found = self.relaxed(backend, c, a, b, dtype, nonnegative=nonnegative)
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("dtype", SIGNED)
    def test_relax_with_negative_entries(self, backend, dtype):
        a, b = rectangle(70, 90, 1, low=-500), rectangle(90, 110, 2, low=-500)
        c = rectangle(70, 110, 3, low=-900, high=-600, density=0.3)
        found = self.relaxed(backend, c, a, b, dtype, nonnegative=False)
        settle(found)
        np.testing.assert_array_equal(found, oracle.encode(np.minimum(c, oracle.product(a, b)), dtype))

    @pytest.mark.parametrize("dtype", TYPES)
    def test_sums_are_those_of_the_type(self, backend, dtype):
        rng = np.random.default_rng(4)
        a, b = (rng.random(shape) * 1000 for shape in ((40, 60), (60, 80)))
        a, b = a.astype(dtype), b.astype(dtype)
        expected = (a[:, :, None] + b[None]).min(axis=1)
        for nonnegative in (True, False):
            found = np.full((40, 80), WORK_TYPES[dtype].sentinel())
            backend.relax(found, a, b, nonnegative=nonnegative)
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("dtype", TYPES)
    def test_unreachable_stays_unreachable(self, backend, dtype):
        nothing = np.full((100, 100), np.inf)
        found = self.relaxed(backend, nothing, nothing, nothing, dtype, nonnegative=True)
        assert np.all(found == WORK_TYPES[dtype].sentinel())
        largest = np.full((100, 100), min(WORK_TYPES[dtype].largest, 1e30))
        for a, b in ((nothing, largest), (largest, nothing)):
            found = self.relaxed(backend, nothing, a, b, dtype, nonnegative=True)
            assert np.all(found == WORK_TYPES[dtype].sentinel())

    @pytest.mark.parametrize("dtype", SIGNED)
    def test_unreachable_settles_after_the_longest_fall(self, backend, dtype):
        deepest = WORK_TYPES[dtype].largest_signed if dtype == "int32" else 1e30
        nothing, falls = np.full((9, 9), np.inf), np.full((9, 9), -float(deepest))
        found = self.relaxed(backend, nothing, falls, nothing, dtype, nonnegative=False)
        settle(found)
        assert np.all(found == WORK_TYPES[dtype].sentinel())

    @pytest.mark.parametrize("dtype", TYPES)
    def test_rows_may_lie_apart(self, backend, dtype):
        """Blocks of larger matrices: what is around C is left alone, what is around A and B is not looked at."""
        a, b, c = rectangle(45, 55, 1), rectangle(55, 75, 2), rectangle(45, 75, 3, high=500)
        expected = oracle.encode(np.minimum(c, oracle.product(a, b)), dtype)
        around = [np.zeros((x.shape[0] + 4, x.shape[1] + 9), dtype) for x in (c, a, b)]
        inside = [field[3:-1, 5:-4] for field in around]
        for block, values in zip(inside, (c, a, b), strict=True):
            block[:] = oracle.encode(values, dtype)
        backend.relax(inside[0], inside[1], inside[2], nonnegative=True)
        np.testing.assert_array_equal(inside[0], expected)
        inside[0][:] = 0
        assert not around[0].any()

    @pytest.mark.parametrize("dtype", TYPES)
    def test_a_and_b_may_be_the_same(self, backend, dtype):
        weights = oracle.random_weights(90, seed=5)
        square = oracle.encode(weights, dtype)
        found = square.copy()
        backend.relax(found, square, square, nonnegative=True)
        np.testing.assert_array_equal(found, oracle.encode(oracle.product(weights, weights), dtype))

    @pytest.mark.parametrize("n", [1, 50, 257, 700])
    @pytest.mark.parametrize("dtype", TYPES)
    def test_upper(self, backend, dtype, n):
        weights = oracle.random_weights(n, seed=6, symmetric=True)
        square = oracle.encode(weights, dtype)
        found = square.copy()
        backend.relax(found, square, square, nonnegative=True, upper=True)
        expected = oracle.encode(oracle.product(weights, weights), dtype)
        np.testing.assert_array_equal(np.triu(found), np.triu(expected))
        lower = np.tril_indices(n)
        assert np.all((found[lower] == expected[lower]) | (found[lower] == square[lower]))

    @pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
    def test_nothing_to_relax(self, backend, shape):
        rows, depth, columns = shape
        c = np.ones((rows, columns), np.float32)
        backend.relax(c, np.zeros((rows, depth), np.float32), np.zeros((depth, columns), np.float32), nonnegative=True)
        assert np.all(c == 1)

    def test_what_does_not_match_is_refused(self, backend):
        c, a = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
        with pytest.raises(ValueError, match=r"do not match.*\(2, 3\).*\(2, 4\).*\(3, 3\)"):
            backend.relax(c, a, np.zeros((3, 3), np.float32), nonnegative=True)
        with pytest.raises(ValueError, match="float64"):
            backend.relax(c, a, np.zeros((4, 3)), nonnegative=True)
        with pytest.raises(ValueError, match="contiguous"):
            backend.relax(c, np.zeros((4, 2), np.float32).T, np.zeros((4, 3), np.float32), nonnegative=True)
        with pytest.raises(ValueError, match="square"):
            backend.close(c, nonnegative=True)
        with pytest.raises(ValueError, match="transpose"):
            backend.transpose(c, a)

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("n", SIZES)
    def test_close(self, backend, dtype, n):
        weights = oracle.random_weights(n, seed=n, density=min(1, 2 / n + 0.01))
        expected = oracle.encode(oracle.closure(weights), dtype)
        for nonnegative in (True, False):
            found = oracle.encode(weights, dtype)
            backend.close(found, nonnegative=nonnegative)
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("dtype", SIGNED)
    @pytest.mark.parametrize("n", SIZES)
    def test_close_with_negative_arcs(self, backend, dtype, n):
        weights = oracle.random_weights(n, seed=n, density=min(1, 2 / n + 0.01), negative=True)
        found = oracle.encode(weights, dtype)
        backend.close(found, nonnegative=False)
        settle(found)
        np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), dtype))

    @pytest.mark.parametrize("n", SIZES)
    def test_close_keeps_symmetry_to_the_last_bit(self, backend, n):
        rng = np.random.default_rng(n)
        weights = rng.random((n, n), np.float32)
        weights = np.minimum(weights, weights.T)
        np.fill_diagonal(weights, 0)
        backend.close(weights, nonnegative=True, symmetric=True)
        np.testing.assert_array_equal(weights, weights.T)

    def test_close_inside_a_larger_matrix(self, backend):
        weights = oracle.random_weights(100, seed=8)
        field = np.full((120, 130), -7, np.int32)
        field[10:110, 20:120] = oracle.encode(weights, "int32")
        backend.close(field[10:110, 20:120], nonnegative=True)
        np.testing.assert_array_equal(field[10:110, 20:120], oracle.encode(oracle.closure(weights), "int32"))
        field[10:110, 20:120] = -7
        assert np.all(field == -7)

    def test_a_cycle_of_length_zero_leaves_the_diagonal_at_zero(self, backend):
        """Rings whose length is not below zero, though sums of float32 along them may round to below zero."""
        rng = np.random.default_rng(9)
        below = 0
        for _ in range(100):
            a, b = rng.random(2, np.float32) * np.array([1000, 1], np.float32)
            c = -np.floor(a)
            d = np.float32(-(float(a) + float(b) + float(c)))
            if float(a) + float(b) + float(c) + float(d) < 0:
                d = np.nextafter(d, np.float32(0))
            below += a + b + c + d < 0
            weights = oracle.encode(np.where(np.eye(4) == 1, 0, np.inf), "float32")
            weights[[0, 1, 2, 3], [1, 2, 3, 0]] = [a, b, c, d]
            backend.close(weights, nonnegative=False)
            assert not np.diagonal(weights).any()
            np.testing.assert_allclose(weights[[0, 1, 2, 3], [1, 2, 3, 0]], [a, b, c, d], rtol=1e-5, atol=1e-3)
        assert below > 10

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("shape", [(1, 1), (3, 100), (97, 64), (400, 700)])
    def test_transpose(self, backend, dtype, shape):
        values = np.random.default_rng(1).integers(0, 1000, shape).astype(dtype)
        field = np.zeros((shape[1] + 2, shape[0] + 3), dtype)
        out = field[1:-1, 2:-1]
        backend.transpose(out, values)
        np.testing.assert_array_equal(out, values.T)
        out[:] = 0
        assert not field.any()

    @pytest.mark.parametrize("n", [1, 31, 64, 333])
    def test_transpose_below_the_diagonal(self, backend, n):
        values = np.random.default_rng(1).integers(0, 1000, (n, n)).astype(np.int32)
        found = values.copy()
        backend.transpose(found, found, lower=True)
        np.testing.assert_array_equal(found, np.triu(values) + np.triu(values, 1).T)
