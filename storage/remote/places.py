"""Decides where a store is written: to a folder, or to an address in an object store, with a working folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

from storage.errors import Conflict, InvalidRequest, NotFound
from storage.files.atomic import failure
from storage.files.caches import cache_folder
from storage.matrix.frame import check_target
from storage.matrix.sealed import SealedFolder
from storage.remote.addresses import check_address, checkpoint_stat
from storage.remote.generation import Generation
from storage.remote.objects import Objects, address_of, is_address


def place_of(out: str, work: Path | None, *, overwrite: bool, resume: bool) -> tuple[Path, str | None]:
    """Check where a store is to be written; return the path to solve into, and the address to send the store to (None
    for a folder).

    Args:
        out: the argument of ``--out``: a folder or an ``s3://`` address.
        work: folder to work in; allowed only if ``out`` is an address.
        overwrite: whether an existing store may be replaced.
        resume: whether to continue from a checkpoint.

    Raises:
        Conflict: there is a store or a checkpoint that may not be replaced.
        InvalidRequest: ``--work`` was given for a store in a folder.
        NotFound: the folder of ``--out`` or ``--work`` does not exist.
    """
    if not is_address(out):
        if work is not None:
            raise InvalidRequest("--work is for stores that go to s3://...; others are made beside --out", field="work")
        path = Path(out)
        if path.exists() and not overwrite:
            message = (
                f"{out} exists already; give another --out, or --overwrite to replace it once the new one is complete"
            )
            raise Conflict(message)
        if not path.absolute().parent.is_dir():
            raise NotFound(f"--out: the folder {path.absolute().parent} does not exist")
        check_target(path.absolute(), overwrite)
        return path, None
    check_address(out, overwrite=overwrite)
    place = _working_path(out, work)
    if resume:
        from storage.remote.writer import fetch_checkpoint

        fetch_checkpoint(place, out)
    elif not overwrite and checkpoint_stat(out) is not None:
        raise Conflict(f"{out} has a checkpoint: go on with --resume, or begin anew with --overwrite")
    return place, out


def prepared_place(out: str | Path, work: Path | None = None, *, overwrite: bool) -> tuple[Path, Generation | None]:
    """Check where a prepared graph is to be written; return the path to work at, and the generation to send it to (None
    for a folder).

    Args:
        out: a folder, or an address in an object store.
        work: folder to work in; allowed only if ``out`` is an address.  None selects a folder in the user's cache, with
            a name made from the address.
        overwrite: whether an existing store may be replaced.

    Raises:
        Conflict: there is a store, and it may not be replaced.
        InvalidRequest: ``work`` was given for a folder, or the address is malformed.
        NotFound: the folder ``work`` does not exist.
        StorageFailed: the object store cannot be reached, refuses, or has no such bucket.
    """
    address = address_of(out)
    if address is None:
        if work is not None:
            raise InvalidRequest(
                "--work is for results that go to s3://...; others are made beside --out", field="work"
            )
        check_target(Path(out).absolute(), overwrite)
        return Path(out), None
    made = Generation.at(address, overwrite=overwrite)
    return _working_path(address, work), made


def reweighted_place(found: SealedFolder, out: str | Path | None, *, overwrite: bool) -> tuple[Path, Generation | None]:
    """Return the path at which a prepared graph with new weights is made, and the generation to send it to (None for a
    folder).

    Args:
        found: the open prepared graph that gets new weights.
        out: the new folder or address; None to replace ``found``.  In an object store, ``found`` is replaced only if it
            is still the store that was opened.
        overwrite: whether a store at ``out`` may be replaced.

    Raises:
        Conflict, StorageFailed: as for :func:`prepared_place`.
    """
    address, seal = None if out is None else address_of(out), found.remote_seal
    if seal is not None and (out is None or (overwrite and address and Objects(address).address == found.path)):
        return _working_path(str(found.path), None), Generation(Objects(str(found.path)), seal)
    place, made = prepared_place(found.path if out is None else out, overwrite=overwrite or out is None)
    return place.absolute(), made


def _working_path(address: str, work: Path | None) -> Path:
    """Return the path of the store in the making.  The path depends only on ``work`` and the address, so that a later
    call finds the checkpoint.

    Raises:
        NotFound: the folder ``work`` does not exist; or ``work`` is None, and the user has no home folder.
        StorageFailed: the working folder cannot be made.
    """
    if work is not None and not work.is_dir():
        raise NotFound(f"--work: the folder {work} does not exist")
    caches = cache_folder()
    if work is None and caches is None:
        raise NotFound(
            "this user has no home, so there is no folder to work in: name one with XDG_CACHE_HOME, or with --work "
            "where the command has it"
        )
    base = work or cast(Path, caches) / "work"
    folder = base / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        failed = failure("work in", folder, error)
        other = "XDG_CACHE_HOME may name another folder, and --work where the command has it"
        raise type(failed)(f"{failed}; {other}") from error
    return folder / "matrix.zarr"
