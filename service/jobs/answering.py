"""Answers from prepared results: the helper processes, the limits of each caller, and a cache of computed chunks.

Imports no NumPy.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from service.http.limits import ComputingBudget
from service.jobs.counting import SummaryCache
from service.pool.answers import PreparedPlace, answer
from service.pool.process_pool import ProcessPool
from service.settings import Settings

if TYPE_CHECKING:
    from engine.api.from_tables.on_device import AnswerDevice
    from service.jobs.prepared_results import AskedPrepared

#: most requests of one caller that wait for answers at the same time, because each may hold a thread; further requests
#: of this caller queue
_AT_ONCE: Final = 4
#: if this many bands (rows of chunks) fit in the cache, a band is computed as a whole, else only the wanted chunk
_BAND_PART: Final = 2


@dataclass
class ChunkCache:
    """A cache of chunks, up to ``most`` bytes; the least recently used are dropped first.  For one thread."""

    most: int

    def __post_init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self.bytes = 0

    def get(self, key: tuple[str, int, int]) -> bytes | None:
        """Return a chunk; None if it is not cached."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: tuple[str, int, int], data: bytes) -> None:
        """Cache a chunk, and drop the least recently used chunks if there is not enough space."""
        self.bytes += len(data) - len(self._kept.pop(key, b""))
        self._kept[key] = data
        while self.bytes > self.most:
            _, dropped = self._kept.popitem(last=False)
            self.bytes -= len(dropped)


class Answering:
    """The part of one API process that answers from prepared results.

    Attributes:
        pool: processes that hold tables and compute.
        budget: processor seconds of each caller.
        kept: the cache of computed chunks.
        summaries: the cache of summaries.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.pool = ProcessPool(
            settings.runner_nice // 2,
            settings.answerers,
            seconds=settings.answer_seconds,
            setting="answer_seconds",
            memory=settings.task_memory,
        )
        self.budget = ComputingBudget(settings.max_computing_seconds)
        self.kept = ChunkCache(settings.chunk_cache)
        self.summaries = SummaryCache(settings)
        self._making: dict[tuple[str, int, int], asyncio.Task[dict[int, bytes]]] = {}
        self._permits: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def place(self, path: str | Path, digest: str) -> PreparedPlace:
        """Return what a helper process needs to open a result and to answer questions about it.

        Args:
            path: folder of the result, or its address in an object store.
            digest: the digest of the seal of the result.
        """
        settings = self._settings
        # cuda becomes auto: where a GPU lacks memory for the tables of a result, the processors answer
        device: AnswerDevice = "cpu" if settings.answer_device == "cpu" else "auto"
        return PreparedPlace(
            path, digest, settings.threads, settings.tables_memory, device, settings.answer_device_memory
        )

    @asynccontextmanager
    async def permit(self, who: str | None) -> AsyncIterator[None]:
        """Limit how many requests of one caller wait for answers at a time, so that they do not hold all threads."""
        held = self._permits.setdefault(who or "", asyncio.Semaphore(_AT_ONCE))
        async with held:
            yield

    def ask(self, who: str | None, place: PreparedPlace, question: str, *given: Any) -> Any:
        """Return the answer to a question of ``service.pool.answers``, waiting for it in this thread.

        Args:
            who: the caller, to whom the processor seconds are charged.
            place: the result.
            question: the name of the question.
            given: the arguments of the question.

        Raises:
            Refused: the helper process raised an error, which ``Refused`` describes.
        """
        began = time.monotonic()
        try:
            seconds, found = self.pool.wait(answer, place, question, *given, owner=who)
        except Exception:
            self.budget.charge(who, time.monotonic() - began)
            raise
        self.budget.charge(who, seconds)
        return found

    async def chunk(self, matrix: AskedPrepared, i: int, j: int) -> bytes:
        """Return chunk (i, j) of a result from the cache, or compute it.

        If the cache is large enough, the whole band (row of chunks) i is computed.  Requests for chunks of a band that
        is being computed wait for that band.

        Args:
            matrix: the result, as opened for the caller who asks.
            i, j: the position of the chunk, which must lie in the grid.

        Raises:
            TooMuchComputing: the chunk has to be computed, and the caller has used up its seconds.
            Refused: the helper process raised an error, which ``Refused`` describes.
        """
        place, across = matrix.place, matrix.grid.counts[1]
        key = place.digest, i, j
        if (kept := self.kept.get(key)) is not None:
            return kept
        whole = across * matrix.grid.tile_bytes(matrix.dtype.itemsize) * _BAND_PART <= self.kept.most
        columns, task_key = (range(across), (place.digest, i, -1)) if whole else (range(j, j + 1), key)
        making = self._making.get(task_key)
        if making is None:
            matrix.admit()
            making = asyncio.create_task(self._make(matrix.who, place, i, columns))
            self._making[task_key] = making
            making.add_done_callback(lambda _: self._making.pop(task_key, None))
        # shielded: if this client disconnects, other requests may still wait for the chunk
        return (await asyncio.shield(making))[j]

    async def _make(self, who: str | None, place: PreparedPlace, i: int, columns: range) -> dict[int, bytes]:
        began = time.monotonic()
        try:
            seconds, found = await self.pool.run(answer, place, "chunks", i, columns, owner=who)
        except Exception:
            self.budget.charge(who, time.monotonic() - began)
            raise
        self.budget.charge(who, seconds)
        chunks: dict[int, bytes] = found
        for j, data in chunks.items():
            self.kept.put((place.digest, i, j), data)
        return chunks

    def stop(self) -> None:
        """Stop the helper processes."""
        self.pool.stop()
