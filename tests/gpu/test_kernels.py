"""Every kernel, every working type, ragged shapes, against the obvious answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.devices.cuda.context import Modules, modules
from engine.devices.cuda.launch import Copy, Launcher
from engine.model.dtypes import WORK_TYPES
from tests.gpu.samples import KINDS, closure, entries, product, weights

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng

SHAPES = [(1, 1, 1), (7, 3, 5), (128, 128, 16), (129, 257, 17), (200, 300, 100), (256, 512, 64), (33, 1000, 130)]


def _launcher(dtype: str, signed: bool) -> Launcher:
    return Launcher(modules(), dtype, nonnegative=not signed)


def _poisoned(cupy: Any, x: np.ndarray[Any, Any], extra: int, offset: int) -> tuple[Any, Any]:
    """``x`` inside a larger poisoned matrix on the device: (the view, the whole)."""
    whole = cupy.full((x.shape[0] + 2, x.shape[1] + extra + offset), 77, x.dtype)
    view = whole[1:-1, offset : offset + x.shape[1]]
    view[:] = cupy.asarray(x)
    return view, whole


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("extra", "offset"), [(0, 0), (8, 8), (3, 1)])
def test_relax(cupy: Any, dtype: str, signed: bool, shape: tuple[int, int, int], extra: int, offset: int) -> None:
    m, n, k = shape
    rng = RNG(m * n + k)
    c, a, b = (entries(rng, s, dtype, signed) for s in ((m, n), (m, k), (k, n)))
    views = [_poisoned(cupy, x, extra, offset) for x in (c, a, b)]
    _launcher(dtype, signed).relax(*(v for v, _ in views))
    np.testing.assert_array_equal(views[0][0].get(), product(c, a, b))
    whole = views[0][1].get()
    whole[1:-1, offset : offset + n] = 77
    assert (whole == 77).all(), "entries beside C were written"
    for (view, _), x in zip(views[1:], (a, b), strict=True):
        np.testing.assert_array_equal(view.get(), x)


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
def test_relax_in_place_panel(cupy: Any, dtype: str, signed: bool) -> None:
    """C and B the same rows of one matrix: what is packed first makes it right."""
    d = entries(RNG(1), (96, 400), dtype, signed)
    a = entries(RNG(2), (96, 96), dtype, signed)
    there = cupy.asarray(d)
    _launcher(dtype, signed).relax(there, cupy.asarray(a), there)
    np.testing.assert_array_equal(there.get(), product(d, a, d))


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("n", [5, 128, 300, 2500])
def test_relax_upper(cupy: Any, dtype: str, n: int) -> None:
    rng = RNG(n)
    d = entries(rng, (n, n), dtype, False)
    a = entries(rng, (n, 20), dtype, False)
    b = np.ascontiguousarray(a.T)
    d = np.minimum(d, d.T)
    there = cupy.asarray(d)
    _launcher(dtype, False).relax(there, cupy.asarray(a), cupy.asarray(b), upper=True)
    np.testing.assert_array_equal(np.triu(there.get()), np.triu(product(d, a, b)))


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
def test_long_depth_is_cut_into_slabs(cupy: Any, dtype: str, signed: bool) -> None:
    rng = RNG(3)
    c, a, b = (entries(rng, s, dtype, signed) for s in ((40, 50), (40, 5000), (5000, 50)))
    there = cupy.asarray(c)
    _launcher(dtype, signed).relax(there, cupy.asarray(a), cupy.asarray(b))
    np.testing.assert_array_equal(there.get(), product(c, a, b))


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (31, 65), (128, 40)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("spread", [False, True])
def test_pack(cupy: Any, dtype: str, shape: tuple[int, int], transposed: bool, spread: bool) -> None:
    x = entries(RNG(4), shape, dtype, False)
    launcher = _launcher(dtype, False)
    rows, columns = shape[::-1] if transposed else shape
    to = cupy.full((rows + 5, columns + 7), 9, launcher.word if spread else dtype)
    launcher.pack([Copy(cupy.asarray(x), to, transposed=transposed, spread=spread)])
    want = np.full(to.shape, WORK_TYPES[dtype].sentinel(), dtype)
    want[:rows, :columns] = x.T if transposed else x
    got = to.get()
    if spread and dtype == "uint16":
        np.testing.assert_array_equal(got & 0xFFFF, got >> 16)
        got = got & 0xFFFF
    elif spread:
        got = got.view(dtype)
    np.testing.assert_array_equal(got.astype(dtype), want)


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("n", [1, 31, 64, 200])
def test_mirror(cupy: Any, dtype: str, n: int) -> None:
    x = entries(RNG(5), (n, n), dtype, False)
    there = cupy.asarray(x)
    _launcher(dtype, False).mirror(there)
    np.testing.assert_array_equal(there.get(), np.triu(x) + np.triu(x, 1).T)


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 64, 65, 100, 128, 200, 333])
def test_single(cupy: Any, dtype: str, signed: bool, side: int, n: int) -> None:
    rng = RNG(n)
    d = weights(rng, n, dtype)
    there, whole = _poisoned(cupy, d, 3, 1)
    _launcher(dtype, signed).close(there, side=side)
    np.testing.assert_array_equal(there.get(), closure(d))
    rest = whole.get()
    rest[1:-1, 1 : 1 + n] = 77
    assert (rest == 77).all(), "entries beside the block were written"


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
@pytest.mark.parametrize("n", [33, 61, 100, 333, 700])
def test_single_ragged_in_aligned_rows(cupy: Any, dtype: str, signed: bool, n: int) -> None:
    """Tiles inside the matrix are moved 16 bytes at a time, those on its edge entry by entry."""
    d = weights(RNG(n), n, dtype)
    there, whole = _poisoned(cupy, d, 16 - n % 8, 8)
    assert there.data.ptr % 16 == 0
    assert there.strides[0] % 16 == 0
    _launcher(dtype, signed).close(there, side=64)
    np.testing.assert_array_equal(there.get(), closure(d))
    rest = whole.get()
    rest[1:-1, 8 : 8 + n] = 77
    assert (rest == 77).all(), "entries beside the block were written"


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("n", [40, 64, 200])
def test_single_negative_arcs(cupy: Any, dtype: str, n: int) -> None:
    rng = RNG(n)
    h = rng.integers(0, 500, n)
    d = weights(rng, n, dtype).astype(np.float64)
    if dtype == "int32":
        d[d == WORK_TYPES[dtype].unreachable] = np.inf
    d += h[:, None] - h[None, :]
    want = closure(d)
    launcher = _launcher(dtype, True)
    kind = WORK_TYPES[dtype]
    there = cupy.asarray(np.where(np.isinf(d), kind.unreachable, d).astype(dtype))
    launcher.close(there)
    got = there.get().astype(np.float64)
    if kind.integer:
        got[got > kind.largest_signed] = np.inf
    np.testing.assert_array_equal(got, want)
    assert not launcher.found_negative()


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("n", [3, 64, 130])
def test_single_reports_a_negative_cycle(cupy: Any, dtype: str, n: int) -> None:
    d = np.full((n, n), WORK_TYPES[dtype].sentinel(), dtype)
    np.fill_diagonal(d, 0)
    d[0, n - 1], d[n - 1, 1], d[1, 0] = 5, -9, 3
    launcher = _launcher(dtype, True)
    launcher.close(cupy.asarray(d))
    assert launcher.found_negative()


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize(("graphs", "n"), [(1, 64), (7, 20), (300, 64), (40, 100), (9, 256)])
@pytest.mark.parametrize("side", [32, 64])
def test_bulk(cupy: Any, dtype: str, graphs: int, n: int, side: int) -> None:
    rng = RNG(graphs)
    stack = np.stack([weights(rng, n, dtype) for _ in range(graphs)])
    there = cupy.asarray(stack)
    _launcher(dtype, False).close(there, side=side, group=4 if graphs == 40 else None)
    got = there.get()
    for i in {0, graphs // 2, graphs - 1}:
        np.testing.assert_array_equal(got[i], closure(stack[i]))


@pytest.mark.parametrize("blocks", [1, 2, 5, 500])
def test_single_finishes_with_any_number_of_blocks(cupy: Any, blocks: int) -> None:
    """One block, an odd few, and more than can be resident."""
    d = weights(RNG(6), 500, "float32")
    there = cupy.asarray(d)
    _launcher("float32", False).close(there, side=32, blocks=blocks * 20 if blocks == 500 else blocks)
    np.testing.assert_array_equal(there.get(), closure(d))


@pytest.mark.parametrize("n", [97, 259, 700])
def test_single_repeats(cupy: Any, n: int) -> None:
    """A thousand launches over the same counters and flags: no hang, no difference."""
    d = cupy.asarray(weights(RNG(7), n, "int32", share=0.05))
    launcher = _launcher("int32", False)
    want = d.copy()
    launcher.close(want)
    np.testing.assert_array_equal(want.get()[:200, :200], closure(d.get())[:200, :200])
    wrong = cupy.zeros((), "i8")
    for _ in range(1000):
        again = d.copy()
        launcher.close(again)
        wrong += (again != want).any()
    assert int(wrong) == 0


def _path(n: int, dtype: str) -> np.ndarray[Any, Any]:
    """One path through all vertices: it needs every step of repeated squaring."""
    d = np.full((n, n), WORK_TYPES[dtype].sentinel(), dtype)
    order = RNG(n).permutation(n)
    d[order[:-1], order[1:]] = RNG(n).integers(1, 100, n - 1)
    np.fill_diagonal(d, 0)
    return d


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
@pytest.mark.parametrize(("extra", "offset"), [(0, 0), (8, 8), (3, 1)])
def test_squares(cupy: Any, dtype: str, signed: bool, extra: int, offset: int) -> None:
    launcher = _launcher(dtype, signed)
    for n in (2, 3, 4, 5, 31, 64, 65, 96, 97, 127, 128, 129, 159, 160, 192, 193, 223, 225, 250, 255, 256):
        for d in (weights(RNG(n), n, dtype), weights(RNG(n), n, dtype, share=3 / n), _path(n, dtype)):
            expected = closure(d)
            for start in (d, expected):
                there, whole = _poisoned(cupy, start, extra, offset)
                assert launcher.squares(there)
                np.testing.assert_array_equal(there.get(), expected, err_msg=str(n))
                there[:] = 77
                assert (whole == 77).all(), "entries beside the matrix were written"


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
def test_a_device_with_64_kib_of_shared_memory(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, signed: bool
) -> None:
    """Compute capability 7.5 has no more for a thread block: no kernel asks for more, and all answers are right."""
    launcher, asked, get = _launcher(dtype, signed), [], Modules.get

    def noted(self: Modules, name: str, arithmetic: Any, shared: int = 0) -> Any:
        asked.append(shared)
        return get(self, name, arithmetic, shared)

    monkeypatch.setattr(Modules, "get", noted)
    monkeypatch.setattr(launcher.modules, "shared", 2**16)
    for n in (5, 64, 65, 96, 129, 200, 256, 700):
        d = weights(RNG(n), n, dtype, share=3 / n)
        there = cupy.asarray(d)
        took = launcher.squares(there)
        assert took == (n <= (160 if dtype == "float64" else 256)), n
        if not took:
            launcher.close(there)
        np.testing.assert_array_equal(there.get(), closure(d), err_msg=str(n))
        there = cupy.asarray(d)
        launcher.close(there)
        np.testing.assert_array_equal(there.get(), closure(d), err_msg=str(n))
    assert max(asked) <= 2**16


def test_squares_tell_their_steps_apart(cupy: Any) -> None:
    """Stamps of steps go on from launch to launch, over sizes and the largest stamp."""
    launcher = _launcher("float32", False)
    cases = [(cupy.asarray(d), closure(d)) for d in (_path(n, "float32") for n in (256, 70, 200, 128))]
    launcher._stamp = 2**32 - 500
    for _ in range(100):
        for d, expected in cases:
            there = d.copy()
            assert launcher.squares(there)
            np.testing.assert_array_equal(there.get(), expected)
    assert launcher._stamp < 2**31
