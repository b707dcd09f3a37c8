"""Encodes the caller's graph as a file for upload; names, direction and vertices without edges are preserved.

Files are sent unchanged.  Edge tables and NetworkX graphs become Parquet, sparse matrices ``.npz``, dense ones
``.npy``.  Only the library of the caller's graph and the one that writes the file are imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.client.names import Names
from storage.errors import InvalidRequest, NotFound
from storage.options import ReadingOptions, declared

if TYPE_CHECKING:
    import polars as pl

_KINDS = (
    "the path of a file, a NetworkX graph, a SciPy sparse matrix, a pandas or polars edge table, a square NumPy "
    "array, or arrays (sources, targets) or (sources, targets, weights)"
)

#: Rows of a table that are read to find out what its columns mean.
_SAMPLE = 1000


@dataclass(frozen=True)
class Upload:
    """A file to send, the query that goes with it, and the names of its vertices."""

    file: Path
    query: Mapping[str, Any]
    names: Names


@contextmanager
def prepared(graph: Any, reading: ReadingOptions, name: str | None = None) -> Iterator[Upload]:
    """Context manager: provide the upload of a graph of any kind, and remove its temporary file at the end.

    Args:
        graph: a path or an object, see :meth:`Client.submit`.
        reading: how it is read.
        name: what the caller calls the graph.

    Raises:
        InvalidRequest: it is not a graph, or its names or weights cannot be encoded.
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


def _file(path: Path, reading: ReadingOptions, name: str | None) -> Upload:
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    known = declared(ReadingOptions)
    query = {option: value for option, value in reading.items() if value != known[option][1].default}
    return Upload(path, {**query, "name": name, "filename": path.name}, Names())


def _encoded(graph: Any, reading: ReadingOptions, path: Path) -> Upload:
    query: dict[str, Any] = {"directed": reading.get("directed"), "unweighted": reading.get("unweighted") or None}
    query["unit"] = reading.get("unit")
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
    for field in ("weight", "length_of", "source", "target"):
        if reading.get(field) is not None:
            message = f"{field} names a column or an attribute; what is given here has none"
            raise InvalidRequest(message, field=field)
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(graph):
        with path.open("wb") as file:  # SciPy would append an ending to a name
            sparse.save_npz(file, graph.tocsr(), compressed=False)
        return Upload(path, {**query, "format": "npz"}, Names())
    if isinstance(graph, tuple | list) and len(graph) in (2, 3) and all(map(_is_column, graph)):
        names = _table(path, *graph)
        return Upload(path, {**query, "format": "parquet"}, names)
    if hasattr(graph, "__array__"):
        _dense(graph, path)
        return Upload(path, {**query, "format": "npy"}, Names())
    raise InvalidRequest(f"{type(graph).__name__} is no graph; give {_KINDS}", field="graph")


def _is_column(values: Any) -> bool:
    """Return whether this is one column of numbers or names, rather than a row of a matrix written as lists."""
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


