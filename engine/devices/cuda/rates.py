"""Measures rates of GPUs, from which the time of streaming is predicted: updates per second of products, bytes per
second of the bus in both directions at once, and seconds per byte to touch and to lock host memory.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.devices.cuda.context import Modules, allocate, modules, translated
from engine.devices.cuda.floyd_warshall import Solver
from engine.devices.cuda.launch import Copy, Launcher, Product
from engine.devices.cuda.pinned import host_matrix
from engine.model.backend import Array
from engine.model.dtypes import WorkType
from engine.model.problem import Device

#: Rows, columns and depth of the product that is timed.
_ROWS: Final = 8192
_COLUMNS: Final = 4096
_DEPTH: Final = 2048
#: Bytes of a copy.
_PIECE: Final = 2**23
#: Number of different pieces of host memory in each direction, and how often all of them are copied.  To make the
#: memory ready takes most of the time, so there are only 256 MiB of it.
_PIECES: Final = 16
_TURNS: Final = 4
#: Bytes of device memory that measuring needs.
LEAST_MEMORY: Final = 2**29
#: Products are faster by this factor in a solve, because the last thread blocks of a product overlap the first thread
#: blocks of the next.
_OVERLAPPED: Final = 1.03


def measured(device: Device, kind: WorkType, *, threads: int) -> Device:
    """Measure the rates of a device, which takes some tenths of a second.

    Args:
        device: the device as ``find_device`` returned it.
        kind: working type of the products.
        threads: the number of threads that touch host memory.

    Returns:
        ``device`` with its measured rates.

    Raises:
        DoesNotFit: the memory does not suffice.
        SolveFailed: the device failed.
    """
    found = [modules(index) for index in range(device.count)]
    cupy: Any = found[0].cupy
    with translated(cupy), host_matrix((2 * _PIECES, _PIECE), "u1", threads=threads) as memory:
        rate, size = _products(found[0], kind) * _OVERLAPPED, memory.array.nbytes
        one = _both_ways(found[:1], memory.array)
        return replace(
            device,
            relax_rate={**device.relax_rate, kind.name: rate},
            bus_rate=one,
            bus_most=_both_ways(found, memory.array) if device.count > 1 else one,
            touch_seconds=memory.touched / size,
            lock_seconds=memory.registered / size,
        )


def _products(found: Modules, kind: WorkType) -> float:
    """Return the updates per second of a large product."""
    cupy = found.cupy
    with cupy.cuda.Device(found.device):
        solver = Solver(found, kind.dtype, nonnegative=True)
        launcher: Launcher = solver.ahead
        rows = allocate(cupy, (_ROWS, _COLUMNS), kind.dtype)
        panel = allocate(cupy, (_DEPTH, _COLUMNS), kind.dtype)
        packed = allocate(cupy, (_DEPTH, _ROWS), launcher.word)
        rows[:], panel[:] = 9, 1
        launcher.pack([Copy(rows[:, :_DEPTH], packed, transposed=True, spread=True)])
        stream, times = cupy.cuda.get_current_stream(), []
        for _ in range(4):
            stream.synchronize()
            began = time.perf_counter()
            launcher.products([Product(rows, packed, panel)])
            stream.synchronize()
            times.append(time.perf_counter() - began)
        solver.release()
        del rows, panel, packed
        cupy.get_default_memory_pool().free_all_blocks()
    return float(_ROWS * _COLUMNS * _DEPTH / min(times[1:]))


def _both_ways(found: list[Modules], memory: Array) -> float:
    """Return the bytes per second that all devices together copy in each direction, while both directions are busy.

    Each device begins at a different place of ``memory``.  Four H200 that read and wrote the same bytes at the same
    time reached only 5 to 25 GB/s together, while a single H200 reaches 47 to 50.
    """
    cupy = found[0].cupy
    runtime, ends, best = cupy.cuda.runtime, [], np.inf
    for one in found:
        with cupy.cuda.Device(one.device):
            pieces = [allocate(cupy, (_PIECE,), np.uint8) for _ in range(2)]
            ends.append((one.device, pieces, [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]))
    for _ in range(2):
        began = time.perf_counter()
        for i in range(_TURNS * _PIECES):
            for place, (index, (there, back), (up, down)) in enumerate(ends):
                with cupy.cuda.Device(index):
                    piece = (i + place * _PIECES // len(ends)) % _PIECES
                    at = memory.ctypes.data + 2 * piece * _PIECE
                    runtime.memcpyAsync(there.data.ptr, at, _PIECE, runtime.memcpyHostToDevice, up.ptr)
                    runtime.memcpyAsync(at + _PIECE, back.data.ptr, _PIECE, runtime.memcpyDeviceToHost, down.ptr)
        for index, _arrays, streams in ends:
            with cupy.cuda.Device(index):
                for stream in streams:
                    stream.synchronize()
        best = min(best, time.perf_counter() - began)
    for index, pieces, _streams in ends:
        with cupy.cuda.Device(index):
            pieces.clear()
            cupy.get_default_memory_pool().free_all_blocks()
    return len(found) * _TURNS * _PIECES * _PIECE / float(best)
