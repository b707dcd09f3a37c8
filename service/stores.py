"""The folders of jobs under the data directory: thrown away in one step, swept at start-up.  Imports no NumPy."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from service.settings import Settings
from storage.jobs import JobStore


def prepare(settings: Settings) -> None:
    """Make the folders that the service works in."""
    for name in ("graphs", "incoming", "jobs", "trash"):
        (settings.data_dir / name).mkdir(parents=True, exist_ok=True)


def discard(settings: Settings, job_id: str) -> None:
    """Remove what a job has stored.  It is moved out of the way first, so that no half of it is ever seen."""
    folder = settings.store(job_id).parent
    rubbish = settings.data_dir / "trash" / job_id
    with contextlib.suppress(FileNotFoundError):
        if rubbish.exists():
            shutil.rmtree(rubbish, ignore_errors=True)
        folder.rename(rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)


def sweep(settings: Settings, jobs: JobStore) -> list[Path]:
    """Remove what crashes left: the trash, and job folders of no job.  Only while nothing else runs."""
    folders = [path for path in (settings.data_dir / "jobs").iterdir() if path.is_dir()]
    names = [path.name for path in folders]
    known = set().union(*(jobs.with_folder(names[at : at + 1000]) for at in range(0, len(names), 1000)))
    orphans = [path for path in folders if path.name not in known]
    rubbish = list((settings.data_dir / "trash").iterdir())
    for path in [*orphans, *rubbish]:
        shutil.rmtree(path, ignore_errors=True)
    return orphans
