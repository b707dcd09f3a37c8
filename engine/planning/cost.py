"""Predicted bytes and seconds: the arithmetic that the estimates of all algorithms share.

Memory is the projected peak of the whole process.  One update is c = min(c, a + b).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from engine.model.device_layout import PIECE, base_bytes
from engine.model.dtypes import WorkType
from engine.model.plan import Candidate, Phase
from engine.model.problem import Machine, Problem, Trials

#: Bytes of memory besides the arrays that are counted: kernels and their compiler, the store's writer, the allocator.
OVERHEAD: Final = 192 * 2**20

#: Rows of a tile of the store.  ``storage.matrix.grid`` decides; the planner needs only the magnitude of write buffers.
BAND_ROWS: Final = 64

#: Bytes of one batch of rows that a search fills before it is handed to the sink.
BATCH_BYTES: Final = 64 * 2**20

#: Rows of a batch that keep a thread busy: it searches them side by side, or sweeps over them at once.
ABREAST: Final = 128

#: Bytes a second at which the weight matrix is filled.
INGEST_RATE: Final = 4e9


@dataclass(frozen=True)
class Setting:
    """What an estimate is made for.

    Attributes:
        problem: the problem.
        machine: the machine.
        kind: the working type.
        store: bytes of the finished store.
        trials: what searches of this graph took.
    """

    problem: Problem
    machine: Machine
    kind: WorkType
    store: int
    trials: Trials = field(default_factory=Trials)

    @property
    def rate(self) -> float:
        """Updates a second of all threads in this type."""
        return self.machine.relax_rate[self.kind.name]

    @property
    def matrix(self) -> int:
        """Bytes of the whole n x n matrix in memory."""
        return self.problem.n**2 * self.kind.itemsize


def batch_rows(n: int, rows: int, itemsize: int, *, threads: int = 1, memory: int | None = None) -> int:
    """Return the rows of a batch of sources: whole bands of BAND_ROWS rows, at least one.

    A batch fills ``BATCH_BYTES``, or more where it takes more rows to keep all threads busy.  Two batches take at most
    a quarter of the memory, or one band each.

    Args:
        n: columns.
        rows: sources in all.
        itemsize: bytes of an entry.
        threads: number of threads.
        memory: bytes of memory; None for no limit.
    """
    band = max(1, n * itemsize * BAND_ROWS)
    busy = threads * ABREAST // BAND_ROWS
    bands = max(BATCH_BYTES // band, busy if memory is None else min(busy, memory // 8 // band))
    return min(max(1, rows), max(1, bands) * BAND_ROWS)


def write_phase(setting: Setting) -> Phase:
    """Return the phase in which the store is written to the disk."""
    rate = setting.machine.stream_write or setting.machine.write_rate
    return Phase("write", setting.store / rate, bytes=setting.store)


def device_write(setting: Setting) -> Phase:
    """Return the phase in which rows are copied from the device to the store, or to memory where there is no store."""
    machine = setting.machine
    gain = max(1.0, min(DEVICE_WRITE_GAIN, machine.threads / 2))  # the bus is faster than every store
    rate = DEVICE_HOST_RATE if machine.disk is None else machine.write_rate * gain
    return Phase("write", setting.store / rate, bytes=setting.store)


def dense_candidate(setting: Setting, name: str, *, updates: int, workspace: int, efficiency: float) -> Candidate:
    """Estimate an algorithm that consists of products over the whole matrix.

    Args:
        setting: problem, machine and type.
        name: the algorithm.
        updates: updates of the whole solve.
        workspace: bytes of memory besides the matrix.
        efficiency: share of the rate of large products that the whole solve reaches.
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


#: Seconds until a GPU has been found and is ready.  That happens during planning, so no candidate counts it.
DEVICE_START: Final = 0.5
#: Seconds that a solve on the GPU takes besides its work: loading kernels, page-locking buffers.
DEVICE_LAUNCH: Final = 0.05
#: Rows from the device are written at up to this many times the rate of other rows: the device has summed them up, and
#: the processors have no other work.  Two threads gain nothing.  Measured with 16 threads.
DEVICE_WRITE_GAIN: Final = 2.5
#: Bytes a second from the device into an array in the host's memory, with 16 processors.
DEVICE_HOST_RATE: Final = 3.6e10
#: Bytes of arcs a second that are sent to the device, in the working type, row pointers included.
DEVICE_INGEST_RATE: Final = 2e9
#: Share of the rate of large products that a whole solve on the device reaches.
DEVICE_EFFICIENCY: Final = 0.95


def device_candidate(
    setting: Setting, name: str, *, updates: int, workspace: int, efficiency: float = 1.0, least: float = 0.0
) -> Candidate:
    """Estimate an algorithm that consists of products on the GPU; the host holds only bands of rows.

    Args:
        setting: problem, machine and type.
        name: the algorithm.
        updates: updates of the whole solve.
        workspace: bytes of device memory besides the matrix.
        efficiency: share of the usual rate of whole solves that this algorithm reaches.
        least: the least seconds of the work, at an ``efficiency`` of 1.

    Raises:
        ValueError: the machine has no GPU.
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


#: Bytes that a searching thread holds for each vertex: a row of labels (256), or heap, positions and distances.
LABELS: Final = 288


def search_workspace(n: int, arcs: int, threads: int, each: int = LABELS) -> int:
    """Return the bytes that searches need besides the graph and the rows.

    The arcs are copied in both directions into the form that searches use, and making that form takes half as much
    again.  Potentials and reduced weights, where there are any, take less than the other bytes counted here.

    Args:
        n: vertices.
        arcs: arcs.
        threads: number of threads.
        each: bytes that a thread holds for each vertex.
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
    """Estimate an algorithm that makes one search a source.

    With fewer targets than sources it makes one search a target, if there is memory for the whole rectangle, whose
    columns it finds one after the other.

    Args:
        setting: problem, machine and type.
        name: the algorithm.
        seconds: predicted seconds of a search.
        tried: measured seconds of a search on this graph; None if not measured.
        before: phases before the searches.
        workspace: bytes that a thread holds for each vertex.
    """
    problem, threads, size = setting.problem, setting.machine.threads, setting.kind.itemsize
    own = setting.machine.resident + OVERHEAD + search_workspace(problem.n, problem.arcs, threads, workspace)
    searches, columns, held = problem.rows, problem.columns, 0
    limits = {"threads": threads, "memory": setting.machine.memory}
    aside = batch_rows(searches, columns, size, **limits) * searches * size
    # the reversed arcs, the rectangle, and the bands of it that are being transposed
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
