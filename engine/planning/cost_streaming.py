"""Predicted costs of streaming on the processors: the layout, the bytes of each tier, and the seconds.

A round reads and writes the whole matrix once.  The two passes together read the matrix about once for each panel, and
write it twice.  Copies take no longer than arithmetic if the width of the pivot block is at least
*bytes per entry x update rate / bytes per second*.  With narrower blocks the disk decides the time: a solve with blocks
twice as wide takes half as long, but its panels take more host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.model.blocks import PACK_BYTES
from engine.model.dtypes import relaxes_reduced
from engine.model.plan import Candidate, Phase
from engine.model.problem import Problem
from engine.model.tiling import GRAIN, Tiling, entries, panel_bytes, passed_bytes, updates
from engine.planning.constants import (
    FILL_RATE,
    FINISH_SHARE,
    GPU_STRIPE_BUFFERS,
    LONG_ON_CPU,
    PANEL_LOAD_ROWS,
    PANEL_PACK_ROWS,
    ROUNDS_EFFICIENCY,
    SPARE_DISK,
    SPARE_FILES,
    STRIPE_BUFFERS,
    TILE_THREADS_BYTES,
)
from engine.planning.cost import Setting, candidate
from engine.planning.layouts import CPU_HEIGHTS, CPU_WIDTHS, LayoutGrid, fastest, whole_width

ALGORITHM: Final = "blocked-floyd-warshall"


def streamed(setting: Setting) -> Iterator[Candidate]:
    """Yield the candidates that compute stripe by stripe on the CPU, in memory (only if that takes long) or in the
    store.
    """
    problem = setting.problem
    if not streamable(setting):
        return
    host = in_memory(setting)
    if host.seconds >= LONG_ON_CPU:
        yield host
    if not relaxes_reduced(setting.kind, problem):  # finding potentials needs all rows at once
        yield from_store(setting)


def streamable(setting: Setting) -> bool:
    """Return whether the result is the whole matrix in a store, which streaming requires."""
    problem = setting.problem
    return problem.whole and problem.max_hops is None and problem.cutoff is None and setting.machine.disk is not None


def forms(problem: Problem) -> tuple[bool, ...]:
    """Return the values of ``Tiling.symmetric`` to consider.

    An undirected graph can be solved like a directed graph.  That takes twice the arithmetic, but fewer panels have to
    be in memory, so that blocks can be wider if memory is scarce.
    """
    if problem.directed:
        return (False,)
    return (True,) if problem.half else (True, False)


def in_memory(setting: Setting) -> Candidate:
    """Estimate a solve in host memory, in rounds (undirected graphs) or passes; it commits the matrix at intervals."""
    n, size, machine = setting.problem.n, setting.kind.itemsize, setting.machine
    symmetric = not setting.problem.directed
    tiling = Tiling("host", 512, 1024, symmetric=symmetric, passes=not symmetric)
    fill = Phase("ingest", setting.matrix / FILL_RATE, bytes=setting.matrix)
    work = _relax(setting, tiling, 0.0)
    write = setting.written
    scratch = machine.threads * (PACK_BYTES + GRAIN * n * size) + tiling.height * tiling.width * size
    return candidate(
        setting,
        ALGORITHM,
        (fill, work, write),
        memory=setting.matrix + panel_bytes(tiling, n, size) + scratch,
        disk=spare_bytes(setting.store),
        streaming=tiling,
    )


def from_store(setting: Setting) -> Candidate:
    """Estimate rounds or passes over the working store, in the fastest layout that fits; if none fits, in the layout
    that needs least memory.
    """
    whole = whole_width(setting.problem.n)
    widths = (*(w for w in CPU_WIDTHS if w < whole), whole)
    grid = LayoutGrid("store", widths, CPU_HEIGHTS, symmetric=forms(setting.problem), passes=True)
    found = fastest([_store(setting, tiling) for tiling in grid.layouts()], setting.machine.memory)
    assert found is not None  # a layout always exists, because the smallest height of a stripe divides all widths
    return found


def _store(setting: Setting, tiling: Tiling) -> Candidate:
    n, size, machine = setting.problem.n, setting.kind.itemsize, setting.machine
    moved, disk = disk_work(setting, tiling)
    relax = _relax(setting, tiling, moved * machine.stream_work / machine.threads)
    relax = Phase("relax", max(relax.seconds, disk), bytes=moved, updates=relax.updates)
    phases = [relax]
    if tiling.symmetric:
        phases.append(finish_phase(setting))
    scratch = machine.threads * PACK_BYTES + tiling.height * tiling.width * size
    buffers = STRIPE_BUFFERS * tiling.height * n * size
    return candidate(
        setting,
        ALGORITHM,
        phases,
        memory=panel_bytes(tiling, n, size) + buffers + TILE_THREADS_BYTES + scratch,
        disk=spare_bytes(setting.store),
        tier="store",
        streaming=tiling,
    )


def disk_work(setting: Setting, tiling: Tiling) -> tuple[int, float]:
    """Return the bytes that a solve from the store reads and writes, and the seconds that the disk takes for them.

    The first reading of a stripe does not count, because the stripe is then made from the arcs.
    """
    n, machine = setting.problem.n, setting.machine
    once = entries(tiling, n) * setting.kind.itemsize
    if tiling.passes:
        read, written = passed_bytes(tiling, n, setting.kind.itemsize)
        # ``stream_rate`` is the rate of reading while as many bytes are written, so the larger number counts
        return read - once + written, max(read - once, written) / machine.stream_rate
    rounds = tiling.rounds(n)
    return (2 * rounds - 1) * once, rounds * once / machine.stream_rate


def finish_phase(setting: Setting) -> Phase:
    """Return the last phase of a solve of an undirected graph in the store, which completes the matrix.

    This phase reads the upper half of the matrix about twice, assembles whole rows, and writes the lower half.
    """
    bytes_ = int(setting.matrix * FINISH_SHARE)
    return Phase("finish", bytes_ / setting.machine.stream_rate, bytes=bytes_)


def store_buffers(tiling: Tiling, devices: int) -> int:
    """Return the number of stripes held in host memory while the matrix lies in the store; with GPUs there are more, so
    that no GPU waits.

    In passes each device requests stripes in advance, so every device needs as many stripes as the first device.  With
    fewer, there could be a deadlock: devices hold stripes that they have read, and all wait for memory to write others.
    """
    beside = GPU_STRIPE_BUFFERS if tiling.slots > 1 else 0
    each = STRIPE_BUFFERS if tiling.passes else tiling.slots + 1
    return STRIPE_BUFFERS + (devices - 1) * each + tiling.slots - 1 + beside


def _relax(setting: Setting, tiling: Tiling, beside: float) -> Phase:
    """Return the phase of all products; ``beside`` is the seconds of other work that the processors do meanwhile."""
    n = setting.problem.n
    count = updates(tiling, n)
    efficiency = ROUNDS_EFFICIENCY / (1 + (PANEL_PACK_ROWS if tiling.symmetric else PANEL_LOAD_ROWS) / tiling.height)
    width = min(tiling.width, n)
    # ``count`` leaves out the updates that close one panel of a directed graph, or all panels of an undirected graph.
    # For undirected graphs, ``count`` covers only entries right of the diagonal, but panels are closed over whole rows.
    closing = 2 * n * n * width if tiling.symmetric else n * width * width
    return Phase("relax", (count + closing) / (setting.rate * efficiency) + beside, updates=count)


def spare_bytes(store: int) -> int:
    """Return the bytes of disk that are needed besides the store while tiles are rewritten."""
    return int(min(SPARE_FILES * 2**21, max(2**21, store * SPARE_DISK)))
