"""Predicted costs of streaming through GPUs, from host memory and from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.model.device_layout import base_bytes, rounds_bytes
from engine.model.dtypes import relaxes_reduced
from engine.model.plan import Candidate, Phase
from engine.model.problem import Device
from engine.model.tiling import (
    GRAIN,
    SLOTS,
    Tiling,
    device_bytes,
    entries,
    passed_bytes,
    streamed_bytes,
    updates,
)
from engine.planning.constants import (
    COPY_START_ROWS,
    DEVICE_EFFICIENCY,
    DEVICE_LAUNCH,
    DRIVER_BYTES,
    FEW_SLOTS,
    FILL_RATE,
    LONG_ON_GPU,
    MIRROR_RATE,
    MIRROR_THREADS,
    MORE_GPUS_PAY,
    SHARED_FROM,
    TILE_THREADS_BYTES,
    UNHIDDEN,
)
from engine.planning.cost import Setting, candidate
from engine.planning.cost_streaming import ALGORITHM, disk_work, finish_phase, forms, spare_bytes, store_buffers
from engine.planning.layouts import (
    GPU_HEIGHTS,
    GPU_SLOTS,
    GPU_STORE_WIDTHS,
    LayoutGrid,
    StreamingDevices,
    choose_layout,
    fastest,
    least_layout,
    waiting,
    whole_width,
)


def through_devices(setting: Setting) -> Iterator[Candidate]:
    """Yield the candidates that stream through the machine's GPUs, each with as many GPUs as are worth using.

    A matrix that fits on one GPU is streamed only if the solve is so long that commits are worth their time, or if
    several GPUs can share it.
    """
    cuda, n, size = setting.machine.cuda, setting.problem.n, setting.kind.itemsize
    if cuda is None:
        return
    fits = base_bytes(n, n, size) + rounds_bytes(n, size) <= cuda.memory
    if fits and n**3 / rate_of(setting, cuda, 1) < LONG_ON_GPU and (cuda.count == 1 or n < SHARED_FROM):
        return
    yield as_many_as_pay([from_host(setting, some) for some in _shares(cuda)], setting)
    if not relaxes_reduced(setting.kind, setting.problem):  # finding potentials needs all rows at once
        yield as_many_as_pay([from_store(setting, some) for some in _shares(cuda)], setting)


def _shares(cuda: Device) -> list[Device]:
    """Return the GPUs that may share a matrix: one, two, four and so on, and all, the fewest first."""
    counts = [2**power for power in range(cuda.count.bit_length()) if 2**power < cuda.count]
    return [replace(cuda, count=count) for count in (*counts, cuda.count)]


def as_many_as_pay(found: Sequence[Candidate], setting: Setting) -> Candidate:
    """Return the candidate with the most GPUs that are worth using: more GPUs must take less than ``MORE_GPUS_PAY`` of
    the time.  If no candidate fits the machine's memory, return the candidate with the fewest GPUs.

    Args:
        found: candidates of one tier, the fewest GPUs first.
        setting: problem, machine and type.
    """
    memory, best = setting.machine.memory, found[0]
    for more in found[1:]:
        if more.memory <= memory and (best.memory > memory or more.seconds < MORE_GPUS_PAY * best.seconds):
            best = more
    return best


def rate_of(setting: Setting, cuda: Device, count: int) -> float:
    """Return the updates per second that whole solves reach.

    Args:
        setting: problem, machine and type.
        cuda: the GPU.
        count: number of GPUs.
    """
    return count * cuda.relax_rate[setting.kind.name] * DEVICE_EFFICIENCY


def from_host(setting: Setting, cuda: Device) -> Candidate:
    """Estimate rounds or passes over host memory; if no layout fits a device, in the layout that needs least memory."""
    found = [_host(setting, cuda, symmetric=symmetric) for symmetric in forms(setting.problem)]
    if False in forms(setting.problem):
        found.append(_host(setting, cuda, passes=True))
    fitting = [c for c in found if c.device_memory <= cuda.memory]
    return min(fitting, key=lambda c: c.seconds) if fitting else min(found, key=lambda c: c.device_memory)


def _host(setting: Setting, cuda: Device, *, symmetric: bool = False, passes: bool = False) -> Candidate:
    n, size, machine, count = setting.problem.n, setting.kind.itemsize, setting.machine, cuda.count
    bus = min(count * cuda.bus_rate, cuda.bus_most)
    devices = StreamingDevices(count, cuda.memory, bus, rate_of(setting, cuda, count))
    tiling = choose_layout(n, size, devices, symmetric=symmetric, passes=passes)
    tiling = tiling or least_layout(symmetric=symmetric, passes=passes)
    # all threads fill rows while earlier rows are page-locked; passes begin as soon as the first panel is filled
    rate = FILL_RATE * max(1.0, machine.threads / 2)
    fill = setting.matrix * max(cuda.touch_seconds + 1 / rate, cuda.lock_seconds)
    fill *= min(1.0, tiling.width / n) if passes else 1.0
    moved = passed_bytes(tiling, n, size, count)[0] if tiling.passes else tiling.rounds(n) * streamed_bytes(
        tiling, n, size, count
    ) + setting.matrix  # fmt: skip
    relax = _relax(setting, cuda, tiling, moved / bus, moved)
    phases = (
        Phase("ingest", DEVICE_LAUNCH + fill, bytes=setting.matrix),
        relax,
        _rest(_write(setting, mirrored=False), relax) if tiling.passes else _write(setting, mirrored=symmetric),
    )
    return candidate(
        setting,
        ALGORITHM,
        phases,
        memory=DRIVER_BYTES + setting.matrix + 4 * machine.threads * GRAIN * n * size,
        disk=spare_bytes(setting.store),
        device="cuda",
        device_memory=device_bytes(tiling, n, size),
        streaming=tiling,
        devices=cuda.count,
    )


def _write(setting: Setting, *, mirrored: bool) -> Phase:
    """Return the phase of writing rows; if ``mirrored``, the same threads also mirror the upper half in this phase."""
    phase = setting.written
    turning = setting.matrix / (MIRROR_RATE * min(setting.machine.threads, MIRROR_THREADS)) if mirrored else 0.0
    return replace(phase, seconds=max(phase.seconds, turning) + UNHIDDEN * min(phase.seconds, turning))


def _rest(write: Phase, relax: Phase) -> Phase:
    """Return the phase of writing that remains after the passes.  During the second half of ``relax``, finished rows
    are already written.
    """
    hidden = relax.seconds / 2
    return replace(write, seconds=max(0.0, write.seconds - hidden) + UNHIDDEN * min(write.seconds, hidden))


def from_store(setting: Setting, cuda: Device) -> Candidate:
    """Estimate rounds or passes over the working store.

    The layout is the fastest one that fits.  If none fits in host memory, it is the layout that takes least host
    memory; if none fits on a device, the layout that needs least device memory.
    """
    widths = [w for w in GPU_STORE_WIDTHS if w <= whole_width(setting.problem.n)]
    grid = LayoutGrid("store", widths, GPU_HEIGHTS, GPU_SLOTS, forms(setting.problem), passes=True)
    found = [_store(setting, cuda, tiling) for tiling in grid.layouts()]
    fitting = fastest([c for c in found if c.device_memory <= cuda.memory], setting.machine.memory)
    return fitting or min(found, key=lambda c: (c.device_memory, c.memory))


def _store(setting: Setting, cuda: Device, tiling: Tiling) -> Candidate:
    n, size, machine = setting.problem.n, setting.kind.itemsize, setting.machine
    moved, disk = disk_work(setting, tiling)
    over_bus = passed_bytes(tiling, n, size)[0] if tiling.passes else tiling.rounds(n) * entries(tiling, n) * size
    seconds = max(
        disk,
        over_bus / min(cuda.count * cuda.bus_rate, cuda.bus_most),
        moved * machine.stream_work / machine.threads,
    )
    phases = [_relax(setting, cuda, tiling, seconds, moved)]
    if tiling.symmetric:
        phases.append(finish_phase(setting))
    buffers = store_buffers(tiling, cuda.count) * tiling.height * n * size
    return candidate(
        setting,
        ALGORITHM,
        phases,
        memory=DRIVER_BYTES + TILE_THREADS_BYTES + buffers,
        disk=spare_bytes(setting.store),
        seconds=DEVICE_LAUNCH + sum(phase.seconds for phase in phases),
        device="cuda",
        tier="store",
        device_memory=device_bytes(tiling, n, size),
        streaming=tiling,
        devices=cuda.count,
    )


def _relax(setting: Setting, cuda: Device, tiling: Tiling, copying: float, moved: int) -> Phase:
    """Return the phase of all rounds: products and closing overlap with ``copying`` seconds of copies."""
    n = setting.problem.n
    count, width = updates(tiling, n), min(tiling.width, n)
    # a panel of an undirected graph is relaxed over its whole length, though only half of the stripes' entries are kept
    closing = n * width * width + (n * n * width if tiling.symmetric else 0)
    work = (count + closing) / rate_of(setting, cuda, cuda.count)
    if tiling.passes:
        rate = min(cuda.bus_rate, cuda.bus_most / cuda.count)
        bus = rate_of(setting, cuda, 1) * setting.kind.itemsize / (rate * width)
        work *= 1 + waiting(tiling, n, cuda.count, bus)
    # stripes of fewer rows are more stripes, and each of them waits once for the disk, the bus and the device
    copying *= 1 + COPY_START_ROWS / tiling.height + (FEW_SLOTS if tiling.slots < SLOTS else 0.0)
    seconds = max(work, copying)
    if tiling.tier == "store":
        seconds += UNHIDDEN * min(work, copying)
    return Phase("relax", seconds, bytes=moved, updates=count)
