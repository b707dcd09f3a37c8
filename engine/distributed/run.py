"""A solve over the workers of a Dask scheduler: from the plan to the summary of all rows."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.distributed.assignment import stripes_at
from engine.distributed.dask_cluster import Cluster
from engine.distributed.dense_driver import DenseDriver
from engine.distributed.messages import DistributedJob, WorkerInfo, code_digest
from engine.distributed.planning import address_of, gather
from engine.distributed.rows_driver import RowsDriver
from engine.graph.potentials import find_potentials, holds_reduced, is_nonnegative
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.rows.summary import Summary
from engine.streaming.checkpoint import Journal
from engine.streaming.forms import fingerprint
from engine.streaming.progress_record import take_up
from storage.graph.graph import Graph


def run(graph: Graph, plan: Plan, options: Options, journal: Journal, monitor: Monitor) -> Summary:
    """Carry out ``plan`` over workers into the working store of ``journal``; resume from its record.

    Args:
        graph: the graph.
        plan: the plan.
        options: the options, which name the scheduler.
        journal: the working store and its records.
        monitor: gets progress and is asked whether to stop.

    Returns:
        The summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; the work done is committed if it is worth keeping.
        InvalidRequest: there is no scheduler, or no suitable worker.
        NegativeCycle: the graph has a negative cycle, and the plan was made without looking for one.
        SolveFailed: the scheduler or all workers are lost; the last commit stays.
        StorageFailed: a worker or this process could not read or write.
    """
    rectangle = Rectangle.of(options, graph.n)
    summary = Summary(rectangle.rows, graph.n, integral=graph.integral, targets=rectangle.targets, binary=True)
    with Cluster(address_of(options)) as cluster:
        workers = gather(cluster, plan.device, plan.workers)
        job = _job(graph, plan, rectangle, journal, monitor)
        try:
            if plan.streaming is None:
                done = int((journal.writer.record() or {}).get("rows", 0))
                RowsDriver(cluster, workers, job, journal, summary, monitor, done).run()
            else:
                _in_rounds(cluster, workers, job, journal, summary, monitor)
        except BelowZero:
            find_potentials(graph)  # names the cycle
            raise
    return summary


def _in_rounds(  # noqa: PLR0917
    cluster: Cluster,
    workers: Mapping[str, WorkerInfo],
    job: DistributedJob,
    journal: Journal,
    summary: Summary,
    monitor: Monitor,
) -> None:
    upper = bool((journal.writer.record() or {}).get("symmetric"))
    potentials = fingerprint(np.load(Path(job.exchange_dir).parent / "potentials.npy")) if job.reduced else None
    levels = take_up(journal, job.streaming, job.n, potentials=potentials, joined=True)
    if job.n:
        DenseDriver(cluster, workers, job, journal, summary, monitor, stripes_at(levels, upper=upper)).run()


def _job(graph: Graph, plan: Plan, rectangle: Rectangle, journal: Journal, monitor: Monitor) -> DistributedJob:
    writer, nonnegative = journal.writer, is_nonnegative(graph)
    exchange_dir = writer.make_exchange_dir()
    # searches need nonnegative arcs, whatever the type
    searched = plan.algorithm == "johnson" and not nonnegative
    reduced = searched or holds_reduced(graph, WORK_TYPES[plan.dtype], plan.max_hops)
    if reduced:
        monitor.begin("potentials", graph.arcs, "arcs")
        np.save(exchange_dir.parent / "potentials.npy", find_potentials(graph, monitor))
        monitor.step(graph.arcs)
    sides = tuple(None if side is None else side.tobytes() for side in (rectangle.sources, rectangle.targets))
    return DistributedJob(
        run=secrets.token_hex(6),
        code=code_digest(),
        store=str(store_of(exchange_dir)),
        exchange_dir=str(exchange_dir),
        plan=replace(plan, candidates=(), statistics=None),
        sides=(sides[0], sides[1]),
        compression=writer.compression,
        nonnegative=nonnegative or reduced,
        reduced=reduced,
        integral=graph.integral,
        tile=writer.tile,
        shape=writer.shape,
        device=plan.device,
    )


def store_of(exchange_dir: Path) -> Path:
    """Return the folder of the store in the making that an exchange folder belongs to."""
    return exchange_dir.parent.parent / "store"
