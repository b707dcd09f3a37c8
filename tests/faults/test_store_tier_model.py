"""Tests a law about the record and the tiles with a model, for any order of writes and any instant of a failure.

The law: at every instant, the record promises no more of a tile than the tile holds.  So after every write of a file
the test checks the disk as the next process would find it.  Each process continues from the files that the previous one
has left: in the store tier, over host memory, over workers (who leave tiles to be adopted), or with final distances
from memory; in any layout, in rounds or passes, over the whole matrix or half of it (undirected), with true or reduced
lengths (weights of both signs).  A process advances stripes in any order, commits or not, and dies.  The tiles get the
entries that rounds and passes would compute; a textbook Floyd-Warshall computes them.

CI takes 300 steps; ``./dev test --long tests/faults/test_store_tier_model.py`` takes 5,000.  A failure names the seed,
and the steps until then.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.graph.potentials import find_potentials, reduced_weights
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling
from engine.rows.dense import fill_weights
from engine.rows.summary import SummarySink
from engine.streaming import checkpoint, passes
from engine.streaming.checkpoint import Journal, take_up_whole
from engine.streaming.finishing_tier import FinishingHostTier
from engine.streaming.forms import fingerprint
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.loading import Loading
from engine.streaming.progress_record import progress_of, take_up
from engine.streaming.store_tier import StoreTier, tiles_of
from storage.errors import StorageFailed
from storage.files import atomic
from storage.graph.graph import build_graph
from storage.matrix import working_dir
from storage.matrix.file_pool import FilePool
from storage.matrix.frame import MatrixSpec
from storage.matrix.shared import GuestMatrix
from storage.matrix.working import WorkingMatrix, open_working
from tests.oracle import decode

N = 200
KIND = WORK_TYPES["int32"]
CUTS = [(64, 64), (64, 128), (64, 192), (128, 128), (128, 256)]
GARBAGE = -12345
#: Stands for as many vertices as the number of each row, and one: what a row of the level WALKS has passed through.
OWN = -1


def rounds_of(weights: np.ndarray) -> dict[int, np.ndarray]:
    """The matrix, with infinity, after so many vertices as may be passed through."""
    d, found, own = decode(weights), {}, np.empty((N, N))
    for k in range(N):
        if k % 64 == 0:
            found[k] = d.copy()
        d = np.minimum(d, d[:, k, None] + d[k])
        own[k] = d[k]
    return {**found, N: d, OWN: own}


class World:
    """The graph, what is right, and the disk."""

    def __init__(self, *, directed: bool) -> None:
        rng = np.random.default_rng(11)
        tails, heads = rng.integers(0, N, (2, 2 * N))
        height = rng.integers(0, 400, N) * directed
        weights = rng.integers(1, 300, 2 * N) + height[tails] - height[heads]
        self.graph = build_graph(tails, heads, weights, n=N, directed=directed)[0]
        self.potentials = find_potentials(self.graph)
        lower = replace(self.graph, weights=reduced_weights(self.graph, self.potentials))
        self.mark = fingerprint(self.potentials)
        self.graphs = {None: self.graph, self.mark: lower}
        self.right = {}
        for mark, graph in self.graphs.items():
            matrix = np.empty((N, N), KIND.dtype)
            fill_weights(graph, KIND, 0, matrix)
            self.right[mark] = rounds_of(matrix)

    def after(self, mark: str | None, vertices: int) -> np.ndarray:
        return self.right[mark][min(vertices, N)]

    def rows(self, mark: str | None, vertices: int, first: int, last: int) -> np.ndarray:
        """Rows as they are stored."""
        found = self.after(mark, vertices)[first:last]
        return np.where(np.isinf(found), KIND.unreachable, found).astype(KIND.dtype)


@cache
def world(directed: bool) -> World:
    return World(directed=directed)


class Disk:
    """Stops for good at some write of a tile, a record or anything else; after every write the law is looked at."""

    def __init__(self, path: Path, world: World) -> None:
        self.world = world
        self.base, self.left, self.lock = path.with_name(f".{path.name}.working"), 10**9, threading.Lock()
        self.broken: list[str] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for place, name in ((FilePool, "write"), (atomic, "write_file"), (working_dir, "_put_record")):
            patch.setattr(place, name, self.writing(getattr(place, name)))
        patch.setattr(WorkingMatrix, "_adopt_tile", self.writing(WorkingMatrix._adopt_tile))

    def writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            with self.lock:
                self.left -= 1
                if self.left < 0:
                    raise OSError(5, "the disk has stopped")
            found = real(*given, **more)
            self.look()
            return found

        return call

    def look(self) -> None:
        """Whether every tile holds what the record says of it."""
        with suppress(FileNotFoundError):
            record = json.loads((self.base / "record.json").read_text())["record"]
            if record["kind"] in ("rounds", "passes"):
                self.compare(record)

    def compare(self, record: dict[str, Any]) -> None:
        row, last = 0, -(-N // record["width"]) - 1
        for level in [level for level, count in record["levels"] for _ in range(count)]:
            end = min(N, row + record["height"])
            passed = (level + 1) * record["width"]
            if record["kind"] == "passes":
                passed = {WALKS: OWN, LOWERED: (row // record["width"] + 1) * record["width"], FINISHED: N}.get(
                    level, 0
                )
            if level >= 0:
                self.compare_rows(record, row, end, passed, half=record["symmetric"] and level <= last)
            row = end

    def compare_rows(self, record: dict[str, Any], first: int, end: int, vertices: int, *, half: bool) -> None:
        right, least = (self.world.after(record["potentials"], k)[first:end] for k in (vertices, N))
        tiles = self.base / "store" / "distances" / "c"
        for i in range(first // 64, -(-end // 64)):
            data = np.frombuffer((tiles / str(i) / "0").read_bytes()[:-4], KIND.dtype).reshape(64, N)
            rows = slice(i * 64, min(N, i * 64 + 64))
            own = slice(rows.start - first, rows.stop - first)
            found = decode(data[: rows.stop - rows.start])
            # sums over what cannot be reached lie below the sentinel until they are settled
            found[found > KIND.largest_signed] = np.inf
            counts = np.triu(np.ones_like(found, np.bool_), rows.start) if half else np.ones_like(found, np.bool_)
            wrong = counts & ((found > right[own]) | (found < least[own]))
            if wrong.any():
                self.broken.append(
                    f"{int(wrong.sum())} entries of rows {rows.start} to {rows.stop - 1}: {record['levels']}"
                )


class Process:
    """One process that takes up what is there."""

    def __init__(self, path: Path, chance: random.Random, world: World) -> None:
        self.world = world
        self.tier = chance.choice(["store", "host", "dask", "memory"])
        cut = chance.choice(CUTS)
        directed = world.graph.directed
        half = self.tier in ("store", "host") and not directed and chance.random() < 0.6
        mark = world.mark if self.tier in ("host", "dask") and directed and chance.random() < 0.5 else None
        cut = (cut[1], cut[1]) if self.tier == "dask" else cut
        passes = self.tier in ("store", "host") and not half and chance.random() < 0.7
        self.streaming = Tiling("host", *cut, symmetric=half, passes=passes)
        kind = " half" if half else " passes" if passes else ""
        self.told = f"{self.tier} {cut}{kind}{' reduced' if mark else ''}"
        self.mark, self.chance = mark, chance
        self.last = self.streaming.last(N)
        plan = SimpleNamespace(algorithm="blocked-floyd-warshall", dtype="int32", streaming=None, counted=None)
        plan.to_dict = lambda: {"algorithm": plan.algorithm}
        self.writer = open_working(path, self.world.graph, MatrixSpec("int32", int(KIND.unreachable)), resume=True)
        self.upper = bool((self.writer.record() or {}).get("symmetric"))
        self.journal = Journal(self.writer, plan, dict)  # type: ignore[arg-type]
        getattr(self, f"begin_{self.tier}")(plan)

    # ---- to begin ---------------------------------------------------------------------------------------------------

    def begin_store(self, plan: Any) -> None:
        weights = partial(fill_weights, self.world.graph, KIND)
        self.store = StoreTier(
            self.journal, self.streaming, weights=weights, observe=lambda *_: None, monitor=Monitor(),
            buffers=list(np.empty((6, self.streaming.height, N), KIND.dtype)),
        )  # fmt: skip
        self.given = self.store._levels.copy()  # they are written in the background

    def begin_host(self, plan: Any) -> None:
        levels = take_up(self.journal, self.streaming, N, potentials=self.mark)
        matrix, slow = np.full((N, N), GARBAGE, KIND.dtype), int(levels.sum()) % 2 == 0

        def fill(first: int, last: int) -> None:
            stripe = first // self.streaming.height
            if slow:
                time.sleep(0.002 * (stripe % 3))
            if levels[stripe] < 0:
                fill_weights(self.world.graphs[self.mark], KIND, first, matrix[first:last])
                return
            for i, j, out in tiles_of(self.writer, first, matrix[first:last], self.streaming.left(stripe)):
                self.writer.read_tile(i, j, out)

        passing = self.streaming.passes and self.mark is None
        order = passes.order(levels, self.streaming, N) if passing else ()
        self.loading = Loading(
            self.streaming, (N, 4 * N), fill=fill, lock=lambda *_: None, band=64, order=order, threads=2
        )  # fmt: skip
        self.loading.begin()
        self.loading.wait(Monitor(), [] if passing else range(self.streaming.stripes(N)))
        if passing:
            collector = SummarySink(self.writer, np.arange(N), N, integral=True)
            host = FinishingHostTier(matrix, self.streaming, self.journal, collector, Monitor(), threads=2)
            host.begin(levels, self.loading)
            self.host: KeptHostTier = host
            return
        self.host = KeptHostTier(matrix, self.streaming, self.journal)
        self.host.level[:] = levels

    def begin_dask(self, plan: Any) -> None:
        self.levels = take_up(self.journal, self.streaming, N, potentials=self.mark, joined=True)
        self.uppers = [self.upper and level >= 0 for level in self.levels]
        self.room = self.writer.make_exchange_dir()
        self.guest = GuestMatrix(self.room.parent.parent / "store", self.room, self.writer.grid, "int32", "none")

    def begin_memory(self, plan: Any) -> None:
        take_up_whole(self.journal, plan)

    # ---- to work ----------------------------------------------------------------------------------------------------

    def relax(self) -> str:
        stripe = self.chance.randrange(self.streaming.stripes(N))
        first, last = self.streaming.rows(stripe, N)
        if self.tier == "memory":
            self.writer.write(first, 0, self.world.rows(None, N, first, last))
            return f"distances of {first} to {last}"
        if self.tier == "store":
            level = int(self.given[stripe])
        elif self.tier == "host":
            level = int(self.host.level[stripe])
        else:
            level = int(self.levels[stripe])
        k = min(self.last, level + self.chance.randint(1, 2))
        if k <= level:
            return "nothing"
        passed = (k + 1) * self.streaming.width
        if self.streaming.passes:
            k = max(k, LOWERED)
            passed = N if k == FINISHED else (first // self.streaming.width + 1) * self.streaming.width
        better = self.world.rows(self.mark, passed, first, last)
        getattr(self, f"relax_{self.tier}")(stripe, k, better)
        return f"stripe {stripe} to round {k}"

    def relax_store(self, stripe: int, k: int, better: np.ndarray) -> None:
        rows = self.store.take(stripe).result()
        self.improve(stripe, rows, better)
        self.store.give(k, stripe, rows)
        self.given[stripe] = k

    def relax_host(self, stripe: int, k: int, better: np.ndarray) -> None:
        rows = self.host.take(stripe).result()
        self.improve(stripe, rows, better)
        self.host.give(k, stripe, rows)

    def improve(self, stripe: int, rows: np.ndarray, better: np.ndarray) -> None:
        left = self.streaming.left(stripe)
        rows[:, left:] = np.minimum(rows[:, left:], better[:, left:])
        rows[:, :left] = GARBAGE  # what a GPU leaves of another stripe

    def relax_dask(self, stripe: int, k: int, better: np.ndarray) -> None:
        first, last = self.streaming.rows(stripe, N)
        files = [
            self.guest.write_tile(i, 0, better[i * 64 - first : i * 64 - first + 64])
            for i in range(first // 64, -(-last // 64))
        ]
        self.writer.adopt(self.room, files)
        self.levels[stripe], self.uppers[stripe] = k, False

    def commit(self) -> str:
        """Or copy, as far as the disk goes."""
        if self.tier == "store":
            self.store.save()
        elif self.tier == "host":
            if isinstance(self.host, FinishingHostTier) and self.chance.random() < 0.5:
                for write in self.host._writes:
                    write.result()
            self.host._copy_all()
            if self.host._failure is not None:
                raise self.host._failure
        elif self.tier == "dask" and not any(self.uppers) and (self.levels >= 0).any():
            self.journal.commit(progress_of(self.levels, self.streaming))
        return "commit"

    def mirror(self) -> str:
        """The last pass of the store tier, where all stripes are of the last round."""
        if self.tier == "store" and (self.store._levels >= self.last).all():
            self.store.finish(self.streaming)
            return "mirror"
        return "nothing"

    def die(self) -> None:
        if self.tier == "store":
            self.store.__exit__()
        if self.tier == "host":
            self.host.__exit__()
            self.loading.__exit__()
        self.writer.leave()


def run_model(seed: int, steps: int, folder: Path) -> Counter[str]:
    """Steps from a seed; AssertionError, with the steps, once the law is broken."""
    chance, path = random.Random(seed), folder / "d.zarr"
    where = world(seed % 2 == 0)
    disk, process, told, facts = Disk(path, where), None, list[str](), Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch)
        for _ in range(steps):
            try:
                if process is None:
                    disk.left = 10**9
                    process = Process(path, chance, where)
                    told.append(f"begin {process.told}")
                    disk.left = chance.randint(0, 12) if chance.random() < 0.4 else 10**9
                else:
                    act = chance.choice([process.relax] * 6 + [process.commit] * 2 + [process.mirror])
                    told.append(act())
                    if chance.random() < 0.08:
                        process, _ = process.die(), told.append("die")
            except (StorageFailed, OSError) as error:
                told.append(f"stopped: {error}")
                facts["stopped"] += 1
                process = process.die() if process else None
            record = find_record(disk)
            facts.update(steps=1, recorded=bool(record and max(level for level, _ in record["levels"]) >= 0))
            assert not disk.broken, f"seed {seed}: {disk.broken[0]}\n" + "\n".join(told)
        if process is not None:
            process.die()
    return facts


def find_record(disk: Disk) -> dict[str, Any] | None:
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads((disk.base / "record.json").read_text())["record"]
        return found
    return None


@pytest.fixture(autouse=True)
def commits_only_when_told(monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 9e9)


def test_no_record_says_more_than_its_tiles_hold(tmp_path):
    facts = Counter[str]()
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        facts += run_model(seed, 25, tmp_path / str(seed))
    assert facts["steps"] == 300
    assert facts["stopped"] >= 10
    assert facts["recorded"] >= 60


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_record_says_more_than_its_tiles_hold_in_many_steps(tmp_path):
    facts = Counter[str]()
    for seed in range(1000, 1100):
        (tmp_path / str(seed)).mkdir()
        facts += run_model(seed, 50, tmp_path / str(seed))
    assert facts["steps"] == 5000
    assert facts["recorded"] >= 1000
