"""Computes min-plus powers of a weight matrix on any device: this module decides which products the device computes.

With zeros on the diagonal, the K-th power of W holds the shortest lengths over at most K arcs.  Either W is squared
again and again, and the squares that the bits of K select are multiplied; or the wanted rows are multiplied by W again
and again.  If a power equals the previous one, all further powers are equal, so the computation ends.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

M = TypeVar("M")


class PowerProducts(Protocol[M]):
    """The products of one device.  Later calls leave results unchanged, unless the docstring of a method says
    otherwise.
    """

    def wanted(self, power: M, *, last: bool) -> M:
        """Return the wanted rows of a power; if ``last``, no product follows, so they may be a view of the power."""
        ...

    def times(self, rows: M, power: M) -> M:
        """Return the wanted rows of the product of two powers; ``rows`` may be overwritten."""
        ...

    def square(self, power: M) -> M:
        """Return the square of ``power``; this may overwrite the matrix whose square is ``power``."""
        ...

    def longer(self, rows: M, weights: M) -> M:
        """Return the lengths of ``rows`` with one arc more; this may overwrite the rows from which ``rows`` were
        made.
        """
        ...

    def same(self, one: M, other: M) -> bool:
        """Return whether two matrices are equal."""
        ...


def by_squares(products: PowerProducts[M], weights: M, hops: int) -> M:
    """Square the weights again and again, and multiply the squares that the bits of ``hops`` select.

    Args:
        products: computes the products.
        weights: the weight matrix, shape (n, n).
        hops: the exponent, at least 1.

    Returns:
        The wanted rows of the power.
    """
    square, result = weights, None
    while True:
        if hops & 1:
            last = hops == 1
            result = products.wanted(square, last=last) if result is None else products.times(result, square)
        hops >>= 1
        if not hops and result is not None:
            return result
        before, square = square, products.square(square)
        if products.same(before, square):
            return products.wanted(square, last=True)


def by_rows(products: PowerProducts[M], weights: M, hops: int) -> M:
    """Multiply the wanted rows by the weights, with one arc more each time.

    Args:
        products: computes the products.
        weights: the weight matrix, shape (n, n).
        hops: the exponent, at least 1.

    Returns:
        The wanted rows of the power.
    """
    rows = products.wanted(weights, last=False)
    for _ in range(hops - 1):
        before, rows = rows, products.longer(rows, weights)
        if products.same(before, rows):
            break
    return rows
