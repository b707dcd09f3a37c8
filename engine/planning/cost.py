"""Predicted bytes and seconds: the arithmetic that the estimates of all algorithms share.  Pure.

Memory is the projected peak of the whole process.  One update is c = min(c, a + b).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.model.device_layout import PIECE, base_bytes
from engine.model.dtypes import WorkType
from engine.model.plan import Candidate, Phase
from engine.model.problem import Machine, Problem

#: Memory beyond the arrays that are counted: compiled kernels and their compiler, the store's writer, the allocator.
OVERHEAD: Final = 192 * 2**20

#: Rows of a tile of the store; ``storage.matrix.grid`` decides, the planner only needs the magnitude of write buffers.
BAND_ROWS: Final = 64

#: Bytes of one batch of rows that a search fills before it is handed to the sink.
BATCH_BYTES: Final = 64 * 2**20

#: Rows of a batch that keep a thread busy: what it searches side by side, or sweeps over at once.
ABREAST: Final = 128

#: Bytes a second at which the weight matrix is filled.
INGEST_RATE: Final = 4e9


@dataclass(frozen=True)
class Setting:
    """What an estimate is made for: the problem, the machine, the working type, and the bytes of the store."""

    problem: Problem
    machine: Machine
    kind: WorkType
    store: int

    @property
    def rate(self) -> float:
        """Updates a second in this type."""
        return self.machine.relax_rate[self.kind.name]

    @property
    def matrix(self) -> int:
        """Bytes of the whole n x n matrix in memory."""
        return self.problem.n**2 * self.kind.itemsize


def batch_rows(n: int, rows: int, itemsize: int, *, threads: int = 1, memory: int | None = None) -> int:
    """Rows of a batch of sources: whole bands, one at least.

    As many as ``BATCH_BYTES`` hold, or as keep all ``threads`` busy if that is more; two batches take a quarter of
    ``memory`` bytes, or one band each.
    """
    band = max(1, n * itemsize * BAND_ROWS)
    busy = threads * ABREAST // BAND_ROWS
    bands = max(BATCH_BYTES // band, busy if memory is None else min(busy, memory // 8 // band))
    return min(max(1, rows), max(1, bands) * BAND_ROWS)


def write_phase(setting: Setting) -> Phase:
    """Bringing the store to the disk."""
    rate = setting.machine.stream_write or setting.machine.write_rate
    return Phase("write", setting.store / rate, bytes=setting.store)


def device_write(setting: Setting) -> Phase:
    """Bringing rows from the device to the store, or to memory where there is none."""
    machine = setting.machine
    gain = max(1.0, min(DEVICE_WRITE_GAIN, machine.threads / 2))  # the bus is faster than any store
    rate = DEVICE_HOST_RATE if machine.disk is None else machine.write_rate * gain
    return Phase("write", setting.store / rate, bytes=setting.store)


def dense_candidate(setting: Setting, name: str, *, updates: int, workspace: int, efficiency: float) -> Candidate:
    """An algorithm made of products over the whole matrix: ``workspace`` bytes beside it, ``updates`` in all.

    ``efficiency`` is the share of the rate of large products that the whole solve reaches.
    """
    band = BAND_ROWS * setting.problem.n * setting.kind.itemsize * setting.machine.threads
    ingest = Phase("ingest", setting.matrix / INGEST_RATE, bytes=setting.matrix)
    work = Phase("relax", updates / (setting.rate * efficiency), updates=updates)
    write = write_phase(setting)
    return Candidate(
        algorithm=name,
        memory=setting.machine.resident + OVERHEAD + setting.matrix + workspace + band,
        disk=setting.store,
        seconds=ingest.seconds + work.seconds + write.seconds,
        phases=(ingest, work, write),
    )


#: Seconds until a GPU has been found and is ready; while planning, so no candidate's time counts it.
DEVICE_START: Final = 0.5
#: Seconds that a solve there takes beside its work: loading kernels, page-locked buffers.
DEVICE_LAUNCH: Final = 0.05
#: How many times the rate of other writes rows from the device reach the store at: the device has summed them up, and
#: nothing else runs on the processors.  At most; two threads gain nothing.  Measured with 16.
DEVICE_WRITE_GAIN: Final = 2.5
#: Bytes a second from the device into an array in the host's memory, with 16 processors.
DEVICE_HOST_RATE: Final = 3.6e10
#: Bytes of arcs a second that reach the device, in the working type, row pointers and all.
DEVICE_INGEST_RATE: Final = 2e9
#: Share of the rate of large products that a whole solve on the device reaches.
DEVICE_EFFICIENCY: Final = 0.95


def device_candidate(
    setting: Setting, name: str, *, updates: int, workspace: int, efficiency: float = 1.0, least: float = 0.0
) -> Candidate:
    """An algorithm of products on the GPU: ``workspace`` bytes there beside the matrix; the host holds bands alone.

    ``efficiency`` is the share of what whole solves reach that this one does; it takes ``least`` seconds in any case.
    """
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    if machine.cuda is None:
        raise ValueError("the machine has no device")
    band = BAND_ROWS * problem.n * size
    arcs = problem.arcs * (4 + size)
    ingest = Phase("ingest", DEVICE_LAUNCH + arcs / DEVICE_INGEST_RATE, bytes=arcs)
    rate = machine.cuda.relax_rate[setting.kind.name] * DEVICE_EFFICIENCY * efficiency
    work = Phase("relax", max(updates / rate, least / efficiency), updates=updates)
    write = device_write(setting)
    return Candidate(
        algorithm=name,
        device="cuda",
        tier="device",
        memory=machine.resident + OVERHEAD + (machine.threads + 2) * band + 32 * PIECE,
        device_memory=base_bytes(problem.n, problem.rows, size) + workspace,
        disk=setting.store,
        seconds=ingest.seconds + work.seconds + write.seconds,
        phases=(ingest, work, write),
    )


#: Bytes that a thread which searches holds for each vertex: a row of labels (256), or heap, positions and distances.
LABELS: Final = 288


def search_workspace(n: int, arcs: int, threads: int, each: int = LABELS) -> int:
    """Bytes that searches need beside graph and rows, ``each`` for a vertex in each thread.
    The arcs are copied
      into the searches' own form, both ways round, and while that is made half as much again; potentials and reduced
      weights, where there are any, come to less than the rest of the bytes counted here.
    """
    return threads * each * n + 80 * n + 72 * arcs


def search_candidate(
    setting: Setting,
    name: str,
    *,
    seconds: float,
    tried: float | None,
    before: tuple[Phase, ...] = (),
    workspace: int = LABELS,
) -> Candidate:
    """An algorithm of one search a source: ``tried`` seconds, or ``seconds`` if not tried, after phases ``before``.

    ``workspace`` is what a thread holds for each vertex, in bytes.

    With fewer targets than sources it is one search a target, if there is memory for the whole rectangle: it comes out
    column by column.
    """
    problem, threads, size = setting.problem, setting.machine.threads, setting.kind.itemsize
    own = setting.machine.resident + OVERHEAD + search_workspace(problem.n, problem.arcs, threads, workspace)
    searches, columns, held = problem.rows, problem.columns, 0
    limits = {"threads": threads, "memory": setting.machine.memory}
    aside = batch_rows(searches, columns, size, **limits) * searches * size
    # the arcs turned round, the rectangle, and the bands of it that are being transposed
    rectangle = problem.arcs * 24 + (searches + 4 * threads * BAND_ROWS) * columns * size
    from_targets = columns < searches and own + rectangle + 2 * aside < setting.machine.memory
    if from_targets:
        searches, columns, held = columns, searches, rectangle
    work = searches * (seconds if tried is None else tried)
    search, write = Phase("search", work, updates=searches * problem.arcs), write_phase(setting)
    batch = batch_rows(columns, searches, size, **limits)
    return Candidate(
        algorithm=name,
        memory=own + held + 2 * batch * columns * size,
        disk=setting.store,
        # batches are written while the next ones are searched, on the same processors
        seconds=sum(p.seconds for p in before) + search.seconds + write.seconds,
        phases=(*before, search, write),
        from_targets=from_targets,
        batch=batch,
    )