def _networkx(graph: Any, reading: ReadingOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    """Encode a NetworkX graph.

    The weight is the attribute asked for, or ``weight``, and counts 1 where an edge lacks it, as in NetworkX.

    If no edge has ``weight``, the rules of edge lists choose among the attributes (road networks have ``length``), and
    every edge must have the chosen one.  Vertices without edges become loops, which keep them.
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
    if weights is None or asked is None:
        _table(path, tails, heads)
        return names, {**query, "format": "parquet"}
    loops = [_harmless(weights, reading.get("length_of"))] * len(lone)
    _table(path, tails, heads, [*weights, *loops], name=asked)
    return names, {**query, **_columns(asked, reading.get("length_of"))}


def _edge_weights(edges: Sequence[tuple[Any, Any, Any]], asked: str, reading: ReadingOptions) -> list[Any]:
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
    """Return a weight for the loops, which are dropped when the graph is read: 0, or with a formula the weight whose
    length is largest.
    """
    from storage.readers.formula import parse_formula

    if length_of is None:
        return 0
    return weights[int(parse_formula(length_of)(_floats(weights)).argmax())]


def _attribute(graph: Any, reading: ReadingOptions) -> str | None:
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


def _columns(weight: str, length_of: str | None) -> dict[str, Any]:
    """Return the part of the query that names the columns of the Parquet file."""
    source, target = _ends(weight)
    made = {"weight": weight} if length_of is None else {"length_of": length_of}
    return {"format": "parquet", "source": source, "target": target, **made}


def _ends(weight: str) -> tuple[str, str]:
    """Return names for the columns of vertices that differ from that of the weight."""
    return ("tail", "head") if weight.lower() in ("source", "target") else ("source", "target")


def _pandas(table: Any, reading: ReadingOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    import numpy as np

    names = [str(name) for name in table.columns]

    def cells(position: int, rows: int | None) -> list[str]:
        column = table.iloc[:rows, position]
        return _texts(column.astype(object).where(column.notna(), None).tolist())

    kept, query = _select_columns(names, [_is_numeric(kind) for kind in table.dtypes], reading, cells)
    columns = []
    for position in kept:
        column = table.iloc[:, position]
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
        columns.append(column.to_numpy() if plain else column.astype(object).where(column.notna(), None).tolist())
    return _table(path, *columns, name=names[kept[-1]]), query


def _is_numeric(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "iufb"


def _polars(table: Any, reading: ReadingOptions, path: Path) -> tuple[Names, dict[str, Any]]:
    import polars as pl

    schema = table.collect_schema()
    names = schema.names()
    first = table.lazy().head(_SAMPLE).collect()

    def cells(position: int, rows: int | None) -> list[str]:
        found = first if rows is not None else table.lazy().select(pl.nth(position)).collect()
        return _texts(found.to_series(position if rows is not None else 0).to_list())

    kept, query = _select_columns(names, [kind.is_numeric() for kind in schema.dtypes()], reading, cells)
    called = (*_ends(names[kept[-1]]), names[kept[-1]])
    selected = [pl.nth(position).alias(name) for position, name in zip(kept, called, strict=False)]
    table.lazy().select(selected).sink_parquet(path)
    return Names(), query


def _texts(cells: Sequence[Any]) -> list[str]:
    """Return the cells of a column as a text file would contain them; missing ones are empty."""
    return ["" if cell is None else str(cell) for cell in cells]


def _select_columns(
    names: Sequence[str],
    numeric: Sequence[bool],
    reading: ReadingOptions,
    cells: Callable[[int, int | None], list[str]],
) -> tuple[list[int], dict[str, Any]]:
    """Return the positions of source, target and, if there is one, weight, by the rules for edge lists; and what to ask
    for.

    ``cells`` returns the cells of a column as text, all of them or only the first ones.
    """
    from storage.readers.formula import parse_formula
    from storage.readers.parsed import ReadOptions
    from storage.readers.tables.choose import choose_by_name, direction_of

    for field in ("source", "target", "weight"):
        if (name := reading.get(field)) is not None and name not in names:
            raise InvalidRequest(f"there is no column {name!r}; there are {', '.join(names)}", field=field)
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
    if selected.weight is None:
        return ends, {"format": "parquet", **said}
    weight = names[selected.weight]
    text = None if formula is None else formula.text.replace(f"${formula.column}", f'"{weight}"')
    return [*ends, selected.weight], {**_columns(weight, text), **said}


def _table(path: Path, tails: Any, heads: Any, weights: Any = None, *, name: str = "weight") -> Names:
    """Write an edge table of arrays or lists, and return the names of its vertices; ``name`` is the column of the
    weights.
    """
    import polars as pl

    tails, heads = _vertices(tails), _vertices(heads)
    if isinstance(tails, list) != isinstance(heads, list):
        # A vertex has the same name in both columns: 2 in an array is the same vertex as 2.0 in a list.
        tails, heads = (side if isinstance(side, list) else side.tolist() for side in (tails, heads))
    names = Names(dict.fromkeys(vertex for side in (tails, heads) if isinstance(side, list) for vertex in side))
    ends = (pl.Series(names.labels(side) if isinstance(side, list) else side) for side in (tails, heads))
    sides = ("source", "target") if weights is None else _ends(name)
    columns = dict(zip(sides, ends, strict=True))
    if weights is not None:
        columns[name] = _weights(weights)
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidRequest(f"columns must be of one length; there are {sizes}", field="graph")
    for side in sides:
        if columns[side].dtype == pl.Null():  # the graph has no edges
            columns[side] = columns[side].cast(pl.Int64())
    pl.DataFrame(columns).write_parquet(path)
    return names


def _weights(weights: Any) -> pl.Series:
    import numpy as np
    import polars as pl

    values = np.asarray(weights)
    if values.dtype.kind == "O":
        values = _floats(weights)
    if values.dtype.kind == "U":
        with suppress(ValueError):
            values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        raise InvalidRequest(f"weights of {values.dtype} are no numbers", field="weight")
    return pl.Series(values.astype(np.int64) if values.dtype.kind == "b" else values)


def _floats(weights: Sequence[Any]) -> Any:
    import numpy as np

    if None in weights:
        raise InvalidRequest(f"edge {weights.index(None) + 1} has no weight", field="weight")
    try:
        return np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest("the weights are not all numbers", field="weight") from None


def _vertices(values: Any) -> Any:
    """Return a column of vertices: an array of whole numbers as it is, anything else as a list."""
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OUST":
        raise InvalidRequest(f"vertices are whole numbers or text, not {values.dtype}", field="vertex")
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if None in listed:
        raise InvalidRequest(f"edge {listed.index(None) + 1} lacks a vertex", field="vertex")
    return listed
