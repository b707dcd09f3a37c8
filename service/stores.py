"""The folders of jobs under the data directory: thrown away in one step, swept at start-up.  Imports no NumPy."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from service.joblog import NAME as LOG
from service.settings import Settings
from storage.addresses import discard_remote, sealed_stat
from storage.jobs import JobStore
from storage.objects import Objects


def prepare(settings: Settings) -> None:
    """Make the folders that the service works in."""
    for name in ("graphs", "incoming", "jobs", "runners", "trash"):
        (settings.data_dir / name).mkdir(parents=True, exist_ok=True)


def result_place(settings: Settings, job_id: str) -> str | Path:
    """Where the result of a job is read: an address in the object store, or a folder."""
    return settings.address(job_id) or settings.store(job_id)


def has_result(settings: Settings, job_id: str) -> bool:
    """Whether the result of a job is sealed.  StorageFailed: the object store cannot be asked."""
    address = settings.address(job_id)
    return settings.store(job_id).exists() if address is None else sealed_stat(address) is not None


def result_bytes(settings: Settings, job_id: str) -> int:
    """Bytes of the sealed result of a job."""
    address = settings.address(job_id)
    return folder_bytes(settings.store(job_id)) if address is None else Objects(address).total()


def check_store(settings: Settings) -> None:
    """Refuse to begin with an object store that does not answer.  StorageFailed, InvalidRequest."""
    if settings.store_url is not None:
        next(Objects(settings.store_url).names("graphs/"), None)


def discard(settings: Settings, job_id: str, *, logs: bool = True) -> None:
    """Remove what a job has stored, or all but its log.

    It is moved out of the way first, so that no half of it is ever seen.
    """
    if settings.store_url is not None:
        there = Objects(settings.store_url).below("jobs", job_id)
        discard_remote(f"{there.address}/{settings.store(job_id).name}")
        if logs:
            there.remove_all()
    folder = settings.store(job_id).parent
    rubbish = settings.data_dir / "trash" / f"{job_id}-{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(rubbish)
        if not logs and (rubbish / LOG).exists():
            folder.mkdir()
            (rubbish / LOG).rename(folder / LOG)
    shutil.rmtree(rubbish, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Bytes on the disk of all files in a folder and below."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - many files
    return total


def sweep(settings: Settings, jobs: JobStore) -> list[Path]:
    """Remove what crashes left: the trash, and the folders of jobs that are unknown or removed."""
    folders = [path for path in (settings.data_dir / "jobs").iterdir() if path.is_dir()]
    names = [path.name for path in folders]
    known = set().union(*(jobs.with_folder(names[at : at + 1000]) for at in range(0, len(names), 1000)))
    orphans = [path for path in folders if path.name not in known]
    rubbish = list((settings.data_dir / "trash").iterdir())
    for path in [*orphans, *rubbish]:
        shutil.rmtree(path, ignore_errors=True)
    return orphans
