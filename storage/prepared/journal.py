"""The saved progress of a run that prepares a graph, in ``.NAME.preparing`` next to its target.

The folder holds files of arrays and a record that lists them with sizes and checksums.  The record is replaced in one
step, after the files that it lists are durable.  The process that writes the target holds a lock on the folder, so no
two runs write it at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.locks import lock_folder
from storage.files.writing import Writing
from storage.matrix.format import Array, plain
from storage.matrix.working_dir import RECORD, read_record, write_record
from storage.prepared.arrays_file import KINDS, ArraysFile, read_arrays, write_arrays

log = logging.getLogger(__name__)

#: The first part of the name of an exchange folder, in which workers put files for the run.
_EXCHANGE: Final = "exchange."


def journal_folder(target: Path) -> Path:
    """Return the folder in which a run that prepares ``target`` saves its progress."""
    return target.with_name(f".{target.name}.preparing")


class PreparedJournal:
    """The files of one run.  As a context manager, it keeps the files if the run fails after its first commit.

    Attributes:
        record: the entries of all commits, of this run or an earlier one; empty before the first commit.
    """

    _lock: int | None = None

    def __init__(self, target: str | Path, identity: Mapping[str, object], *, what: str = "prepare") -> None:
        """Lock the folder; keep the commits of an earlier run with the same identity, and remove everything else.

        Args:
            target: where the prepared graph will be; its parent folder exists.
            identity: the properties that must be equal for a run to resume another one.
            what: the command that writes the target, for the messages of other commands.

        Raises:
            Conflict: another process writes the target.
            StorageFailed: the file system refused.
        """
        self._target, self._identity = Path(target).absolute(), plain(identity)
        self._base, self._done, self._process = journal_folder(self._target), False, os.getpid()
        self._writing = Writing(self._target, what)
        try:
            self._lock = lock_folder(self._base, self._target)
            self.record = _files_in(self._base, self._identity)
            for path in self._base.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)  # fails if workers of an earlier run still write there
                elif not (self.record and path.name in {RECORD, *(each["file"] for each in self.record)}):
                    path.unlink()
        except OSError as error:
            self._writing.release()
            raise atomic.failure("use the folder", self._base, error) from error
        except BaseException:
            self._writing.release()
            raise

    def commit(self, step: str, arrays: Sequence[Array], **about: object) -> None:
        """Write arrays into a new file, durably, and then list it in the record.

        Args:
            step: the name of the step that is done.
            arrays: one-dimensional arrays.
            about: further members of the file's entry in the record, in JSON types.

        Raises:
            StorageFailed: the file system refused; the record has not changed.
        """
        file = write_arrays(self._base, f"{len(self.record)}.bin", arrays)
        self._list([{"step": step, **file.entry(), **about}])

    def make_exchange(self, run: str) -> Path:
        """Make the folder in which the workers of a run put files, and return it.

        It lies in a folder of its own: once both folders are removed, a worker that was given up cannot recreate the
        exchange folder.

        Args:
            run: the name of the run; no other run has it.

        Raises:
            StorageFailed: the file system refused.
        """
        folder = self._base / f"{_EXCHANGE}{run}" / "files"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise atomic.failure("make", folder, error) from error
        return folder

    def adopt(self, exchange: Path, names: Sequence[str]) -> None:
        """Move durable files of workers out of their exchange folder; :meth:`note` then lists them.

        Args:
            exchange: the folder, from :meth:`make_exchange`.
            names: the names of the files.

        Raises:
            StorageFailed: the file system refused.
        """
        try:
            for name in names:
                (exchange / name).rename(self._base / name)
        except OSError as error:
            raise atomic.failure("take files from", exchange, error) from error

    def note(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """List adopted files in the record, durably and in one step.

        Args:
            entries: entries of the record, in order; each names its file.

        Raises:
            StorageFailed: the file system refused; the record has not changed.
        """
        try:
            atomic.sync_path(self._base)
        except OSError as error:
            raise atomic.failure("write", self._base, error) from error
        self._list(entries)

    @property
    def folder(self) -> Path:
        """The folder of the journal's files."""
        return self._base

    def _list(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries to the record, durably.  Raises StorageFailed without changing the record."""
        record = [*self.record, *map(plain, entries)]
        try:
            write_record(self._base, {"identity": self._identity, "record": record})
            if not self.record:
                atomic.sync_path(self._target.parent)
        except OSError as error:
            raise atomic.failure("write", self._base / RECORD, error) from error
        self.record = record

    def read(self, entry: Mapping[str, Any], numbers: Sequence[int] | None = None) -> list[Array]:
        """Return arrays of a file that the record lists.

        Args:
            entry: the entry of the file in the record.
            numbers: the positions of the arrays to read; None for all arrays.

        Raises:
            StorageFailed: the file is damaged.
        """
        return read_arrays(self._base, ArraysFile.of(entry), numbers)

    def finish(self) -> None:
        """Record that the target is complete, so that the folder is removed at the end of the context."""
        self._done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process == os.getpid() and (self._done or not self.record):  # a forked child must not remove the files
            with contextlib.suppress(OSError):  # the record is removed first: it must not remain without its files
                (self._base / RECORD).unlink(missing_ok=True)
            shutil.rmtree(self._base, ignore_errors=True)
        self._unlock()
        self._writing.release()

    def __del__(self) -> None:
        self._unlock()

    def _unlock(self) -> None:
        handle, self._lock = self._lock, None
        if handle is not None:
            os.close(handle)


def committed(target: str | Path, identity: Callable[[], Mapping[str, object]], step: str) -> list[Array] | None:
    """Return the arrays of the last commit of a step by an earlier run with this identity; None if there is no such
    commit.

    Args:
        target: where the prepared graph will be.
        identity: returns the identity that :class:`PreparedJournal` takes; called only if there is a folder.
        step: the name of the step, as passed to ``commit``.
    """
    base = journal_folder(Path(target).absolute())
    if not (base / RECORD).exists():
        return None
    with contextlib.suppress(StorageFailed):
        for entry in reversed(_files_in(base, plain(identity()))):
            if entry["step"] == step:
                return read_arrays(base, ArraysFile.of(entry))
    return None


def _files_in(base: Path, identity: object) -> list[dict[str, Any]]:
    """Return the files that the record lists; an empty list if the record has another identity or cannot be
    understood.
    """
    try:
        document = read_record(base)
        if document is None or document["identity"] != identity:
            return []
        entries: list[dict[str, Any]] = document["record"]
        for entry in entries:
            file = ArraysFile.of(entry)
            known = all(kind in KINDS for kind, _ in file.arrays)
            if not known or (base / file.name).stat().st_size != file.nbytes:
                return []
    except (StorageFailed, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("what an earlier run left in %s cannot be used (%s); it begins anew", base, error)
        return []
    return entries
