"""``apsp query`` and ``apsp verify``: answers from a sealed store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from service.commands.output import emit, emit_json, jsonable, number
from service.commands.solving import summary_lines
from storage.errors import InvalidRequest
from storage.matrix import open_matrix, verify_matrix

if TYPE_CHECKING:
    from storage.matrix import Matrix

#: What can be asked, with the vertices that it takes.
QUESTIONS = {"distance": ("U", "V"), "path": ("U", "V"), "row": ("U",), "summary": ()}


def query(store: Path, question: str, vertices: Sequence[str], *, as_json: bool) -> None:
    """Answer one question; vertices are named as in the graph's file."""
    if question not in QUESTIONS:
        raise InvalidRequest(f"no query {question!r}; there are {', '.join(QUESTIONS)}", field="query")
    wanted = QUESTIONS[question]
    if len(vertices) != len(wanted):
        usage = " ".join(["query STORE", question, *wanted])
        raise InvalidRequest(f"{usage} takes {len(wanted)} vertices, {len(vertices)} given", field="vertices")
    matrix = open_matrix(store)
    indices = [matrix.vertex(text) for text in vertices]
    answers = {"distance": _distance, "path": _path, "row": _row, "summary": _summary}
    answers[question](matrix, indices, as_json)


def _distance(matrix: Matrix, indices: Sequence[int], as_json: bool) -> None:
    matrix.source_position(indices[0])
    entry = matrix.entries(indices[:1], indices[1:])[0]
    distance = _finite(matrix, entry)
    if as_json:
        emit_json({"source": _name(matrix, indices[0]), "target": _name(matrix, indices[1]), "distance": distance})
    else:
        emit("inf" if distance is None else number(distance))


def _path(matrix: Matrix, indices: Sequence[int], as_json: bool) -> None:
    from engine.paths import route

    source, target = indices
    found = route(matrix, source, target)
    ends = {"source": _name(matrix, source), "target": _name(matrix, target)}
    if as_json:
        path = None if found is None else [_name(matrix, vertex) for vertex in found.vertices]
        weights = None if found is None else list(found.weights)
        emit_json({**ends, "distance": None if found is None else found.length, "path": path, "weights": weights})
    elif found is None:
        emit(f"no path from {ends['source']} to {ends['target']}")
    else:
        sums = accumulate(found.weights, initial=type(found.length)(0))
        names = (_name(matrix, vertex) for vertex in found.vertices)
        rows = zip(names, ["-", *map(number, found.weights)], sums, strict=True)
        emit(["vertex\tweight\tlength", *(f"{name}\t{weight}\t{number(length)}" for name, weight, length in rows)])


def _row(matrix: Matrix, indices: Sequence[int], as_json: bool) -> None:
    row = matrix.row(indices[0])
    reached = _reached(matrix, row)
    if as_json:
        distances = [value if ok else None for value, ok in zip(_values(row), reached.tolist(), strict=True)]
        targets = [_plain(label) for label in matrix.labels]
        emit_json({"source": _name(matrix, indices[0]), "targets": targets, "distances": distances})
    else:
        emit(_row_lines(matrix, row, reached))


def _row_lines(matrix: Matrix, row: np.ndarray[Any, Any], reached: np.ndarray[Any, Any]) -> Iterator[str]:
    yield "target\tdistance"
    for label, value, ok in zip(matrix.labels, row, reached, strict=True):
        yield f"{label}\t{number(value) if ok else 'inf'}"


def _summary(matrix: Matrix, _: Sequence[int], as_json: bool) -> None:
    rows, columns = matrix.shape
    if as_json:
        facts = {"shape": [rows, columns], "dtype": str(matrix.dtype), "directed": matrix.directed}
        emit_json({"store": str(matrix.path), **facts, "summary": matrix.summary})
        return
    kind = "directed" if matrix.directed else "undirected"
    emit([f"{matrix.path}: {rows:,} x {columns:,}, {matrix.dtype}, {kind}", *summary_lines(matrix.summary)])


def verify(store: Path, *, as_json: bool) -> None:
    """Re-read every tile against the manifest; StorageFailed names what differs."""
    verify_matrix(store)
    if as_json:
        emit_json({"store": str(store), "verified": True})
    else:
        emit(f"{store}: all tiles agree with the manifest")


def _reached(matrix: Matrix, entries: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.isfinite(entries) if entries.dtype.kind == "f" else entries != matrix.unreachable


def _finite(matrix: Matrix, entry: np.generic) -> float | int | None:
    """The distance as a plain number; None for unreachable."""
    if not _reached(matrix, np.asarray(entry)):
        return None
    value = jsonable(entry)
    assert isinstance(value, (int, float))
    return value


def _values(row: np.ndarray[Any, Any]) -> list[object]:
    if row.dtype != np.float32:
        return list(row.tolist())
    return [float(text) for text in row.astype(str)]


def _plain(label: object) -> int | str:
    return int(label) if isinstance(label, (int, np.integer)) else str(label)


def _name(matrix: Matrix, index: int) -> int | str:
    return _plain(matrix.labels[index])
