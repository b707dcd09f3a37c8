"""Tasks of the helper processes that answer from prepared results; recently used tables stay in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import StorageFailed

if TYPE_CHECKING:
    from engine.api.from_tables.on_device import AnswerDevice
    from engine.api.prepared_matrix import PreparedMatrix
    from engine.api.routes import Router
    from storage.prepared.served import ComputedStore


@dataclass(frozen=True)
class PreparedPlace:
    """The path of a prepared result, and the resources that a process may use to answer from it.

    Attributes:
        path: folder of the result, or its address in an object store.
        digest: the digest of the seal of the result; a result with another digest is refused.
        threads: threads of one question; all usable processors if None.
        kept: most bytes of tables of other results that stay in memory.
        device: ``auto`` for a GPU if there is one whose memory holds the tables; ``cpu`` for the processors.
        device_memory: bytes of the GPU's memory that may be used; None for all that is free.
    """

    path: str | Path
    digest: str
    threads: int | None
    kept: int
    device: AnswerDevice = "cpu"
    device_memory: int | None = None


@dataclass
class _Held:
    """A prepared result that this process holds open."""

    matrix: PreparedMatrix
    router: Router
    chunks: ComputedStore


_held: OrderedDict[tuple[str | Path, str], _Held] = OrderedDict()


def answer(place: PreparedPlace, question: str, *given: Any) -> tuple[float, Any]:
    """Answer one question about a prepared result.

    Args:
        place: the result.
        question: a name in ``_QUESTIONS``.
        given: the arguments of the question.

    Returns:
        The processor seconds that the answer took in this process, and the answer.

    Raises:
        StorageFailed: a table is damaged, and the message names it, or the result was replaced.
        DoesNotFit: the tables do not fit in memory.
        ApspError: ``PreparedMatrix`` raised it.
    """
    began = time.process_time()
    found = _QUESTIONS[question](_opened(place), *given)
    return time.process_time() - began, found


def _opened(place: PreparedPlace) -> _Held:
    """Return the open result; if tables of other results exceed ``place.kept``, the least recently used ones are
    closed.
    """
    key = place.path, place.digest
    for other in [other for other, held in _held.items() if not held.matrix.current()]:
        _held.pop(other).matrix.close()
    if key not in _held:
        _held[key] = _open(place)
    _held.move_to_end(key)
    others = list(_held)[:-1]
    while others and sum(_held[other].matrix.held_bytes for other in others) > place.kept:
        _held.pop(others.pop(0)).matrix.close()
    return _held[key]


def _open(place: PreparedPlace) -> _Held:
    from engine.api.prepared_matrix import PreparedMatrix, open_result
    from engine.api.routes import Router
    from storage.prepared.served import ComputedStore

    matrix = open_result(place.path, device=place.device, device_memory=place.device_memory)
    if not isinstance(matrix, PreparedMatrix) or matrix.digest != place.digest:
        matrix.close()
        raise StorageFailed(f"{place.path} was replaced while open; open it again")
    if place.threads is not None:
        matrix.threads = min(place.threads, matrix.threads)
    return _Held(matrix, Router(matrix), ComputedStore(matrix, cache=_ONE_BAND))


#: bytes of computed rows that the store of chunks caches: a band of 64 rows of 2^20 vertices, 4 bytes an entry
_ONE_BAND: Final = 256 << 20


def _path(held: _Held, source: int, target: int) -> tuple[list[int], list[Any], Any] | None:
    route = held.router.route(source, target)
    return None if route is None else (route.vertices, list(route.weights), route.length)


def _chunks(held: _Held, i: int, columns: Sequence[int]) -> dict[int, bytes]:
    """Return the chunks (i, j) for each j in ``columns``, by j."""
    from storage.matrix.format import DISTANCES

    found = {}
    for j in columns:
        data = held.chunks.read(f"{DISTANCES}/c/{i}/{j}")
        assert data is not None  # the caller has checked that the chunk is in the grid
        found[j] = data
    return found


def _summary(held: _Held, most: float) -> tuple[float, dict[str, Any] | None]:
    """Return the predicted processor seconds of a summary of all rows, and the summary.

    The summary is None if the seconds exceed ``most``.
    """
    from engine.api.from_tables.summary import summarize, summary_seconds

    predicted = summary_seconds(held.matrix)
    return predicted, None if predicted > most else summarize(held.matrix, max(1, held.matrix.n))


_QUESTIONS: Final[dict[str, Callable[..., Any]]] = {
    "rows": lambda held, sources: held.matrix.rows(sources),
    "columns": lambda held, targets: held.matrix.columns(targets),
    "entries": lambda held, sources, targets: held.matrix.entries(sources, targets),
    "block": lambda held, sources, targets: held.matrix.block(sources, targets),
    "path": _path,
    "chunks": _chunks,
    "summary": _summary,
}
