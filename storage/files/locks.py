"""A lock between processes: a file lock that the operating system frees when its holder ends, even if it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from storage.errors import Conflict, StorageFailed


class FileLock:
    """An exclusive lock on ``path`` between processes.  The file is never removed; it has the process id of the last
    holder.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handle: int | None = None

    def acquire(self, timeout: float = 0.0) -> None:
        """Take the lock; wait for it at most ``timeout`` seconds.  Raises Conflict, naming the holder, after that."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._wait(handle, time.monotonic() + timeout)
            with contextlib.suppress(OSError):  # on a full disk, messages to refused processes lack our process id
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
        except BaseException:  # also after an interrupt, because only this function knows the descriptor
            os.close(handle)
            raise
        self._handle = handle

    def _wait(self, handle: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
                    raise Conflict(f"{self.path} is locked by process {holder}") from error
            time.sleep(0.05)

    def release(self) -> None:
        """Free the lock; nothing happens if it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @staticmethod
    def taken(path: Path) -> bool:
        """Return whether some process holds the lock on ``path`` now."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False


def lock_folder(base: Path, target: Path) -> int:
    """Lock a folder, making it if needed, and return the descriptor that holds the lock.

    Args:
        base: the folder to lock.
        target: the path that the holder of the lock writes, for the message of the error.

    Raises:
        Conflict: another process holds the lock.
        OSError: the file system refused.
    """
    while True:
        base.mkdir(exist_ok=True)
        try:
            handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # the previous holder has removed it just now
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the previous holder may have removed the folder after it was opened; a lock on it would exclude nobody
            if base.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(handle)
            raise Conflict(f"another process is writing {target}") from None
        except BaseException:  # also after an interrupt, because only this function knows the descriptor
            os.close(handle)
            raise
        os.close(handle)


def check_leads(folder: Path, lock: int | None) -> None:
    """Raise StorageFailed unless ``folder`` is still the path of the folder that the descriptor ``lock`` has open."""
    held = None if lock is None else os.fstat(lock)
    try:
        found = folder.stat()
    except FileNotFoundError:
        found = None
    if held is None or found is None or (held.st_dev, held.st_ino) != (found.st_dev, found.st_ino):
        raise StorageFailed(f"{folder} was taken from this process; nothing more can be stored from here")
