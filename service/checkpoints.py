"""What a stopped solve has left beside its store.  The one place that knows whether, and how, a job is gone on with."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from service.joblog import NAME as LOG
from service.settings import Settings
from storage.errors import StorageFailed

if TYPE_CHECKING:
    from engine.monitor import Monitor
    from engine.plan import Plan
    from engine.problem import Options
    from engine.solve import Outcome
    from storage.graph import Graph

_RECORD: Final = "record.json"


def working_folder(store: Path) -> Path:
    """Where a solve into ``store`` keeps what it has committed."""
    return store.with_name(f".{store.name}.working")


def has_checkpoint(store: Path, address: str | None = None) -> bool:
    """Whether a solve into ``store``, or to ``address``, was stopped after it had committed something."""
    if address is None:
        return (working_folder(store) / _RECORD).is_file()
    from storage.addresses import checkpoint_stat

    return checkpoint_stat(address) is not None


def checkpoint_time(store: Path, address: str | None = None) -> float | None:
    """When a solve last committed something, in seconds since the epoch; None if it never did, or none can tell."""
    if address is not None:
        from storage.addresses import checkpoint_stat

        with contextlib.suppress(StorageFailed):
            found = checkpoint_stat(address)
            return None if found is None else found.modified
        return None
    try:
        return (working_folder(store) / _RECORD).stat().st_mtime
    except OSError:
        return None


def fetch(store: Path, address: str | None) -> None:
    """Bring what another node has committed of a solve to ``address``, if there is something."""
    if address is not None:
        from storage.remote import fetch_checkpoint

        fetch_checkpoint(store, address)


def plan(graph: Graph, options: Options, store: Path) -> Plan:
    """The plan of a solve into ``store``, from its checkpoint if there is one."""
    from engine import solve as engine

    return engine.make_plan(graph, options, out=store, resume=True)


def solve(
    graph: Graph,
    options: Options,
    store: Path,
    *,
    plan: Plan,
    compression: str,
    monitor: Monitor,
    address: str | None = None,
) -> Outcome:
    """Solve into ``store``, or to ``address``, from its checkpoint if there is one."""
    from engine import solve as engine

    return engine.solve_to_store(
        graph, options, store, plan=plan, resume=True, compression=compression, monitor=monitor, address=address
    )


def tidy(settings: Settings, job_id: str) -> None:
    """Remove what a job without a result has stored, but for its log and its checkpoint."""
    store = settings.store(job_id)
    kept = {LOG, working_folder(store).name} if has_checkpoint(store) else {LOG}
    if not store.parent.is_dir():
        return
    for path in store.parent.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
