"""A graph as the caller has it, as a file that the service reads with nothing lost: names, direction, lone vertices.

Files go as they are.  Edge tables and NetworkX graphs become Parquet, sparse matrices ``.npz``, dense ones ``.npy``.
Only what the caller's graph is made of, and what writes the file, is imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.client.names import Names
from storage.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    import polars as pl

_KINDS = (
    "the path of a file, a NetworkX graph, a SciPy sparse matrix, a pandas or polars edge table, a square NumPy "
    "array, or arrays (sources, targets) or (sources, targets, weights)"
)


@dataclass(frozen=True)
class Reading:
    """How a graph is to be read.

    Attributes:
        format, directed, weight, unweighted: as on the command line; None leaves it to the graph.
        source, target: columns of an edge table.
        name: what the caller calls the graph.
    """

    format: str | None = None
    directed: bool | None = None
    weight: str | None = None
    unweighted: bool = False
    source: str | None = None
    target: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Upload:
    """A file to send, the query that goes with it, and the names of its vertices."""

    file: Path
    query: Mapping[str, Any]
    names: Names


@contextmanager
def prepared(graph: Any, reading: Reading) -> Iterator[Upload]:
    """The upload of a graph of any kind; a file that was made for it is removed at the end.

    Raises:
        InvalidRequest: it is no graph, or its names or weights cannot be kept.
        NotFound: there is no such file.
    """
    if isinstance(graph, str | os.PathLike):
        yield _file(Path(os.fspath(graph)), reading)
        return
    if reading.format is not None:
        raise InvalidRequest("format is for files; what is given here is none", field="format")
    handle, name = tempfile.mkstemp(prefix="apsp-upload-")
    os.close(handle)
    path = Path(name)
    try:
        yield _encoded(graph, reading, path)
    finally:
        path.unlink(missing_ok=True)


def _file(path: Path, reading: Reading) -> Upload:
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    query = {
        "format": reading.format,
        "directed": reading.directed,
        "weight": reading.weight,
        "unweighted": reading.unweighted or None,
        "name": reading.name,
        "filename": path.name,
    }
    return Upload(path, query, Names())


def _encoded(graph: Any, reading: Reading, path: Path) -> Upload:
    query = {"directed": reading.directed, "unweighted": reading.unweighted or None, "name": reading.name}
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
    if reading.weight is not None:
        raise InvalidRequest("weight names a column or an attribute; what is given here has none", field="weight")
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
    """Whether this is one column of numbers or names, rather than a row of a matrix written as lists."""
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


def _networkx(graph: Any, reading: Reading, path: Path) -> tuple[Names, dict[str, Any]]:
    """Edges that lack the weight count 1, as in NetworkX; vertices without edges become loops, which keep them."""
    names = Names(graph)
    asked = reading.weight or "weight"
    if not isinstance(asked, str):
        raise InvalidRequest("weight must be the name of an edge attribute, not a function", field="weight")
    edges = list(graph.edges(data=asked))
    weighted = not reading.unweighted and any(weight is not None for *_, weight in edges)
    if reading.weight is not None and edges and not weighted and not reading.unweighted:
        raise InvalidRequest(f"no edge has the attribute {asked!r}", field="weight")
    edges += [(vertex, vertex, 0) for vertex, degree in graph.degree() if degree == 0]
    tails, heads = (names.labels(edge[k] for edge in edges) for k in (0, 1))
    weights = [1 if weight is None else weight for *_, weight in edges] if weighted else None
    _table(path, tails, heads, weights)
    directed = graph.is_directed() if reading.directed is None else reading.directed
    return names, {"directed": directed, "format": "parquet"}


def _pandas(table: Any, reading: Reading, path: Path) -> tuple[Names, dict[str, Any]]:
    import numpy as np

    kept = _chosen([str(name) for name in table.columns], [_is_numeric(kind) for kind in table.dtypes], reading)
    columns = []
    for position in kept:
        column = table.iloc[:, position]
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
        columns.append(column.to_numpy() if plain else column.astype(object).where(column.notna(), None).tolist())
    return _table(path, *columns), {"format": "parquet"}


def _is_numeric(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "iufb"


def _polars(table: Any, reading: Reading, path: Path) -> tuple[Names, dict[str, Any]]:
    import polars as pl

    schema = table.collect_schema()
    kept = _chosen(schema.names(), [kind.is_numeric() for kind in schema.dtypes()], reading)
    chosen = [
        pl.nth(position).alias(name) for position, name in zip(kept, ("source", "target", "weight"), strict=False)
    ]
    table.lazy().select(chosen).sink_parquet(path)
    return Names(), {"format": "parquet"}


def _chosen(names: Sequence[str], numeric: Sequence[bool], reading: Reading) -> list[int]:
    """Positions of source, target and, if there is one, weight: as told, else by the rules for edge lists."""
    from storage.readers.parsed import Options
    from storage.readers.sniff import choose_by_name

    for field, name in (("source", reading.source), ("target", reading.target), ("weight", reading.weight)):
        if name is not None and name not in names:
            raise InvalidRequest(f"there is no column {name!r}; there are {', '.join(names)}", field=field)
    if len(names) < 2:
        raise InvalidRequest(f"an edge needs two columns, the table has {len(names)}", field="graph")
    source, target, weight = choose_by_name(
        list(names), list(numeric), Options(weight=reading.weight, unweighted=reading.unweighted)
    )
    ends = [
        names.index(told) if told is not None else found
        for told, found in ((reading.source, source), (reading.target, target))
    ]
    return ends if weight is None or weight in ends else [*ends, weight]


def _table(path: Path, tails: Any, heads: Any, weights: Any = None) -> Names:
    """Write an edge table of arrays or lists; returns the names of its vertices."""
    import polars as pl

    tails, heads = _vertices(tails), _vertices(heads)
    names = Names(dict.fromkeys(vertex for side in (tails, heads) if isinstance(side, list) for vertex in side))
    ends = (pl.Series(names.labels(side) if isinstance(side, list) else side) for side in (tails, heads))
    columns = dict(zip(("source", "target"), ends, strict=True))
    if weights is not None:
        columns["weight"] = _weights(weights)
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidRequest(f"columns must be of one length; there are {sizes}", field="graph")
    for name in ("source", "target"):
        if columns[name].dtype == pl.Null():  # a graph without edges
            columns[name] = columns[name].cast(pl.Int64())
    pl.DataFrame(columns).write_parquet(path)
    return names


def _weights(weights: Any) -> pl.Series:
    import numpy as np
    import polars as pl

    values = np.asarray(weights)
    if values.dtype.kind == "O":
        values = _floats(weights)
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
    """A column of vertices: an array of whole numbers as it is, anything else as a list."""
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OUST":
        raise InvalidRequest(f"vertices are whole numbers or text, not {values.dtype}", field="vertex")
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if None in listed:
        raise InvalidRequest(f"edge {listed.index(None) + 1} lacks a vertex", field="vertex")
    return listed
