"""Finds the workers for a plan, and their memory, processors and rates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.distributed.dask_cluster import REACH, Cluster, WorkerJoined, WorkerLeft
from engine.distributed.messages import WorkerInfo
from engine.execution.survey import survey
from engine.model.problem import Device, Machine, Options, Workers
from storage.errors import InvalidRequest, SolveFailed

#: After this many seconds without a new worker, no further workers are expected.
QUIET: Final = 0.5


def survey_workers(options: Options, out: Path | None) -> Machine:
    """Return a ``Machine`` that represents all workers of a scheduler; they have the same kind of device.

    Args:
        options: the options, which name the scheduler and limit this process's memory.
        out: path of the store; None if no store is written.

    Raises:
        InvalidRequest: there is no scheduler, or no suitable worker.
        SolveFailed: there is no worker.
    """
    with Cluster(address_of(options)) as cluster:
        found = summed_up(gather(cluster, options.device))
    machine = replace(survey(out=out, memory=options.memory), workers=found)
    if found.device == "cuda":
        rate = {name: value / found.count for name, value in found.relax_rate.items()}
        machine = replace(machine, cuda=Device(found.name, found.memory, found.memory, rate))
    return machine


def address_of(options: Options) -> str:
    """Return the address of the scheduler.

    Raises:
        InvalidRequest: the options name no scheduler.
    """
    if not options.scheduler:
        raise InvalidRequest("executor dask needs the address of a Dask scheduler (--scheduler)", field="scheduler")
    return options.scheduler


def gather(cluster: Cluster, device: str, enough: int = 0) -> dict[str, WorkerInfo]:
    """Return the workers that can solve a graph together: they run this program and have the same kind of device.

    The function waits until no worker has joined for ``QUIET`` seconds, or until there are ``enough`` workers.  Workers
    that join later are not in the result.

    Args:
        cluster: the connection to the workers.
        device: ``cpu``, ``cuda``, or ``auto`` for GPUs if any worker has one, else processors.
        enough: the number of workers to wait for; 0 if it is not known.

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
    if found and wanted == "cpu":
        raise InvalidRequest(
            f"all {len(found)} workers at {cluster.address} compute on GPUs; processors do this "
            "(apsp worker --devices cpu starts workers on them)",
            field="device",
        )
    if found:
        raise InvalidRequest(f"none of the {len(found)} workers at {cluster.address} has a GPU", field="device")
    refused = "".join(f"; {worker} is refused: {why}" for worker, why in cluster.refused.items())
    raise SolveFailed(
        f"no worker of apsp is at the Dask scheduler {cluster.address} (apsp worker starts them){refused}"
    )


def summed_up(workers: Mapping[str, WorkerInfo]) -> Workers:
    """Return the facts that the planner needs: the sum of the workers' rates, their least memory and so on."""
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
