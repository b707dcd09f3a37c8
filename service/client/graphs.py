"""Encodes the caller's graph as a file for upload; names, direction and vertices without edges are preserved.

Files are sent unchanged.  Edge tables and NetworkX graphs become Parquet, sparse matrices ``.npz``, dense ones
``.npy``.  Only the library of the caller's graph and the library that writes the file are imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.client.edge_table import column_query, end_names, float_array, write_table
from service.client.names import Names
from service.options import UploadOptions
from storage.errors import InvalidRequest, NotFound
from storage.options import declared

if TYPE_CHECKING:
    pass

_KINDS = (
    "the path of a file, a NetworkX graph, a SciPy sparse matrix, a pandas or polars edge table, a square NumPy "
    "array, or arrays (sources, targets) or (sources, targets, weights)"
)

_QUOTE = '"'

#: Rows of a table that are read to find out what its columns mean.
_SAMPLE = 1000


@dataclass(frozen=True)
class Upload:
    """A file to upload, the query parameters of its upload, and the names of the vertices in the file."""

    file: Path
    query: Mapping[str, Any]
    names: Names


@contextmanager
def prepared(graph: Any, reading: UploadOptions, name: str | None = None) -> Iterator[Upload]:
    """Context manager: provide the upload of a graph of any kind, and remove the temporary file at the end.

    Args:
        graph: a path or an object, see :meth:`Client.submit`.
        reading: how the service reads the graph.
        name: the caller's name for the graph.

    Raises:
        InvalidRequest: the object is no graph, or its names or weights cannot be encoded.
        NotFound: there is no such file.
    """
    if isinstance(graph, str | os.PathLike):
        yield _file(Path(os.fspath(graph)), reading, name)
        return
    for field in ("format", "labels", "centroids_through", "coordinates", "mode"):
        if reading.get(field):
            raise InvalidRequest(f"{field} is for files; what is given here is none", field=field)
    handle, temporary = tempfile.mkstemp(prefix="apsp-upload-")
    os.close(handle)
    path = Path(temporary)
    try:
        upload = _encoded(graph, reading, path)
        yield replace(upload, query={**upload.query, "name": name})
    finally:
        path.unlink(missing_ok=True)


def _file(path: Path, reading: UploadOptions, name: str | None) -> Upload:
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    known = declared(UploadOptions)
    query = {option: value for option, value in reading.items() if value != known[option][1].default}
    return Upload(path, {**query, **_further(reading), "name": name, "filename": path.name}, Names())


def _further(reading: UploadOptions) -> dict[str, Any]:
    """Return the part of the query that names further columns; a name that holds a comma is quoted."""
    names = reading.get("also")
    if not names:
        return {}
    quoted = (f'"{name.replace(_QUOTE, 2 * _QUOTE)}"' for name in names)
    return {"also": [text if set(name) & {",", _QUOTE} else name for name, text in zip(names, quoted, strict=True)]}


def _encoded(graph: Any, reading: UploadOptions, path: Path) -> Upload:
    query: dict[str, Any] = {"directed": reading.get("directed"), "unweighted": reading.get("unweighted") or None}
    query |= {"unit": reading.get("unit"), "parallel": reading.get("parallel"), **_further(reading)}
    for module, kind, encode in (
        ("networkx", "Graph", _networkx),
        ("pandas", "DataFrame", _pandas),
        ("polars", "DataFrame", _polars),
        ("polars", "LazyFrame", _polars),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(graph, getattr(loaded, kind)):
            names, more = encode(graph, reading, path)
            return Upload(path, {**query, **more}, names)
    for field in ("weight", "length_of", "source", "target", "also"):
        if reading.get(field) is not None:
            message = f"{field} names a column or an attribute; what is given here has none"
            raise InvalidRequest(message, field=field)
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(graph):
        with path.open("wb") as file:  # given a name, SciPy would append .npz
            sparse.save_npz(file, graph.tocsr(), compressed=False)
        return Upload(path, {**query, "format": "npz"}, Names())
    if isinstance(graph, tuple | list) and len(graph) in (2, 3) and all(map(_is_column, graph)):
        names = write_table(path, *graph)
        return Upload(path, {**query, "format": "parquet"}, names)
    if hasattr(graph, "__array__"):
        _dense(graph, path)
        return Upload(path, {**query, "format": "npy"}, Names())
    raise InvalidRequest(f"{type(graph).__name__} is no graph; give {_KINDS}", field="graph")


def _is_column(values: Any) -> bool:
    """Return whether ``values`` is a column of numbers or names, and not a row of a matrix written as lists."""
    if isinstance(values, list):
        return not any(isinstance(value, list) for value in values)
    return len(getattr(values, "shape", ())) == 1


def _dense(graph: Any, path: Path) -> None:
    import numpy as np

    array = np.ma.filled(graph, 0) if np.ma.isMaskedArray(graph) else np.asarray(graph)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        found = f"an array of shape {array.shape}"
        raise InvalidRequest(f"{found} is no graph; an array must be a square matrix of weights", field="graph")
    if array.dtype.kind not in "biuf":
        raise InvalidRequest(f"an array of {array.dtype} holds no weights", field="graph")
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _networkx(graph: Any, reading: UploadOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    """Encode a NetworkX graph.

    The weight is the attribute asked for, or ``weight``, and counts 1 where an edge lacks it, as in NetworkX.

    If no edge has ``weight``, the rules of edge lists choose among the attributes (road networks have ``length``), and
    every edge must have the chosen one.  Vertices without edges become loops, so that the file contains them.
    """
    for field in ("source", "target"):
        if reading.get(field) is not None:
            raise InvalidRequest(f"{field} names a column; a NetworkX graph has none", field=field)
    names = Names(graph)
    asked = None if reading.get("unweighted") else _attribute(graph, reading)
    edges = [(u, v, None) for u, v in graph.edges()] if asked is None else list(graph.edges(data=asked))
    weights = None if asked is None or not edges else _edge_weights(edges, asked, reading)
    lone = [vertex for vertex, degree in graph.degree() if degree == 0]
    tails, heads = (names.labels([*(edge[k] for edge in edges), *lone]) for k in (0, 1))
    directed = reading.get("directed")
    query: dict[str, Any] = {"directed": graph.is_directed() if directed is None else directed}
    further = {name: [*_every_edge(graph, name), *([0] * len(lone))] for name in reading.get("also") or ()}
    if weights is None or asked is None:
        write_table(path, tails, heads, further=further)
        return names, {**query, **column_query(None, None, further)}
    loops = [_harmless(weights, reading.get("length_of"))] * len(lone)
    write_table(path, tails, heads, [*weights, *loops], name=asked, further=further)
    return names, {**query, **column_query(asked, reading.get("length_of"), further)}


def _every_edge(graph: Any, attribute: str) -> list[Any]:
    """Return an attribute of all edges.  Raises InvalidRequest if an edge lacks the attribute."""
    found = list(graph.edges(data=attribute))
    missing = next((edge for edge in found if edge[2] is None), None)
    if missing is not None:
        raise InvalidRequest(f"also: edge {missing[0]!r} - {missing[1]!r} lacks {attribute!r}", field="also")
    return [value for *_, value in found]


def _edge_weights(edges: Sequence[tuple[Any, Any, Any]], asked: str, reading: UploadOptions) -> list[Any]:
    """Return the weights of edges; a missing weight counts 1, unless the attribute was selected automatically."""
    missing = next((edge for edge in edges if edge[2] is None), None)
    if missing is None:
        return [weight for *_, weight in edges]
    if all(weight is None for *_, weight in edges):
        raise InvalidRequest(f"no edge has the attribute {asked!r}", field="weight")
    if reading.get("length_of") is not None or asked not in (reading.get("weight"), "weight"):
        pair = f"{missing[0]!r} - {missing[1]!r}"
        message = f"edge {pair} lacks {asked!r}, which others have; name a weight, or give unweighted=True"
        raise InvalidRequest(message, field="weight")
    return [1 if weight is None else weight for *_, weight in edges]


def _harmless(weights: Sequence[Any], length_of: str | None) -> Any:
    """Return a weight for the loops that stand for vertices without edges; the reader drops these loops.

    The weight is 0; with a formula, it is the weight whose length is largest.
    """
    from storage.readers.formula import parse_formula

    if length_of is None:
        return 0
    return weights[int(parse_formula(length_of)(float_array(weights)).argmax())]


def _attribute(graph: Any, reading: UploadOptions) -> str | None:
    """Return the attribute of edges that is the weight, or from which lengths are computed; None to count arcs."""
    from storage.readers.formula import parse_formula
    from storage.readers.lengths import length_among

    length_of = reading.get("length_of")
    asked = reading.get("weight") if length_of is None else parse_formula(length_of).column
    if asked is not None:
        if not isinstance(asked, str):
            raise InvalidRequest("weight must be the name of an edge attribute, not a function", field="weight")
        return asked
    first: dict[str, Any] = {}
    for *_, attributes in graph.edges(data=True):
        for name, value in attributes.items():
            if value is not None:
                first.setdefault(name, value)
    numbers = {name: number for name, value in first.items() if (number := _number(value)) is not None}
    if "weight" in first:
        return "weight"
    known = [name for name in numbers if isinstance(name, str)]
    found = length_among(known, [numbers[name] for name in known])
    return None if found is None else known[found]


def _number(value: Any) -> float | None:
    """Return a number, or text that contains one, as float; GraphML files often declare numbers as text."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _pandas(table: Any, reading: UploadOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    import numpy as np

    names = [str(name) for name in table.columns]

    def cells(position: int, rows: int | None) -> list[str]:
        column = table.iloc[:rows, position]
        return _texts(column.astype(object).where(column.notna(), None).tolist())

    kept, query = _select_columns(names, [_is_numeric(kind) for kind in table.dtypes], reading, cells)

    def values(position: int) -> Any:
        column = table.iloc[:, position]
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
        return column.to_numpy() if plain else column.astype(object).where(column.notna(), None).tolist()

    further = {name: values(names.index(name)) for name in reading.get("also") or ()}
    return write_table(path, *map(values, kept), name=names[kept[-1]], further=further), query


