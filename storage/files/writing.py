"""One writer at a time for each place, whatever it writes: ``.NAME.writing`` beside the place, with a lock on it.

Every command that writes a result holds it from its beginning to its end, so of two commands with one output the
second is refused before it works, and is told who the first one is.  The system frees the lock when its process ends;
the file that a killed process leaves is used by the next writer and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from storage.errors import Conflict

#: Most bytes of a file that are read.
_BYTES: Final = 4096
#: Each lock that this process holds, by device and inode of its file: thread, how often taken, descriptor.
_HELD: dict[tuple[int, int], list[int]] = {}
_GUARD: Final = threading.Lock()


class Writing:
    """The right to write one place.  A thread that has it may take it again, for a part of the same work.

    A context manager; ``release`` does the same.
    """

    def __init__(self, target: str | Path, what: str) -> None:
        """Take the lock.

        Args:
            target: the file or folder that is written; the folder around it exists.
            what: what writes it, such as ``prepare``, for the message to others.

        Raises:
            Conflict: another process, or another thread, writes it; the message says which.
            StorageFailed: the file system refused.
        """
        self._target = Path(target).absolute()
        self._path = self._target.with_name(f".{self._target.name}.writing")
        self._key: tuple[int, int] | None = None
        try:
            with _GUARD:
                if not self._again():
                    self._take(what)
        except OSError as error:
            from storage.files.atomic import failure

            raise failure("write at", self._target, error) from error

    def _again(self) -> bool:
        """Count one more hold of the lock if this thread has it; return whether it has.  Raises OSError."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        held = _HELD.get((found.st_dev, found.st_ino))
        if held is None or held[0] != threading.get_ident():
            return False
        held[1] += 1
        self._key = found.st_dev, found.st_ino
        return True

    def _take(self, what: str) -> None:
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(handle)
                # the previous writer may have removed the file that was opened
                if self._path.stat().st_ino == found.st_ino:
                    break
            except FileNotFoundError:
                pass
            except BlockingIOError:
                message = f"another process is writing {self._target}: {_holder(handle)}; wait, or name another place"
                os.close(handle)
                raise Conflict(message) from None
            except OSError:
                os.close(handle)
                raise
            os.close(handle)
        about = {"what": what, "process": os.getpid(), "host": socket.gethostname()}
        about["since"] = datetime.now(UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # if the disk is full, other writers are refused without a name
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        self._key = found.st_dev, found.st_ino
        _HELD[self._key] = [threading.get_ident(), 1, handle]

    def release(self) -> None:
        """Release the lock; do nothing if that was done already."""
        with _GUARD:
            key, self._key = self._key, None
            held = None if key is None else _HELD.get(key)
            if key is None or held is None:
                return
            held[1] -= 1
            if held[1] == 0:
                del _HELD[key]
                with contextlib.suppress(OSError):
                    if self._path.stat().st_ino == key[1]:
                        self._path.unlink()
                os.close(held[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def writing_early(target: Path | None, what: str) -> AbstractContextManager[object]:
    """Return the right to write a place that a command takes before it reads its input.

    Args:
        target: the file or folder; None for no file.
        what: as in :class:`Writing`.

    Returns:
        A context; it holds nothing where there is no folder around the target, which the command will say.

    Raises:
        Conflict, StorageFailed: as :class:`Writing`.
    """
    if target is None or not target.absolute().parent.is_dir():
        return contextlib.nullcontext()
    return Writing(target, what)


def _holder(handle: int) -> str:
    """Return who holds the lock of an open file, as it has said."""
    try:
        about: dict[str, Any] = json.loads(os.pread(handle, _BYTES, 0))
        process, host = int(about["process"]), str(about["host"])
        where = "" if host == socket.gethostname() else f" on {host}"
        return f"apsp {about['what']}, process {process}{where}, since {about['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not said who it is"
