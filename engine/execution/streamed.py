"""Solves that stream: opens the tier and the devices, runs rounds or passes, and gathers the summary of the rows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero, PanelDevice, Streamer
from engine.model.tier import mirror_rows
from engine.model.tiling import Tiling
from engine.planning.cost_streaming import store_buffers
from engine.rows.dense import ClosedRows, fill_weights, write_rows
from engine.rows.summary import SummarySink
from engine.streaming import passes, schedule
from engine.streaming.checkpoint import StoredSolve
from engine.streaming.finishing_tier import FinishingHostTier
from engine.streaming.forms import fingerprint
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.loading import Loading, Rows
from engine.streaming.progress_record import take_up
from engine.streaming.store_tier import IO_THREADS, StoreTier, tiles_of
from storage.errors import Cancelled
from storage.graph.graph import Graph
from storage.threads import ThreadPool

if TYPE_CHECKING:
    from engine.devices.cuda.pinned import HostMemory

#: Seconds to pause after locking or unlocking a range of host memory.  During that call the CUDA driver accepts no
#: calls for the working devices; in the pause it does.
_PAUSE: Final = 0.002
Array = npt.NDArray[np.generic]
Devices = Sequence[Streamer] | Sequence[PanelDevice]
log = logging.getLogger("apsp.engine")


def run(context: StoredSolve) -> dict[str, object]:
    """Carry out a plan that streams, into the working store; resume from its record.

    Args:
        context: the solve, whose plan has a ``streaming`` layout.

    Returns:
        The summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; work so far is committed if it took long enough to be worth it.
        NegativeCycle: the graph has a negative cycle, and the plan was made without looking for one.
        StorageFailed, SolveFailed, DoesNotFit: the store or a device failed; the last commit remains.
        ValueError: the plan does not stream.
    """
    graph, streaming = context.profile.graph, context.plan.streaming
    if streaming is None:
        raise ValueError("the plan does not stream")
    collector = SummarySink(context.sink, np.arange(graph.n), graph.n, integral=graph.integral)
    follow = _in_store if context.plan.tier == "store" else _in_memory
    try:
        with _devices(context.plan) as devices:
            follow(context, streaming, devices, collector)
    except BelowZero:
        _ = context.profile.potentials  # raises NegativeCycle with the cycle
        raise
    return collector.summary(graph.labels)


def _in_store(context: StoredSolve, streaming: Tiling, devices: Devices, collector: SummarySink) -> None:
    graph, monitor, count = context.profile.graph, context.monitor, store_buffers(streaming, len(devices))
    with _memory((count * streaming.height, graph.n), context.plan, monitor) as space:
        tier = StoreTier(
            context.journal,
            streaming,
            weights=partial(fill_weights, graph, context.kind),
            observe=collector.gather,
            monitor=monitor,
            buffers=np.split(space.array, count),
        )
        with tier, tier:
            _lower(context, tier, streaming, devices, nonnegative=context.profile.nonnegative, levels=tier.levels)


def _in_memory(context: StoredSolve, streaming: Tiling, devices: Devices, collector: SummarySink) -> None:
    plan, journal, monitor = context.plan, context.journal, context.monitor
    relaxed = context.profile.for_products(context.kind, monitor)
    potentials = relaxed.reduced_by
    levels = take_up(journal, streaming, relaxed.graph.n, potentials=fingerprint(potentials))
    space = context.after.enter_context(_memory(plan.shape, plan, monitor, ahead=True))
    with _loading(context, space, relaxed.graph, levels) as loading, loading:
        loading.begin()
        matrix, idle = space.array, plan.device != "cpu"
        if streaming.passes and potentials is None:
            with (
                FinishingHostTier(matrix, streaming, journal, collector, monitor, threads=plan.threads, idle=idle) as t,
                t,
            ):
                t.begin(levels, loading, _unlocking(context, space))
                _lower(context, t, streaming, devices, nonnegative=relaxed.nonnegative, levels=levels)
            return
        loading.wait(monitor, range(streaming.stripes(relaxed.graph.n)))
        with KeptHostTier(matrix, streaming, journal, threads=plan.threads, idle=idle) as tier, tier:
            tier.level[:] = levels
            _lower(context, tier, streaming, devices, nonnegative=relaxed.nonnegative, levels=levels)
        if potentials is not None:  # distances now replace reduced lengths, and no round can resume from distances
            journal.forget()
        whole = partial(mirror_rows, matrix) if streaming.symmetric else None
        write_rows(ClosedRows(matrix, potentials=potentials), collector, monitor, plan.threads, before=whole)


def _lower(
    context: StoredSolve,
    tier: StoreTier | KeptHostTier,
    streaming: Tiling,
    devices: Devices,
    *,
    nonnegative: bool,
    levels: npt.NDArray[np.int64],
) -> None:
    """Run the passes or rounds that remain after ``levels``; if the solve is cancelled, commit work that took long
    enough to be worth it.
    """
    try:
        if streaming.passes:
            panels = cast(Sequence[PanelDevice], devices)
            passes.run(streaming, tier, panels, context.monitor, nonnegative=nonnegative, levels=levels)
            return
        first, streamers = int(levels.min()) + 1 if len(levels) else 0, cast(Sequence[Streamer], devices)
        schedule.run(streaming, tier, streamers, context.monitor, nonnegative=nonnegative, first_round=first)
    except Cancelled:
        if context.journal.worth():
            tier.save()
        raise


@dataclass(frozen=True)
class _Space:
    """Host memory for a solve on processors; its operations are those of ``engine.devices.cuda.pinned.HostMemory``."""

    array: Array

    def lock(self, first: int = 0, last: int | None = None, *, pause: float = 0.0) -> None:
        """Do nothing: pages are locked only for a GPU that reads them."""

    def release(self, first: int = 0, last: int | None = None, *, pause: float = 0.0) -> None:
        """Do nothing: no page was locked."""


@contextlib.contextmanager
def _memory(
    shape: tuple[int, int], plan: Plan, monitor: Monitor, *, ahead: bool = False
) -> Iterator[_Space | HostMemory]:
    """Yield host memory for the devices of a plan.

    Args:
        shape: rows and columns.
        plan: gives the type, the device and the threads.
        monitor: gets the phase ``prepare``.
        ahead: leave the pages unlocked, because the caller locks them.
    """
    dtype = WORK_TYPES[plan.dtype].dtype
    if plan.device == "cpu":
        yield _Space(np.empty(shape, dtype))
        return
    from engine.devices.cuda.pinned import host_matrix

    monitor.begin("prepare", 1, "memory")
    with host_matrix(shape, dtype, threads=plan.threads, ahead=ahead) as memory:
        monitor.step(1)
        try:
            yield memory
        finally:
            if memory.refused:
                log.warning("%s", memory.refused)


def _loading(context: StoredSolve, space: _Space | HostMemory, graph: Graph, levels: npt.NDArray[np.int64]) -> Loading:
    """Return the loader of the matrix: it reads the stripes that are in the store, and makes all other stripes from the
    arcs of ``graph``.
    """
    matrix = space.array
    writer, kind, streaming = context.journal.writer, context.kind, cast(Tiling, context.plan.streaming)
    row, pause = graph.n * matrix.itemsize, _PAUSE if streaming.passes else 0.0

    def fill(first: int, last: int) -> None:
        stripe, rows = first // streaming.height, matrix[first:last]
        if levels[stripe] < 0:
            fill_weights(graph, kind, first, rows)
            return
        for i, j, out in tiles_of(writer, first, rows, streaming.left(stripe)):
            writer.read_tile(i, j, out)

    return Loading(
        streaming,
        (graph.n, row),
        fill=fill,
        lock=lambda first, last: space.lock(first * row, last * row, pause=pause),
        band=writer.tile[0],
        order=passes.order(levels, streaming, graph.n) if streaming.passes else (),
        threads=max(IO_THREADS, context.plan.threads),
    )


def _unlocking(context: StoredSolve, space: _Space | HostMemory) -> Rows:
    """Return a function that lets a thread unlock rows of the matrix; the thread ends when the store is sealed.

    A failure is logged, but does not fail the solve: the devices no longer need these rows, and the pages are unlocked
    when the memory is freed.
    """
    row = space.array.shape[1] * space.array.itemsize
    pool = ThreadPool(1, "apsp-unlock")
    for _ in range(2):  # pools are entered twice (``storage.threads``)
        context.after.enter_context(pool)

    def unlock(first: int, last: int) -> None:
        at_work = last - first < len(space.array)  # all rows are unlocked only when the devices have finished
        try:
            space.release(first * row, last * row, pause=_PAUSE if at_work else 0.0)
        except RuntimeError as error:
            log.warning("pages of rows %d to %d stay locked for now: %s", first, last - 1, error)

    def begin(first: int, last: int) -> None:
        pool.submit(unlock, first, last)

    return begin


@contextlib.contextmanager
def _devices(plan: Plan) -> Iterator[Devices]:
    passing = plan.streaming is not None and plan.streaming.passes
    if plan.device == "cuda":
        from engine.devices.cuda.stripes.panels import CudaPanels
        from engine.devices.cuda.stripes.streamer import CudaStreamer, found_devices

        # as many GPUs as the plan was made for, or all if fewer are there now
        count, kind = min(plan.devices, found_devices()), CudaPanels if passing else CudaStreamer
        yield cast(Devices, [kind(device, memory=plan.device_memory) for device in range(count)])
        return
    from engine.devices.cpu.backend import CpuBackend
    from engine.streaming.cpu_device import CpuStreamer
    from engine.streaming.cpu_panels import CpuPanels

    backend = CpuBackend(plan.threads)
    try:
        yield [CpuPanels(backend)] if passing else [CpuStreamer(backend)]
    finally:
        backend.shutdown()
