"""Tables of numbers by vertex, or of demands, that people upload: equal tables are stored once, but each owner sees
only the tables that they uploaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import InvalidRequest, LimitExceeded, NotFound
from storage.files.csv_rows import place_of
from storage.files.locks import FileLock
from storage.number_texts import looks_like_number

if TYPE_CHECKING:
    import polars as pl

_ID: Final = re.compile(r"[0-9a-f]{32}")
#: Seconds to wait for the lock, which other uploads and deletions hold only while they rename files.
_LOCK_SECONDS: Final = 30.0
#: What a table holds: opportunities if only its first column names vertices, demands if its first two columns do.
_HOLDS: Final = ("opportunities", "demands")
_TABLE, _FACTS, _OWNERS = "table.parquet", "facts.json", "owners"


@dataclass(frozen=True)
class TableRecord:
    """An uploaded table.

    Attributes:
        id: digest of the content.
        rows: number of rows, one for each vertex or for each demand.
        key: the name of the first column, which names vertices.
        columns: the names of the columns of numbers.
        bytes: size of the stored file.
        created: when its owner uploaded it first, seconds since the epoch.
        holds: ``opportunities``, or ``demands``; in a table of demands the second column also names vertices.
    """

    id: str
    rows: int
    key: str
    columns: list[str]
    bytes: int
    created: float
    holds: str = "opportunities"


class UploadedTables:
    """The uploaded tables below a data directory; safe to use from several processes.

    Args:
        data_dir: the data directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "tables"

    def add(self, upload: Path, owner: str | None, created: float, most: int) -> tuple[TableRecord, bool]:
        """Store a table for its owner; return its record, and whether the owner did not have it before.

        Args:
            upload: a Parquet file with vertices in its first column, as :func:`normal_table` writes it.
            owner: the caller who uploaded it.
            created: the time, in seconds since the epoch.
            most: the largest number of tables that an owner may have.

        Raises:
            LimitExceeded: the owner has ``most`` tables.
            StorageFailed: the file system refused.
        """
        import polars as pl

        schema = pl.read_parquet_schema(upload)
        names, ends = list(schema), list(schema.values())[:2].count(pl.String())
        rows = int(pl.scan_parquet(upload).select(pl.len()).collect().item())
        with upload.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        record = TableRecord(
            digest, rows, names[0], names[ends:], upload.stat().st_size, created, _HOLDS[ends - 1]
        )  # fmt: skip
        with self._locked():
            own = self._owned(digest, owner)
            if own.exists():
                return self._record(digest, owner), False
            count = sum(1 for _ in self._folder.glob(f"*/{_OWNERS}/{own.name}"))
            if count >= most:
                raise LimitExceeded(
                    f"you have {count} tables, and may have {most}; delete one", limit=most, requested=count + 1,
                    setting="max_tables",
                )  # fmt: skip
            self._put(record, upload)
            own.touch()
            os.utime(own, (created, created))
            return self._record(digest, owner), True

    def get(self, table_id: str, owner: str | None) -> TableRecord:
        """Return the record of a table of an owner.  Raises NotFound if the owner has no such table."""
        if not _ID.fullmatch(table_id) or not self._owned(table_id, owner).exists():
            raise NotFound(f"there is no table {table_id[:100]!r}")
        return self._record(table_id, owner)

    def listed(self, owner: str | None) -> list[TableRecord]:
        """Return the records of the tables of an owner, the newest first."""
        owned = [path.parent.parent.name for path in self._folder.glob(f"*/{_OWNERS}/{_mark(owner)}")]
        found = []
        for name in owned:
            with suppress(NotFound):  # removed meanwhile
                found.append(self._record(name, owner))
        return sorted(found, key=lambda one: (-one.created, one.id))

    def remove(self, table_id: str, owner: str | None) -> None:
        """Remove a table from those of an owner, and delete it if no other owner has it.  Raises NotFound if the owner
        has no such table.
        """
        self.get(table_id, owner)
        with self._locked():
            self._owned(table_id, owner).unlink(missing_ok=True)
            if not any((self._folder / table_id / _OWNERS).iterdir()):
                shutil.rmtree(self._folder / table_id, ignore_errors=True)

    def path(self, table_id: str, holds: str = "opportunities") -> Path:
        """Return the file of a table that holds opportunities, or demands.

        Raises:
            InvalidRequest: the table was deleted, or holds something else than ``holds``.
        """
        path = self._folder / table_id / _TABLE
        if not _ID.fullmatch(table_id) or not path.exists():
            raise InvalidRequest(
                f"{holds}: there is no table {table_id[:100]!r}; it may have been deleted", field=holds
            )
        if (found := self._facts(table_id).holds) != holds:
            raise InvalidRequest(
                f"{holds}: table {table_id} was uploaded as {found}; upload it with POST /v1/tables?holds={holds}",
                field=holds,
            )
        return path

    def _put(self, record: TableRecord, upload: Path) -> None:
        from storage.files import atomic

        folder = self._folder / record.id
        try:
            (folder / _OWNERS).mkdir(parents=True, exist_ok=True)
            if not (folder / _FACTS).exists():
                upload.replace(folder / _TABLE)
                atomic.sync_path(folder / _TABLE)
                draft = folder / f".{_FACTS}"
                draft.write_text(json.dumps(asdict(record)))
                atomic.sync_path(draft)
                draft.replace(folder / _FACTS)
                atomic.sync_path(folder)
        except OSError as error:
            raise atomic.failure("keep", folder, error, record.bytes) from error

    def _record(self, table_id: str, owner: str | None) -> TableRecord:
        """Return the record of a table, with the time at which ``owner`` (not another owner) first uploaded it."""
        try:
            uploaded = self._owned(table_id, owner).stat().st_mtime
        except FileNotFoundError:
            raise NotFound(f"there is no table {table_id[:100]!r}") from None
        return replace(self._facts(table_id), created=uploaded)

    def _facts(self, table_id: str) -> TableRecord:
        try:
            facts: dict[str, Any] = json.loads((self._folder / table_id / _FACTS).read_bytes())
        except FileNotFoundError:
            raise NotFound(f"there is no table {table_id[:100]!r}") from None
        return TableRecord(**facts)

    def _owned(self, table_id: str, owner: str | None) -> Path:
        return self._folder / table_id / _OWNERS / _mark(owner)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self._folder / "lock")
        lock.acquire(_LOCK_SECONDS)
        try:
            yield
        finally:
            lock.release()


