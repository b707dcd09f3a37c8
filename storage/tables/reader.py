"""Reads the sealed table of a job: pages of rows, sorted on request, whole columns, and files."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.matrix.format import TABLE, IntArray, file_mark
from storage.matrix.reader import open_sealed
from storage.matrix.sealed import SealedFolder
from storage.matrix.tiles import StoreFolder
from storage.pairs.saving import LABELS, POINTS, SOURCES
from storage.remote.reader import RemoteFolder

if TYPE_CHECKING:
    import polars as pl

#: An open table from an object store stays in memory if its file has at most this number of bytes.
KEPT: Final = 64 << 20


class SealedTable(SealedFolder):
    """A sealed table, open for reading; safe to use from many threads.

    Attributes:
        result: ``measures``, ``near``, ``betweenness`` or ``flows``.
        columns: the type of each column by its name: ``integer``, ``number`` or ``text``; the first column names
            vertices.
        rows: number of rows.
        shape: numbers of sources and targets, as for a matrix; no matrix was made.
        Others: as in ``SealedFolder``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Read the seal; the table itself is read by the methods that need it.  Raises StorageFailed."""
        self._lock, self._sound = threading.Lock(), False
        self._order: tuple[str, IntArray] | None = None
        self._fetched: bytes | None = None
        super().__init__(folder, TABLE)

    def _read_metadata(self) -> None:
        self.result = str(self.attributes["result"])
        self.columns = {str(one["name"]): str(one["type"]) for one in self.attributes["columns"]}
        self.rows = int(self.attributes["rows"])
        down, across = self.attributes["shape"]
        self.shape = int(down), int(across)
        if not self.columns or self.rows < 0:
            raise ValueError("a table has columns")

    @property
    def key(self) -> str:
        """The name of the first column, which names vertices."""
        return next(iter(self.columns))

    @property
    def directed(self) -> bool:
        """Whether the graph is directed."""
        return bool(self.attributes["directed"])

    @property
    def bytes(self) -> int:
        """Bytes of all files except the root document."""
        return sum(mark.size for mark in self._files.values())

    def holds(self, key: str) -> bool:  # noqa: ARG002 - as ``Matrix.holds``
        """Return False: a table has no tiles."""
        return False

    def check(self) -> None:
        """Compare every file with the seal.  Raises StorageFailed."""
        self.check_files("")

    def named(self, names: Sequence[str] | None, field: str = "columns") -> list[str]:
        """Check names of columns, and return each once; return the names of all columns if ``names`` is None.

        Raises:
            InvalidRequest: there is no such column, or ``names`` is empty; the error names the option ``field``.
        """
        found = list(self.columns) if names is None else list(dict.fromkeys(names))
        for name in found:
            if name not in self.columns:
                some = ", ".join(list(self.columns)[:50])
                raise InvalidRequest(f"{field}: there is no column {name[:200]!r}; there are {some}", field=field)
        if not found:
            raise InvalidRequest(f"{field} names no column", field=field)
        return found

    def page(self, columns: Sequence[str], first: int, count: int, sort: str | None = None) -> pl.DataFrame:
        """Return some rows of the table.

        Args:
            columns: names of the columns to return.
            first: number of the first row, from 0, in the order of ``sort``.
            count: largest number of rows.
            sort: the column to sort by, in descending order if a ``-`` precedes its name; None for the order of the
                vertices.  Rows without a number come last, and rows with equal numbers keep their order.

        Raises:
            StorageFailed: the table is damaged or gone.
        """
        import polars as pl

        first, count = min(first, self.rows), min(count, self.rows)  # polars refuses numbers of 2^32 and more
        if sort is None:
            return self._read(lambda table: table.select(columns).slice(first, count))
        order = self._sorted(sort)[first : first + count]
        # one column at a time, so that memory holds only one whole column and the page
        return pl.DataFrame([self.values(name)[order] for name in columns])

    def rows_of(self, names: Sequence[str], columns: Sequence[str], most: int) -> pl.DataFrame:
        """Return the rows whose first column is one of ``names``, in the order of the table.

        A source of near pairs may have no row.

        Args:
            names: vertices, as text.
            columns: names of the columns to return.
            most: largest number of rows that the caller wants.  If there are more, ``most + 1`` rows are returned.

        Raises:
            NotFound: a name does not occur in the first column, and no source of near pairs is called so.
            StorageFailed: the table is damaged or gone.
        """
        import polars as pl

        key = self.key
        wanted = list(dict.fromkeys(names))
        values = pl.Series(wanted, dtype=pl.String())
        if self.columns[key] == "integer":
            values = values.cast(pl.Int64(), strict=False).drop_nulls()
        here = pl.col(key).is_in(values.implode())
        both, most = list(dict.fromkeys([key, *columns])), min(most, self.rows)
        found = self._read(lambda table: table.filter(here).select(both).head(most + 1))
        known = {str(name) for name in found[key].unique().to_list()}
        if found.height <= most:
            missing = self._unknown([name for name in wanted if name not in known])
            if missing:
                raise NotFound(f"the table has no row of {missing[0][:200]!r}; its column {key!r} names vertices")
        return found.select(columns)

    def _unknown(self, names: list[str]) -> list[str]:
        """Return the names that are those of no source of near pairs; all of them if this is another table."""
        if not names or SOURCES not in self._arrays:
            return names
        if POINTS in self._arrays:
            here = set(map(str, self._side(POINTS)))
        else:
            here = set(map(str, self._side(LABELS)[self._side(SOURCES)]))
        return [name for name in names if name not in here]

    def values(self, column: str) -> pl.Series:
        """Return a column, null where a row has no value.  Raises StorageFailed."""
        return self._read(lambda table: table.select(column))[column]

    def _sorted(self, sort: str) -> IntArray:
        """Return the numbers of all rows, sorted by a column as ``page`` describes.  The last order is cached for the
        next page.
        """
        kept = self._order
        if kept is not None and kept[0] == sort:
            return kept[1]
        values = self.values(sort.removeprefix("-"))
        frame = values.rename("value").to_frame().with_row_index("row")
        down = sort.startswith("-")
        order = frame.sort("value", "row", descending=[down, False], nulls_last=True)["row"].to_numpy()
        self._order = sort, order
        return order

    def _read(self, ask: Any) -> pl.DataFrame:
        """Return the result of ``ask``, a query on the lazy table; before the first query, compare the file with the
        seal.
        """
        import polars as pl

        try:
            with self._lock:
                source = self._source()
            found: pl.DataFrame = ask(pl.scan_parquet(source)).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).partition("\n")[0]
            raise StorageFailed(f"{self.path} is damaged: {TABLE} cannot be read ({reason})") from error
        if not self.current():
            raise StorageFailed(f"{self.path} was replaced or removed while open; open it again")
        return found

    def _source(self) -> Path | io.BytesIO:
        """Return the path of the table's file, or the content of a table in an object store.  The file is compared with
        the seal before it is used for the first time.
        """
        if isinstance(self._folder, RemoteFolder):
            data = bytes(self._checked(TABLE)) if self._fetched is None else self._fetched
            if len(data) <= KEPT:
                self._fetched = data
            return io.BytesIO(data)
        path = Path(self._folder.root) / TABLE
        if not self._sound and not file_mark(path).agrees(self._files[TABLE]):
            raise StorageFailed(f"{self.path} is damaged: {TABLE} does not agree with the seal")
        self._sound = True
        return path


def open_table(path: str | Path) -> SealedTable:
    """Open a sealed table.

    Args:
        path: the folder of the table, or its address in an object store.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: there is no sealed table at ``path``, or it is damaged.
    """
    return open_sealed(path, SealedTable)
