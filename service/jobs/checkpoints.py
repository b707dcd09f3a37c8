"""Checkpoints of stopped solves.  Only this module decides whether and how a job can be continued."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from service.api.fault import for_want_of_disk
from service.jobs.claims import kept_record, places
from service.settings import Settings
from storage.errors import Conflict, StorageFailed
from storage.jobs.store import DISMISSED, FAILED, JobRecord

if TYPE_CHECKING:
    from engine.graph.profile import GraphProfile
    from engine.model.plan import Plan
    from engine.model.problem import Options
    from engine.model.progress import Monitor


def has_checkpoint(store: Path, address: str | None = None) -> bool:
    """Return whether a stopped job with this store or address has committed a checkpoint."""
    if address is None:
        return any(kept_record(made) is not None for made in places(store))
    from storage.remote.addresses import checkpoint_stat

    return checkpoint_stat(address) is not None


def resumable(settings: Settings, job: JobRecord) -> bool:
    """Return whether a job can be queued again: it has a checkpoint, or it failed because the disk was full."""
    if job.state not in (FAILED, DISMISSED) or job.removed is not None:
        return False
    return for_want_of_disk(job.error) or has_checkpoint(settings.store(job.id), settings.address(job.id))


def refuse_unless_resumable(settings: Settings, job: JobRecord) -> None:
    """Raise Conflict if a stopped job has no checkpoint to continue from."""
    if job.state in (FAILED, DISMISSED) and not resumable(settings, job):
        raise Conflict(f"job {job.id} has no checkpoint to continue from; submit it again")


def checkpoint_time(store: Path, address: str | None = None) -> float | None:
    """Return the time of a job's last checkpoint in seconds since the epoch; None if there is none or it is unknown."""
    if address is not None:
        from storage.remote.addresses import checkpoint_stat

        with contextlib.suppress(StorageFailed):
            found = checkpoint_stat(address)
            return None if found is None else found.modified
        return None
    for made in places(store):
        with contextlib.suppress(OSError):
            if (record := kept_record(made)) is not None:
                return record.stat().st_mtime
    return None


def fetch(store: Path, address: str | None) -> None:
    """Download the checkpoint that another node has committed for ``address``, if there is one."""
    if address is not None:
        from storage.remote.writer import fetch_checkpoint

        fetch_checkpoint(store, address)


def plan(profile: GraphProfile, options: Options, store: Path, monitor: Monitor | None = None) -> Plan:
    """Return the plan of a solve into ``store``, which continues from the checkpoint there, if there is one.

    Args:
        profile: the graph to solve.
        options: options of the solve.
        store: path of the store.
        monitor: receives the phase in which kernels are compiled, and is asked whether to stop.
    """
    from engine.api import solve as engine

    return engine.make_plan(profile, options, out=store, resume=True, monitor=monitor)
