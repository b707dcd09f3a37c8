"""Lets a run that prepares a graph resume from an earlier run that wrote to another target.  The process of the earlier
run may still exist.

As in ``storage.matrix.handover``, files are copied and never shared while a process holds the lock of its folder; once
the lock is free, the folder is moved in one step, so that it is no longer at the old path.  A file that the record
lists never changes.  Damaged files are left out, and so are all files that the record lists after the first damaged
one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.files.locks import lock_folder
from storage.matrix.format import Array
from storage.matrix.handover import lock_within
from storage.matrix.working_dir import RECORD, read_record, write_record
from storage.prepared.journal import journal_folder

#: The members of a record that the next run needs.
_KEPT: Final = ("identity", "record")


def take_over_prepared(old: Path, new: Path, *, patience: float = 0.0) -> bool:
    """Move or copy the commits of the run for target ``old`` to the folder of target ``new``, so that a run for ``new``
    resumes from them.

    Args:
        old: target of the earlier run, whose process may still exist.
        new: target of the next run; its parent exists, and nothing was committed for it yet.
        patience: seconds to wait for a process that holds the lock of the old folder.  Such a process releases the lock
            soon, unless it is suspended.

    Returns:
        Whether ``new`` now has commits to resume from.

    Raises:
        StorageFailed: the file system refused.
    """
    source, target = journal_folder(old), journal_folder(new)
    try:
        if not (source / RECORD).is_file():
            return False
        handle = lock_within(source, old, patience)
        if handle is None:
            return _copied(source, target, new)
        try:
            return _moved(source, target)
        finally:
            os.close(handle)
    except FileNotFoundError:  # the owner of the folder finished and removed it, or another process took it
        return False
    except OSError as error:
        raise atomic.failure("take over", source, error) from error


def _moved(source: Path, target: Path) -> bool:
    """Move a folder that this process has locked; return whether it had commits to resume from.  Raises OSError."""
    document = _document(source)
    entries = [] if document is None else _whole(source, document, lambda _name, _data: None)
    if document is None or not entries:
        (source / RECORD).unlink(missing_ok=True)  # no run can resume from it
        return False
    if len(entries) < len(document["record"]):
        write_record(source, {**document, "record": entries})
    source.rename(target)
    for folder in (target.parent, source.parent):
        atomic.sync_path(folder)
    return True


def _copied(source: Path, target: Path, new: Path) -> bool:
    """Copy the files that a record lists, while another process holds the folder and may commit more; return whether
    there were commits to resume from.  Raises OSError.
    """
    document = _document(source)
    if document is None:
        return False
    handle = lock_folder(target, new)
    try:

        def put(name: str, data: Array) -> None:
            atomic.write_file(target / name, [data])
            atomic.sync_path(target / name)

        entries = _whole(source, document, put)
        if not entries:
            return False
        write_record(target, {**document, "record": entries})
        atomic.sync_path(target.parent)
    finally:
        os.close(handle)
    return True


def _document(base: Path) -> dict[str, Any] | None:
    """Return the members of the record that the next run needs (``_KEPT``); None if no record can be read.  Raises
    OSError.
    """
    try:
        document = read_record(base)
    except StorageFailed:
        return None
    return None if document is None or set(_KEPT) - set(document) else {name: document[name] for name in _KEPT}


def _whole(base: Path, document: Mapping[str, Any], use: Callable[[str, Array], None]) -> list[dict[str, Any]]:
    """Return the entries of the record that precede the first entry whose file is damaged; call ``use`` with the name
    and the content of the file of each returned entry.  Raises OSError.
    """
    found: list[dict[str, Any]] = []
    for entry in document["record"]:
        data: Array = np.fromfile(base / entry["file"], np.uint8)
        if crc32c(data) != entry["crc32c"]:
            break
        use(entry["file"], data)
        found.append(entry)
    return found
