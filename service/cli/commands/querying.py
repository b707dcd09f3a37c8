"""``apsp query`` and ``apsp verify``: answers from a sealed store."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, shown_unit
from service.cli.commands.showing import (
    check_question,
    count_of,
    limit_of,
    save_path,
    show_pair,
    show_row,
    show_summary,
)
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import different_files
from service.jobs.results import ResultReader
from service.units import parse_size
from service.views.path_feature import path_feature
from storage.counted import counted
from storage.errors import InvalidRequest, NotFound
from storage.matrix.reader import is_sealed_store
from storage.number_texts import is_digits
from storage.remote.objects import is_address
from storage.semirings import EVERY, MIN_PLUS

if TYPE_CHECKING:
    from engine.api.prepared_matrix import PreparedMatrix
    from service.cli.arguments import AnswerOptions
    from storage.matrix.reader import Matrix


def opened(store: str, answer: AnswerOptions, semiring: str | Collection[str] = MIN_PLUS) -> Matrix | PreparedMatrix:
    """Open a result; a prepared graph is opened for the device that was asked for.

    Args:
        store: folder or address of the result.
        answer: the device, and how much of its memory may be used; empty for the processors.
        semiring: the semiring, or several, whose values the caller can use; a store of another semiring is refused.

    Raises:
        InvalidRequest: ``cuda`` was asked for and there is no usable GPU or the result is a solved store, or the memory
            is no size.
        NotFound, StorageFailed, Conflict, DoesNotFit: ``open_result`` cannot open the result.
    """
    from engine.api.prepared_matrix import open_result

    device, size = answer.get("device", "cpu"), answer.get("device_memory")
    memory = None if size is None else parse_size(str(size), field="--device-memory")
    if memory is not None and device == "cpu":
        raise InvalidRequest("--device-memory needs --device cuda or auto", field="device_memory")
    return open_result(store_folder(store), semiring=semiring, device=device, device_memory=memory)


def query(
    store: str,
    question: str,
    vertices: Sequence[str],
    points: Sequence[Path] = (),
    *,
    out: Path | None = None,
    answer: AnswerOptions | None = None,
    as_json: bool,
) -> None:
    """Answer one question; vertices are named as in the graph's file.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph.
        question: distance, path, row, nearest, within, also or summary.
        vertices: names of the vertices of the question; for nearest and within also a number of vertices or a distance.
        points: tables of points, whose ids and names may stand for vertices.
        out: the file of GeoJSON for a path; None prints the answer.
        answer: the device that computes the answers of a prepared graph; None for the processors.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InvalidRequest: no such question, the wrong number of vertices, ``out`` without longitudes and latitudes, or
            ``opened`` refuses the store or the device.
        NotFound: no such store or vertex, or the row of the vertex was not solved.
    """
    check_question(question, vertices, out)
    count = count_of(vertices[1]) if question == "nearest" else 0
    limit = limit_of(vertices[1]) if question == "within" else 0.0
    understood = MIN_PLUS if question in ("within", "also") else EVERY
    with opened(store, answer or {}, understood) as found:
        result = ResultReader(found)
        unit = result.matrix.unit if as_json else shown_unit(result.matrix.unit, result.matrix.measured)
        if out is not None:
            check_lines(result.matrix)
        if points:
            count_of_names = 2 if question in ("distance", "path", "also") else 1
            vertices = [*at_points(result, points, vertices[:count_of_names]), *vertices[count_of_names:]]
        if out is not None:
            save_path(path_feature(result, vertices[0], vertices[1], {}), out, as_json)
        elif question in ("distance", "path", "also"):
            show_pair(question, getattr(result, question)(*vertices), as_json, unit)
        elif question == "nearest":
            show_row(result.nearest(vertices[0], count), as_json, unit)
        elif question == "within":
            show_row(result.within(vertices[0], limit), as_json, unit)
        elif question == "row":
            show_row(_row(result, vertices[0]), as_json, unit)
        else:
            _summary(result, as_json)


def check_lines(matrix: Any) -> None:
    """Raise InvalidRequest if the vertices of a result have no longitudes and latitudes."""
    if not matrix.placed:
        raise InvalidRequest(
            "-o: the graph has no coordinates, so its paths have no lines: give them with --nodes TABLE when the graph "
            "is read, or leave out -o",
            field="-o",
        )
    if not matrix.coordinates.geographic:
        raise InvalidRequest(
            "-o: GeoJSON holds longitude and latitude, and the coordinates of this graph are those of a plane; leave "
            "out -o, or read the graph in EPSG:4326",
            field="-o",
        )


def at_points(result: ResultReader, tables: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Return the label of a vertex for each name; a name means a point, or else a vertex.

    A point stands for the vertex nearest to it.  Prints which points were found, and how far their vertices are.

    Args:
        result: the open result.
        tables: files of points.
        names: names of points or vertices.

    Raises:
        NotFound: neither a point nor a vertex has the name.
        InvalidRequest: several points have the same name of ``names``, or ``storage.geography.snapping.snap_file``
            refuses a file.
    """
    from storage.geography.snapping import FAR, snap_file

    all_points, found = [snap_file(path, result.matrix.coordinates) for path in different_files(tables)], []
    for name in names:
        meant = [
            (points, row)
            for points in all_points
            for row, (key, title) in enumerate(zip(points.ids, points.titles, strict=True))
            if name in (key, title)
        ]
        if len(meant) > 1:
            some = ", ".join(f"{points.ids[row]} of {points.path.name}" for points, row in meant[:3])
            raise InvalidRequest(f"--points: {len(meant)} points are called {name!r}: {some}", field="points")
        if not meant:
            found.append(str(result.label(result.matrix.vertex(name))))
            continue
        [(points, row)] = meant
        label, distance = result.label(int(points.vertices[row])), points.distances[row]
        text = f"{distance:,.0f}{' m' if points.geographic else ''} from vertex {label}"
        far = "; FAR" if points.geographic and distance > FAR else ""
        print(f"note: {name} is a point of {points.path.name}, {text}{far}", file=sys.stderr)
        found.append(str(label))
    return found


