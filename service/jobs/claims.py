"""Where the claims on a job work: each in a folder of its own, ``claim-N`` with the claim's number (its fence).

A runner that was stopped past its lease and wakes must not harm its successor, whatever it was about to do.  Asking the
database before each act cannot promise that, because the runner may be stopped between the two.  So the paths do:

- A claim writes below its own folder only, and takes the checkpoint of an earlier one there
(``storage.matrix.handover``).
- A result is put at the path of the job's store in one step, only where there is none, and never removed by a runner:
  the store of any claim is a whole, right result, so it does not matter whose is there first.
- A folder is removed by moving it away first, in one step, and only that of the same or a lower number.

``store`` is everywhere the path of the job's result, ``Settings.store``.  NumPy is imported by what changes files only.
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
    """The store that a claim makes, before it is the job's."""
    return store.with_name(f"claim-{claim}") / store.name


def places(store: Path, *, below: int | None = None) -> list[Path]:
    """The stores of the claims that have a folder, of lower numbers than ``below``, the newest first.

    Last comes ``store`` itself: before claims had folders of their own, the checkpoint lay beside it.
    """
    try:
        found = [(int(match[1]), path) for path in store.parent.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    kept = sorted(((number, path) for number, path in found if below is None or number < below), reverse=True)
    return [*(path / store.name for _, path in kept), store]


def begin(store: Path, claim: int, trash: Path, patience: float) -> bool:
    """Make the folder of a claim, with the checkpoint of the newest claim before it that has one.

    A store that an earlier claim has finished and not put in its place is put there: then the answer is True, and
    nothing is left to be solved.  ``patience`` as in :func:`storage.matrix.handover.take_over`.  StorageFailed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
        patience: seconds to wait for an earlier claim to release its checkpoint, as in
            :func:`storage.matrix.handover.take_over`.
    """
    from storage.matrix.handover import take_over

    _make(own := place(store, claim), trash)
    earlier = places(store, below=claim)

    def finished() -> bool:
        return any(_put(made, store) for made in earlier if made != store and made.exists())

    if finished():
        return True
    taken = any(take_over(made, own, patience=patience) for made in earlier)
    if not taken and (finished() or store.exists()):  # an earlier claim has finished meanwhile
        return True
    for made in earlier:
        if taken or not record_of(made).is_file():  # a checkpoint that could not be copied stays for the next claim
            throw_away(_working_dir(made) if made == store else made.parent, trash)
    return False


def begin_anew(store: Path, claim: int, trash: Path) -> None:
    """Empty the folder of a claim.  StorageFailed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
    """
    _make(place(store, claim), trash)


def publish(store: Path, claim: int, trash: Path) -> None:
    """Make the finished store of a claim the job's, if none is there.  StorageFailed.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
    """
    own = place(store, claim)
    _put(own, store)
    throw_away(own.parent, trash)


def tidy(store: Path, claim: int, trash: Path) -> None:
    """Remove what this claim and earlier ones have left, but for the newest checkpoint.

    Args:
        store: path of the job's result, ``Settings.store``.
        claim: number of the claim.
        trash: folder into which folders are moved before they are removed.
    """
    kept = False
    for made in places(store, below=claim + 1):
        if not kept and record_of(made).is_file():
            kept = True
        elif made == store:
            throw_away(_working_dir(made), trash)
        else:
            throw_away(made.parent, trash)


def record_of(made: Path) -> Path:
    """The file that is there if a solve into ``made`` has committed something."""
    return _working_dir(made) / "record.json"


def throw_away(folder: Path, trash: Path) -> None:
    """Remove a folder.  It is moved first, so that nobody, who may have taken it over meanwhile, loses half of it."""
    rubbish = trash / f"{folder.parent.name}-{folder.name}-{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):  # what cannot be moved stays, and harms nobody
        folder.rename(rubbish)
        shutil.rmtree(rubbish, ignore_errors=True)


def _make(own: Path, trash: Path) -> None:
    from storage.files.atomic import failure

    throw_away(own.parent, trash)  # left by a claim of this number, before the database was restored from a backup
    try:
        own.parent.mkdir(parents=True)
    except OSError as error:
        raise failure("make", own.parent, error) from error


def _put(made: Path, store: Path) -> bool:
    """Whether a store is at its place now, this one or another."""
    from storage.files import atomic

    try:
        atomic.rename_new(made, store)
        for folder in (store.parent, made.parent):
            atomic.sync_path(folder)
    except FileExistsError:
        return True
    except FileNotFoundError:  # a later claim has put it there
        return store.exists()
    except OSError as error:
        raise atomic.failure("put the finished store at", store, error) from error
    return True


def _working_dir(made: Path) -> Path:
    return made.with_name(f".{made.name}.working")
