"""A checkpoint changes hands while nobody can be sure that the process before is dead.

A process that was stopped (SIGSTOP, a paused virtual machine) and wakes up goes on where it was: through paths, and
through files that it has open.  So a successor works below a path of its own, and takes the checkpoint there.  While a
process holds the lock of a working folder, its files are copied and never shared; once nobody holds it, nobody has a
file of it open, and the folder is moved in one step.  Whoever still knows the old path then finds nothing there.
"""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from storage.errors import Conflict
from storage.files import atomic
from storage.matrix.format import DISTANCES, crc32c
from storage.matrix.grid import CHECKSUM_BYTES
from storage.matrix.working_dir import RECORD, lock, place_checkpoint, record_bytes, working_folder

_THREADS: Final = 4
#: how often a copy is begun again because the record changed meanwhile
_COPIES: Final = 3
#: how often a tile that is replaced while it is read is read again
_READS: Final = 10
_PAUSE: Final = 0.02


def take_over(old: Path, new: Path, *, patience: float = 0.0) -> bool:
    """Make the checkpoint of a solve into ``old`` that of a solve into ``new``; whether there is one now.

    Args:
        old: target of the solve before; whoever works on it need not be dead.
        new: target of the solve to come; its parent exists, and it has no working folder yet.
        patience: seconds to wait for a process that holds the old folder: one that is alive lets go of it soon.

    Raises:
        StorageFailed: the file system refused.
    """
    source, target = working_folder(old), working_folder(new)
    try:
        if not (source / RECORD).is_file():
            return False
        handle = _lock_within(old, patience)
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
    except FileNotFoundError:  # somebody else has taken it
        return False
    except OSError as error:
        raise atomic.failure("take over", source, error) from error
    return True


def _lock_within(target: Path, seconds: float) -> int | None:
    """The lock of a working folder; None if another process keeps it for so long.  Raises OSError."""
    until = time.monotonic() + seconds
    while True:
        try:
            return lock(target)
        except Conflict:
            if time.monotonic() >= until:
                return None
        time.sleep(_PAUSE)


class _Replaced(Exception):  # noqa: N818 - it ends an attempt and is no error
    """The checkpoint that is copied is no longer what its record said."""


def _copied(old: Path, new: Path) -> bool:
    """Copy record and tiles of a checkpoint that a process holds.

    A tile may be newer than the record, never older.  A record that was replaced meanwhile may have been lowered
    before tiles were: then nothing copied so far is worth anything.
    """
    source = working_folder(old)
    for _ in range(_COPIES):
        before, record = _stamp(source / RECORD), record_bytes(old)

        def bring(folder: Path, before: tuple[int, int, int] = before) -> None:
            try:
                _copy_tiles(source / "store" / DISTANCES, folder)
                same = _stamp(source / RECORD) == before
            except FileNotFoundError:  # its process has finished, or another process has taken the checkpoint
                raise _Replaced from None
            if not same:  # asked before the record is placed: a kill must not leave it over tiles that hold less
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
        place = folder / DISTANCES / "c" / band.name
        place.mkdir(parents=True)
        pairs += [(tile, place / tile.name) for tile in band.iterdir()]
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda pair: atomic.write_file(pair[1], [_whole(pair[0])]), pairs):
            pass


def _whole(path: Path) -> bytes:
    """The bytes of a tile's file, whole if they ever are.

    A file that is written for the first time may stay half written: the record says nothing of it.
    """
    for _ in range(_READS):
        data = path.read_bytes()
        if crc32c(data[:-CHECKSUM_BYTES]).to_bytes(CHECKSUM_BYTES, "little") == data[-CHECKSUM_BYTES:]:
            break
        time.sleep(_PAUSE)
    return data
