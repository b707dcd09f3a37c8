"""Launches of the kernels: their argument structs, grids and scratch memory.

Arrays are cupy arrays of two dimensions, contiguous in their last axis, of one working type.  A *launcher* serves one
stream at a time, because consecutive launches share its counters and flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from engine.devices.cuda.code.kernel_set import (
    ARITHMETICS,
    KERNELS,
    POWER_MOST,
    Arithmetic,
    power_shared,
    single_shared,
)
from engine.devices.cuda.context import Modules, allocate
from engine.model.device_layout import SLAB
from engine.model.dtypes import work_type

_SKIPS: Final = ("skip_m0", "skip_m1", "skip_n0", "skip_n1")
_COUNTS: Final = ("m", "n", "last_b", "tiles_m", "tiles_n", *_SKIPS, "vector")
_PRODUCT: Final = np.dtype([*((f, "u8") for f in ("a", "b", "c")), *((f, "i4") for f in _COUNTS)], align=True)
_COMMON: Final = (("lda", "i8"), ("ldb", "i8"), ("ldc", "i8"), ("depth", "i4"), ("first", "i4"), ("upper", "i4"))
_PRODUCTS: Final = np.dtype([("product", _PRODUCT, 2), *_COMMON, ("one", "u4")], align=True)
_JOB: Final = np.dtype(
    [("from", "u8"), ("to", "u8"), ("ld_from", "i8"), ("ld_to", "i8")]
    + [(f, "i4") for f in ("rows", "columns", "to_rows", "to_columns", "transposed", "spread", "blocks")],
    align=True,
)
_MOST_JOBS: Final = 6
_JOBS: Final = np.dtype([("job", _JOB, _MOST_JOBS), ("count", "i4")], align=True)
_BLOCK: Final = np.dtype(
    [("d", "u8"), ("ld", "i8"), ("stride", "i8")]
    + [(f, "i4") for f in ("n", "tiles", "graphs", "group", "aligned", "base")]
    + [("drawn", "u4"), ("counter", "u8"), ("flags", "u8"), ("negative", "u8")],
    align=True,
)
_SQUARE: Final = np.dtype(
    [
        *((f, "u8") for f in ("d", "even", "odd", "state", "negative")),
        ("ld", "i8"),
        *((f, "i4") for f in ("n", "padded", "steps", "aligned")),
        ("stamp", "u4"),
    ],
    align=True,
)
_DEPTH_STEP: Final = 16  # the depth of relax is a multiple of this
_SMALL: Final = 800  # for 65 up to this many vertices the single kernel is fastest with tiles of side 32
_WIDE: Final = (65, 1280)  # between these numbers of vertices tiles of side 64 are fastest with 256 threads
_RESIDENT: Final = MappingProxyType({"single32": 5, "single64": 4, "single64wide": 2})  # blocks per multiprocessor
_WRAP: Final = 2**30


def leading(x: Any) -> int:
    """Return the leading dimension of a two-dimensional array: the stride of its rows, in entries."""
    return int(x.strides[0]) // int(x.itemsize) if x.shape[0] > 1 else max(int(x.shape[1]), 1)


def blank(modules: Modules, rows: Any) -> None:
    """Queue the clearing of rows on the current stream: every entry becomes unreachable.

    The kernel ``blank`` is used, because an assignment by cupy would have to compile a kernel first.

    Args:
        modules: the kernels of the device.
        rows: shape (rows, columns), contiguous in its last axis, of a working type.
    """
    if rows.size:
        arithmetic = ARITHMETICS[work_type(rows.dtype).name, False]
        count, columns = rows.shape
        modules.get("blank", arithmetic)((count,), (256,), (rows, np.int64(leading(rows)), np.int32(columns)))


def _round_up(x: int, to: int) -> int:
    return -(-x // to) * to


def _aligned(x: Any) -> bool:
    return int(x.data.ptr) % 16 == 0 and leading(x) * int(x.itemsize) % 16 == 0


@dataclass(frozen=True)
class Skip:
    """Half-open ranges of rows and columns of C that a product leaves unchanged; they begin and end at tile borders."""

    rows: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Product:
    """C <- min(C, A (x) B) over packed operands: ``a`` is transposed and holds words, shape (depth, m padded); ``b``
    has shape (depth, n).
    """

    c: Any
    a: Any
    b: Any
    skip: Skip = Skip()


@dataclass(frozen=True)
class Copy:
    """One copy by the pack kernel: ``to`` becomes ``source`` (or its transpose), padded with unreachable; with
    ``spread``, each entry is copied to all lanes of a word.
    """

    source: Any
    to: Any
    transposed: bool = False
    spread: bool = False


class Launcher:
    """The kernels of one device for one arithmetic, with the scratch memory of one stream.

    Args:
        modules: the kernels of the device.
        dtype: the working type.
        nonnegative: whether no arc is negative.
    """

    def __init__(self, modules: Modules, dtype: object, *, nonnegative: bool) -> None:
        kind = work_type(np.dtype(dtype))  # type: ignore[call-overload]
        self.modules, self.cupy, self.dtype = modules, modules.cupy, kind.dtype
        self.arithmetic: Arithmetic = ARITHMETICS[kind.name, kind.largest_signed >= 0 and not nonnegative]
        self.word = np.dtype({4: "u4", 8: "f8"}[self.arithmetic.word])
        self._scratch: dict[str, Any] = {}
        self._base, self._drawn = 0, 0
        self._stamp = 2  # of the next step of repeated squaring; the state of the kernel begins with 0
        self._counter: Any = None
        self.negative: Any = None
        self._sent: Any = None

    # ---- relax ------------------------------------------------------------------------------------------------------

    def relax(self, c: Any, a: Any, b: Any, *, upper: bool = False) -> None:
        """Queue C <- min(C, A (x) B) for any shapes; A, and B unless it is aligned, are packed first.

        Args:
            c: shape (m, n), changed in place.
            a: shape (m, depth).
            b: shape (depth, n).
            upper: whether to leave out tiles wholly below the diagonal of C.
        """
        depth = a.shape[1]
        if 0 in c.shape:
            return
        for k in range(0, depth, SLAB):
            self._relax_slab(c, a[:, k : k + SLAB], b[k : k + SLAB], upper)

    def _relax_slab(self, c: Any, a: Any, b: Any, upper: bool) -> None:
        (m, k), n = a.shape, b.shape[1]
        depth, m_padded = _round_up(k, _DEPTH_STEP), _round_up(m, self.arithmetic.tile[0])
        packed_a = self._buffer("a", (depth, m_padded), self.word)
        jobs = [Copy(a, packed_a, transposed=True, spread=True)]
        direct = _aligned(b) and n * b.itemsize % 16 == 0 and depth == k and not _overlap(b, c)
        if not direct:
            packed_b = self._buffer("b", (depth, _round_up(n, 16)), self.dtype)
            jobs.append(Copy(b, packed_b))
            b = packed_b
        self.pack(jobs)
        self.products([Product(c, packed_a, b)], upper=upper)

    def products(self, items: Sequence[Product], *, upper: bool = False) -> None:
        """Queue one launch of one or two products; both must have the same leading dimensions and the same depth."""
        first = items[0]
        arguments = np.zeros((), _PRODUCTS)
        tile_m, tile_n = self.arithmetic.tile
        blocks = 0
        for slot, p in zip(arguments["product"], items, strict=False):
            m, n = p.c.shape
            tiles_m, tiles_n = -(-m // tile_m), -(-n // tile_n)
            words = p.b.shape[1] // self.arithmetic.lanes
            slot["a"], slot["b"], slot["c"] = p.a.data.ptr, p.b.data.ptr, p.c.data.ptr
            slot["m"], slot["n"], slot["tiles_m"], slot["tiles_n"] = m, n, tiles_m, tiles_n
            slot["last_b"] = words - 16 // self.arithmetic.word
            slot["vector"] = _aligned(p.c)
            slot["skip_m0"], slot["skip_m1"] = (x // tile_m for x in p.skip.rows)
            slot["skip_n0"], slot["skip_n1"] = (x // tile_n for x in p.skip.columns)
            blocks += self._blocks(tiles_m, tiles_n, upper)
            if p is first:
                arguments["first"] = blocks
        arguments["lda"], arguments["ldb"] = leading(first.a), leading(first.b) // self.arithmetic.lanes
        arguments["ldc"], arguments["depth"] = leading(first.c), first.b.shape[0]
        arguments["upper"], arguments["one"] = upper, 1
        shared = self.arithmetic.shared
        self.modules.get("relax", self.arithmetic, shared)((blocks,), (256,), (arguments,), shared_mem=shared)

    def _blocks(self, tiles_m: int, tiles_n: int, upper: bool) -> int:
        if not upper:
            return tiles_m * tiles_n
        tile_m, tile_n = self.arithmetic.tile
        return sum(min(16, tiles_m - top) * (tiles_n - top * tile_m // tile_n) for top in range(0, tiles_m, 16))

    # ---- copies -----------------------------------------------------------------------------------------------------

    def pack(self, copies: Sequence[Copy]) -> None:
        """Queue up to six copies in one launch."""
        arguments = np.zeros((), _JOBS)
        arguments["count"] = len(copies)
        blocks = 0
        for job, copy in zip(arguments["job"], copies, strict=False):
            job["from"], job["to"] = copy.source.data.ptr, copy.to.data.ptr
            job["ld_from"], job["ld_to"] = leading(copy.source), leading(copy.to)
            job["rows"], job["columns"] = copy.source.shape
            job["to_rows"], job["to_columns"] = copy.to.shape
            job["transposed"], job["spread"] = copy.transposed, copy.spread
            job["blocks"] = -(-copy.to.shape[0] // 32) * -(-copy.to.shape[1] // 32)
            blocks += int(job["blocks"])
        self.modules.get("pack", self.arithmetic)((blocks,), (256,), (arguments,))

    def mirror(self, d: Any) -> None:
        """Queue the copy of the part of square ``d`` above its diagonal to the part below."""
        n = d.shape[0]
        side = -(-n // 32)
        self.modules.get("mirror", self.arithmetic)((side, side), (256,), (d, np.int64(leading(d)), np.int32(n)))

    # ---- the single kernel ------------------------------------------------------------------------------------------

    def close(self, d: Any, *, side: int | None = None, blocks: int | None = None, group: int | None = None) -> None:
        """Queue Floyd-Warshall in place, in one launch of the single kernel.

        Args:
            d: one matrix, shape (n, n), or a stack of them, shape (graphs, n, n).
            side: side of a tile, 32 or 64; None for the faster one of those for which the device has shared memory.
            blocks: the number of thread blocks; None for the best number.
            group: the number of graphs that are solved concurrently; None for all.
        """
        graphs = d.shape[0] if d.ndim == 3 else 1
        n = d.shape[-1]
        if n == 0 or graphs == 0:
            return
        if side is None:
            small = n <= 32 or (64 < n <= _SMALL and graphs == 1)
            # in 64 bits the larger tiles are more than a thread block of compute capability 7.5 may ask for
            side = 32 if small or (n > 64 and single_shared(64, self.dtype.itemsize) > self.modules.shared) else 64
        tiles = -(-n // side)
        lone, wide = tiles == 1, side == 64 and graphs == 1 and _WIDE[0] <= n <= _WIDE[1]
        name = f"lone{side}" if lone else "single64wide" if wide else f"single{side}"
        per_graph = 2 * tiles - 1 + ((tiles - 1) ** 2 + 2) * tiles
        if lone:
            blocks = graphs
        elif blocks is None:  # about 2.4 tiles for each thread block and round
            device = self.modules.multiprocessors
            wanted = max(1, round(graphs * tiles * tiles / (2.4 * device)))
            blocks = min(device * min(wanted, _RESIDENT[name]), graphs * tiles * tiles)
        if group is None:  # solve all graphs at once, so that there is enough work for all blocks
            group = graphs
        flags = self._flags(graphs * tiles * tiles, tiles)
        rows = d[0] if d.ndim == 3 else d
        arguments = np.zeros((), _BLOCK)
        arguments["d"], arguments["ld"] = d.data.ptr, leading(rows)
        arguments["stride"] = d.strides[0] // d.itemsize if d.ndim == 3 else 0
        arguments["n"], arguments["tiles"], arguments["graphs"], arguments["group"] = n, tiles, graphs, group
        whole = (wide and self.arithmetic.word < 8) or n % side == 0  # the wide kernel checks its own borders
        arguments["aligned"] = whole and _aligned(rows) and arguments["stride"] * d.itemsize % 16 == 0
        arguments["base"], arguments["drawn"] = self._base, self._drawn
        arguments["counter"], arguments["flags"] = self._counter.data.ptr, flags.data.ptr
        arguments["negative"] = self.negative.data.ptr
        shared = 0 if lone else single_shared(side, self.dtype.itemsize)
        kernel = self.modules.get(name, self.arithmetic, shared)
        kernel((blocks,), (KERNELS[name].threads,), (arguments,), shared_mem=shared)
        if not lone:
            self._base += tiles + 1
            self._drawn = (self._drawn + graphs * per_graph + blocks) % 2**32

    def squares(self, d: Any) -> bool:
        """Queue repeated squaring of ``d`` in one cooperative launch; returns False if the device cannot run it."""
        n, itemsize = d.shape[0], self.word.itemsize
        rows = 16 if n > 128 and itemsize == 4 else 8
        padded = _round_up(n, 32)
        blocks, shared = padded // rows * (padded // 32), power_shared(rows, padded, itemsize)
        if n > POWER_MOST or shared > self.modules.shared:
            return False
        name = f"power{rows}"
        kernel = self.modules.get(name, self.arithmetic, shared)
        driver, threads = self.modules.driver, KERNELS[name].threads
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.ptr, threads, shared)
        if blocks > resident * self.modules.multiprocessors:
            return False
        self._flags(1, 1)
        state = self._scratch.get("state")
        if state is None:
            state = self._scratch["state"] = self.cupy.zeros(2, "u4")
        even, odd = (self._buffer(half, (padded, padded), self.word) for half in ("even", "odd"))
        steps = max(1, (n - 2).bit_length())
        arguments = np.zeros((), _SQUARE)
        arguments["d"], arguments["ld"] = d.data.ptr, leading(d)
        arguments["even"], arguments["odd"] = even.data.ptr, odd.data.ptr
        arguments["state"], arguments["negative"] = state.data.ptr, self.negative.data.ptr
        arguments["n"], arguments["padded"], arguments["steps"] = n, padded, steps
        arguments["aligned"], arguments["stamp"] = _aligned(d), self._stamp
        self._stamp = (self._stamp + steps + 1) % 2**32
        pointers = np.array([arguments.ctypes.data], "u8")
        stream = self.cupy.cuda.get_current_stream().ptr
        driver.launchCooperativeKernel(kernel.ptr, blocks, 1, 1, threads, 1, 1, shared, stream, pointers.ctypes.data)
        return True

    def _flags(self, count: int, tiles: int) -> Any:
        if self._counter is None:
            self._counter = self.cupy.zeros(1, "u4")
            self.negative = self.cupy.zeros(1, "i4")
        flags = self._scratch.get("flags")
        if flags is None or flags.size < count or self._base + tiles > _WRAP:
            self._scratch["flags"] = flags = self.cupy.zeros(max(count, 4096), "i4")
            self._base = 0
        return flags

    def send_flag(self) -> None:
        """Queue a copy of the flag of ``found_negative`` to the host; ``sent_flag`` reads this copy without waiting."""
        if self.negative is None:  # ``close`` has not run yet, so there is no flag
            return
        if self._sent is None:
            self._sent = np.frombuffer(self.cupy.cuda.alloc_pinned_memory(4), np.int32, 1)
            self._sent[0] = 0
        stream, runtime = self.cupy.cuda.get_current_stream(), self.cupy.cuda.runtime
        runtime.memcpyAsync(self._sent.ctypes.data, self.negative.data.ptr, 4, runtime.memcpyDeviceToHost, stream.ptr)

    def sent_flag(self) -> bool:
        """Return the flag from the last copy that has arrived on the host."""
        return self._sent is not None and bool(self._sent[0])

    def forget_negative(self) -> None:
        """Reset the flag that ``found_negative`` reads."""
        if self.negative is not None:
            self.negative.fill(0)
        if self._sent is not None:
            self._sent[0] = 0

    def found_negative(self) -> bool:
        """Return whether a diagonal entry fell below zero since ``forget_negative``; waits for the device."""
        return self.negative is not None and bool(self.negative.get()[0])

    # ---- memory -----------------------------------------------------------------------------------------------------

    def _buffer(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        """Return scratch memory, which later launches of this stream reuse."""
        size = shape[0] * shape[1]
        kept = self._scratch.get(name)
        if kept is None or kept.size < size:
            self._scratch.pop(name, None)
            kept = self._scratch[name] = allocate(self.cupy, (size,), dtype)
        return kept[:size].reshape(shape)

    def release(self) -> None:
        """Free the scratch memory."""
        self._scratch.clear()
        self._base = 0


def _overlap(x: Any, y: Any) -> bool:
    """Return whether the memory spans of two arrays overlap; for rectangles of one matrix this may be true without a
    common entry.
    """

    def span(z: Any) -> tuple[int, int]:
        return z.data.ptr, z.data.ptr + ((z.shape[0] - 1) * leading(z) + z.shape[1]) * z.itemsize

    (x0, x1), (y0, y1) = span(x), span(y)
    return x0 < y1 and y0 < x1
