"""Durable files and atomic folders: write, fsync, stage next to the target, and swap in one step.

A writer works in a staging folder, ``.NAME.staging-XXXX`` next to its target, and holds a lock (flock) on that folder.
The system frees the lock when the process ends, so a staging folder without a lock is garbage and may be removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from storage.errors import Conflict, DiskFull, StorageFailed, raised
from storage.files import direct
from storage.files.locks import check_leads
from storage.files.memory import in_memory
from storage.files.writing import Writing
from storage.threads import in_threads

Buffer = direct.Buffer

_AT_FDCWD: Final = -100
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_SYNC_FILE_RANGE_WRITE: Final = 2
#: Error codes of renameat2 if the kernel or the file system does not support it.
_UNSUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
#: Errors of a write to a full disk, or beyond a quota.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_ATTEMPTS: Final = 100
_SYNC_THREADS: Final = 4


def failure(action: str, path: Path, error: OSError, wanted: int | None = None) -> StorageFailed:
    """Return the error to raise for a failed file operation.

    Args:
        action: the failed action, as a verb phrase that the path can follow, such as ``"write"``.
        path: the file or folder.
        error: the error of the system.
        wanted: bytes to be written; if given, the message says how many are free.

    Returns:
        DiskFull if the disk or the quota is full, else StorageFailed.
    """
    message = f"cannot {action} {path}: {error.strerror or error}"
    if wanted is not None:
        message += f" ({wanted:,} bytes asked"
        with contextlib.suppress(OSError):
            state = os.statvfs(path.parent)
            message += f", {state.f_bavail * state.f_frsize:,} bytes free"
        message += ")"
    return DiskFull(message) if error.errno in _FULL else StorageFailed(message)


def write_file(path: Path | str, buffers: Sequence[Buffer], *, flush: bool = False, past: bool = False) -> None:
    """Create or truncate a file and write the buffers one after the other.  The file is not yet durable.

    A missing parent folder is made, but not its parents.

    Args:
        path: the file.
        buffers: the content: at most 1,024 buffers (IOV_MAX), each C-contiguous.
        flush: whether the kernel is asked to begin writing to the disk now; the call does not wait for that.  A later
            fsync of many files then has little left to do.
        past: whether the file bypasses the page cache (O_DIRECT), where the file system supports that.

    Raises:
        OSError: the file system refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except FileNotFoundError:
        Path(path).parent.mkdir(exist_ok=True)
        handle = os.open(path, flags, 0o666)
    try:
        if not past or not direct.write(handle, buffers, direct.bytes_of(buffers)):
            direct.write_all(handle, buffers)
        if flush:
            _begin_writeback(handle)
    finally:
        os.close(handle)


def overwrite_file(path: Path, buffers: Sequence[Buffer], size: int, *, in_memory: bool = False) -> None:
    """Overwrite a file in place and make it durable; almost none of the file stays in the page cache.

    Args:
        path: the file, made if it does not exist; if it exists, its disk blocks are used again.
        buffers: the content, each C-contiguous.
        size: bytes of all buffers together.
        in_memory: whether the file is in memory alone (``storage.files.memory``), where nothing can be made durable.

    Raises:
        OSError: the file system refused; the content of the file is then undefined.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        past = not in_memory and direct.write(handle, buffers, size)
        if not past:
            direct.write_all(handle, buffers)
        if os.fstat(handle).st_size != size:
            os.ftruncate(handle, size)
        if in_memory:
            return
        sync_data(handle)
        if not past:  # after O_DIRECT only the last page is cached, and the next write of the end of the file needs it
            direct.forget(handle)
    finally:
        os.close(handle)


def sync_data(handle: int) -> None:
    """Make the bytes of an open file durable, with the metadata needed to read them.

    The time of the last change is not made durable, because that would cost the file system a transaction for every
    tile.  Raises OSError.
    """
    getattr(os, "fdatasync", os.fsync)(handle)


def take_place(file: Path, path: Path) -> bool:
    """Move ``file`` to ``path`` atomically, in place of the file that is there.  Raises OSError.

    Returns:
        Whether the file that was at ``path`` is now at ``file``; otherwise it was removed.
    """
    try:
        exchange(file, path)
        return True
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    file.replace(path)
    return False


def _begin_writeback(handle: int) -> None:
    """Ask the kernel to begin writing; errors are ignored here, because fsync reports them later."""
    call = getattr(_libc(), "sync_file_range", None)
    if call is not None:
        call(handle, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sync_path(path: Path | str) -> None:
    """Make a file's bytes, or a folder's list of names, durable (fsync).  Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Make ``folder`` and every file and folder below it durable: files first, then the folders that name them.

    Threads take whole folders: a large store has 80,000 tiles in 3,000 folders.  Raises OSError.
    """
    if in_memory(folder):
        return
    folders = [(root, names) for root, _, names in os.walk(folder, onerror=raised)]
    in_threads(_SYNC_THREADS, _sync_files, folders)
    for root, _ in reversed(folders):
        sync_path(root)


def _sync_files(folder: tuple[str, list[str]]) -> None:
    for name in folder[1]:
        sync_path(f"{folder[0]}/{name}")


def exchange(one: Path, other: Path) -> None:
    """Swap two names atomically.  Raises OSError, with ENOSYS, EINVAL or ENOTSUP where the system has no such call."""
    _renameat2(one, other, _EXCHANGE)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file or folder atomically.  Raises FileExistsError if the target exists, and other OSErrors."""
    try:
        _renameat2(source, target, _NOREPLACE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        # rename(2) replaces an empty folder but never one with content, so nothing can be lost here.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        source.rename(target)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    call = getattr(_libc(), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source))
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(source), None, str(target))


