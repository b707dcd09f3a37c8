"""Temporary files, for input from a pipe that must be read more than once, and for decompressed content."""

from __future__ import annotations

import contextlib
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from storage.errors import InvalidGraph, NotFound, StorageFailed
from storage.readers.limits import ReadLimits

_PIECE = 1 << 20


@contextlib.contextmanager
def regular_file(path: Path, limits: ReadLimits) -> Iterator[Path]:
    """Context manager: provide ``path`` itself, or, if ``path`` is a pipe, a temporary file with the content of the
    pipe.

    Raises:
        NotFound: there is no such file, or it cannot be read.
        InvalidGraph: ``path`` is neither a file nor a pipe.
        LimitExceeded: the pipe has more than ``max_bytes``.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise NotFound(f"cannot open {path}: {error.strerror or error}") from error
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        yield path
    elif stat.S_ISFIFO(mode):
        with temporary_copy(_from_pipe(path, limits)) as file:
            yield file
    else:
        raise InvalidGraph(f"{path} is neither a file nor a pipe; redirect a file to it, or name the file itself")


def _from_pipe(path: Path, limits: ReadLimits) -> Iterator[bytes]:
    total = 0
    try:
        with path.open("rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE):
                total += len(piece)
                limits.check_bytes(total, None)
                yield piece
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def temporary_copy(pieces: Iterable[bytes], suffix: str = "") -> Iterator[Path]:
    """Context manager: provide a temporary file with ``pieces``.  Raises StorageFailed if the file cannot be
    written.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="apsp-", suffix=suffix))
            for piece in pieces:
                file.write(piece)
            file.flush()
        except OSError as error:
            folder, why = tempfile.gettempdir(), error.strerror or error
            message = f"a temporary file in {folder} cannot be written: {why}; TMPDIR names another folder"
            raise StorageFailed(message) from error
        yield Path(file.name)
