"""Solves a graph with the workers of a Dask scheduler, and returns the summary of all rows."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.distributed.dask_cluster import Cluster
from engine.distributed.dense.assignment import Stripe, stripes_at
from engine.distributed.dense.driver import DenseDriver
from engine.distributed.messages import DistributedJob, code_digest
from engine.distributed.planning import address_of, gather
from engine.distributed.rows_driver import RowsDriver
from engine.model.stripe_device import BelowZero
from engine.rows.summary import Summary
from engine.streaming.checkpoint import Journal, StoredSolve
from engine.streaming.forms import fingerprint
from engine.streaming.progress_record import take_up


def run(context: StoredSolve) -> dict[str, object]:
    """Carry out a plan with workers, which write into the working store; resume from the store's record.

    Args:
        context: the solve, whose options name the scheduler.

    Returns:
        The summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; finished work is committed first, unless it took very little time.
        InvalidRequest: there is no scheduler, or no suitable worker.
        NegativeCycle: the graph has a negative cycle, and planning has not searched for one.
        SolveFailed: the scheduler or all workers are lost; the last commit remains.
        StorageFailed: a worker or this process could not read or write.
    """
    graph, plan, rectangle, journal = context.profile.graph, context.plan, context.rectangle, context.journal
    summary = Summary(rectangle.rows, graph.n, integral=graph.integral, targets=rectangle.targets)
    with Cluster(address_of(context.options)) as cluster:
        workers = gather(cluster, plan.device, plan.workers)
        job = _job(context)
        try:
            if plan.streaming is None:
                done = int((journal.writer.record() or {}).get("rows", 0))
                RowsDriver(cluster, workers, job, journal, summary, context.monitor, done).run()
            elif job.n:
                stripes = _take_up(job, journal)
                DenseDriver(cluster, workers, job, journal, summary, context.monitor, stripes).run()
        except BelowZero:
            _ = context.profile.potentials  # this raises NegativeCycle, which names the cycle
            raise
    return summary.summary(graph.labels)


def _take_up(job: DistributedJob, journal: Journal) -> list[Stripe]:
    """Return the stripes in the state that the record says, after adapting the record to the tiling of this plan."""
    upper = bool((journal.writer.record() or {}).get("symmetric"))
    potentials = fingerprint(np.load(Path(job.exchange_dir).parent / "potentials.npy")) if job.reduced else None
    return stripes_at(take_up(journal, job.tiling, job.n, potentials=potentials, joined=True), upper=upper)


def _job(context: StoredSolve) -> DistributedJob:
    writer, profile, plan, rectangle = context.journal.writer, context.profile, context.plan, context.rectangle
    exchange_dir = writer.make_exchange_dir()
    # searches need non-negative arcs in every type
    searched = plan.algorithm == "johnson" and not profile.nonnegative
    reduced = searched or profile.holds_reduced(context.kind, plan.max_hops)
    if reduced:
        np.save(exchange_dir.parent / "potentials.npy", profile.find_potentials(context.monitor))
    sides = tuple(None if side is None else side.tobytes() for side in (rectangle.sources, rectangle.targets))
    return DistributedJob(
        run=secrets.token_hex(6),
        code=code_digest(),
        store=str(store_of(exchange_dir)),
        exchange_dir=str(exchange_dir),
        plan=replace(plan, candidates=(), statistics=None),
        sides=(sides[0], sides[1]),
        compression=writer.compression,
        nonnegative=profile.nonnegative or reduced,
        reduced=reduced,
        integral=profile.graph.integral,
        tile=writer.tile,
        shape=writer.shape,
        device=plan.device,
    )


def store_of(exchange_dir: Path) -> Path:
    """Return the folder of the store in the making to which an exchange folder belongs."""
    return exchange_dir.parent.parent / "store"