def _mark(owner: str | None) -> str:
    """Return the name of the file whose existence says that an owner has a table."""
    return hashlib.sha256(f"owner {owner}".encode()).hexdigest()[:32] if owner is not None else "everybody"


def normal_table(path: Path, most_rows: int, most_columns: int, holds: str = "opportunities") -> Path:
    """Check a table of numbers by vertex, or of demands, and write it as Parquet beside ``path``.

    A table belongs to no graph yet, so any names of vertices are accepted, except empty names and, for opportunities, a
    name that occurs twice.

    Args:
        path: the file, CSV with a header or Parquet, recognised by content.
        most_rows, most_columns: the largest numbers of rows, and of columns of numbers.
        holds: ``opportunities``, or ``demands`` for a table whose first two columns name vertices, without numbers
            below 0.

    Returns:
        The Parquet file, whose first column has texts; for demands, the second column has texts, too.

    Raises:
        InvalidRequest: the file is no such table, or an entry is no finite number; the message names the line.
        LimitExceeded: the table has more than ``most_rows`` rows or ``most_columns`` columns of numbers.
    """
    import polars as pl

    from storage.graph.vertex_table import frame_in, numbers_in

    with path.open("rb") as file:
        ending = ".parquet" if file.read(4) == b"PAR1" else ".csv"
    shown = path.with_name(f"{path.name}{ending}")
    path.rename(shown)
    try:
        frame = frame_in(shown)
        names = frame.columns
        ends = 1 + _HOLDS.index(holds)
        _check_shape(frame, most_rows, most_columns, ends)
        if ending == ".csv":
            numeric = [name for name in names[ends:] if looks_like_number(name)]
            if numeric:
                raise InvalidRequest(
                    f"line 1: {numeric[0]!r} is a number; the first line must name the columns", field="table"
                )
        found: dict[str, Any] = {name: _vertices(frame[name], shown, once=ends == 1) for name in names[:ends]}
        found |= {name: numbers_in(shown, frame[name]) for name in names[ends:]}
        if holds == "demands":
            _check_flows(shown, {name: found[name] for name in names[ends:]})
        made = path.with_name(f"{path.name}-normal.parquet")
        pl.DataFrame(found).write_parquet(made)
    except LimitExceeded:
        raise
    except InvalidRequest as error:
        raise InvalidRequest(str(error).replace(str(shown), "the table"), field="table") from None
    finally:
        shown.unlink(missing_ok=True)
    return made


def _check_flows(path: Path, columns: dict[str, Any]) -> None:
    from storage.graph.vertex_table import place_in

    for name, values in columns.items():
        below = (values < 0).nonzero()[0]
        if len(below):
            row = int(below[0])
            raise InvalidRequest(
                f"{place_in(path, row)}: column {name!r} is {values[row]:g}, and no flow may be negative", field="table"
            )


def _check_shape(frame: pl.DataFrame, most_rows: int, most_columns: int, ends: int) -> None:
    rows, columns = frame.height, len(frame.columns) - ends
    if columns < 1 or not rows:
        first = "a first column of vertices" if ends == 1 else "two first columns of vertices, origin and destination"
        raise InvalidRequest(
            f"a table has {first}, then columns of numbers, and at least one row; found "
            f"{len(frame.columns)} columns and {rows} rows", field="table",
        )  # fmt: skip
    for what, found, most, setting in (
        ("rows", rows, most_rows, "max_vertices" if ends == 1 else "max_arcs"),
        ("columns of numbers", columns, most_columns, "columns"),
    ):  # fmt: skip
        if found > most:
            message = f"the table has {found} {what}, at most {most} are read"
            raise LimitExceeded(message, limit=most, requested=found, setting=setting)


def _vertices(key: pl.Series, path: Path, *, once: bool) -> pl.Series:
    """Return the names of vertices as texts, with the blanks around them; with ``once``, no name may occur twice."""
    import polars as pl

    if not (key.dtype.is_integer() or key.dtype == pl.String()):
        raise InvalidRequest(f"column {key.name!r} names vertices; found {key.dtype}", field="table")
    # blanks stay: only the graph of a job tells whether a name has them (``vertices_of``)
    vertices = key.cast(pl.String())
    wrong = vertices.is_null() | (vertices.str.strip_chars() == "") | (vertices.is_duplicated() & once)
    if wrong.any():
        row = int(wrong.arg_true()[0])
        said = (
            "no vertex is named"
            if not (vertices[row] or "").strip()
            else f"vertex {vertices[row]} is named more than once"
        )
        raise InvalidRequest(f"{place_of(path, row)}: {said}; each vertex may have one row", field="table")
    return vertices
