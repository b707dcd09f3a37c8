"""Solves whole matrices on one GPU: by blocked Floyd-Warshall with look-ahead, or by recursive closure.

A round closes the pivot block, relaxes the two panels and then the remainder of the matrix.  Look-ahead: the strips of
the remainder that hold the next pivot block and its panels are relaxed first, on a stream of high priority.  That
stream then closes the next pivot block and relaxes its panels, while another stream relaxes all other tiles of the
remainder.  So the device never waits for a pivot block.

In an undirected graph D is symmetric.  Only tiles on and above the diagonal are relaxed, one panel serves as row panel
and column panel (the column panel is stored transposed, so by symmetry it is the row panel), and the upper half is
mirrored at the end.  So undirected graphs take half the work.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.devices.cuda.context import Modules, allocate
from engine.devices.cuda.launch import Copy, Launcher, Product, Skip, blank
from engine.devices.rounds import Action, RoundOrder
from engine.model import device_layout
from engine.model.device_layout import SINGLE, pivot_width
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero

#: Least and largest n for which repeated squaring in one launch is fastest: it takes log2(n) steps instead of n / 32
#: rounds.
SQUARES: Final = (65, 256)


def tile_side(dtype: object) -> int:
    """Return the unit of padding: the side of a solved matrix is padded to a multiple of this number."""
    return device_layout.tile_side(np.dtype(dtype).itemsize)  # type: ignore[call-overload]


def padded(modules: Modules, n: int, dtype: object) -> Any:
    """Allocate a square matrix for n vertices, and set its padding to unreachable.

    Args:
        modules: the kernels of the device.
        n: the number of vertices.
        dtype: a working type.

    Returns:
        The padded matrix; its first n rows and columns are not cleared.

    Raises:
        DoesNotFit: the matrix does not fit the device's memory.
    """
    side = device_layout.padded_side(n, np.dtype(dtype).itemsize)  # type: ignore[call-overload]
    whole = allocate(modules.cupy, (side, side), dtype)
    blank(modules, whole[n:, :])
    blank(modules, whole[:n, n:])
    return whole


class Solver:
    """Closes square matrices of one working type on one device.

    Args:
        modules: the kernels of the device.
        dtype: the working type.
        nonnegative: whether no arc is negative.
    """

    def __init__(self, modules: Modules, dtype: object, *, nonnegative: bool) -> None:
        cuda = modules.cupy.cuda
        self.modules, self.cupy = modules, modules.cupy
        self.ahead = Launcher(modules, dtype, nonnegative=nonnegative)
        self.bulk = Launcher(modules, dtype, nonnegative=nonnegative)
        self.high = cuda.Stream(non_blocking=True, priority=-5)
        self.low = cuda.Stream(non_blocking=True, priority=0)
        self._panels: dict[tuple[int, int, bool], _Panels] = {}

    def close(
        self, d: Any, *, symmetric: bool = False, width: int | None = None, monitor: Monitor | None = None
    ) -> None:
        """Queue Floyd-Warshall of ``d``, in place, on the current stream.

        Args:
            d: square, on the device; if its side exceeds ``SINGLE``, the side must be a multiple of ``tile_side`` (see
                ``padded``).
            symmetric: whether ``d`` is symmetric, which is not checked.
            width: width of a pivot block; None for the best one.
            monitor: receives updates as rounds finish on the device; with a monitor at most two rounds are queued.

        Raises:
            Cancelled: the monitor asked to stop; the device may still change ``d``.
            BelowZero: there is a negative cycle; only checked between rounds, and only with a monitor.
            ValueError: the side of ``d`` or the width is no multiple of ``tile_side``.
        """
        n = d.shape[0]
        if width is None and n <= SINGLE:
            if not (SQUARES[0] <= n <= SQUARES[1] and self.ahead.squares(d)):
                self.ahead.close(d)
            return
        width = width or pivot_width(n)
        if n % tile_side(d.dtype) or width % tile_side(d.dtype):
            raise ValueError(f"blocked solves need multiples of {tile_side(d.dtype)}; n = {n}, width = {width}")
        key = (n, width, symmetric)
        if key not in self._panels:
            self._panels.clear()
            kind = _SymmetricPanels if symmetric else _Panels
            self._panels[key] = kind(self, n, width)
        self._rounds(d, self._panels[key], width, symmetric, monitor)

    def _rounds(self, d: Any, panels: _Panels, width: int, symmetric: bool, monitor: Monitor | None) -> None:
        event = self.cupy.cuda.Event
        n, high, low = d.shape[0], self.high, self.low
        entries = n * (n + 1) // 2 if symmetric else n * n
        outer = self.cupy.cuda.get_current_stream()
        begun, prepared, relaxed, before = (event(disable_timing=True) for _ in range(4))
        begun.record(outer)
        high.wait_event(begun)
        low.wait_event(begun)
        for k, steps in RoundOrder(-(-n // width), ahead=True, queued=True).rounds():
            for action, about in steps:
                start = about * width
                if action is Action.CLOSE:
                    with high:
                        panels.prepare(d, start)
                        self.ahead.send_flag()
                    prepared = event(disable_timing=True)
                    prepared.record(high)
                elif action is Action.STRIPS:
                    if start:
                        high.wait_event(relaxed)
                    with high:
                        panels.strips(d, start)
                elif action is Action.REST:
                    low.wait_event(prepared)  # the panels are prepared on stream ``high``
                    with low:
                        panels.rest(d, start)
                    before, relaxed = relaxed, event(disable_timing=True)
                    relaxed.record(low)
            if monitor is not None and k:
                before.synchronize()
                self._check_flag()  # at least the flag that was sent when panel k - 1 was closed has arrived
                monitor.step(entries * width)
        if monitor is not None:
            relaxed.synchronize()
            monitor.step(entries * (n - (n - 1) // width * width))
        outer.wait_event(relaxed)
        done = event(disable_timing=True)
        done.record(high)
        outer.wait_event(done)
        if symmetric:
            self.bulk.mirror(d)

    def _check_flag(self) -> None:
        """Raise BelowZero if the flag is set and entries are integers; for floats the flag proves nothing, because
        rounding can make the length of a cycle of length zero negative.
        """
        if self.ahead.dtype.kind == "i" and self.ahead.sent_flag():
            raise BelowZero("the distance of a vertex to itself became negative, so there is a negative cycle")

    def recursive(self, d: Any, *, base: int = 1024, symmetric: bool = False, monitor: Monitor | None = None) -> None:
        """Close ``d`` by halves (R-Kleene).  Close the first diagonal quarter, and relax the panels and the other
        diagonal quarter by it; then close the other diagonal quarter, and relax the panels and the first one by it.

        Args:
            d: square, on the device, its side a multiple of ``tile_side``; changed in place.
            base: blocks of at most this side are closed in one launch (``Launcher.close``).
            symmetric: whether ``d`` is symmetric, which is not checked; then one panel serves as row and column panel,
                and only the part of each diagonal quarter on and above its diagonal is relaxed.
            monitor: receives updates as they finish on the device; in a symmetric matrix each update counts twice,
                because it stands for its mirror image, too.

        Raises:
            Cancelled: the monitor asked to stop.
            BelowZero: there is a negative cycle (see ``close``).
        """
        n = d.shape[0]
        if n <= base:
            self.ahead.close(d)
            if symmetric:  # thread blocks work concurrently, so the two triangles may differ in their last bits
                self.ahead.mirror(d)
            self.ahead.send_flag()
            self._step(n**3, monitor)
            return
        half = -(-(n // 2) // tile_side(d.dtype)) * tile_side(d.dtype)
        a, b, c, e = d[:half, :half], d[:half, half:], d[half:, :half], d[half:, half:]

        def relax(x: Any, y: Any, z: Any) -> None:
            self.ahead.relax(x, y, z)
            self._step(x.shape[0] * y.shape[1] * x.shape[1], monitor)

        def carry(x: Any, y: Any, z: Any) -> None:
            """Relax all other quarters of a symmetric matrix after one diagonal quarter is closed.

            Relax panel ``b`` by ``y`` (x) ``z``, and set panel ``c`` to the transpose of ``b``.  Then relax the other
            diagonal quarter ``x`` on and above the diagonal, and mirror it.
            """
            self.ahead.relax(b, y, z)
            self.ahead.pack([Copy(b, c, transposed=True)])
            first, second = (c, b) if x is e else (b, c)
            self.ahead.relax(x, first, second, upper=True)
            self.ahead.mirror(x)
            self._step(2 * b.size * y.shape[1] + x.shape[0] ** 2 * first.shape[1], monitor)

        self.recursive(a, base=base, symmetric=symmetric, monitor=monitor)
        if symmetric:
            carry(e, a, b)
        else:
            relax(b, a, b)
            relax(c, c, a)
            relax(e, c, b)
        self.recursive(e, base=base, symmetric=symmetric, monitor=monitor)
        if symmetric:
            carry(a, b, e)
        else:
            relax(b, b, e)
            relax(c, e, c)
            relax(a, b, c)

    def _step(self, updates: int, monitor: Monitor | None) -> None:
        if monitor is not None:
            self.cupy.cuda.get_current_stream().synchronize()
            self._check_flag()
            monitor.step(updates)

    def forget_negative(self) -> None:
        """Reset the flag that ``found_negative`` reads."""
        self.ahead.forget_negative()
        self.bulk.forget_negative()

    def found_negative(self) -> bool:
        """Return whether a diagonal entry fell below zero since ``forget_negative``; waits for the device."""
        return self.ahead.found_negative() or self.bulk.found_negative()

    def release(self) -> None:
        """Free all scratch memory."""
        self._panels.clear()
        self.ahead.release()
        self.bulk.release()


class _Panels:
    """The panels of a directed matrix: packed copies, and the relaxed column panels of this round and of the next."""

    def __init__(self, solver: Solver, n: int, width: int) -> None:
        self.ahead, self.bulk, self.n, self.width = solver.ahead, solver.bulk, n, width
        cupy, word, dtype = solver.cupy, self.ahead.word, self.ahead.dtype
        # both products of a launch must have the same leading dimension, so the pivot block is stored next to the panel
        self.form_a = allocate(cupy, (width, n + width), word)
        self.form_b = allocate(cupy, (width, n + width), dtype)
        self.columns = [allocate(cupy, (width, n), word) for _ in range(2)]

    def prepare(self, d: Any, start: int) -> None:
        """Close the pivot block at ``start``, relax its panels, and pack the column panel."""
        n, stop = self.n, min(start + self.width, self.n)
        b = stop - start
        pivot, row, column = d[start:stop, start:stop], d[start:stop], d[:, start:stop]
        column_a, pivot_a = self.form_a[:b, :n], self.form_a[:b, n : n + b]
        row_b, pivot_b = self.form_b[:b, :n], self.form_b[:b, n : n + b]
        self.ahead.close(pivot)
        self.ahead.pack(
            [
                Copy(pivot, pivot_a, transposed=True, spread=True),
                Copy(pivot, pivot_b),
                Copy(row, row_b),
                Copy(column, column_a, transposed=True, spread=True),
            ]
        )
        own = (start, stop)
        self.ahead.products(
            [
                Product(row, pivot_a, row_b, Skip(columns=own)),
                Product(column, column_a, pivot_b, Skip(rows=own)),
            ]
        )
        self.ahead.pack([Copy(column, self._columns(start, b), transposed=True, spread=True)])

    def strips(self, d: Any, start: int) -> None:
        """Relax the rows and columns of the next pivot block by the panels of the pivot block at ``start``."""
        first, stop = start + self.width, min(start + 2 * self.width, self.n)
        a, b = self._columns(start, self.width), d[start:first]
        self.ahead.products(
            [
                Product(d[first:stop], a[:, first:stop], b, Skip(columns=(start, first))),
                Product(d[:, first:stop], a, b[:, first:stop], Skip(rows=(start, stop))),
            ]
        )

    def rest(self, d: Any, start: int) -> None:
        """Relax the matrix except the panels of this round and the strips of the next pivot block."""
        first, stop = min(start + self.width, self.n), min(start + 2 * self.width, self.n)
        done = (start, stop)
        a = self._columns(start, first - start)
        self.bulk.products([Product(d, a, d[start:first], Skip(done, done))])

    def _columns(self, start: int, b: int) -> Any:
        return self.columns[start // self.width % 2][:b]


class _SymmetricPanels(_Panels):
    """The single panel of a symmetric matrix: whole rows of the pivot block.  D is valid only on and above its
    diagonal.
    """

    def __init__(self, solver: Solver, n: int, width: int) -> None:
        self.ahead, self.bulk, self.n, self.width = solver.ahead, solver.bulk, n, width
        cupy, word, dtype = solver.cupy, self.ahead.word, self.ahead.dtype
        self.pivot_a = allocate(cupy, (width, width), word)
        self.form_b = allocate(cupy, (width, n), dtype)
        self.rows = [allocate(cupy, (width, n), dtype) for _ in range(2)]
        narrow = word.itemsize != dtype.itemsize
        self.columns = [allocate(cupy, (width, n), word) for _ in range(2)] if narrow else self.rows
        self.narrow = narrow

    def prepare(self, d: Any, start: int) -> None:
        stop = min(start + self.width, self.n)
        b = stop - start
        pivot, rows, form_b = d[start:stop, start:stop], self._rows(start, b), self.form_b[:b]
        above, right = d[:start, start:stop], d[start:stop, start:]
        pivot_a = self.pivot_a[:b, :b]
        self.ahead.mirror(pivot)
        self.ahead.close(pivot)
        copies = [Copy(right, to[:, start:]) for to in (rows, form_b)]
        if start:
            copies += [Copy(above, to[:, :start], transposed=True) for to in (rows, form_b)]
        self.ahead.pack([*copies, Copy(pivot, pivot_a, spread=True)])
        self.ahead.products([Product(rows, pivot_a, form_b)])
        back = [Copy(rows[:, start:], right)]
        if start:
            back.append(Copy(rows[:, :start], above, transposed=True))
        if self.narrow:
            back.append(Copy(rows, self._columns(start, b), spread=True))
        self.ahead.pack(back)

    def strips(self, d: Any, start: int) -> None:
        first, stop = start + self.width, min(start + 2 * self.width, self.n)
        a, b = self._columns(start, self.width), self._rows(start, self.width)
        items = [Product(d[first:stop, first:], a[:, first:stop], b[:, first:])]
        if start:
            items.append(Product(d[:start, first:stop], a, b[:, first:stop]))
        self.ahead.products(items)

    def rest(self, d: Any, start: int) -> None:
        first, stop = min(start + self.width, self.n), min(start + 2 * self.width, self.n)
        done = (start, stop)
        b = first - start
        self.bulk.products([Product(d, self._columns(start, b), self._rows(start, b), Skip(done, done))], upper=True)

    def _rows(self, start: int, b: int) -> Any:
        return self.rows[start // self.width % 2][:b]
