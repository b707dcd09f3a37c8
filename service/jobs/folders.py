"""Manages the folders of jobs in the data directory: finds results, removes them, and detects lost ones.

Imports no NumPy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path
from typing import Final

from service.jobs.claims import throw_away
from service.settings import Settings
from storage.errors import NotFound
from storage.jobs.store import SUCCESSFUL, JobRecord, JobStore
from storage.remote.addresses import discard_remote, sealed_stat
from storage.remote.objects import Objects

log = logging.getLogger(__name__)

#: umask: no permission for others, no write permission for the group
_FOR_OTHERS: Final = 0o027


def keep_private(folder: Path) -> None:
    """Make files that this process and its children write unreadable for other accounts of this machine.

    A new folder is accessible to its owner only.  An existing folder keeps its mode, so that an administrator can grant
    a group access: the group can then read files in it, if the umask of this process allows that.
    """
    before = os.umask(0o077)
    os.umask(before | _FOR_OTHERS)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    mode = folder.stat().st_mode
    if mode & 0o007:
        log.warning(
            "every account of this machine can read %s (mode %04o): chmod o-rwx keeps keys, graphs and results "
            "to the service", folder, mode & 0o7777,
        )  # fmt: skip


def prepare(settings: Settings) -> None:
    """Make the folders that the service works in."""
    for name in ("graphs", "incoming", "jobs", "runners", "trash"):
        (settings.data_dir / name).mkdir(parents=True, exist_ok=True)


def result_place(settings: Settings, job_id: str) -> str | Path:
    """Return where the result of a job is read: an address in the object store, or a folder."""
    return settings.address(job_id) or settings.store(job_id)


def has_result(settings: Settings, job_id: str) -> bool:
    """Return whether the result of a job is sealed.  Raises StorageFailed if the object store does not answer."""
    address = settings.address(job_id)
    return settings.store(job_id).exists() if address is None else sealed_stat(address) is not None


def result_bytes(settings: Settings, job_id: str) -> int:
    """Return the bytes of the sealed result of a job."""
    address = settings.address(job_id)
    return folder_bytes(settings.store(job_id)) if address is None else Objects(address).total()


def check_store(settings: Settings) -> None:
    """Check that the object store answers and honours conditional puts.  Raises StorageFailed or InvalidRequest."""
    if settings.store_url is not None:
        objects = Objects(settings.store_url)
        next(objects.names("graphs/"), None)
        objects.check_conditions()


def trash(settings: Settings) -> Path:
    """Return the folder into which folders are moved before they are removed."""
    return settings.data_dir / "trash"


def discard(settings: Settings, job_id: str) -> None:
    """Remove all files of a job; no runner may still work on the job."""
    if settings.store_url is not None:
        there = Objects(settings.store_url).below("jobs", job_id)
        discard_remote(f"{there.address}/{settings.store(job_id).name}")
        there.remove_all()
    throw_away(settings.store(job_id).parent, trash(settings))


def redo_if_lost(settings: Settings, jobs: JobStore, record: JobRecord) -> JobRecord | None:
    """Queue a successful job again if its store is lost; returns the job, or None if its store exists.

    Args:
        settings: the service's settings.
        jobs: the job store.
        record: the job as it was before the call, so that a result that a later claim stores is not taken for lost.
    """
    if record.state != SUCCESSFUL or record.removed is not None or has_result(settings, record.id):
        return None
    found = jobs.redo(record, "the store of the result was gone", most=settings.max_attempts)
    if found is not None:
        log.error("job %s: the store of its result is gone; the job is %s now", record.id, found.state)
    return found or jobs.job(record.id)


def redo_lost(settings: Settings, jobs: JobStore) -> list[JobRecord]:
    """Queue again each successful job whose folder exists but holds no store.

    If even the folder is missing, a disk may not be mounted; such a job is queued again only when its result is
    requested.  The same holds for object stores, where a check of all results takes too long.
    """
    if settings.store_url is not None:
        return []
    found = []
    for job_id in jobs.with_result():
        if _lacks_store(settings.store(job_id)):
            with contextlib.suppress(NotFound):  # the job was deleted meanwhile
                found.append(redo_if_lost(settings, jobs, jobs.job(job_id)))
    return [record for record in found if record is not None]


def _lacks_store(store: Path) -> bool:
    return not store.exists() and store.parent.is_dir()


def folder_bytes(folder: Path) -> int:
    """Return the bytes on the disk of all files in a folder and below."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - many files
    return total


def sweep(settings: Settings, jobs: JobStore) -> list[Path]:
    """Remove what crashes left: the trash, and the folders of unknown or removed jobs.  Returns the folders of jobs."""
    folders = [path for path in (settings.data_dir / "jobs").iterdir() if path.is_dir()]
    names = [path.name for path in folders]
    known = set().union(*(jobs.with_folder(names[at : at + 1000]) for at in range(0, len(names), 1000)))
    orphans = [path for path in folders if path.name not in known]
    rubbish = list(trash(settings).iterdir())
    for path in [*orphans, *rubbish]:
        shutil.rmtree(path, ignore_errors=True)
    return orphans
