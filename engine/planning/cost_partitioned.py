"""Predicted costs of the partitioned algorithm, on processors and GPUs."""

from __future__ import annotations

from typing import Final

from engine.model.device_layout import SWEEP_ROWS, sweep_layout
from engine.model.plan import Candidate, Phase
from engine.model.problem import PartsFacts
from engine.planning.cost import BAND_ROWS, DEVICE_LAUNCH, OVERHEAD, Setting, batch_rows, device_write, write_phase

#: Share of one thread's rate of large products that steps 1 and 2 reach: most products are too small for more threads.
PREPARED: Final = 0.6
#: Seconds of a thread for each part of any size.
PART_SECONDS: Final = 1.2e-4
#: Share of the rate of large products that sweeps reach.
SWEPT: Final = 0.9
#: Seconds of a thread for each entry of the matrix besides its updates: it is cleared and put in its column.
ENTRY_SECONDS: Final = 1.6e-9


def estimate(setting: Setting) -> Candidate:
    """Estimate the updates that the trial partition found; without one, the graph is one part."""
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    facts = problem.parts or whole(problem.n)
    rate = setting.rate
    prepare = _prepare(setting, facts)
    updates = problem.rows * facts.sweep
    entries = problem.rows * problem.n
    sweep = Phase("sweep", updates / (rate * SWEPT) + entries * ENTRY_SECONDS / machine.threads, updates=updates)
    write = write_phase(setting)
    batch = batch_rows(problem.n, problem.rows, size, threads=machine.threads, memory=machine.memory)
    rows = 2 * batch + machine.threads * (SWEEP_ROWS + 8)
    return Candidate(
        algorithm="partitioned",
        memory=machine.resident
        + OVERHEAD
        + size * (facts.entries + rows * problem.n)
        + 60 * problem.arcs
        + 40 * problem.n,
        disk=setting.store,
        seconds=prepare.seconds + sweep.seconds + write.seconds,
        phases=(prepare, sweep, write),
        batch=batch,
    )


#: Seconds of launches and waits that a part takes in a batch on the device.
DEVICE_PART: Final = 1.2e-5
#: Share of the rate of large products that products over borders reach on the device; they are shallow and ragged.
DEVICE_SWEPT: Final = 0.3
#: Seconds until the first rows are swept, besides the products on the processors: arrays of parts are packed and sent,
#: and the sequence of launches is recorded.  0.04 to 0.06 from 13,000 to 40,000 vertices.
DEVICE_READY: Final = 0.05
#: Seconds for each entry on the device besides its updates: it is cleared, put in its column and summed up.
DEVICE_ENTRY: Final = 4e-12


def estimate_device(setting: Setting) -> Candidate:
    """Estimate steps 1 and 2 on the processors, and the rows on the GPU, which are copied while others are swept."""
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
        + DEVICE_READY
        + updates / (machine.cuda.relax_rate[setting.kind.name] * DEVICE_SWEPT)
        + batches * facts.count * DEVICE_PART
        + problem.rows * problem.n * DEVICE_ENTRY,
        updates=updates,
    )
    write = device_write(setting)
    alone = min(sweep.seconds, write.seconds) / max(1, batches)  # one batch; the others overlap
    bands = (machine.threads + 2) * BAND_ROWS * problem.n * size
    return Candidate(
        algorithm="partitioned",
        device="cuda",
        memory=machine.resident + OVERHEAD + 2 * size * facts.entries + bands + 60 * problem.arcs + 40 * problem.n,
        device_memory=layout.bytes(batch),
        disk=setting.store,
        seconds=prepare.seconds + max(sweep.seconds, write.seconds) + alone,
        phases=(prepare, sweep, write),
    )


def _prepare(setting: Setting, facts: PartsFacts) -> Phase:
    """Return the phase of steps 1 and 2."""
    rate = setting.rate / setting.machine.threads * PREPARED
    seconds = facts.prepare / rate + facts.count * PART_SECONDS
    return Phase("prepare", seconds, updates=facts.prepare)


def whole(n: int) -> PartsFacts:
    """Return the facts of a graph of ``n`` vertices that is one part, which is Floyd-Warshall."""
    return PartsFacts(count=1, largest=n, border=0, sweep=0, prepare=n**3, entries=2 * n**2, seconds=0.0)
