"""``apsp query`` and ``apsp verify``: answers from a sealed store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.commands.output import emit, emit_json
from service.commands.showing import check_question, show_distance, show_path, show_row, show_summary
from service.results import Result
from storage.errors import NotFound
from storage.matrix import is_sealed_store, verify_matrix
from storage.objects import is_address


def query(store: str, question: str, vertices: Sequence[str], *, as_json: bool) -> None:
    """Answer one question; vertices are named as in the graph's file.

    Raises:
        InvalidRequest: no such question, or the wrong number of vertices.
        NotFound: no such store or vertex, or its row was not solved.
    """
    check_question(question, vertices)
    result = Result(store_folder(store))
    if question == "distance":
        show_distance(result.distance(*vertices), as_json)
    elif question == "path":
        show_path(result.path(*vertices), as_json)
    elif question == "row":
        show_row(_row(result, vertices[0]), as_json)
    else:
        _summary(result, as_json)


def store_folder(store: str) -> str | Path:
    """The folder, or the address in an object store; NotFound says of a file or of another folder what a store is."""
    if is_address(store):
        return store
    path = Path(store)
    if path.is_file():
        raise NotFound(f"{store} is a file; a solved matrix is a folder, as apsp solve --out makes it")
    if path.is_dir() and not is_sealed_store(path):
        raise NotFound(f"{store} is a folder, but no store that apsp has sealed; apsp solve --out makes them")
    return path


def _row(result: Result, source: str) -> dict[str, Any]:
    matrix = result.matrix
    vertex = matrix.vertex(source)
    distances = result.numbers(matrix.row(vertex))
    return {"source": result.label(vertex), "targets": matrix.target_labels.tolist(), "distances": distances}


def _summary(result: Result, as_json: bool) -> None:
    matrix = result.matrix
    facts = {"shape": list(matrix.shape), "dtype": matrix.dtype.name, "directed": matrix.directed}
    show_summary({"store": str(matrix.path), **facts, "summary": matrix.summary}, str(matrix.path), as_json)


def verify(store: str, *, as_json: bool) -> None:
    """Re-read every tile against the manifest; StorageFailed names what differs."""
    verify_matrix(store_folder(store))
    if as_json:
        emit_json({"store": str(store), "verified": True})
    else:
        emit(f"{store}: all tiles agree with the manifest")
