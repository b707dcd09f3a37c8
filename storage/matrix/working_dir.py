"""The working folder of a solve that can be resumed: ``.NAME.working`` next to the target, with a lock and a record.

It holds ``store`` (the store in the making), ``spare`` (files that tiles are written into) and ``record.json``, which
says how far the solve has come.  A folder without a record is garbage of a process that ended before its first commit.
The record and a file among the tiles hold the same random stamp, so that tiles from another folder are not mistaken for
the tiles that the record describes.  The system frees the lock (flock) when the process that holds it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from storage.errors import Conflict, StorageFailed
from storage.files import atomic
from storage.files.locks import check_leads, lock_folder
from storage.files.writing import Writing
from storage.matrix.format import ALSO, DISTANCES, plain
from storage.matrix.stamps import fault_of, put_stamp, seal_of, stamp_file, stamp_in

log = logging.getLogger(__name__)

#: A working folder is a checkpoint if it has this file.
RECORD: Final = "record.json"
_FORMAT: Final = 1
#: The two options of the command line for a checkpoint; every message about a checkpoint names them.
_WAYS: Final = "go on with it (--resume) or begin anew (--overwrite)"


@dataclass(frozen=True)
class Checkpoint:
    """The committed state of a stopped solve.

    Attributes:
        target: the path of the store that the solve makes.
        identity: the properties that must be equal to resume: graph (digest), type, sources and so on.
        record: the record that was passed to ``WorkingMatrix.commit``.
        saved: the time of the commit, in ISO 8601.
        bytes: disk space of the working folder.
        fault: why no solve can resume from this checkpoint; None if a solve can.
    """

    target: Path
    identity: Mapping[str, Any]
    record: Mapping[str, Any]
    saved: str
    bytes: int
    fault: str | None = None


def find_checkpoint(target: str | Path) -> Checkpoint | None:
    """Return the checkpoint of ``target``; None if there is none.  Raises StorageFailed if it cannot be read."""
    path = Path(target).absolute()
    document = _read_record(path)
    if document is None or _published(path, document):
        return None
    base = working_folder(path)
    fault = fault_of(base / "store", document)
    return Checkpoint(path, document["identity"], document["record"], document["saved"], _disk_bytes(base), fault)


def discard_checkpoint(target: str | Path) -> None:
    """Remove the working folder of a stopped solve, if there is one.  Raises Conflict if the solve still runs."""
    path = Path(target).absolute()
    if working_folder(path).exists():
        handle = lock(path)
        with contextlib.suppress(OSError):  # the record is removed first: it must not remain without its tiles
            _drop_record(working_folder(path))
        shutil.rmtree(working_folder(path), ignore_errors=True)
        os.close(handle)


def record_bytes(target: Path) -> bytes:
    """Read the record of the checkpoint of ``target``, unparsed.  Raises FileNotFoundError if there is none."""
    return (working_folder(target.absolute()) / RECORD).read_bytes()


def place_checkpoint(target: str | Path, record: bytes, bring: Callable[[Path], None]) -> None:
    """Make a durable checkpoint of ``target`` from a record and tiles.

    Args:
        target: the path of the store; the content of its working folder is removed.
        record: the bytes of the record, as from ``record_bytes``.
        bring: called with a folder, into which it writes the tiles.

    Raises:
        Conflict: another process works in the folder.
        StorageFailed: the file system refused; the incomplete checkpoint has no record, so it is ignored.
    """
    path = Path(target).absolute()
    base = working_folder(path)
    try:
        handle = lock(path)
        try:
            _drop_record(base)
            _clear(base, keep=())
            (base / "store").mkdir()
            bring(base / "store")
            put_stamp(base / "store", stamp_in(record))
            # The record must never be durable before the tiles that it describes.
            atomic.sync_tree(base / "store")
            atomic.sync_path(base)
            _put_record(base, record)
            atomic.sync_path(path.parent)
        finally:
            os.close(handle)
    except OSError as error:
        raise atomic.failure("bring the checkpoint to", base, error) from error


class WorkingDir(atomic.Staging):
    """The staging folder ``.NAME.working/store``, which remains after its process has ended if there is a record.

    Attributes:
        spare: the folder for files that tiles are written into.
        record: the record of the last commit; None before the first.
    """

    _hold: int | None = None

    def __init__(self, target: Path, identity: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Lock the folder, and resume the checkpoint in it or begin anew.

        Raises:
            Conflict: another process works there, or there is a checkpoint that may not be resumed or replaced.
            StorageFailed: the file system refused, or the record is damaged.
        """
        self.target, self._identity, self._process = target, plain(identity), os.getpid()
        self._base = working_folder(target)
        self.folder, self.spare = self._base / "store", self._base / "spare"
        self.record: dict[str, Any] | None = None
        self._stamp, self._stamped = secrets.token_hex(8), False
        self._writing = Writing(target, "fetch" if "fetched" in identity else "solve")
        try:
            self._hold = lock(target)
            self._lock = os.dup(self._hold)
            self._take_up(resume, overwrite)
        except OSError as error:
            self._release()
            raise atomic.failure("use the working folder", self._base, error) from error
        except BaseException:
            self._release()
            raise

    def save(self, record: Mapping[str, object], **more: object) -> None:
        """Replace the record durably; the tiles that it describes must be durable already.  Raises OSError."""
        self.check_held()
        stated = plain(record)
        first = not (self._base / RECORD).exists()
        if not self._stamped:
            put_stamp(self.folder, self._stamp)
            self._stamped = True
        write_record(self._base, {"identity": self._identity, "record": stated, "stamp": self._stamp, **more})
        if first:
            atomic.sync_path(self.target.parent)
        self.record = stated

    def publish(self, *, replace: bool) -> None:
        """Publish as the base class does, then remove the working folder."""
        if self.record is not None:
            # After stores are exchanged, the old store is in the working folder.  If the process ends then, the digest
            # of the seal shows which store is the new one.
            try:
                self.save(self.record, publishing=seal_of(self.folder))
            except OSError as error:
                raise atomic.failure("write", self._base / RECORD, error) from error
        self.check_held()
        with contextlib.suppress(OSError):
            stamp_file(self.folder).unlink(missing_ok=True)
        self._stamped = False
        # the lock ``_writing`` is held until the folder is removed, because the next writer makes a folder of that name
        writing, self._writing = self._writing, None
        try:
            super().publish(replace=replace)
        finally:
            self._writing = writing
        self._remove()

    def check_held(self) -> None:
        """Check that this process still holds the folder around the store.  Raises StorageFailed."""
        self._check_process()
        check_leads(self._base, self._lock)

    def discard(self) -> None:
        """Unlock the folder, and remove it unless ``record`` is set; never raises."""
        if self._lock is not None:
            if self.record is None and self._process == os.getpid():
                with contextlib.suppress(
                    OSError
                ):  # the record of a commit that failed at its last step must not remain without its tiles
                    _drop_record(self._base)
                self._remove()
            self._release()

    def _take_up(self, resume: bool, overwrite: bool) -> None:
        document = None
        try:
            document = _read_record(self.target)
        except StorageFailed:
            if not overwrite:
                raise
        if document is not None and _published(self.target, document):
            if not self.target.exists():
                log.warning("the store finished at %s is no longer there; solving anew", self.target)
            document = None
        fault = None if document is None else fault_of(self.folder, document)
        if document is not None and resume and document["identity"] == self._identity and fault is None:
            self._resume(document)
        elif document is not None and not overwrite:
            raise Conflict(_refusal(self.target, document, self._identity, resume, fault))
        else:
            _drop_record(self._base)
            _clear(self._base, keep=())
        self.folder.mkdir(exist_ok=True)
        self.spare.mkdir()

    def _resume(self, document: Mapping[str, Any]) -> None:
        """Keep tiles and record, and remove all other files, which are written again."""
        self.record = document["record"]
        if "stamp" in document:
            self._stamp, self._stamped = document["stamp"], stamp_file(self.folder).exists()
        if "publishing" in document:
            # This puts the stamp back before the seal is removed: tiles are recognised by stamp or seal.
            self.save(document["record"])
        _clear(self._base, keep=(self.folder.name, RECORD))
        _clear(self.folder, keep=(DISTANCES, ALSO))
        further = self.folder / ALSO
        for place in [path for path in further.iterdir() if path.is_dir()] if further.is_dir() else []:
            _clear(place, keep=("c",))
        _clear(self.folder / DISTANCES, keep=("c",))

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            (self._base / RECORD).unlink(missing_ok=True)
        shutil.rmtree(self._base, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        self._unlock()
        self._drop_hold()
        self._end_writing()

    def _drop_hold(self) -> None:
        handle, self._hold = self._hold, None
        if handle is not None:
            os.close(handle)

    def __del__(self) -> None:
        try:
            super().__del__()
        finally:
            self._drop_hold()


def _refusal(
    target: Path, document: Mapping[str, Any], asked: Mapping[str, object], resume: bool, fault: str | None
) -> str:
    saved = f"{target} has a checkpoint of {document['saved']}"
    if fault is not None:
        return f"{saved}, but {fault}"
    if not resume:
        return f"{saved}: {_WAYS}"
    found = document["identity"]
    # the type follows from the graph and the options, so a difference in these is named before it
    for name in sorted([*asked, *found], key=lambda name: name in ("type", "unreachable")):
        if asked.get(name) != found.get(name):
            was, now = found.get(name), asked.get(name)
            return f"{saved} that is of another {name} ({was}, asked is {now}); begin anew (--overwrite) or elsewhere"
    return f"{saved} that cannot be resumed; begin anew (--overwrite)"


def working_folder(target: Path) -> Path:
    """Return the folder in which a solve into ``target`` keeps its commits."""
    return target.with_name(f".{target.name}.working")


def lock(target: Path) -> int:
    """Lock the working folder of ``target``, making it if needed, and return the descriptor that holds the lock.

    Raises:
        Conflict: another process holds the lock.
        OSError: the file system refused.
    """
    return lock_folder(working_folder(target), target)


def _clear(folder: Path, keep: tuple[str, ...]) -> None:
    for path in folder.iterdir():
        if path.name not in keep:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _drop_record(base: Path) -> None:
    """Remove the record durably: otherwise it might reappear after a power cut, next to tiles of another solve.  Raises
    OSError.
    """
    try:
        (base / RECORD).unlink()
    except FileNotFoundError:
        return
    atomic.sync_path(base)


def write_record(base: Path, content: Mapping[str, object]) -> None:
    """Replace the record of a folder durably, in one step, with a digest of its own.

    Args:
        base: the folder.
        content: the members of the record, in JSON types.

    Raises:
        OSError: the file system refused; the record has not changed.
    """
    document = {"format": _FORMAT, "saved": datetime.now(UTC).isoformat(timespec="seconds"), **content}
    document["digest"] = _digest(document)
    _put_record(base, json.dumps(document).encode())


def _put_record(base: Path, data: bytes) -> None:
    """Replace the record durably and atomically.  Raises OSError."""
    draft = base / f"{RECORD}~"
    atomic.write_file(draft, [data])
    atomic.sync_path(draft)
    draft.replace(base / RECORD)
    atomic.sync_path(base)


def _read_record(target: Path) -> dict[str, Any] | None:
    return read_record(working_folder(target))


def read_record(base: Path) -> dict[str, Any] | None:
    """Return the record that :func:`write_record` wrote into a folder; None if there is none.  Raises StorageFailed if
    the record is damaged.
    """
    path = base / RECORD
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise atomic.failure("read", path, error) from error
    try:
        document = json.loads(data)
        stated, version = document.pop("digest"), document["format"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StorageFailed(f"{path} is damaged, so the checkpoint is lost; begin anew (--overwrite)") from None
    if version != _FORMAT:
        raise StorageFailed(f"{path} has format {version}; this program reads {_FORMAT}; begin anew (--overwrite)")
    if stated != _digest(document):
        raise StorageFailed(f"{path} is damaged, so the checkpoint is lost; begin anew (--overwrite)")
    return dict(document)


def _digest(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _published(target: Path, document: Mapping[str, Any]) -> bool:
    """Return whether the store of this record was published, so that only the working folder remains to be removed.

    After publishing, the working folder holds the store that was replaced, if any.  The published store may have been
    moved away from its target later.
    """
    sealed = document.get("publishing")
    if sealed is None:
        return False
    left = working_folder(target) / "store"
    return sealed == seal_of(target) or not left.exists() or seal_of(left) not in (None, sealed)


def _disk_bytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(root, name).lstat().st_blocks * 512
    return total
