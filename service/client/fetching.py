"""A whole result store to a local folder: a few tiles at a time, each checked, broken downloads gone on with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from service.client.asking import Patience, ask
from service.client.flows import job_path
from service.client.steps import Flow, Request, Together, Work
from storage.errors import StorageFailed

if TYPE_CHECKING:
    from storage.matrix.download import Download, Piece

#: told the bytes that are there and the bytes of all
Meter = Callable[[int, int], None]

#: files on their way at once
_WIDTH: Final = 4
#: a body that something between packs again could not be gone on with
_PLAIN: Final = {"Accept-Encoding": "identity"}


class FileSink:
    """A download into a file; what came stays when the connection breaks, and the next answer goes on behind it."""

    def __init__(self, path: Path, size: int) -> None:
        """``size`` is how many bytes the whole must have."""
        self._path, self._size = path, size
        self._file: BinaryIO | None = None
        self._etag = ""
        self.received = 0
        path.unlink(missing_ok=True)

    @property
    def complete(self) -> bool:
        """Whether all bytes are there."""
        return self.received == self._size

    def ask(self) -> Mapping[str, str]:
        """A range behind what is there, if it is still the same file."""
        if self.received and self._etag:
            return {"Range": f"bytes={self.received}-", "If-Range": self._etag}
        return {}

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Open the file: behind what is there for the part that was asked for, else at its beginning."""
        part = status == 206 and headers.get("content-range", "").startswith(f"bytes {self.received}-")
        if status == 206 and not part:
            raise StorageFailed(f"the answer holds another part ({headers.get('content-range')}) than was asked for")
        self._file = self._path.open("ab" if part else "wb")
        self.received = self.received if part else 0
        etag = headers.get("etag", "")
        self._etag = "" if etag.startswith("W/") else etag

    def write(self, chunk: bytes) -> None:
        """Append.  StorageFailed if more comes than the file has."""
        self.received += len(chunk)
        if self._file is None or self.received > self._size:
            raise StorageFailed(f"{self._path.name}: more than its {self._size:,} bytes came")
        self._file.write(chunk)

    def end(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def fetch(job: str, target: Path, patience: Patience, *, overwrite: bool, meter: Meter | None) -> Flow[Path]:
    """Fetch the store of a job; interrupted, it leaves what it has, and the next call goes on from there.

    Raises:
        Conflict: there is something at ``target``, or another store is on its way there.
        StorageFailed: a file came damaged twice, or the file system refused.
        ServiceError, NoAnswer: as always.
    """
    from storage.matrix.download import Download

    answer = yield from ask(Request("GET", job_path(job, "zarr", "zarr.json"), headers=_PLAIN), patience)
    download: Download = yield Work(lambda: Download(target, answer.content, overwrite=overwrite))
    tally = _Tally(download, meter)
    try:
        yield Together((_piece(job, download, piece, patience, tally) for piece in download.sides()), _WIDTH)
        tiles: Iterator[Any] = yield Work(download.tiles)
        lacking = (piece for piece, there in tiles if not (there and tally.add(piece.size)))
        yield Together((_piece(job, download, piece, patience, tally) for piece in lacking), _WIDTH)
        yield Work(download.publish)
    finally:
        download.__exit__()
    return target


class _Tally:
    """Bytes that are there, told to the meter as they grow."""

    def __init__(self, download: Download, meter: Meter | None) -> None:
        self._download, self._meter = download, meter
        self._lock, self._done = threading.Lock(), 0

    def add(self, size: int) -> bool:
        """Count; always True.  Before the manifest is there, nobody knows how many bytes there are in all."""
        with self._lock:
            self._done += size
            if self._meter is not None and self._download.total is not None:
                self._meter(self._done, self._download.total)
        return True


def _piece(job: str, download: Download, piece: Piece, patience: Patience, tally: _Tally) -> Flow[None]:
    path = job_path(job, "zarr", *piece.name.split("/"))
    for _ in range(2):
        sink = yield Work(lambda: FileSink(download.draft(piece), piece.size))
        yield from ask(Request("GET", path, headers=_PLAIN, sink=sink), patience)
        if (yield Work(lambda: download.accept(piece))):
            tally.add(piece.size)
            return
    raise StorageFailed(
        f"{piece.name} came damaged, twice: it is not what the manifest says; the store is not complete"
    )
