"""Writes edges as a Parquet table for upload, and says how the service is to read its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from service.client.names import Names
from storage.arguments import as_float64, unmasked
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    import polars as pl


def column_query(weight: str | None, length_of: str | None, further: Iterable[str] = ()) -> dict[str, Any]:
    """Return the part of the query that names the columns of the Parquet file.

    Args:
        weight: the column of the weights; None for edges that count 1.
        length_of: a formula that makes lengths from the weights; None if the weights are the lengths.
        further: names of further columns.
    """
    further = list(further)
    if weight is None and not further:
        return {"format": "parquet"}
    source, target = end_names(weight, further)
    found: dict[str, Any] = {"format": "parquet", "source": source, "target": target}
    if weight is None:  # otherwise the service would take a further column for the weights
        return {**found, "unweighted": True}
    return {**found, "weight": weight} if length_of is None else {**found, "length_of": length_of}


def end_names(weight: str | None, further: Iterable[str] = ()) -> tuple[str, str]:
    """Return names for the two columns of vertices; they differ from the names of all other columns."""
    taken = {name.lower() for name in (weight or "", *further)}
    pairs = (("source", "target"), ("tail", "head"), *((f"tail {k}", f"head {k}") for k in range(len(taken))))
    return next(pair for pair in pairs if taken.isdisjoint(pair))


def write_table(
    path: Path,
    tails: Any,
    heads: Any,
    weights: Any = None,
    *,
    name: str = "weight",
    further: Mapping[str, Any] = MappingProxyType({}),
) -> Names:
    """Write an edge table of arrays or lists, and return the names of the vertices.

    Args:
        path: the file.
        tails, heads: the vertices of each edge.
        weights: numbers, one for each edge; None for edges that count 1.
        name: the column of the weights.
        further: further columns by name, each with a number for each edge.
    """
    import polars as pl

    tails, heads = _vertices(tails), _vertices(heads)
    if isinstance(tails, list) != isinstance(heads, list):
        # Both columns become lists, so that 2 in an array and 2.0 in a list are one vertex with one name.
        tails, heads = (side if isinstance(side, list) else side.tolist() for side in (tails, heads))
    names = Names(dict.fromkeys(vertex for side in (tails, heads) if isinstance(side, list) for vertex in side))
    try:
        ends = [pl.Series(names.labels(side) if isinstance(side, list) else side) for side in (tails, heads)]
    except UnicodeEncodeError as error:
        message = f"vertex {error.object!r} holds half a character, which no file can hold"
        raise InvalidRequest(message, field="vertex") from None
    sides = end_names(None if weights is None else name, further)
    columns = dict(zip(sides, ends, strict=True))
    if weights is not None:
        columns[name] = _weights(weights)
    columns |= {column: _quantity(column, values) for column, values in further.items() if column not in columns}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidRequest(f"columns must be of one length; there are {sizes}", field="graph")
    for side in sides:
        if columns[side].dtype == pl.Null():  # without edges, polars cannot tell the type of the vertices
            columns[side] = columns[side].cast(pl.Int64())
    pl.DataFrame(columns).write_parquet(path)
    return names


def _quantity(name: str, values: Any) -> pl.Series:
    try:
        return _weights(values)
    except InvalidRequest as error:
        raise InvalidRequest(f"also {name}: {error}".replace("weight", "value"), field="also") from None


def _weights(weights: Any) -> pl.Series:
    import numpy as np
    import polars as pl

    values = unmasked("weight", weights)
    if values.dtype.kind == "O":
        values = float_array(weights)
    if values.dtype.kind == "U":
        with suppress(ValueError):
            values = as_float64("weights", values)
    if values.dtype.kind == "f":
        values = as_float64("weights", values)  # Parquet has no type for a longdouble
    if values.dtype.kind not in "biuf":
        raise InvalidRequest(f"weights of {values.dtype} are no numbers", field="weight")
    return pl.Series(values.astype(np.int64) if values.dtype.kind == "b" else values)


def float_array(weights: Sequence[Any]) -> Any:
    """Return numbers as float64.  Raises InvalidRequest if one is missing or no number."""
    if None in weights:
        raise InvalidRequest(f"edge {weights.index(None) + 1} has no weight", field="weight")
    try:
        return as_float64("weights", weights)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest("the weights are not all numbers", field="weight") from None


def _vertices(values: Any) -> Any:
    """Return a column of vertices: an array of whole numbers as it is, anything else as a list."""
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return unmasked("vertex", values)
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OUST":
        raise InvalidRequest(f"vertices are whole numbers or text, not {values.dtype}", field="vertex")
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if None in listed:
        raise InvalidRequest(f"edge {listed.index(None) + 1} lacks a vertex", field="vertex")
    return listed
