"""Downloads a result store to a local folder: a few tiles at a time, with checksums; broken downloads are continued."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

from service.client.asking import Patience, ask
from service.client.steps import Flow, Request, Together, Work
from storage.errors import StorageFailed

if TYPE_CHECKING:
    from storage.matrix.download import Download, Piece

#: called with two numbers of bytes: those fetched so far, and all that are to be fetched
Meter = Callable[[int, int], None]

#: files downloaded at the same time
_WIDTH: Final = 4
#: asks proxies not to compress a body, because the download of a compressed body cannot continue after a break
_PLAIN: Final = {"Accept-Encoding": "identity"}


class FileSink:
    """A download into a file; if the connection breaks, the next answer continues after the received bytes."""

    def __init__(self, path: Path, size: int) -> None:
        """``size`` is the expected size of the file in bytes."""
        self._path, self._size = path, size
        self._file: BinaryIO | None = None
        self._etag = ""
        self.received = 0
        path.unlink(missing_ok=True)

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self.received == self._size

    def ask(self) -> Mapping[str, str]:
        """Return the headers that ask for the missing bytes, or for all bytes if the file has changed."""
        if self.received and self._etag:
            return {"Range": f"bytes={self.received}-", "If-Range": self._etag}
        return {}

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Open the file: to append if the answer is the requested part, else to write it from the beginning."""
        part = status == 206 and headers.get("content-range", "").startswith(f"bytes {self.received}-")
        if status == 206 and not part:
            raise StorageFailed(f"the answer holds another part ({headers.get('content-range')}) than was asked for")
        self._file = self._path.open("ab" if part else "wb")
        self.received = self.received if part else 0
        etag = headers.get("etag", "")
        self._etag = "" if etag.startswith("W/") else etag

    def write(self, chunk: bytes) -> None:
        """Append a chunk.  Raises StorageFailed if the file gets longer than expected."""
        self.received += len(chunk)
        if self._file is None or self.received > self._size:
            raise StorageFailed(f"{self._path.name}: more than its {self._size:,} bytes came")
        self._file.write(chunk)

    def end(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def fetch(place: str, target: Path, patience: Patience, *, overwrite: bool, meter: Meter | None) -> Flow[Path]:
    """Fetch the files of a result; after an interruption, the next call continues with the files already fetched.

    Args:
        place: path of the files at the service, as ``job_path(job, "zarr")``.
        target: folder of the store.
        patience: how long requests are repeated.
        overwrite: whether an existing store may be replaced.
        meter: called with the bytes fetched so far and the bytes in all.

    Raises:
        Conflict: ``target`` exists, or another download to it is in progress.
        StorageFailed: a file was damaged twice, or the file system failed.
        ServiceError, NoAnswer: the service refused, or gave no answer in time.
    """
    from storage.matrix.download import Download

    answer = yield from ask(Request("GET", f"{place}/zarr.json", headers=_PLAIN), patience)
    download: Download = yield Work(lambda: Download(target, answer.content, overwrite=overwrite))
    tally = _Tally(download, meter)
    try:
        yield Together((_piece(place, download, piece, patience, tally) for piece in download.sides()), _WIDTH)
        tiles: Iterator[Any] = yield Work(download.tiles)
        lacking = (piece for piece, there in tiles if not (there and tally.add(piece.size)))
        yield Together((_piece(place, download, piece, patience, tally) for piece in lacking), _WIDTH)
        yield Work(download.publish)
    finally:
        download.__exit__()
    return target


class _Tally:
    """Counts the fetched bytes and reports them to the meter."""

    def __init__(self, download: Download, meter: Meter | None) -> None:
        self._download, self._meter = download, meter
        self._lock, self._done = threading.Lock(), 0

    def add(self, size: int) -> bool:
        """Count bytes, and return True, so that a condition can call this method.

        Each call also reports to the meter, but only after ``Download.tiles`` has found the number of all bytes.
        """
        with self._lock:
            self._done += size
            if self._meter is not None and self._download.total is not None:
                self._meter(self._done, self._download.total)
        return True


def _piece(place: str, download: Download, piece: Piece, patience: Patience, tally: _Tally) -> Flow[None]:
    path = f"{place}/{quote(piece.name)}"
    for _ in range(2):
        sink = yield Work(lambda: FileSink(download.draft(piece), piece.size))
        yield from ask(Request("GET", path, headers=_PLAIN, sink=sink), patience)
        if (yield Work(lambda: download.accept(piece))):
            tally.add(piece.size)
            return
    raise StorageFailed(
        f"{piece.name} was damaged twice on the way: it does not match the manifest; the store is not complete"
    )