def _is_numeric(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "iufb"


def _polars(table: Any, reading: UploadOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    import polars as pl

    schema = table.collect_schema()
    names = schema.names()
    first = table.lazy().head(_SAMPLE).collect()

    def cells(position: int, rows: int | None) -> list[str]:
        found = first if rows is not None else table.lazy().select(pl.nth(position)).collect()
        return _texts(found.to_series(position if rows is not None else 0).to_list())

    kept, query = _select_columns(names, [kind.is_numeric() for kind in schema.dtypes()], reading, cells)
    weight, further = names[kept[2]] if len(kept) > 2 else None, reading.get("also") or []
    called = (*end_names(weight, further), weight)
    selected = [pl.nth(position).alias(name) for position, name in zip(kept, called, strict=False) if name is not None]
    selected += [pl.nth(names.index(name)).alias(name) for name in further if name != weight]
    table.lazy().select(selected).sink_parquet(path)
    return Names(), query


def _texts(cells: Sequence[Any]) -> list[str]:
    """Return the cells of a column as a text file would contain them; missing cells are empty."""
    return ["" if cell is None else str(cell) for cell in cells]


def _select_columns(
    names: Sequence[str],
    numeric: Sequence[bool],
    reading: UploadOptions,
    cells: Callable[[int, int | None], list[str]],
) -> tuple[list[int], dict[str, Any]]:
    """Return the positions of the columns source, target and weight (if there is one), and the query that names them.

    The columns are selected by the rules for edge lists.  ``cells(position, rows)`` returns the first ``rows`` cells of
    a column as text, or all cells if ``rows`` is None.
    """
    from storage.readers.formula import parse_formula
    from storage.readers.parsed import ReadOptions
    from storage.readers.tables.choose import choose_by_name
    from storage.readers.tables.directions import direction_of

    for field in ("source", "target", "weight"):
        if (name := reading.get(field)) is not None and name not in names:
            raise InvalidRequest(f"there is no column {name!r}; there are {', '.join(names)}", field=field)
    for name in reading.get("also") or ():
        if name not in names:
            raise InvalidRequest(f"also: there is no column {name!r}; there are {', '.join(names)}", field="also")
    if len(names) < 2:
        raise InvalidRequest(f"an edge needs two columns, the table has {len(names)}", field="graph")
    length_of = reading.get("length_of")
    formula = None if length_of is None else parse_formula(length_of)
    options = ReadOptions(
        weight=reading.get("weight"),
        unweighted=reading.get("unweighted", False),
        source=reading.get("source"),
        target=reading.get("target"),
        length_of=formula,
    )
    sample = list(zip(*(cells(position, _SAMPLE) for position in range(len(names))), strict=True))
    selected = choose_by_name(list(names), list(numeric), options, sample)
    ends = [selected.source, selected.target]
    said: dict[str, Any] = {}
    if selected.kind is not None and reading.get("directed") is None:
        said["directed"] = direction_of(names[selected.kind], cells(selected.kind, None))
    further = reading.get("also") or ()
    if selected.weight is None:
        return ends, {**column_query(None, None, further), **said}
    weight = names[selected.weight]
    text = None if formula is None else formula.text.replace(f"${formula.column}", f'"{weight}"')
    return [*ends, selected.weight], {**column_query(weight, text, further), **said}
