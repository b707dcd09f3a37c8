"""Flows about a result: distances, paths, rows, arrays; vertices are those of the caller."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from service.client.asking import Patience, ask
from service.client.displays import Path
from service.client.flows import Document, job_path, question
from service.client.names import Label, Names
from service.client.steps import Flow, Request, Work
from service.units import format_bytes, parse_size
from storage.errors import LimitExceeded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.floating[Any]]

#: pairs in one request
_PAIRS: Final = 10_000


def number(value: float | None) -> float:
    """A distance in an answer as a float; +inf where there is no path."""
    return math.inf if value is None else value


def distance(job: str, names: Names, patience: Patience, source: Any, target: Any) -> Flow[float]:
    """One distance.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        source, target: vertices of the caller.
    """
    pair = {"source": names.label(source), "target": names.label(target)}
    return number((yield from question("GET", job_path(job, "distance"), patience, params=pair))["distance"])


def distances(job: str, names: Names, patience: Patience, pairs: Sequence[tuple[Any, Any]]) -> Flow[list[float]]:
    """Many distances, in the order of the pairs.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        pairs: sources and targets, vertices of the caller.
    """
    found: list[float] = []
    for first in range(0, len(pairs), _PAIRS):
        some = [[names.label(u), names.label(v)] for u, v in pairs[first : first + _PAIRS]]
        answer = yield from question("POST", job_path(job, "distances"), patience, json={"pairs": some})
        found += map(number, answer["distances"])
    return found


def path(job: str, names: Names, patience: Patience, source: Any, target: Any) -> Flow[Path | None]:
    """One shortest path; None if there is none.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        source, target: vertices of the caller.
    """
    pair = {"source": names.label(source), "target": names.label(target)}
    answer = yield from question("GET", job_path(job, "path"), patience, params=pair)
    if not answer["reachable"]:
        return None
    return Path(names.vertices(answer["vertices"]), answer["weights"], answer["length"])


def row(job: str, names: Names, patience: Patience, source: Any) -> Flow[dict[Any, float]]:
    """The distances from one vertex to each target that was solved.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        source: a vertex of the caller.
    """
    body = {"sources": [names.label(source)]}
    answer = yield from question(
        "POST", job_path(job, "submatrix"), patience, json=body, params={"format": "json"}, seconds=300.0
    )
    [values] = answer["distances"]
    return dict(zip(names.vertices(answer["targets"]), map(number, values), strict=True))


def nearest(job: str, names: Names, patience: Patience, source: Any, k: int) -> Flow[list[tuple[Any, float]]]:
    """The ``k`` nearest vertices with their distances, the nearest first.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        source: a vertex of the caller.
        k: the most vertices to return.
    """
    query = {"source": names.label(source), "k": k}
    answer = yield from question("GET", job_path(job, "nearest"), patience, params=query)
    return list(zip(names.vertices(answer["targets"]), answer["distances"], strict=True))


def sides(job: str, patience: Patience) -> Flow[tuple[list[Label], list[Label]]]:
    """The labels of rows and of columns, from the store's own arrays, checked by its seal."""
    from storage.matrix.download import labels_of, side_files

    answer = yield from ask(Request("GET", job_path(job, "zarr", "zarr.json")), patience)
    files: dict[str, bytes] = {}
    for name in side_files(answer.content, ("source", "target")):
        files[name] = (yield from ask(Request("GET", job_path(job, "zarr", name), seconds=300.0), patience)).content
    found: tuple[list[Label], list[Label]] = yield Work(
        lambda: (labels_of(answer.content, files, "source"), labels_of(answer.content, files, "target"))
    )
    return found


def submatrix(
    job: str,
    names: Names,
    patience: Patience,
    sources: Sequence[Any] | None,
    targets: Sequence[Any] | None,
    *,
    most: int | str,
) -> Flow[Floats]:
    """Distances from sources to targets, None meaning all, as floats with +inf.

    Raises LimitExceeded if the array would have more than ``most`` bytes.

    Args:
        job: id of the job.
        names: translates between the caller's vertices and labels on the wire.
        patience: how long requests are repeated.
        sources, targets: vertices of the caller; None for all.
        most: the most bytes that the array may have.
    """
    import numpy as np

    facts = yield from question("GET", job_path(job, "results"), patience)
    kind: np.dtype[np.floating[Any]] = np.dtype(np.float64 if facts["dtype"] in ("int32", "float64") else np.float32)
    down, across = facts["shape"]
    shape = (down if sources is None else len(sources), across if targets is None else len(targets))
    _check_size(shape, kind.itemsize, parse_size(most, field="most") if isinstance(most, str) else most)
    rows, columns = (None if some is None else names.labels(some) for some in (sources, targets))
    if rows is None or columns is None:
        all_rows, all_columns = yield from sides(job, patience)
        rows, columns = all_rows if rows is None else rows, all_columns if columns is None else columns
    cells = (yield from question("GET", "v1/limits", patience))["limits"]["max_cells"]["value"]
    found = np.empty(shape, kind)
    for part in _parts(shape, cells):
        body: Document = {"sources": rows[part[0]], "targets": columns[part[1]]}
        if targets is None and len(body["targets"]) == across:
            del body["targets"]  # whole rows need no names
        request = Request("POST", job_path(job, "submatrix"), {"format": "npy"}, json=body, seconds=300.0)
        answer = yield from ask(request, patience)
        found[part] = np.load(io.BytesIO(answer.content), allow_pickle=False)
    return found


def _check_size(shape: tuple[int, int], itemsize: int, most: int) -> None:
    size = shape[0] * shape[1] * itemsize
    if size > most:
        message = (
            f"the array would have {shape[0]:,} x {shape[1]:,} entries, {format_bytes(size)}, and the limit is "
            f"{format_bytes(most)}: give a higher most=, or fewer sources or targets, or use to_xarray or fetch"
        )
        raise LimitExceeded(message, limit=most, requested=size, setting="most")


def _parts(shape: tuple[int, int], cells: int) -> Iterator[tuple[slice, slice]]:
    """Rectangles of at most ``cells`` entries that cover the matrix; whole rows where possible."""
    width = max(1, min(shape[1], cells))
    height = max(1, cells // width)
    for top in range(0, shape[0], height):
        for left in range(0, shape[1], width):
            yield slice(top, top + height), slice(left, left + width)
