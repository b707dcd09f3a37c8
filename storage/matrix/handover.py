"""Lets a new solve take over the checkpoint of an old solve, whose process may still exist.

A process that was suspended (SIGSTOP, a paused virtual machine) later continues where it stopped, and writes through
paths and through open files.  So the new solve works below a different path, and brings the checkpoint there.  While a
process holds the lock of the old working folder, its files are copied and never shared.  Once the lock is free, no
process has a file of the folder open, and the folder is moved in one step.  Then nothing is left at the old path.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from storage.errors import Conflict
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.files.locks import lock_folder
from storage.matrix.format import DISTANCES
from storage.matrix.grid import CHECKSUM_BYTES
from storage.matrix.working_dir import RECORD, place_checkpoint, record_bytes, working_folder
from storage.threads import in_threads

_THREADS: Final = 4
#: The largest number of attempts to copy a checkpoint; an attempt fails if the checkpoint's record changes meanwhile.
_COPIES: Final = 3
#: The largest number of attempts to read a tile, which may be replaced while it is read.
_READS: Final = 10
_PAUSE: Final = 0.02


def take_over(old: Path, new: Path, *, patience: float = 0.0) -> bool:
    """Make the checkpoint of a solve into ``old`` the checkpoint of a solve into ``new``.

    Args:
        old: target of the old solve, whose process may still run.
        new: target of the new solve; its parent folder exists, and it has no working folder yet.
        patience: seconds to wait for a process that holds the lock of the old folder.  Such a process releases the lock
            soon, unless it is suspended.

    Returns:
        Whether ``new`` has a checkpoint now.

    Raises:
        StorageFailed: the file system refused.
    """
    source, target = working_folder(old), working_folder(new)
    try:
        if not (source / RECORD).is_file():
            return False
        handle = lock_within(source, old, patience)
        if handle is None:
            return _copied(old, new)
        try:
            if not (source / RECORD).is_file():
                return False
            source.rename(target)
        finally:
            os.close(handle)
        for folder in (target.parent, source.parent):
            atomic.sync_path(folder)
    except FileNotFoundError:  # another process has taken the checkpoint
        return False
    except OSError as error:
        raise atomic.failure("take over", source, error) from error
    return True


def lock_within(base: Path, target: Path, seconds: float) -> int | None:
    """Lock a folder, and return the descriptor that holds the lock.

    Args:
        base: the folder to lock.
        target: the path that the holder of the lock writes, for errors.
        seconds: timeout for a lock that another process holds.

    Returns:
        The descriptor; None if another process still holds the lock after ``seconds``.

    Raises:
        OSError: the file system refused.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return lock_folder(base, target)
        except Conflict:
            if time.monotonic() >= until:
                return None
        time.sleep(_PAUSE)


class _Replaced(Exception):  # noqa: N818 - it ends an attempt to copy and is no error
    """The checkpoint was replaced while it was copied."""


def _copied(old: Path, new: Path) -> bool:
    """Copy the record of progress and the tiles of a checkpoint while another process may change them.

    A copied tile may be more advanced than the record says, but never less advanced.  If the record was replaced during
    the copy, the other process may have begun again and written tiles with less progress, so the copy is discarded.
    """
    source = working_folder(old)
    for _ in range(_COPIES):
        before, record = _stamp(source / RECORD), record_bytes(old)

        def bring(folder: Path, before: tuple[int, int, int] = before) -> None:
            try:
                _copy_tiles(source / "store" / DISTANCES, folder)
                same = _stamp(source / RECORD) == before
            except FileNotFoundError:  # the owner has finished, or another process took the checkpoint
                raise _Replaced from None
            if not same:  # checked before writing the record, which must not claim more than the tiles hold
                raise _Replaced

        with contextlib.suppress(_Replaced):
            place_checkpoint(new, record, bring)
            return True
    return False


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _copy_tiles(distances: Path, folder: Path) -> None:
    pairs = []
    for band in (distances / "c").iterdir():
        if not band.is_dir():
            continue  # no folder of tiles, but the stamp (``storage.matrix.stamps``) or a foreign file
        place = folder / DISTANCES / "c" / band.name
        place.mkdir(parents=True)
        pairs += [(tile, place / tile.name) for tile in band.iterdir()]
    in_threads(_THREADS, lambda pair: atomic.write_file(pair[1], [_whole(pair[0])]), pairs)


def _whole(path: Path) -> bytes:
    """Read the file of a tile; if its checksum does not match yet, read it again after a pause.

    A file that is being written for the first time may still be incomplete after all attempts.  Its bytes are returned
    anyway, because the record of the checkpoint does not count such a tile.
    """
    for _ in range(_READS):
        data = path.read_bytes()
        if crc32c(data[:-CHECKSUM_BYTES]).to_bytes(CHECKSUM_BYTES, "little") == data[-CHECKSUM_BYTES:]:
            break
        time.sleep(_PAUSE)
    return data
