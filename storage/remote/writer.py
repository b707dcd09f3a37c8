"""Matrix stores in an object store: they are written from a working folder on a local disk, and sealed by a conditional
put.

Below the address of a store lie its *generations*, one for each solve that wrote there, and ``zarr.json``, which names
the sealed generation.  A generation is a complete store as on a disk.  Only its own solve writes to it, so a solve that
was given up but still runs does no harm.  ``zarr.json`` is put last; it may replace only the ``zarr.json`` that existed
when the solve began.  ``checkpoint.json`` says from which generation an unfinished solve can be resumed.  Each claim
with a number has a checkpoint of its own, and the checkpoint of the highest number counts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.errors import NotFound, StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.matrix.exchange import TileFile
from storage.matrix.format import DISTANCES, ROOT_DOCUMENT, Array
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid
from storage.matrix.working import WorkingMatrix
from storage.matrix.working_dir import discard_checkpoint, place_checkpoint, record_bytes
from storage.remote.addresses import checkpoint_name, newest_checkpoint
from storage.remote.generation import Generation
from storage.remote.objects import Objects, Stat, each

log = logging.getLogger(__name__)

#: Sending checkpoints takes at most 1 / _SHARE of the time of a solve.
_SHARE: Final = 10
#: Maximum number of attempts to read a tile, because the tile may be replaced while it is read.
_ATTEMPTS: Final = 10


class RemoteMatrix(WorkingMatrix):
    """A working copy on a local disk whose checkpoints and sealed store go to an object store.

    A thread sends commits while the solve continues: tiles first, then ``checkpoint.json``.  A tile may change between
    commit and sending.  That is correct, because tiles may be more advanced than the record says.
    """

    def __init__(
        self,
        staging: atomic.Staging,
        grid: TileGrid,
        attributes: Mapping[str, object],
        *,
        overwrite: bool,
        objects: Objects,
        before: Stat | None,
        claim: int = 0,
    ) -> None:
        """Callers use ``open_working``.  ``before`` is the seal of the store that may be replaced; None if there is no
        store.
        """
        super().__init__(staging, grid, attributes, overwrite=overwrite)
        self._objects, self._made = objects, Generation(objects, before, claim)
        self.generation = self._made.name
        self._checkpoint = checkpoint_name(claim)
        #: tiles that the object store lacks, or of which it has an older state
        self._unsent = self._present.copy()
        self._sender: threading.Thread | None = None
        self._sent_at, self._sending_took = 0.0, 0.0
        self._behind = False

    def commit(self, record: Mapping[str, Any]) -> None:
        """Commit as the base class does; from time to time, a thread also sends the commit to the object store.

        If the record counts no finished work, the checkpoint in the object store is removed before anything else is
        written.

        Raises:
            StorageFailed: the base class raised it, or the object store refused the removal.
        """
        if _says_nothing(record):
            self._commit_lowered(record)
            return
        super().commit(record)
        self._behind = True
        if self._sender is not None and self._sender.is_alive():
            return
        if time.monotonic() - self._sent_at >= (_SHARE - 1) * self._sending_took:
            self._sender = threading.Thread(target=self._send_checkpoint, name="send-checkpoint", daemon=True)
            self._sender.start()

    def _commit_lowered(self, record: Mapping[str, Any]) -> None:
        """Commit a record that may claim less progress than the checkpoint that this process sent.  The checkpoint is
        removed first, because tiles with less progress may be sent soon.

        Checkpoints of earlier processes remain, because they name other generations, which no process overwrites.  If
        the object store refuses the removal, the record is not committed, and no tile is written.
        """
        with self._record_lock:
            if self._sender is not None:
                self._wait_for_sender()
                self._behind = False
                self._objects.remove([self._checkpoint])
            super()._commit_lowered(record)

    def leave(self) -> None:
        """Send the last commit to the object store, then close as the base class does."""
        if self._open and self._place.record is not None:
            self._wait_for_sender()
            if self._behind:
                self._send_checkpoint()
        super().leave()

    def abort(self) -> None:
        """Remove everything as the base class does, and also what was sent to the object store."""
        if self._open:
            self._wait_for_sender()
            self._objects.remove([self._checkpoint])
            self._objects.remove_all(f"{self.generation}/")
        super().abort()

    def _write_tile(self, i: int, j: int, part: Array) -> None:
        super()._write_tile(i, j, part)
        self._unsent[i, j] = True

    def _adopt_tile(self, exchange_dir: Path, tile: TileFile) -> None:
        super()._adopt_tile(exchange_dir, tile)
        self._unsent[tile.i, tile.j] = True

    def _publish(self, data: bytes) -> None:
        """Send the remaining files, then the root document, then the object that names this generation."""
        self._wait_for_sender()
        folder, generation = self._place.folder, self.generation
        self._send_tiles()
        tiles = folder / DISTANCES / "c"
        beside = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(tiles)]
        self._objects.send((path, f"{generation}/{path.relative_to(folder).as_posix()}") for path in beside)
        self._objects.write(f"{generation}/{ROOT_DOCUMENT}", data)
        self._place.check_held()  # a folder that another process has taken may lack files
        self._made.seal(json.loads(data)["attributes"]["seal"]["digest"])
        self._place.record = None  # the solve is complete, so there is nothing to resume
        self._staging.discard()
        self._open = False
        self._made.tidy()

    def _wait_for_sender(self) -> None:
        if self._sender is not None:
            self._sender.join()

    def _send_checkpoint(self) -> None:
        """Read the record, send the tiles that changed, then send the record; after a failure, the next commit tries
        again.
        """
        began = time.monotonic()
        try:
            self._behind = False
            record = record_bytes(self._place.target)
            self._send_tiles()
            document = {"generation": self.generation, "record": record.decode()}
            self._objects.write(self._checkpoint, json.dumps(document).encode())
        except (StorageFailed, OSError) as error:
            self._behind = True
            log.warning("a checkpoint is not sent: %s", error)
        self._sent_at = time.monotonic()
        self._sending_took = self._sent_at - began

    def _send_tiles(self) -> None:
        each(lambda tile: self._send_tile(*tile), np.argwhere(self._unsent).tolist())

    def _send_tile(self, i: int, j: int) -> None:
        self._unsent[i, j] = False  # cleared before reading, so that a later write of the tile marks it again
        try:
            data = _read_whole(Path(f"{self._tiles}/{i}/{j}"))
            self._objects.write(f"{self.generation}/{DISTANCES}/c/{i}/{j}", data)
        except BaseException:
            self._unsent[i, j] = True
            raise


def _says_nothing(record: Mapping[str, Any]) -> bool:
    """Return whether a record of rounds or passes (``engine.streaming``) counts no stripe as done."""
    return record.get("kind") in ("rounds", "passes") and all(level < 0 for level, _ in record["levels"])


def _read_whole(path: Path) -> bytes:
    """Return the bytes of a tile file; read the file again while its checksum is wrong.

    The checksum may be wrong because the file of a replaced tile is overwritten meanwhile
    (``storage.matrix.file_pool``).
    """
    for _ in range(_ATTEMPTS):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise atomic.failure("read", path, error) from error
        if crc32c(data[:-CHECKSUM_BYTES]).to_bytes(CHECKSUM_BYTES, "little") == data[-CHECKSUM_BYTES:]:
            return data
        time.sleep(0.01)
    raise StorageFailed(f"{path} is damaged: its checksum is wrong")


def fetch_checkpoint(target: Path, address: str) -> bool:
    """Copy the checkpoint at ``address`` to the working folder of ``target``; return whether there is a checkpoint to
    resume.

    A checkpoint on this machine is kept if the object store has the same or none, because then no other machine has
    continued the solve.

    Raises:
        Conflict: a process on this machine works in the working folder.
        StorageFailed: the object store or the file system refused, or the checkpoint is damaged.
    """
    objects = Objects(address)
    for _ in range(_ATTEMPTS):
        name = newest_checkpoint(objects)
        found = objects.stat(name)
        if found is None:
            return _own_record(target) is not None
        with contextlib.suppress(NotFound):  # a solve that was given up may remove the checkpoint meanwhile
            _bring(objects, name, found, target)
            return True
    return False


def _bring(objects: Objects, checkpoint: str, found: Stat, target: Path) -> None:
    """Copy the object ``checkpoint`` and its tiles to the working folder of ``target``, unless this folder has them
    already.

    Raises NotFound if the object has changed since it was ``found``: its solve may have lowered the record and then
    overwritten tiles.  This is checked before the record is written, so that even a killed process leaves no record
    that claims more than the tiles contain.
    """
    try:
        document = json.loads(objects.read(checkpoint))
        generation, record = str(document["generation"]), str(document["record"]).encode()
    except (ValueError, KeyError, TypeError) as error:
        raise StorageFailed(
            f"{objects.address}/{checkpoint} is damaged ({error!r}); begin anew (--overwrite)"
        ) from error
    if _own_record(target) == record:
        return
    discard_checkpoint(target)
    start = f"{generation}/{DISTANCES}/c/"

    def bring(folder: Path) -> None:
        each(lambda name: _bring_tile(objects, name, folder / name[len(generation) + 1 :]), objects.names(start))
        now = objects.stat(checkpoint)
        if now is None or now.tag != found.tag:
            raise NotFound(f"{objects.address}/{checkpoint} was replaced while it was read")

    place_checkpoint(target, record, bring)


def _bring_tile(objects: Objects, name: str, path: Path) -> None:
    data = objects.read(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise atomic.failure("write", path, error, len(data)) from error


def _own_record(target: Path) -> bytes | None:
    try:
        return record_bytes(target)
    except FileNotFoundError:
        return None
