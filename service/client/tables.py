"""Sends tables of opportunities and demands to the service, and reads the rows of results that are tables."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from service.client.asking import Patience, ask
from service.client.displays import ResultView
from service.client.flows import Document, job_path, question
from service.client.methods import Part, asks
from service.client.names import Names, several
from service.client.steps import Flow, Request, Work
from service.name_lists import quote_name
from storage.arguments import check_names, check_texts, check_whole, unmasked
from storage.errors import InvalidRequest, NotFound, StorageFailed

if TYPE_CHECKING:
    import polars as pl
    import pyarrow

#: results of a job that are tables
TABLES: Final = ("measures", "near", "betweenness", "flows")
_ID: Final = re.compile(r"[0-9a-f]{32}")
#: the members of a table in a request that list vertices; all other members list numbers
_NAMES: Final = frozenset({"vertices", "origins", "destinations"})
#: rows of one page, at most
_PAGE: Final = 1000
_FILE: Final = "table.parquet"
#: matches the address of the next page in a Link header
_NEXT: Final = re.compile(r'<([^>]*)>; rel="next"')
_KINDS: Final = (
    "the path of a CSV or Parquet file, a pandas or polars table whose first column names vertices, "
    "{column: {vertex: number}}, or the id of an uploaded table"
)


_HOLDS: Final = {
    "opportunities": {"vertices", "columns"}, "demands": {"origins", "destinations", "flows"},
}  # fmt: skip


def sent_table(field: str, given: Any, names: Names, patience: Patience) -> Flow[Any]:
    """Upload opportunities or demands, and return the value of the job's option ``field``.

    It is safe to repeat this, because the service stores equal tables once.

    Args:
        field: ``opportunities`` or ``demands``.
        given: what is uploaded: a path, a table, columns by name, or flows by pairs of vertices.  The id of an uploaded
            table, and the members of a request (``vertices`` and ``columns``, or ``origins``, ``destinations`` and
            ``flows``), are sent with the job and need no upload.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.

    Raises:
        InvalidRequest: ``given`` is no table.
        NotFound: there is no such file.
    """
    if isinstance(given, str) and _ID.fullmatch(given) and not Path(given).exists():
        return given
    if isinstance(given, Mapping) and given.keys() == _HOLDS[field]:
        sent: dict[str, Any] = {name: names.labels(given[name]) for name in given if name in _NAMES}
        if field == "demands":
            return {**sent, "flows": _listed(field, given["flows"])}
        return {**sent, "columns": {name: _listed(field, part) for name, part in dict(given["columns"]).items()}}
    if isinstance(given, str | os.PathLike):
        path = Path(os.fspath(given))
        if not path.is_file():
            raise NotFound(f"cannot open {path}: there is no such file")
        return (yield from _uploaded(path, field, patience))
    handle, temporary = tempfile.mkstemp(prefix="apsp-upload-", suffix=".parquet")
    os.close(handle)
    path = Path(temporary)
    try:
        made = _frame if field == "opportunities" else _demand_frame
        yield Work(lambda: made(given, names).write_parquet(path))
        return (yield from _uploaded(path, field, patience))
    finally:
        path.unlink(missing_ok=True)


def _listed(field: str, values: Any) -> list[Any]:
    """Return a column of numbers as a list for JSON.  Raises InvalidRequest if a value is masked."""
    return unmasked(field, list(values) if not hasattr(values, "dtype") else values).tolist()  # type: ignore[no-any-return]


def _uploaded(path: Path, field: str, patience: Patience) -> Flow[str]:
    params = {} if field == "opportunities" else {"holds": field}
    return str((yield from question("POST", "v1/tables", patience, params=params, file=path, seconds=600.0))["id"])


def _demand_frame(given: Any, names: Names) -> pl.DataFrame:
    """Return demands in any supported form as a table with vertex labels in the first two columns."""
    import polars as pl

    if isinstance(given, Mapping) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        ends = [list(side) for side in zip(*given, strict=True)] or [[], []]
        flows = pl.DataFrame({"flow": [float(flow) for flow in given.values()]})
        return _labelled(flows, {"origin": ends[0], "destination": ends[1]}, names)
    given = _polars(given)
    if not isinstance(given, pl.DataFrame) or given.width < 3:
        raise InvalidRequest(
            "demands are the path of a CSV or Parquet file, a pandas or polars table of origins, destinations, flows, "
            "{(origin, destination): flow}, or the id of an uploaded table",
            field="demands",
        )
    sides = {name: given[name].to_list() for name in given.columns[:2]}
    return _labelled(given.select(given.columns[2:]), sides, names)


def _labelled(flows: pl.DataFrame, ends: Mapping[str, list[Any]], names: Names) -> pl.DataFrame:
    """Return a table that has columns of labels first, then the columns of ``flows``."""
    import polars as pl

    made = [pl.Series(name, map(str, names.labels(side)), dtype=pl.String()) for name, side in ends.items()]
    return pl.DataFrame([*made, *flows.get_columns()])


def _polars(given: Any) -> Any:
    """Convert a pandas table to polars; return anything else unchanged."""
    import polars as pl

    if type(given).__module__.partition(".")[0] != "pandas":
        return given
    return pl.DataFrame({str(name): given[name].to_numpy() for name in given.columns})


def _frame(given: Any, names: Names) -> pl.DataFrame:
    """Return a table of any supported kind as a polars frame with the vertex labels in its first column."""
    import polars as pl

    if isinstance(given, Mapping) and given and all(isinstance(column, Mapping) for column in given.values()):
        vertices = list(dict.fromkeys(vertex for column in given.values() for vertex in column))
        columns = {str(name): [float(column.get(v, 0)) for v in vertices] for name, column in given.items()}
        key = "vertex"
        while key in map(str.lower, columns):
            key += "_"
        return pl.DataFrame({key: pl.Series([str(label) for label in names.labels(vertices)]), **columns})
    given = _polars(given)
    if not isinstance(given, pl.DataFrame) or given.width < 2:
        raise InvalidRequest(f"opportunities are {_KINDS}", field="opportunities")
    key = given.columns[0]
    labels = [str(label) for label in names.labels(given[key].to_list())]
    return given.with_columns(pl.Series(key, labels, dtype=pl.String()))


class TableMethods(ResultView, Part):
    """The methods of a result that is a table: of measures, near pairs, betweenness or flows."""

    @property
    def result(self) -> str:
        """What the result is: ``matrix``, ``prepared``, ``measures``, ``near``, ``betweenness`` or ``flows``."""
        return str(self.facts.get("result", "matrix"))

    @asks
    def frame(
        self,
        columns: Sequence[str] | None = None,
        *,
        sort: str | None = None,
        vertices: Sequence[Any] | None = None,
        limit: int | None = None,
    ) -> Flow[pl.DataFrame]:
        """Return the rows of a table as a polars frame, in which vertices have the labels that the service stores.

        Args:
            columns: names of columns; None for all.
            sort: a column, with ``-`` before it for the largest first; None for the order of the sources.
            vertices: only the rows of these vertices; None for all.
            limit: the most rows to return; None for all.

        Raises:
            InvalidRequest: the result is no table.
            ServiceError: there is no such column or vertex, or there are too many rows to be sorted.
            StorageFailed: the received table differs from its seal.
        """
        return self._frame(columns, sort, vertices, limit)

    @asks
    def table(self) -> Flow[pyarrow.Table]:
        """Return all rows as an Arrow table; needs pyarrow.  Raises what :meth:`frame` raises."""
        found = yield from self._frame(None, None, None, None)
        return found.to_arrow()

    def _frame(
        self, columns: Sequence[str] | None, sort: str | None, vertices: Sequence[Any] | None, limit: int | None
    ) -> Flow[pl.DataFrame]:
        if self.result not in TABLES:
            raise InvalidRequest(f"the result is a {self.result}; frame and table are for tables")
        columns = None if columns is None else check_names("columns", several("columns", columns))
        check_texts(sort=sort)
        limit = None if limit is None else check_whole("limit", limit, 0)
        if sort is None and vertices is None and limit is None:
            return (yield from self._whole(columns))
        asked: Document = {"sort": sort, "format": "parquet"}
        for name, listed in (("columns", columns), ("vertices", vertices)):
            if listed is not None:
                labels = self._names.labels(several(name, listed)) if name == "vertices" else listed
                asked[name] = ",".join(map(quote_name, labels))
        return (yield from self._pages(asked, limit))

    def _whole(self, columns: Sequence[str] | None) -> Flow[pl.DataFrame]:
        """Fetch the file of the table, compare the file with the seal, and return the table."""
        from storage.matrix.format import data_mark, read_seal, sealed_files

        address = job_path(self.job, "zarr")
        seal = (yield from ask(Request("GET", f"{address}/zarr.json"), self._patience)).content
        data = (yield from ask(Request("GET", f"{address}/{_FILE}", seconds=600.0), self._patience)).content
        sealed = sealed_files(read_seal("the table", seal, _FILE)["attributes"]["seal"])[_FILE]
        if not data_mark(data).agrees(sealed):
            raise StorageFailed(f"{_FILE} came damaged: it does not agree with the seal")
        found: pl.DataFrame = yield Work(lambda: _read(data, columns))
        return found

    def _pages(self, asked: Document, limit: int | None) -> Flow[pl.DataFrame]:
        import polars as pl

        pages: list[pl.DataFrame] = []
        rows = 0
        while not pages or limit is None or rows < limit:
            if limit is not None:
                asked["limit"] = max(1, min(limit - rows, _PAGE))
            request = Request("GET", job_path(self.job, "table"), dict(asked), seconds=300.0)
            answer = yield from ask(request, self._patience)
            page: pl.DataFrame = yield Work(partial(_read, answer.content))
            pages.append(page)
            rows += page.height
            link = _NEXT.search(answer.headers.get("link", ""))
            if link is None:
                break
            asked["cursor"] = parse_qs(urlsplit(link[1]).query)["cursor"][0]
        return pl.concat(pages).head(rows if limit is None else limit)


def _read(data: bytes, columns: Sequence[str] | None = None) -> pl.DataFrame:
    import polars as pl

    return pl.read_parquet(io.BytesIO(data), columns=None if columns is None else list(columns))
