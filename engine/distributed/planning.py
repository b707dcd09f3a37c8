"""Planning over workers: which workers there are, what they can do, and the plan for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.distributed.dask_cluster import REACH, Cluster, WorkerJoined, WorkerLeft
from engine.distributed.messages import WorkerInfo
from engine.execution.survey import survey
from engine.graph.analysis import describe, statistics
from engine.graph.ordering import hops_of
from engine.graph.partition import ENTRY_BYTES, with_parts
from engine.graph.potentials import find_potentials
from engine.graph.selection import Rectangle
from engine.model.plan import Plan
from engine.model.problem import Device, Options, Workers
from engine.model.system import available_memory
from engine.planning.binding import bind_plan
from engine.planning.planner import choose, choose_type
from engine.streaming.checkpoint import bound_to, resumable
from storage.errors import InvalidRequest, SolveFailed
from storage.graph.graph import Graph
from storage.matrix.reader import matrix_bytes

__all__ = ["gather", "make_plan"]

#: After this many seconds without a new worker the present ones are taken to be all.
QUIET: Final = 0.5


def make_plan(graph: Graph, options: Options, *, out: Path | None = None, resume: bool = False) -> Plan:
    """Make a plan as :func:`engine.api.solve.make_plan` does, for ``options.executor`` dask.

    Args:
        graph: the graph.
        options: the options, checked by the caller.
        out: path of the store; None if no store is written.
        resume: whether to resume from the checkpoint at ``out``.

    Raises:
        InvalidRequest: there is no scheduler, no worker, or no suitable worker.
        Others: as :func:`engine.api.solve.make_plan`.
    """
    with Cluster(address_of(options)) as cluster:
        workers = gather(cluster, options.device)
    return plan_for(graph, options, workers, out=out, resume=resume)


def plan_for(
    graph: Graph, options: Options, workers: Mapping[str, WorkerInfo], *, out: Path | None, resume: bool = False
) -> Plan:
    """Return the plan for given workers.

    Args:
        graph: the graph.
        options: the options.
        workers: the workers by address, all with the same kind of device.
        out: path of the store; None if no store is written.
        resume: whether to resume from the checkpoint at ``out``.
    """
    asked, options = options, replace(bound_to(resumable(out, resume=resume), options), device="auto")
    rows, targets = (None if side is None else len(side) for side in (options.sources, options.targets))
    problem = describe(graph, rows=rows, targets=targets, max_hops=options.max_hops, cutoff=options.cutoff)
    problem = replace(problem, permuted=Rectangle.of(options, graph.n).permuted)
    if options.algorithm == "partitioned" and problem.max_hops is None:
        problem = with_parts(graph, problem, available_memory() // ENTRY_BYTES)
    kind, _ = choose_type(problem, options.dtype)
    tiles = matrix_bytes((problem.rows, problem.columns), kind.itemsize)
    arcs = graph.heads.nbytes + graph.weights.nbytes + graph.indptr.nbytes
    store = int(tiles * 1.005) + arcs + 4 * graph.labels.nbytes + 2**20
    machine = survey(out=out, memory=options.memory)
    found = summed_up(workers)
    machine = replace(machine, workers=found)
    if found.device == "cuda":
        rate = {name: value / found.count for name, value in found.relax_rate.items()}
        machine = replace(machine, cuda=Device(found.name, found.memory, found.memory, rate))
        problem = replace(problem, hops=hops_of(graph))
    if problem.negative:
        find_potentials(graph)
    plan = choose(problem, machine, options, store=store)
    return bind_plan(replace(plan, threads=found.threads, statistics=statistics(graph, problem)), graph, asked)


def address_of(options: Options) -> str:
    """Return the address of the scheduler.

    Raises:
        InvalidRequest: the options name none.
    """
    if not options.scheduler:
        raise InvalidRequest("executor dask needs the address of a Dask scheduler (--scheduler)", field="scheduler")
    return options.scheduler


def gather(cluster: Cluster, device: str, enough: int = 0) -> dict[str, WorkerInfo]:
    """Return the workers that can solve together: they run this program and have the same kind of device.

    The function waits until no worker has joined for ``QUIET`` seconds or until ``enough`` are there; more may join
    later.

    Args:
        cluster: the connection to the workers.
        device: ``cpu``, ``cuda``, or ``auto`` for GPUs where there are any.
        enough: the number of workers that ends the waiting; 0 if it is not known.

    Raises:
        InvalidRequest: no worker has a suitable device.
        SolveFailed: there is no worker, or all were refused; the message names the reason.
    """
    found: dict[str, WorkerInfo] = {}
    began = heard = time.monotonic()
    while time.monotonic() - began < REACH:
        for event in cluster.events(0.05):
            if isinstance(event, WorkerJoined):
                found[event.worker] = event.info
                heard = time.monotonic()
            elif isinstance(event, WorkerLeft):
                found.pop(event.worker, None)
        if cluster.settled() and time.monotonic() - heard > QUIET:
            break
        if enough and sum(info.device == device for info in found.values()) >= enough:
            break
    kinds = {info.device for info in found.values()}
    wanted = device if device != "auto" else "cuda" if "cuda" in kinds else "cpu"
    suiting = {name: info for name, info in found.items() if info.device == wanted}
    if suiting:
        return suiting
    if found:
        raise InvalidRequest(f"none of the {len(found)} workers at {cluster.address} has a GPU", field="device")
    refused = "".join(f"; {worker} is refused: {why}" for worker, why in cluster.refused.items())
    raise SolveFailed(
        f"no worker of apsp is at the Dask scheduler {cluster.address} (apsp worker starts them){refused}"
    )


def summed_up(workers: Mapping[str, WorkerInfo]) -> Workers:
    """Return the sums and minima over all workers that the planner needs."""
    all_ = list(workers.values())
    kinds = set.intersection(*(set(info.relax_rate) for info in all_))
    return Workers(
        count=len(all_),
        device=all_[0].device,
        name=", ".join(sorted({info.name for info in all_})),
        threads=min(info.threads for info in all_),
        memory=min(info.memory for info in all_),
        relax_rate={kind: sum(info.relax_rate[kind] for info in all_) for kind in sorted(kinds)},
        host_memory=min(info.host_memory for info in all_),
    )
