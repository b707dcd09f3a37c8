"""Lets one writer at a time write a file or folder NAME: the writer locks the file ``.NAME.writing`` beside it.

Every command that writes a result holds the lock from its beginning to its end.  So of two commands with the same
output, the second is refused before it does any work, and the message names the first command.  The system frees the
lock when the process that holds it ends.  A lock file that a killed process left is used by the next writer and then
removed.
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
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from storage.errors import Conflict

#: Most bytes that are read of a lock file, whose text says who holds the lock.
_BYTES: Final = 4096


class _Hold:
    """A lock file that this process has open, and the lock on it.

    Attributes:
        file: the open file; closing it frees the lock.
        key: device and inode of the file.
        users: the ``id`` of each :class:`Writing` that shares the lock.
        process: the process that took the lock; a forked child has the file open, too, but no right to write.
    """

    def __init__(self, path: Path) -> None:
        """Open the lock file, and create it if it does not exist.  Raises OSError."""
        self.file = FileIO(path, "a+")  # closes itself after an interrupt, unlike a plain descriptor
        found = os.fstat(self.file.fileno())
        self.key = found.st_dev, found.st_ino
        self.thread, self.users = threading.get_ident(), set[int]()
        self.process = os.getpid()

    def end(self, path: Path) -> None:
        """Remove the file, and free the lock.  If an interrupt ends this call, it can be repeated."""
        if self.file.closed:
            return
        if _HELD.get(self.key) is self:
            del _HELD[self.key]
        with contextlib.suppress(OSError):
            if self.process == os.getpid() and path.stat().st_ino == self.key[1]:
                path.unlink()
        self.file.close()  # last: while the file is open, no new file can get its inode number, which is compared above


#: Each lock that this process holds, by device and inode of its file.
_HELD: dict[tuple[int, int], _Hold] = {}


def _forget() -> None:
    """Forget, in a forked child, the locks of the parent.  The child closes their files; the parent keeps the locks."""
    for hold in _HELD.values():
        hold.file.close()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Writing:
    """The right to write one file or folder.  A thread that has this right may take it again for a part of its work.

    A context manager; ``release`` does the same as leaving it.  An interrupt (KeyboardInterrupt) may come between any
    two steps, even just before ``__exit__``.  So some object owns the lock at every moment, each step of releasing can
    be repeated, and an object that is garbage-collected frees the lock (decision 147).
    """

    _hold: _Hold | None = None

    def __init__(self, target: str | Path, what: str) -> None:
        """Take the lock.

        Args:
            target: the file or folder that is written; the folder around it exists.
            what: the command that writes the target, such as ``prepare``, for the messages of other commands.

        Raises:
            Conflict: another process or thread writes the target; the message names the writer.
            StorageFailed: the file system refused.
        """
        self._target = Path(target).absolute()
        self._path = self._target.with_name(f".{self._target.name}.writing")
        try:
            if not self._again():
                self._take(what)
        except OSError as error:
            from storage.files.atomic import failure

            raise failure("write at", self._target, error) from error
        except KeyboardInterrupt:
            self.release()
            _remove_free(self._path)
            raise

    def _again(self) -> bool:
        """If this thread already holds the lock, share it and return True, else return False.  Raises OSError."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        held = _HELD.get((found.st_dev, found.st_ino))
        if held is None or held.thread != threading.get_ident():
            return False
        self._hold = held
        held.users.add(id(self))
        return True

    def _take(self, what: str) -> None:
        while True:
            hold = _Hold(self._path)
            try:
                fcntl.flock(hold.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # the previous writer may have removed the file after it was opened; a lock on it would exclude nobody
                if self._path.stat().st_ino == hold.key[1]:
                    self._hold = hold
                    break
            except FileNotFoundError:
                pass
            except BlockingIOError:
                message = (
                    f"another process is writing {self._target}: {_holder(hold.file)}; wait, or name another place"
                )
                hold.file.close()
                raise Conflict(message) from None
            except BaseException:
                hold.file.close()
                raise
            hold.file.close()
        hold.users.add(id(self))
        _HELD[hold.key] = hold
        about = {"what": what, "process": os.getpid(), "host": socket.gethostname()}
        about["since"] = datetime.now(UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # on a full disk, messages to refused writers lack these facts
            os.ftruncate(hold.file.fileno(), 0)
            hold.file.write(json.dumps(about).encode())

    def release(self) -> None:
        """Release the lock; do nothing if it is already released."""
        if self._hold is not None:
            self._hold.users.discard(id(self))
            if not self._hold.users:
                self._hold.end(self._path)
            self._hold = None

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def writing_early(target: Path | None, what: str) -> AbstractContextManager[object]:
    """Return the right to write a file or folder, for a command that takes this right before it reads its input.

    Args:
        target: the file or folder; None for no file.
        what: the command that writes it, for the messages of other commands.

    Returns:
        A context manager.  It holds no lock if the parent folder of the target does not exist; the command reports that
        later.

    Raises:
        Conflict, StorageFailed: as for :class:`Writing`.
    """
    if target is None or not target.absolute().parent.is_dir():
        return contextlib.nullcontext()
    return Writing(target, what)


def _remove_free(path: Path) -> None:
    """Remove a lock file that nobody has locked."""
    with contextlib.suppress(OSError):
        handle = FileIO(path, "r+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(handle.fileno()).st_ino:
                path.unlink()
        finally:
            handle.close()


def _holder(file: FileIO) -> str:
    """Return who holds the lock of an open file, from the file's content."""
    try:
        about: dict[str, Any] = json.loads(os.pread(file.fileno(), _BYTES, 0))
        process, host = int(about["process"]), str(about["host"])
        where = "" if host == socket.gethostname() else f" on {host}"
        return f"apsp {about['what']}, process {process}{where}, since {about['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not said who it is"
