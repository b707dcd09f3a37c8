"""Distances by repeated squaring on a GPU, as a paper would do it: what ``CudaMatrix.power`` is compared with."""

from __future__ import annotations

from typing import Any

from engine.devices.cuda.launch import Launcher


def power(launcher: Launcher, d: Any, *, hops: int | None = None, symmetric: bool = False) -> Any:
    """Return the lengths of the shortest paths of at most ``hops`` arcs, by binary powers of the one-arc matrix.

    Args:
        launcher: makes the products.
        d: one-arc matrix on the device, shape (n, n).
        hops: most arcs of a path; None for any number.
        symmetric: whether ``d`` is symmetric; then only the upper half of each product is computed.

    Returns:
        A new array on the device, shape (n, n).
    """
    most = max(len(d) - 1, 1)
    left, result, square = most if hops is None else min(hops, most), None, d
    while True:
        if left & 1:
            result = square.copy() if result is None else _product(launcher, result, square, symmetric)
        left >>= 1
        if not left:
            return result
        square = _product(launcher, square, square, symmetric)


def _product(launcher: Launcher, a: Any, b: Any, symmetric: bool) -> Any:
    c = a.copy()
    launcher.relax(c, a, b, upper=symmetric)
    if symmetric:
        launcher.mirror(c)
    return c
