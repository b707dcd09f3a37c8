"""A solve in streamed rounds: from the plan to tiers and devices, then to rows and their summary."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.graph.potentials import find_potentials, for_products, is_nonnegative
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero, Streamer
from engine.model.tier import mirror_rows
from engine.model.tiling import Tiling
from engine.planning.cost_streaming import store_buffers
from engine.rows.dense import fill_weights, write_rows
from engine.rows.summary import SummarySink
from engine.streaming import schedule
from engine.streaming.checkpoint import Journal
from engine.streaming.forms import fingerprint
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.progress_record import take_up
from engine.streaming.store_tier import IO_THREADS, StoreTier, tiles_of
from storage.errors import Cancelled
from storage.graph.graph import Graph

Array = npt.NDArray[np.generic]
log = logging.getLogger("apsp.engine")


def run(graph: Graph, plan: Plan, journal: Journal, monitor: Monitor) -> SummarySink:
    """Carry out ``plan``, which streams, into the working store of ``journal``; resume from its record.

    Args:
        graph: the graph.
        plan: a plan with a ``streaming`` layout.
        journal: the working store and its records.
        monitor: gets progress and is asked whether to stop.

    Returns:
        The sink that has gathered the facts of all rows.

    Raises:
        Cancelled: the monitor asked to stop; the work done is committed if it is worth keeping.
        NegativeCycle: the graph has a negative cycle, and the plan was made without looking for one.
        StorageFailed, SolveFailed, DoesNotFit: the store or a device failed; the last commit stays.
        ValueError: the plan does not stream.
    """
    if plan.streaming is None:
        raise ValueError("the plan does not stream")
    collector = SummarySink(journal.writer, np.arange(graph.n), graph.n, integral=graph.integral)
    follow = _in_store if plan.tier == "store" else _in_memory
    try:
        with _devices(plan) as devices:
            follow(graph, plan, plan.streaming, devices, journal, collector, monitor)
    except BelowZero:
        find_potentials(graph)  # names the cycle
        raise
    return collector


def _in_store(  # noqa: PLR0917
    graph: Graph,
    plan: Plan,
    streaming: Tiling,
    devices: Sequence[Streamer],
    journal: Journal,
    collector: SummarySink,
    monitor: Monitor,
) -> None:
    count = store_buffers(streaming, len(devices))
    with _memory((count * streaming.height, graph.n), plan, monitor) as (memory, ready):
        ready()
        tier = StoreTier(
            journal,
            streaming,
            weights=partial(fill_weights, graph, WORK_TYPES[plan.dtype]),
            observe=collector.observe,
            monitor=monitor,
            buffers=np.split(memory, count),
        )
        with tier:
            nonnegative, first = is_nonnegative(graph), tier.first_round
            _rounds(tier, streaming, devices, journal, monitor, nonnegative=nonnegative, first=first)


def _in_memory(  # noqa: PLR0917
    graph: Graph,
    plan: Plan,
    streaming: Tiling,
    devices: Sequence[Streamer],
    journal: Journal,
    collector: SummarySink,
    monitor: Monitor,
) -> None:
    relaxed = for_products(graph, WORK_TYPES[plan.dtype], monitor)
    potentials, nonnegative = relaxed.potentials, relaxed.nonnegative
    levels = take_up(journal, streaming, graph.n, potentials=fingerprint(potentials))
    with _memory(plan.shape, plan, monitor) as (matrix, ready):
        _load(matrix, relaxed.graph, plan, streaming, levels, journal, monitor)
        ready()
        idle = plan.device != "cpu"
        with KeptHostTier(matrix, streaming, journal, threads=plan.threads, idle=idle) as tier:
            tier.level[:] = levels
            first = int(tier.level.min()) + 1
            _rounds(tier, streaming, devices, journal, monitor, nonnegative=nonnegative, first=first)
        if potentials is not None:  # no round can resume from rows without potentials
            journal.forget()
        whole = partial(mirror_rows, matrix) if streaming.symmetric else None
        write_rows(matrix, None, collector, monitor, plan.threads, potentials=potentials, before=whole)


def _rounds(
    tier: StoreTier | KeptHostTier,
    streaming: Tiling,
    devices: Sequence[Streamer],
    journal: Journal,
    monitor: Monitor,
    *,
    nonnegative: bool,
    first: int,
) -> None:
    """Run the rounds from round ``first`` on; if the solve is cancelled, commit work that is worth keeping."""
    try:
        schedule.run(streaming, tier, devices, monitor, nonnegative=nonnegative, first_round=first)
    except Cancelled:
        if journal.worth():
            tier.save()
        raise


@contextlib.contextmanager
def _memory(shape: tuple[int, int], plan: Plan, monitor: Monitor) -> Iterator[tuple[Array, Callable[[], None]]]:
    """Yield host memory and a function; where there are devices, the memory is page-locked once that function has
    returned.
    """
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


def _load(  # noqa: PLR0917
    matrix: Array,
    graph: Graph,
    plan: Plan,
    streaming: Tiling,
    levels: npt.NDArray[np.int64],
    journal: Journal,
    monitor: Monitor,
) -> None:
    """Fill the matrix with the stripes that the store has, and with weights for all others."""
    monitor.begin("ingest", graph.n, "rows")

    def load(stripe: int) -> int:
        first, last = streaming.rows(stripe, graph.n)
        rows = matrix[first:last]
        if levels[stripe] < 0:
            fill_weights(graph, WORK_TYPES[plan.dtype], first, rows)
        else:
            for i, j, out in tiles_of(journal.writer, first, rows, streaming.left(stripe)):
                journal.writer.read_tile(i, j, out)
        return last - first

    with ThreadPoolExecutor(max(IO_THREADS, plan.threads), "apsp-load") as pool:
        for count in pool.map(load, range(streaming.stripes(graph.n))):
            monitor.step(count)


@contextlib.contextmanager
def _devices(plan: Plan) -> Iterator[Sequence[Streamer]]:
    if plan.device == "cuda":
        from engine.devices.cuda.streaming import CudaStreamer, found_devices

        # the plan's prediction is the limit: it is at most what was asked for
        yield [CudaStreamer(device, memory=plan.device_memory) for device in range(found_devices())]
        return
    from engine.devices.cpu.backend import CpuBackend
    from engine.streaming.cpu_device import CpuStreamer

    backend = CpuBackend(plan.threads)
    try:
        yield [CpuStreamer(backend)]
    finally:
        backend.shutdown()
