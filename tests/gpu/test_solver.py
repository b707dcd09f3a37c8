"""Whole matrices on the device: rounds with look-ahead, the undirected half, recursion, powers; the backend's verbs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.kernels.gpu_squaring import power
from engine.devices.cuda.context import modules
from engine.devices.cuda.floyd_warshall import Solver, padded, tile_side
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from tests.gpu.cuda_backend import CudaBackend
from tests.gpu.samples import closure, entries, product, weights

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng


def _solver(dtype: str) -> Solver:
    return Solver(modules(), dtype, nonnegative=True)


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("n", "width"), [(300, 256), (700, 256), (1000, 512), (1100, 256)])
def test_rounds(cupy: Any, dtype: str, symmetric: bool, n: int, width: int) -> None:
    d = weights(RNG(n), n, dtype, share=0.02, symmetric=symmetric)
    whole = padded(modules(), n, dtype)
    whole[:n, :n] = cupy.asarray(d)
    _solver(dtype).close(whole, symmetric=symmetric, width=width)
    np.testing.assert_array_equal(whole[:n, :n].get(), closure(d))


@pytest.mark.parametrize("symmetric", [False, True])
def test_rounds_repeat(cupy: Any, symmetric: bool) -> None:
    """The streams of look-ahead leave no room for a race: the same matrix again and again."""
    n = 2048
    d = cupy.asarray(weights(RNG(8), n, "int32", share=0.01, symmetric=symmetric))
    want, solver = d.copy(), _solver("int32")
    solver.ahead.close(want)
    for width in (256, 512, 1024) * 10:
        got = d.copy()
        solver.close(got, symmetric=symmetric, width=width)
        assert bool((got == want).all()), width


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("n", [1000, 1300])
def test_recursive(cupy: Any, dtype: str, symmetric: bool, n: int) -> None:
    d = weights(RNG(9), n, dtype, share=0.02, symmetric=symmetric)
    there = cupy.asarray(d)
    _solver(dtype).recursive(there, base=256, symmetric=symmetric)
    np.testing.assert_array_equal(there.get(), closure(d))


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("hops", [1, 2, 3, 6, None])
@pytest.mark.parametrize("symmetric", [False, True])
def test_square(cupy: Any, dtype: str, hops: int | None, symmetric: bool) -> None:
    d = weights(RNG(10), 150, dtype, share=0.02, symmetric=symmetric)
    want = closure(d)
    if hops is not None:
        want = d
        for _ in range(hops - 1):
            want = product(want, want, d)
    got = power(_solver(dtype).bulk, cupy.asarray(d), hops=hops, symmetric=symmetric)
    np.testing.assert_array_equal(got.get(), want)


@pytest.mark.parametrize("dtype", WORK_TYPES)
def test_backend_takes_host_and_device_arrays(cupy: Any, dtype: str) -> None:
    rng = RNG(11)
    c, a, b = (entries(rng, s, dtype, False) for s in ((70, 90), (70, 33), (33, 90)))
    backend, want = CudaBackend(), product(c, a, b)
    there = cupy.asarray(c)
    backend.relax(there, cupy.asarray(a), cupy.asarray(b), nonnegative=True)
    np.testing.assert_array_equal(there.get(), want)
    framed = np.full((75, 99), 5, dtype)
    framed[2:72, 4:94] = c
    backend.relax(framed[2:72, 4:94], a, b, nonnegative=True)
    np.testing.assert_array_equal(framed[2:72, 4:94], want)
    assert (framed[:2] == 5).all()
    assert (framed[:, :4] == 5).all()
    d = weights(rng, 150, dtype)
    want = closure(d)
    backend.close(d, nonnegative=True)
    np.testing.assert_array_equal(d, want)
    backend.shutdown()


@pytest.mark.parametrize("symmetric", [False, True])
def test_large_matrices_of_the_host(cupy: Any, symmetric: bool) -> None:
    """Beyond the single kernel and ragged: equal, bit for bit, to the recursive order."""
    n = 4000 + 77
    d = weights(RNG(12), n, "float32", share=0.002, symmetric=symmetric)
    other = cupy.asarray(d)
    _solver("float32").recursive(other)
    backend = CudaBackend()
    backend.close(d, nonnegative=True, symmetric=symmetric)
    np.testing.assert_array_equal(d, other.get())
    backend.shutdown()


def test_a_negative_cycle_is_forgotten_by_the_next_solve(cupy: Any) -> None:
    n = 4100
    d = weights(RNG(13), n, "int32", share=0.002)
    bad = d.copy()
    bad[0, 1], bad[1, 0] = 1, -5
    backend, other = CudaBackend(), cupy.asarray(d)
    backend.floyd_warshall(bad, nonnegative=False, monitor=Monitor())
    backend.floyd_warshall(d, nonnegative=False, monitor=Monitor())
    _solver("int32").recursive(other)
    np.testing.assert_array_equal(d, other.get())
    backend.shutdown()


def test_padding_follows_the_tile(cupy: Any) -> None:
    for dtype in WORK_TYPES:
        whole = padded(modules(), 130, dtype)
        assert whole.shape == (-(-130 // tile_side(dtype)) * tile_side(dtype),) * 2
        assert bool((whole[130:] == WORK_TYPES[dtype].sentinel()).all())
        assert bool((whole[:130, 130:] == WORK_TYPES[dtype].sentinel()).all())
