"""``apsp query`` and ``apsp verify``: answers from a sealed store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from service.commands.output import emit, emit_json, number
from service.commands.solving import summary_lines
from service.results import Result
from storage.errors import InvalidRequest, NotFound
from storage.matrix import is_sealed_store, verify_matrix

#: What can be asked, with the vertices that it takes.
QUESTIONS: Final = {"distance": ("U", "V"), "path": ("U", "V"), "row": ("U",), "summary": ()}


def query(store: Path, question: str, vertices: Sequence[str], *, as_json: bool) -> None:
    """Answer one question; vertices are named as in the graph's file.

    Raises:
        InvalidRequest: no such question, or the wrong number of vertices.
        NotFound: no such store or vertex, or its row was not solved.
    """
    if question not in QUESTIONS:
        raise InvalidRequest(f"there is no query {question!r}; ask for {', '.join(QUESTIONS)}", field="query")
    wanted = QUESTIONS[question]
    if len(vertices) != len(wanted):
        usage = " ".join(["apsp query STORE", question, *wanted])
        raise InvalidRequest(f"{usage}: {len(vertices)} vertices given, {len(wanted)} needed", field="vertices")
    result = Result(store_folder(store))
    if question == "distance":
        _distance(result.distance(*vertices), as_json)
    elif question == "path":
        _path(result.path(*vertices), as_json)
    elif question == "row":
        _row(result, vertices[0], as_json)
    else:
        _summary(result, as_json)


def store_folder(store: Path) -> Path:
    """``store``, unless it is a file or a folder of something else: NotFound says what a store is."""
    if store.is_file():
        raise NotFound(f"{store} is a file; a solved matrix is a folder, as apsp solve --out makes it")
    if store.is_dir() and not is_sealed_store(store):
        raise NotFound(f"{store} is a folder, but no store that apsp has sealed; apsp solve --out makes them")
    return store


def _distance(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(answer)
    else:
        emit(_text(answer["distance"]))


def _path(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(answer)
    elif not answer["reachable"]:
        emit(f"no path from {answer['source']} to {answer['target']}")
    else:
        weights = answer["weights"]
        sums = accumulate(weights, initial=type(answer["length"])(0))
        rows = zip(answer["vertices"], ["-", *map(number, weights)], sums, strict=True)
        emit(["vertex\tweight\tlength", *(f"{name}\t{weight}\t{_rounded(length)}" for name, weight, length in rows)])


def _rounded(length: float) -> str:
    """A sum of weights without the dust of binary fractions: 0.3 and not 0.30000000000000004."""
    return str(length) if isinstance(length, int) else f"{length:.12g}"


def _row(result: Result, source: str, as_json: bool) -> None:
    matrix = result.matrix
    vertex = matrix.vertex(source)
    distances = result.numbers(matrix.row(vertex))
    if as_json:
        targets = matrix.target_labels.tolist()
        emit_json({"source": result.label(vertex), "targets": targets, "distances": distances})
    else:
        emit(_row_lines(matrix.target_labels.tolist(), distances))


def _row_lines(labels: Sequence[object], distances: Sequence[float | None]) -> Iterator[str]:
    yield "target\tdistance"
    for label, distance in zip(labels, distances, strict=True):
        yield f"{label}\t{_text(distance)}"


def _text(distance: float | None) -> str:
    return "inf" if distance is None else number(distance)


def _summary(result: Result, as_json: bool) -> None:
    matrix = result.matrix
    rows, columns = matrix.shape
    if as_json:
        facts = {"shape": [rows, columns], "dtype": matrix.dtype.name, "directed": matrix.directed}
        emit_json({"store": str(matrix.path), **facts, "summary": matrix.summary})
        return
    kind = "directed" if matrix.directed else "undirected"
    emit([f"{matrix.path}: {rows:,} x {columns:,}, {matrix.dtype}, {kind}", *summary_lines(matrix.summary)])


def verify(store: Path, *, as_json: bool) -> None:
    """Re-read every tile against the manifest; StorageFailed names what differs."""
    verify_matrix(store_folder(store))
    if as_json:
        emit_json({"store": str(store), "verified": True})
    else:
        emit(f"{store}: all tiles agree with the manifest")
