"""Which products make a power, and that a GPU makes those that it made before they were chosen here."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from engine.devices import powers
from engine.devices.cuda.matrix import CudaMatrix
from engine.model.progress import Monitor


class Exponents:
    """Powers by their exponents; equal from ``limit`` on."""

    def __init__(self, limit):
        self.limit, self.products = limit, 0

    def wanted(self, power, *, last):
        return power

    def times(self, rows, power):
        self.products += 1
        return rows + power

    def square(self, power):
        return self.times(power, power)

    def longer(self, rows, weights):
        return self.times(rows, weights)

    def same(self, one, other):
        return min(one, self.limit) == min(other, self.limit)


@pytest.mark.parametrize("hops", range(1, 40))
def test_the_power_that_was_asked_for(hops):
    products = Exponents(1000)
    assert powers.by_squares(products, 1, hops) == hops
    assert products.products == hops.bit_length() - 1 + hops.bit_count() - 1
    assert powers.by_rows(Exponents(1000), 1, hops) == hops


@pytest.mark.parametrize("limit", [1, 2, 5, 9])
def test_a_power_that_equals_the_one_before_it_is_the_last(limit):
    for way, most in ((powers.by_squares, 2 * limit.bit_length() + 2), (powers.by_rows, limit + 1)):
        products = Exponents(limit)
        assert way(products, 1, 2**20) >= limit
        assert products.products <= most


class Arrays:
    """In place of cupy."""

    def asarray(self, values):
        return np.asarray(values)


class Named:
    """A matrix by name; taking rows of it is written down."""

    def __init__(self, name, lines):
        self.name, self.lines = name, lines

    def __getitem__(self, key):
        self.lines.append(f"rows of {self.name} {'all' if isinstance(key, slice) else key.tolist()}")
        return Named(f"({self.name})r", self.lines)


def made(hops, rows, *, by_rows, same_at):
    """What a GPU multiplies and compares, a line each; the comparison number ``same_at`` finds equal powers."""
    lines, matrix, compared = [], CudaMatrix.__new__(CudaMatrix), [0]
    matrix._cupy, matrix._d = Arrays(), Named("W", lines)

    def times(a, b, monitor):
        lines.append(f"{a.name} x {b.name}")
        return Named(f"[{a.name}{b.name}]" if len(a.name) < 30 else f"p{len(lines)}", lines)

    def same(a, b):
        compared[0] += 1
        lines.append(f"{a.name} = {b.name}?")
        return compared[0] == same_at

    matrix._times, matrix._same = times, same
    there = None if rows is None else np.array(rows)
    matrix.power(hops, Monitor(), rows=there, by_rows=by_rows, total=5)
    return [*lines, f"{matrix._d.name} {matrix._gathered}"]


def test_a_gpu_makes_the_products_that_it_made_before():
    told, count = hashlib.sha256(), 0
    for hops in range(1, 20):
        for rows, by_rows in ((None, False), ([1, 3], False), ([1, 3], True)):
            for same_at in range(4):
                lines = made(hops, rows, by_rows=by_rows, same_at=same_at)
                count += len(lines)
                told.update("\n".join(lines).encode())
    assert count == 1734
    assert told.hexdigest() == "ca1b65c63db5fe9afdfc8f4774ea9fdef2b304e2a2c2ed51bd20f98f325b4be1"