class Staging:
    """A locked folder next to ``target`` that becomes the target in one step.

    Attributes:
        target: the path that ``publish`` changes.
        folder: the folder to work in; it exists until ``publish`` or ``discard``.
    """

    _lock: int | None = None

    def __init__(self, target: Path, what: str | None = None) -> None:
        """Make the folder and lock it.

        Args:
            target: the path that the folder will have.
            what: the command that writes the target; other writers are then excluded (``storage.files.writing``).  None
                if several processes may work for the same target; the first of them that publishes succeeds.

        Raises:
            Conflict: another process writes the target.
            StorageFailed: the file system refused.
        """
        self.target, self._process = target, os.getpid()
        self._writing = None if what is None else Writing(target, what)
        try:
            self.folder, self._lock = _locked_folder(target)
        except OSError as error:
            self._end_writing()
            raise failure("make a staging folder for", target, error) from error

    def publish(self, *, replace: bool) -> None:
        """Move the folder, which must be durable, to ``target``; then remove the folder that was at ``target`` before.

        Raises:
            Conflict: the target exists and ``replace`` is False; the folder stays staged.
            StorageFailed: the file system refused.  If ``pending`` is still true, the target has not changed.
        """
        self.check_held()
        try:
            replaced = _put(self.folder, self.target, replace)
        except FileExistsError:
            raise Conflict(f"{self.target} exists already; another writer finished first") from None
        except OSError as error:
            raise failure("put the finished store at", self.target, error) from error
        self._unlock()
        self._end_writing()
        try:
            sync_path(self.target.parent)
        except OSError as error:
            # The old store is kept: after a power cut, the parent folder may have the old entry again.
            raise failure("make durable the new name", self.target, error) from error
        if replaced is not None:
            # The new store is in place; if files of the old one remain, the next writer removes them.
            shutil.rmtree(replaced, ignore_errors=True)

    def check_held(self) -> None:
        """Raise StorageFailed unless the path still leads to the folder that this process has locked.

        A process that was suspended may continue after another process has moved its folder away.  As it writes by
        path, it would then create a new folder of the same name, without the files written before.  A folder that was
        moved away never comes back, so if this check passes, everything written before is in the right folder.
        """
        self._check_process()
        check_leads(self.folder, self._lock)

    def _check_process(self) -> None:
        """Raise StorageFailed in a forked child, which has the descriptor of the lock but no right to write."""
        if self._process != os.getpid():
            raise StorageFailed(f"{self.folder} is written by process {self._process}, which has forked this one")

    @property
    def pending(self) -> bool:
        """Whether the folder is still staged: neither published nor discarded."""
        return self._lock is not None

    def discard(self) -> None:
        """Remove the folder; never raises.  Does nothing after ``publish``.  A forked child leaves the folder."""
        if self._process != os.getpid():
            self._unlock()
        elif self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._unlock()
            self._end_writing()

    def __del__(self) -> None:
        self._unlock()

    def _end_writing(self) -> None:
        if self._writing is not None:
            self._writing.release()
            self._writing = None

    def _unlock(self) -> None:
        # cleared first: if an interrupt followed os.close, a second os.close could close a new file of the same number
        handle, self._lock = self._lock, None
        if handle is not None:
            os.close(handle)


def clear_stale(target: Path) -> None:
    """Remove staging folders that killed writers of ``target`` left; move back a store that they had moved aside."""
    aside = set_aside(target)
    with contextlib.suppress(OSError):
        if aside.exists() and not target.exists():
            rename_new(aside, target)
    for leftover in [*target.parent.glob(f"{_glob_escape(_prefix(target))}*"), aside]:
        with contextlib.suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if leftover != aside or target.exists():
                    shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(handle)


def set_aside(target: Path) -> Path:
    """Return the path to which an old store is moved while it is replaced, if two names cannot be exchanged."""
    return target.with_name(f".{target.name}.replaced")


def _prefix(target: Path) -> str:
    return f".{target.name}.staging-"


def _glob_escape(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _locked_folder(target: Path) -> tuple[Path, int | None]:
    for _ in range(_ATTEMPTS):
        folder = target.with_name(_prefix(target) + secrets.token_hex(4))
        folder.mkdir(mode=0o777)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between mkdir and flock, another process may have removed the folder, because it had no lock yet.
            if folder.stat().st_ino == os.fstat(handle).st_ino:
                return folder, handle
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:  # also after an interrupt, because only this function knows the descriptor
            os.close(handle)
            folder.rmdir()
            raise
        os.close(handle)
    raise OSError(errno.EBUSY, "other processes keep removing it")


def _put(folder: Path, target: Path, replace: bool) -> Path | None:
    """Move ``folder`` to ``target``; return the path to which the old folder was moved, or None if there was none."""
    if not replace or not target.exists():
        rename_new(folder, target)
        return None
    try:
        exchange(folder, target)
        return folder
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    aside = set_aside(target)
    target.rename(aside)
    try:
        rename_new(folder, target)
    except OSError:
        rename_new(aside, target)
        raise
    return aside