def store_folder(store: str) -> str | Path:
    """Return the folder, or the address in an object store.  Raises NotFound for a file and for a folder without a
    store.
    """
    if is_address(store):
        return store
    path = Path(store)
    if path.is_file():
        raise NotFound(f"{store} is a file; a solved matrix is a folder, as apsp solve --out makes it")
    if path.is_dir() and not is_sealed_store(path):
        raise NotFound(f"{store} is a folder, but no store that apsp has sealed; apsp solve --out makes them")
    return path


def _row(result: ResultReader, source: str) -> dict[str, Any]:
    matrix = result.matrix
    vertex = matrix.vertex(source)
    distances = result.numbers(matrix.row(vertex))
    targets = matrix.target_labels.tolist()
    return {"source": result.label(vertex), "targets": targets, "distances": distances, **result.said}


def _summary(result: ResultReader, as_json: bool) -> None:
    from engine.api.from_tables.summary import summarize
    from engine.api.prepared_matrix import PreparedMatrix

    matrix = result.matrix
    summary = summarize(matrix) if isinstance(matrix, PreparedMatrix) else matrix.summary
    facts = {"shape": list(matrix.shape), "dtype": matrix.dtype.name, "directed": matrix.directed}
    measured = {name: matrix.attributes.get(name) for name in ("unit", "weight_column")}
    kind = {"store": str(matrix.path), "result": result.kind, **measured, **result.said}
    show_summary({**kind, **facts, "summary": summary}, str(matrix.path), as_json)


def verify(store: str, sample: str | None, *, as_json: bool) -> None:
    """Compare every tile with the manifest, and some rows with new searches; StorageFailed names the first difference.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph.
        sample: number of rows to search again, or ``all``; None for as many as half a second allows.
        as_json: whether to print one JSON object instead of text.
    """
    from engine.api.verify import verify_store

    count = _sample(sample)
    with contextlib.ExitStack() as context:
        monitor = None
        if count:  # the default sample takes too little time to show progress
            monitor = context.enter_context(ProgressMonitor(sys.stderr, INTERRUPTS.requested))
            context.enter_context(INTERRUPTS.politely())
        found = verify_store(store_folder(store), count, monitor=monitor)
    if as_json:
        emit_json({"store": str(store), "verified": True, "sources": found.sources, "searched": found.searched})
        return
    emit(f"{store}: all tiles agree with the manifest")
    if found.searched:
        of, agree = counted(found.sources, "rows"), "agrees" if found.searched == 1 else "agree"
        emit(f"{store}: {found.searched:,} of {of} {agree} with a new search of the graph")
    elif sample is None and found.sources:
        emit(f"{store}: no row was searched again, the graph is large; --sample K searches K of them")


def _sample(text: str | None) -> int | Literal["all"] | None:
    if text is None:
        return None
    if text == "all":
        return "all"
    if not is_digits(text):
        raise InvalidRequest(f"--sample takes a number of sources or all, found {text!r}", field="--sample")
    return int(text)
