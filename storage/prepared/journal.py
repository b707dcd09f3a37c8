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
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.locks import lock_folder
from storage.files.writing import Writing
from storage.matrix.format import Array, crc32c, plain
from storage.matrix.working_dir import RECORD, read_record, write_record

log = logging.getLogger(__name__)

#: Types of the arrays of a file.
_KINDS: Final = ("int32", "int64", "uint16", "float32", "float64")


def journal_folder(target: Path) -> Path:
    """Return the folder in which a run that prepares ``target`` saves its progress."""
    return target.with_name(f".{target.name}.preparing")


class PreparedJournal:
    """The files of one run.  A context manager: if the run fails after its first commit, the files are kept.

    Attributes:
        record: lists what was committed, by this run or an earlier one; empty before the first commit.
    """

    _lock: int | None = None

    def __init__(self, target: str | Path, identity: Mapping[str, object], *, what: str = "prepare") -> None:
        """Lock the folder; keep the commits of an earlier run with the same identity, and remove everything else.

        Args:
            target: where the prepared graph will be; its parent folder exists.
            identity: the properties that must be equal for a run to resume another one.
            what: what writes the target, for the message to others.

        Raises:
            Conflict: another process writes the target.
            StorageFailed: the file system refused.
        """
        self._target, self._identity = Path(target).absolute(), plain(identity)
        self._base, self._done = journal_folder(self._target), False
        self._writing = Writing(self._target, what)
        try:
            self._lock = lock_folder(self._base, self._target)
            self.record = _files_in(self._base, self._identity)
            for path in self._base.iterdir():
                if not (self.record and path.name in {RECORD, *(each["file"] for each in self.record)}):
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
            arrays: one-dimensional.
            about: further entries of the record, in JSON types.

        Raises:
            StorageFailed: the file system refused; the record is then as before.
        """
        name = f"{len(self.record)}.bin"
        path, parts = self._base / name, [np.ascontiguousarray(array) for array in arrays]
        checksum = 0
        for part in parts:
            checksum = crc32c(part, checksum)
        entry = {
            "step": step,
            "file": name,
            "arrays": [[part.dtype.name, len(part)] for part in parts],
            "crc32c": checksum,
            **about,
        }
        try:
            atomic.write_file(path, parts)
            atomic.sync_path(path)
            write_record(self._base, {"identity": self._identity, "record": [*self.record, entry]})
            if not self.record:
                atomic.sync_path(self._target.parent)
        except OSError as error:
            raise atomic.failure("write", path, error) from error
        self.record = [*self.record, plain(entry)]

    def read(self, entry: Mapping[str, Any]) -> list[Array]:
        """Return the arrays of a file that the record lists.  Raises StorageFailed if the file is damaged."""
        return _arrays(self._base, entry)

    def finish(self) -> None:
        """Note that the target is complete, so that the folder can be removed."""
        self._done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done or not self.record:
            with contextlib.suppress(OSError):  # the record is removed first, because it must not outlive its files
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
    """Return the arrays that an earlier run with this identity committed last for a step; None if there are none.

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
                return _arrays(base, entry)
    return None


def _files_in(base: Path, identity: object) -> list[dict[str, Any]]:
    """Return the files that the record lists; an empty list if its identity differs or it cannot be understood."""
    try:
        document = read_record(base)
        if document is None or document["identity"] != identity:
            return []
        entries: list[dict[str, Any]] = document["record"]
        for entry in entries:
            size = sum(np.dtype(kind).itemsize * count for kind, count in entry["arrays"] if kind in _KINDS)
            if (base / entry["file"]).stat().st_size != size:
                return []
    except (StorageFailed, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("what an earlier run left in %s cannot be used (%s); it begins anew", base, error)
        return []
    return entries


def _arrays(base: Path, entry: Mapping[str, Any]) -> list[Array]:
    path, found, at = base / entry["file"], [], 0
    try:
        data: npt.NDArray[np.uint8] = np.fromfile(path, np.uint8)
    except OSError as error:
        raise atomic.failure("read", path, error) from error
    if crc32c(data) != entry["crc32c"]:
        raise StorageFailed(f"{path} is damaged; remove {base} to begin anew")
    for kind, count in entry["arrays"]:
        size = np.dtype(kind).itemsize * count
        found.append(data[at : at + size].view(kind))
        at += size
    return found
