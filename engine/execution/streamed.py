"""Solves in streamed rounds: opens the tier and the devices, runs the rounds, and gathers the summary of the rows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero, Streamer
from engine.model.tier import mirror_rows
from engine.model.tiling import Tiling
from engine.planning.cost_streaming import store_buffers
from engine.rows.dense import ClosedRows, fill_weights, write_rows
from engine.rows.summary import SummarySink
from engine.streaming import schedule
from engine.streaming.checkpoint import StoredSolve
from engine.streaming.forms import fingerprint
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.progress_record import take_up
from engine.streaming.store_tier import IO_THREADS, StoreTier, tiles_of
from storage.errors import Cancelled
from storage.graph.graph import Graph

Array = npt.NDArray[np.generic]
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


def _in_store(context: StoredSolve, streaming: Tiling, devices: Sequence[Streamer], collector: SummarySink) -> None:
    graph, monitor, count = context.profile.graph, context.monitor, store_buffers(streaming, len(devices))
    with _memory((count * streaming.height, graph.n), context.plan, monitor) as (memory, ready):
        ready()
        tier = StoreTier(
            context.journal,
            streaming,
            weights=partial(fill_weights, graph, context.kind),
            observe=collector.gather,
            monitor=monitor,
            buffers=np.split(memory, count),
        )
        with tier:
            _rounds(context, tier, streaming, devices, nonnegative=context.profile.nonnegative, first=tier.first_round)


def _in_memory(context: StoredSolve, streaming: Tiling, devices: Sequence[Streamer], collector: SummarySink) -> None:
    plan, journal, monitor = context.plan, context.journal, context.monitor
    relaxed = context.profile.for_products(context.kind, monitor)
    potentials = relaxed.reduced_by
    levels = take_up(journal, streaming, relaxed.graph.n, potentials=fingerprint(potentials))
    with _memory(plan.shape, plan, monitor) as (matrix, ready):
        _load(context, matrix, relaxed.graph, streaming, levels)
        ready()
        idle = plan.device != "cpu"
        with KeptHostTier(matrix, streaming, journal, threads=plan.threads, idle=idle) as tier:
            tier.level[:] = levels
            first = int(tier.level.min()) + 1
            _rounds(context, tier, streaming, devices, nonnegative=relaxed.nonnegative, first=first)
        if potentials is not None:  # finished rows are not reduced, so rounds could not resume from them
            journal.forget()
        whole = partial(mirror_rows, matrix) if streaming.symmetric else None
        write_rows(ClosedRows(matrix, potentials=potentials), collector, monitor, plan.threads, before=whole)


def _rounds(
    context: StoredSolve,
    tier: StoreTier | KeptHostTier,
    streaming: Tiling,
    devices: Sequence[Streamer],
    *,
    nonnegative: bool,
    first: int,
) -> None:
    """Run the rounds from round ``first`` on; if the solve is cancelled, commit what took long enough to be worth
    it.
    """
    try:
        schedule.run(streaming, tier, devices, context.monitor, nonnegative=nonnegative, first_round=first)
    except Cancelled:
        if context.journal.worth():
            tier.save()
        raise


@contextlib.contextmanager
def _memory(shape: tuple[int, int], plan: Plan, monitor: Monitor) -> Iterator[tuple[Array, Callable[[], None]]]:
    """Yield host memory, and a function to call before devices use it: when it returns, the memory is page-locked."""
    dtype = WORK_TYPES[plan.dtype].dtype
    if plan.device == "cpu":
        yield np.empty(shape, dtype), lambda: None
        return
    from engine.devices.cuda.pinned import host_matrix

    monitor.begin("prepare", 1, "memory")
    with host_matrix(shape, dtype, threads=plan.threads, ahead=True) as memory:
        monitor.step(1)

        def ready() -> None:
            memory.wait()
            if memory.refused:
                log.warning("%s", memory.refused)

        yield memory.array, ready


def _load(context: StoredSolve, matrix: Array, graph: Graph, streaming: Tiling, levels: npt.NDArray[np.int64]) -> None:
    """Fill the matrix: stripes that the store has are read, and all others are made from the weights of ``graph``."""
    writer, kind = context.journal.writer, context.kind
    context.monitor.begin("ingest", graph.n, "rows")

    def load(stripe: int) -> int:
        first, last = streaming.rows(stripe, graph.n)
        rows = matrix[first:last]
        if levels[stripe] < 0:
            fill_weights(graph, kind, first, rows)
        else:
            for i, j, out in tiles_of(writer, first, rows, streaming.left(stripe)):
                writer.read_tile(i, j, out)
        return last - first

    with ThreadPoolExecutor(max(IO_THREADS, context.plan.threads), "apsp-load") as pool:
        for count in pool.map(load, range(streaming.stripes(graph.n))):
            context.monitor.step(count)


@contextlib.contextmanager
def _devices(plan: Plan) -> Iterator[Sequence[Streamer]]:
    if plan.device == "cuda":
        from engine.devices.cuda.stripes.streamer import CudaStreamer, found_devices

        # use at most the number of GPUs that the plan counted with
        count = min(plan.devices, found_devices())
        yield [CudaStreamer(device, memory=plan.device_memory) for device in range(count)]
        return
    from engine.devices.cpu.backend import CpuBackend
    from engine.streaming.cpu_device import CpuStreamer

    backend = CpuBackend(plan.threads)
    try:
        yield [CpuStreamer(backend)]
    finally:
        backend.shutdown()
