"""The folders of the claims on a job: each claim works in a folder ``claim-N``, where N is its number (the fence).

A runner that was suspended beyond its lease and resumes must not damage its successor's files.  A query of the
database before each file operation cannot guarantee that, because the runner may be suspended after the query.  The
layout of the folders guarantees it:

- A claim writes below its own folder only, and copies or moves the checkpoint of an earlier claim there
(``storage.matrix.handover``, ``storage.prepared.handover``).
- A result is renamed to the path of the job's store atomically, only if none is there, and no runner removes it.
  The finished store of any claim is a complete and correct result, so it does not matter which claim publishes first.
- A claim renames a folder into the trash before it removes it, and does so only with its own folder and with those of
  claims with lower numbers.

``store`` is always the path of the job's result, ``Settings.store``.  NumPy is imported only inside the functions that
change files, so that importing this module is fast.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

_FOLDER: Final = re.compile(r"claim-([0-9]{1,19})")


def place(store: Path, claim: int) -> Path:
    """Return the path at which a claim makes its store before the store is published."""
    return store.with_name(f"claim-{claim}") / store.name


def places(store: Path, *, below: int | None = None) -> list[Path]:
    """Return the stores of the claims that have a folder and a lower number than ``below``, the newest first.

    The last path is ``store`` itself, because earlier versions, in which claims had no folders, kept the checkpoint
    beside it.
    """
    try:
        found = [(int(match[1]), path) for path in store.parent.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    kept = sorted(((number, path) for number, path in found if below is None or number < below), reverse=True)
    return [*(path / store.name for _, path in kept), store]


def begin(store: Path, claim: int, trash: Path, patience: float) -> bool:
    """Make the folder of a claim, with the checkpoint of the newest earlier claim that has one.

    A store that an earlier claim has finished but not published is published.

    Returns:
        True if a finished store is in place, so nothing is left to solve.

    Raises:
        StorageFailed: the files cannot be changed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
        patience: seconds to wait for an earlier claim to release its checkpoint, as in
            ``storage.matrix.handover`` and ``storage.prepared.handover``.
    """
    from storage.matrix.handover import take_over
    from storage.prepared.handover import take_over_prepared

    _make(own := place(store, claim), trash)
    earlier = places(store, below=claim)

    def finished() -> bool:
        return any(_put(made, store) for made in earlier if made != store and made.exists())

    if finished():
        return True
    taken = any(take(made, own, patience=patience) for made in earlier for take in (take_over, take_over_prepared))
    if not taken and (finished() or store.exists()):  # an earlier claim has finished meanwhile
        return True
    for made in earlier:
        if taken or kept_record(made) is None:  # a checkpoint that could not be taken over stays for the next claim
            throw_away(_working_dir(made) if made == store else made.parent, trash)
    return False


def begin_anew(store: Path, claim: int, trash: Path) -> None:
    """Empty the folder of a claim.  Raises StorageFailed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
    """
    _make(place(store, claim), trash)


def publish(store: Path, claim: int, trash: Path) -> None:
    """Publish the finished store of a claim as the job's result, unless the job has a result.  Raises StorageFailed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
    """
    own = place(store, claim)
    _put(own, store)
    throw_away(own.parent, trash)


def tidy(store: Path, claim: int, trash: Path, *, solved: bool = False) -> None:
    """Remove the files of this claim and earlier ones, except the newest checkpoint of a job that is not solved.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
        solved: whether the job has its result, so that no checkpoint is of use any more.
    """
    kept = solved
    for made in places(store, below=claim + 1):
        if not kept and kept_record(made) is not None:
            kept = True
        elif made == store:
            throw_away(_working_dir(made), trash)
        else:
            throw_away(made.parent, trash)


def record_of(made: Path) -> Path:
    """Return the file that exists if a solve into ``made`` has committed a checkpoint."""
    return _working_dir(made) / "record.json"


def kept_record(made: Path) -> Path | None:
    """Return the record file of a solve or preparation into ``made``; None if nothing has been committed."""
    preparing = made.with_name(f".{made.name}.preparing") / "record.json"
    return next((record for record in (record_of(made), preparing) if record.is_file()), None)


def throw_away(folder: Path, trash: Path) -> None:
    """Remove a folder.  It is renamed first, so that a claim that uses it meanwhile does not lose half of its files."""
    rubbish = trash / f"{folder.parent.name}-{folder.name}-{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):  # a folder that cannot be renamed stays and does no harm
        folder.rename(rubbish)
        shutil.rmtree(rubbish, ignore_errors=True)


def _make(own: Path, trash: Path) -> None:
    from storage.files.atomic import failure

    throw_away(own.parent, trash)  # if an old database was restored, another claim had this number and left a folder
    try:
        own.parent.mkdir(parents=True)
    except OSError as error:
        raise failure("make", own.parent, error) from error


def _put(made: Path, store: Path) -> bool:
    """Move a finished store to the job's path; return whether this store or an earlier one is at that path now."""
    from storage.files import atomic

    try:
        atomic.rename_new(made, store)
        for folder in (store.parent, made.parent):
            atomic.sync_path(folder)
    except FileExistsError:
        return True
    except FileNotFoundError:  # ``made`` is gone: a later claim has published it
        return store.exists()
    except OSError as error:
        raise atomic.failure("put the finished store at", store, error) from error
    return True


def _working_dir(made: Path) -> Path:
    return made.with_name(f".{made.name}.working")
