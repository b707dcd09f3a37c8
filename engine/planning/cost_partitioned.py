"""Predicted costs of the partitioned algorithm, on processors and GPUs."""

from __future__ import annotations

from dataclasses import replace

from engine.model.device_layout import SWEEP_ROWS, sweep_layout
from engine.model.plan import Candidate, Phase
from engine.model.problem import PartsFacts
from engine.planning.constants import (
    BAND_ROWS,
    DEVICE_ENTRY_SECONDS,
    DEVICE_LAUNCH,
    DEVICE_PART_SECONDS,
    DEVICE_SWEEP_EFFICIENCY,
    DEVICE_SWEEP_START,
    ENTRY_SECONDS,
    FILL_RATE,
    PART_SECONDS,
    PARTS_EFFICIENCY,
    PROCESS_BYTES,
    SWEEP_EFFICIENCY,
)
from engine.planning.cost import Setting, batch_rows, candidate, device_write


def estimate(setting: Setting) -> Candidate:
    """Estimate the costs from the number of updates that the trial partition found.  Without a trial the graph counts
    as one part.
    """
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    facts = problem.parts or whole(problem.n)
    rate = setting.rate
    prepare = _prepare(setting, facts)
    updates = problem.rows * facts.sweep
    entries = problem.rows * problem.n
    seconds = updates / (rate * SWEEP_EFFICIENCY) + entries * ENTRY_SECONDS / machine.threads
    sweep = Phase("sweep", seconds, updates=updates)
    write = setting.written
    own = swept_bytes(setting, facts)
    beside = machine.resident + PROCESS_BYTES + own
    batch = batch_rows(problem.n, problem.rows, size, threads=machine.threads, memory=machine.memory, beside=beside)
    memory = own + size * 2 * batch * problem.n
    return candidate(setting, "partitioned", (prepare, sweep, write), memory=memory, batch=batch)


def swept_bytes(setting: Setting, facts: PartsFacts) -> int:
    """Return the bytes of the parts, of their lengths and of the rows that threads sweep, without finished rows."""
    problem, threads = setting.problem, setting.machine.threads
    swept = facts.entries + threads * (SWEEP_ROWS + 8) * problem.n
    return setting.kind.itemsize * swept + 60 * problem.arcs + 40 * problem.n


def estimate_device(setting: Setting) -> Candidate:
    """Estimate steps 1 and 2 of ``engine.algorithms.partitioned`` on processors, and the sweeps for rows on the GPU.

    Rows are copied while other rows are swept.
    """
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    if machine.cuda is None:
        raise ValueError("the machine has no device")
    facts = problem.device_parts or whole(problem.n)
    layout = sweep_layout(facts, problem.n, problem.rows, size)
    batch = layout.batch(machine.cuda.memory)
    batches = -(-problem.rows // batch)
    prepare = _prepare(setting, facts)
    updates = problem.rows * facts.sweep
    sweep = Phase(
        "sweep",
        DEVICE_LAUNCH
        + DEVICE_SWEEP_START
        + updates / (machine.cuda.relax_rate[setting.kind.name] * DEVICE_SWEEP_EFFICIENCY)
        + batches * facts.count * DEVICE_PART_SECONDS
        + problem.rows * problem.n * DEVICE_ENTRY_SECONDS,
        updates=updates,
    )
    write = device_write(setting)
    alone = min(sweep.seconds, write.seconds) / max(1, batches)  # for one batch, sweeping and writing do not overlap
    bands = (machine.threads + 2) * BAND_ROWS * problem.n * size
    return candidate(
        setting,
        "partitioned",
        (prepare, sweep, write),
        memory=2 * size * facts.entries + bands + 60 * problem.arcs + 40 * problem.n,
        seconds=prepare.seconds + max(sweep.seconds, write.seconds) + alone,
        device="cuda",
        device_memory=layout.bytes(batch),
    )


def estimate_prepared(setting: Setting, facts: PartsFacts, *, directed: bool) -> Candidate:
    """Estimate a prepared graph: computing and storing its tables, but no rows; ``setting.store`` is the size on disk
    in bytes.

    Args:
        setting: problem, machine, type and bytes.
        facts: sizes and costs of the partition that suits processors.
        directed: whether there are tables for both directions of paths; one elimination makes both tables.
    """
    size, ways = setting.kind.itemsize, 1 + directed
    prepare = _prepare(setting, replace(facts, prepare=facts.prepare + (ways - 1) * facts.above))
    # the first access to each page of the tables makes the system provide the page; one thread waits for all of them
    prepare = replace(prepare, seconds=prepare.seconds + ways * size * facts.entries / FILL_RATE)
    phases = (Phase("partition", facts.seconds), prepare, setting.written)
    memory = ways * size * facts.entries + 60 * setting.problem.arcs + 40 * setting.problem.n
    return candidate(setting, "prepared", phases, memory=memory)


def _prepare(setting: Setting, facts: PartsFacts) -> Phase:
    """Return the phase of steps 1 and 2 of ``engine.algorithms.partitioned``, which compute the tables of lengths."""
    rate = setting.rate / setting.machine.threads * PARTS_EFFICIENCY
    seconds = facts.prepare / rate + facts.count * PART_SECONDS
    return Phase("prepare", seconds, updates=facts.prepare)


def whole(n: int) -> PartsFacts:
    """Return the facts of a partition with a single part of ``n`` vertices, which amounts to Floyd-Warshall."""
    return PartsFacts(count=1, largest=n, border=0, sweep=0, prepare=n**3, entries=2 * n**2, seconds=0.0)
