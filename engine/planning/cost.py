"""Predicted bytes and seconds: the arithmetic that the estimates of all algorithms share.

Memory is the projected peak of the whole process.  One update is c = min(c, a + b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TypedDict, Unpack

from engine.model.algorithms import ALGORITHMS, unsuitable
from engine.model.device_layout import PIECE, base_bytes
from engine.model.dtypes import WorkType
from engine.model.plan import Candidate, Phase
from engine.model.problem import Machine, Problem, Trials, changed, with_threads
from engine.model.tiling import Tiling
from engine.planning.constants import (
    BAND_ROWS,
    BATCH_BYTES,
    BUSY_ROWS,
    DEVICE_EFFICIENCY,
    DEVICE_HOST_RATE,
    DEVICE_INGEST_RATE,
    DEVICE_LAUNCH,
    DEVICE_WRITE_GAIN,
    FILL_RATE,
    LABEL_BYTES,
    ORDERED_ARCS,
    PREPARING_SCANS,
    PREPARING_UNORDERED,
    PROCESS_BYTES,
    THREAD_SECONDS,
)


@dataclass(frozen=True)
class Setting:
    """The solve whose time and memory are estimated.

    Attributes:
        problem: the problem.
        machine: the machine.
        kind: the working type.
        store: bytes of the finished store.
        trials: seconds that trial searches of this graph took.
    """

    problem: Problem
    machine: Machine
    kind: WorkType
    store: int
    trials: Trials = field(default_factory=Trials)

    @cached_property
    def unsuitable(self) -> dict[str, str | None]:
        """For each algorithm, why it cannot solve the problem on any machine; None if it can."""
        return {name: unsuitable(name, self.problem) for name in ALGORITHMS}

    @cached_property
    def rate(self) -> float:
        """Updates a second of all threads in this type."""
        return self.machine.relax_rate[self.kind.name]

    @cached_property
    def matrix(self) -> int:
        """Bytes of the whole n x n matrix in memory."""
        return self.problem.n**2 * self.kind.itemsize

    @cached_property
    def written(self) -> Phase:
        """The phase in which the store is written to the disk."""
        return Phase("write", self.store / (self.machine.stream_write or self.machine.write_rate), bytes=self.store)


def on_threads(setting: Setting, threads: int) -> Setting:
    """Return the setting with another number of threads; seconds of searches on processors change in proportion."""
    if threads == setting.machine.threads:
        return setting
    tried, longer = setting.trials, setting.machine.threads / threads
    search, hops = (None if seconds is None else seconds * longer for seconds in (tried.search, tried.hop_search))
    trials = Trials(search, hops, tried.device_search, tried.found)
    return replace(setting, machine=with_threads(setting.machine, threads), trials=trials)


def fewer(machine: Machine) -> Iterator[int]:
    """Yield numbers of threads to try, each about three quarters of the one before; the last is 1.

    Workers have threads of their own, so nothing is yielded where they solve.
    """
    threads = 1 if machine.workers is not None else machine.threads
    while threads > 1:
        threads = threads * 3 // 4
        yield threads


def most_threads(machine: Machine, needed: Callable[[Machine], int]) -> Machine:
    """Return the machine with the most threads whose buffers fit in its memory, or with one thread if none fit.

    Args:
        machine: the machine.
        needed: returns the bytes that a job needs on a machine; more threads need no less.
    """
    while machine.threads > 1 and needed(machine) > machine.memory:
        machine = with_threads(machine, machine.threads - 1)
    return machine


class CandidateFields(TypedDict, total=False):
    """Fields of :class:`engine.model.plan.Candidate` that :func:`candidate` fills with a default unless they are
    passed.
    """

    device: str
    device_memory: int
    tier: str
    streaming: Tiling | None
    from_targets: bool
    batch: int
    workers: int
    devices: int


@cache
def _empty() -> Candidate:
    """Return an object for :func:`candidate` to copy, which takes half the time of constructing one with 15 fields."""
    return Candidate("", memory=0, disk=0, seconds=0.0)


def candidate(
    setting: Setting,
    algorithm: str,
    phases: Sequence[Phase],
    *,
    memory: int,
    disk: int = 0,
    seconds: float | None = None,
    **fields: Unpack[CandidateFields],
) -> Candidate:
    """Build a candidate; every estimate ends with this call.

    Args:
        setting: problem, machine and type.
        algorithm: the algorithm's name.
        phases: the predicted phases, in order.
        memory: bytes of host memory, not counting the bytes that every process holds.
        disk: bytes of disk, not counting the finished store.
        seconds: predicted time of the whole where phases overlap; None for the sum of the phases.
        fields: the fields whose value is not the default.
    """
    return changed(
        _empty(),
        algorithm=algorithm,
        memory=setting.machine.resident + PROCESS_BYTES + memory,
        disk=setting.store + disk,
        seconds=sum([phase.seconds for phase in phases]) if seconds is None else seconds,
        phases=tuple(phases),
        **fields,
    )


def batch_rows(
    n: int, rows: int, itemsize: int, *, threads: int = 1, memory: int | None = None, beside: int = 0
) -> int:
    """Return the rows of a batch of sources: whole bands of BAND_ROWS rows, at least one.

    A batch fills ``BATCH_BYTES``, or has more rows if that keeps all threads busy.  Two batches take at most a quarter
    of the memory, or one band each.  If they do not fit in addition to ``beside``, each batch has one band less.
    Without this rule, a solve might fit in some memory and not in a larger one, whose quarter holds larger batches.

    Args:
        n: columns.
        rows: sources in all.
        itemsize: bytes of an entry.
        threads: number of threads.
        memory: bytes of memory; None for no limit.
        beside: bytes that the process needs besides the two batches.
    """
    band = max(1, n * itemsize * BAND_ROWS)
    busy = threads * BUSY_ROWS // BAND_ROWS
    bands = max(BATCH_BYTES // band, busy if memory is None else min(busy, memory // 8 // band))
    if memory is not None and beside + 2 * bands * band > memory:
        bands -= 1
    return min(max(1, rows), max(1, bands) * BAND_ROWS)


def device_write(setting: Setting) -> Phase:
    """Return the phase in which rows are copied from the device to the store, or to memory where there is no store."""
    machine = setting.machine
    gain = max(1.0, min(DEVICE_WRITE_GAIN, machine.threads / 2))  # every store is slower than the bus
    rate = DEVICE_HOST_RATE if machine.disk is None else min(DEVICE_HOST_RATE, machine.write_rate * gain)
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
    ingest = Phase("ingest", setting.matrix / FILL_RATE, bytes=setting.matrix)
    starting = (setting.machine.threads - 1) * THREAD_SECONDS
    work = Phase("relax", starting + updates / (setting.rate * efficiency), updates=updates)
    write = setting.written
    return candidate(setting, name, (ingest, work, write), memory=setting.matrix + workspace + band)


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
    return candidate(
        setting,
        name,
        (ingest, work, write),
        memory=(machine.threads + 2) * band + 32 * PIECE,
        device="cuda",
        tier="device",
        device_memory=base_bytes(problem.n, problem.rows, size) + workspace,
    )


def preparing_seconds(setting: Setting) -> float:
    """Return the seconds in which one thread copies the graph into the form of searches."""
    problem, rate = setting.problem, setting.machine.search_rate / setting.machine.threads
    scans = PREPARING_SCANS if problem.arcs <= ORDERED_ARCS * problem.n else PREPARING_UNORDERED
    return scans * (problem.arcs + problem.n) / rate


def search_workspace(n: int, arcs: int, threads: int, each: int = LABEL_BYTES) -> int:
    """Return the bytes that searches need besides the graph and the rows.

    Searches use copies of the arcs in both directions, and making these copies takes half as much memory again.
    Potentials and reduced weights, where there are any, take less than the other bytes counted here.

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
    workspace: int = LABEL_BYTES,
) -> Candidate:
    """Estimate an algorithm that makes one search per source.

    With fewer targets than sources it makes one search per target, if there is memory for the whole rectangle: each
    search fills a column.

    Args:
        setting: problem, machine and type.
        name: the algorithm.
        seconds: predicted seconds of a search.
        tried: measured seconds of a search on this graph; None if not measured.
        before: phases before the searches.
        workspace: bytes that a thread holds for each vertex.
    """
    problem, threads, size = setting.problem, setting.machine.threads, setting.kind.itemsize
    own = search_workspace(problem.n, problem.arcs, threads, workspace)
    searches, columns, held = problem.rows, problem.columns, 0
    limits, from_targets = {"threads": threads, "memory": setting.machine.memory}, False
    if columns < searches:
        aside = batch_rows(searches, columns, size, **limits) * searches * size
        # bytes of the reversed arcs, of the whole rectangle, and of the bands that are transposed at a time
        rectangle = problem.arcs * 24 + (searches + 4 * threads * BAND_ROWS) * columns * size
        spare = setting.machine.memory - setting.machine.resident - PROCESS_BYTES
        from_targets = own + rectangle + 2 * aside < spare
        if from_targets:
            searches, columns, held = columns, searches, rectangle
    left = searches if from_targets else max(0, searches - setting.trials.found)
    work = left * (seconds if tried is None else tried)
    search, write = Phase("search", work, updates=left * problem.arcs), setting.written
    beside = setting.machine.resident + PROCESS_BYTES + own + held
    batch = batch_rows(columns, searches, size, **limits, beside=beside)
    # batches are written while the next batches are searched, but on the same processors, so the seconds add up
    phases, memory = (*before, search, write), own + held + 2 * batch * columns * size
    return candidate(setting, name, phases, memory=memory, from_targets=from_targets, batch=batch)
