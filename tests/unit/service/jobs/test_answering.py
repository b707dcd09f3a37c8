"""Chunks that are kept are bounded, and one band is computed once however many ask for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.api.fault import Fault, Refused
from service.jobs.answering import Answering, ChunkCache
from service.pool.answers import PreparedPlace
from service.settings import Settings
from storage.matrix.grid import TileGrid


class Asks:
    """A result of 2 × 3 chunks, as one caller asks."""

    def __init__(self, who: str = "a") -> None:
        self.place = PreparedPlace(Path("p"), "sha256:0", None, 0)
        self.grid, self.dtype, self.who = TileGrid((8, 6), (4, 2)), np.dtype("int32"), who
        self.admitted = 0

    def admit(self) -> None:
        self.admitted += 1


class SlowPool:
    """Computes what it is asked once it may."""

    def __init__(self) -> None:
        self.may, self.asked = asyncio.Event(), list[tuple[int, list[int]]]()
        self.fails = False

    async def run(self, _task: Any, _place: Any, _question: str, i: int, columns: range, *, owner: str) -> Any:
        self.asked.append((i, list(columns)))
        await self.may.wait()
        if self.fails:
            raise Refused(Fault("storage-failed", "damaged"))
        return 2.5, {j: bytes([i, j]) * 18 for j in columns}


def answering(cache: int) -> tuple[Answering, SlowPool]:
    found = Answering(Settings(chunk_cache=cache))
    pool = found.pool = SlowPool()  # type: ignore[assignment]
    return found, pool  # type: ignore[return-value]


def test_what_is_kept_has_a_bound() -> None:
    cache = ChunkCache(10)
    for k in range(4):
        cache.put(("d", k, 0), b"1234")
    assert cache.bytes == 8
    assert [cache.get(("d", k, 0)) is None for k in range(4)] == [True, True, False, False]
    assert cache.get(("d", 2, 0)) == b"1234"
    cache.put(("d", 2, 0), b"12")
    cache.put(("d", 9, 0), b"123")
    assert (cache.bytes, cache.get(("d", 3, 0))) == (9, b"1234")
    cache.put(("d", 8, 0), b"x" * 11)
    assert cache.bytes == 0


@pytest.mark.parametrize(("cache", "columns"), [(10_000, [[0, 1, 2]]), (100, [[0], [2]])])
def test_a_band_is_computed_once_for_all_who_wait(cache: int, columns: list[list[int]]) -> None:
    async def run() -> None:
        made, pool = answering(cache)
        asks = [Asks(), Asks("b"), Asks("c")]
        waiting = [asyncio.create_task(made.chunk(ask, 1, j)) for ask, j in zip(asks, (0, 2, 0), strict=True)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        waiting[2].cancel()  # whoever goes away takes nothing from the others
        pool.may.set()
        assert await asyncio.gather(*waiting[:2]) == [b"\1\0" * 18, b"\1\2" * 18]
        assert [asked for i, asked in pool.asked if i == 1] == columns
        assert sum(ask.admitted for ask in asks) == len(columns)
        assert made.budget._buckets["a"][0] < 120 - 2.4
        assert not made._making
        kept = Asks("d")
        assert await made.chunk(kept, 1, 2) == b"\1\2" * 18  # type: ignore[arg-type]
        assert kept.admitted == 0
        assert made.kept.bytes <= cache

    asyncio.run(run())


def test_what_failed_is_asked_again() -> None:
    async def run() -> None:
        made, pool = answering(10_000)
        pool.fails = True
        pool.may.set()
        for _ in range(2):
            with pytest.raises(Refused, match="damaged"):
                await made.chunk(Asks(), 0, 0)  # type: ignore[arg-type]
        assert len(pool.asked) == 2
        pool.fails = False
        assert await made.chunk(Asks(), 0, 1) == b"\0\1" * 18  # type: ignore[arg-type]

    asyncio.run(run())


def test_few_requests_of_one_caller_wait_at_a_time() -> None:
    async def run() -> None:
        made, _ = answering(1)
        running: dict[str, int] = {"a": 0, "b": 0}
        go = asyncio.Event()

        async def ask(who: str) -> None:
            async with made.permit(who):
                running[who] += 1
                await go.wait()

        tasks = [asyncio.create_task(ask(who)) for who in "aaaaaaaab"]
        await asyncio.sleep(0.01)
        assert running == {"a": 4, "b": 1}
        go.set()
        await asyncio.gather(*tasks)
        assert running == {"a": 8, "b": 1}
        assert not made._permits

    asyncio.run(run())
