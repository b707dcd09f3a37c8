"""Tables in pieces: a Parquet file is written while the pieces are made, and only a few of them are in memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

from storage.threads import ThreadPool

if TYPE_CHECKING:
    import polars as pl


class Pieces:
    """A table that is made in pieces with the same columns; there is at least one piece.

    The calling thread makes the pieces, so that it may report progress and be cancelled; another thread writes them.

    Args:
        frames: the pieces, in order; each is made when the previous one has been taken.

    Attributes:
        schema: the columns.
        height: number of rows of the pieces made so far; of all pieces once the table is written.
    """

    def __init__(self, frames: Iterator[pl.DataFrame]) -> None:
        first = next(frames)
        self._frames = chain([first], frames)
        self.schema, self.height = first.schema, 0

    def write_parquet(self, out: IO[bytes] | Path, *, together: int | None = None, said: Mapping[str, str]) -> None:
        """Write all pieces, compressed with Zstandard; may be called once.

        Args:
            out: the file.
            together: number of rows in a row group of the file; None for the default of polars.
            said: key-value metadata of the file.

        Raises:
            OSError: the file system refused.
            BaseException: the error that making a piece raised; the file is then incomplete.
        """
        from polars.exceptions import ComputeError
        from polars.io.plugins import register_io_source

        given: SimpleQueue[pl.DataFrame | None] = SimpleQueue()
        wanted: SimpleQueue[bool] = SimpleQueue()

        def source(columns: object, predicate: object, rows: object, size: object) -> Iterator[pl.DataFrame]:  # noqa: ARG001
            wanted.put(True)
            while (frame := given.get()) is not None:
                yield frame
                wanted.put(True)

        def write() -> None:
            table = register_io_source(source, schema=self.schema)
            try:
                table.sink_parquet(
                    out, compression="zstd", maintain_order=True, row_group_size=together, metadata=dict(said)
                )
            except ComputeError as error:  # polars reports a full disk in this way
                raise OSError(errno.ENOSPC if "os error 28" in str(error) else errno.EIO, str(error)) from error
            finally:
                wanted.put(False)

        with ThreadPool(1, "apsp-table") as pool, pool:
            writing = pool.submit(write)
            try:
                while wanted.get() and (frame := next(self._frames, None)) is not None:
                    self.height += frame.height
                    given.put(frame)
            finally:
                given.put(None)
            try:
                writing.result()
            finally:
                writing.forget()  # the error refers to this frame
