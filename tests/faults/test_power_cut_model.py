"""Tests power cuts in the model of the record and the tiles: a cut may lose any changes that were not synced.

The processes are those of ``test_store_tier_model``.  The model holds the disk as processes see it, and also its
durable part: the bytes of synced files, and the names in synced folders.  After every step that changes a file, the
test draws some of the disks that a power cut could leave, and checks the law on them: the record never promises more of
a tile than the tile holds.  Some processes end by a power cut, and the next process continues from one of these disks.

CI takes 300 steps; ``./dev test --long tests/faults/test_power_cut_model.py`` takes 5,000.  A failure names the seed,
and the steps until then.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.model.tiling import FINISHED, LOWERED, WALKS
from engine.streaming import checkpoint
from storage.errors import StorageFailed
from storage.files import atomic, direct
from storage.matrix.file_pool import FilePool
from storage.matrix.working import WorkingMatrix
from tests.faults.test_store_tier_model import KIND, OWN, N, Process, World, find_record, world
from tests.oracle import decode

#: Disks that are drawn after each step.
DRAWN = 3
#: What a file holds while it is written over.
TORN = b"torn"


@dataclass(eq=False)
class Content:
    """What a file holds, and what of it has reached the disk for good; None for a folder."""

    now: bytes | None = None
    safe: bytes = b""


#: The files that some names lead to from now on; None for no file.
Names = dict[Path, Content | None]


class Platter:
    """What has reached the disk for good, and what a power cut may leave."""

    def __init__(self, base: Path, world: World, chance: random.Random) -> None:
        self.base, self.world, self.chance = base, world, chance
        self.tiles = base / "store" / "distances" / "c"
        self.lock = threading.RLock()
        self.now: Names = {}
        self.safe: Names = {}
        self.pending: list[tuple[Path, Names]] = []  # changes of names, each with the folder whose sync keeps it
        self.left, self.looks, self.broken = 10**9, 0, list[str]()

    # ---- what processes do ------------------------------------------------------------------------------------------

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for place, name, before, after in (
            (atomic, "write_file", None, self.written),
            (atomic, "overwrite_file", self.overwriting, self.overwritten),
            (atomic, "take_place", None, self.exchanged),
            (atomic, "sync_path", None, self.synced),
            (direct, "settle_file", None, self.synced),
            (Path, "replace", None, self.renamed),
            (Path, "unlink", None, self.unlinked),
            (shutil, "rmtree", None, self.cleared),
        ):
            patch.setattr(place, name, self.watching(getattr(place, name), before, after))

    def watching(
        self, real: Callable[..., Any], before: Callable[..., None] | None, after: Callable[..., None]
    ) -> Callable[..., Any]:
        def call(path: Path | str, *given: Any, **more: Any) -> Any:
            path = Path(path)
            if path != self.base and self.base not in path.parents:
                return real(path, *given, **more)
            with self.lock:
                self.left -= after not in (
                    self.unlinked,
                    self.cleared,
                )  # removing ends even where a disk takes no bytes
                if self.left < 0 and after not in (self.unlinked, self.cleared):
                    raise OSError(5, "the disk has stopped")
                if before is not None:
                    before(path, *given)
                found = real(path, *given, **more)
                after(path, *given)
                self.look()
            return found

        return call

    def change(self, keeper: Path, names: Names) -> None:
        """Change names in a folder; a folder that the model does not know yet is new in its own."""
        if keeper != self.base and self.now.get(keeper) is None:
            self.change(keeper.parent, {keeper: Content()})
        self.now.update(names)
        self.pending.append((keeper, names))

    def written(self, path: Path, *_: object) -> None:
        """Any bytes of it may be on the disk."""
        found = self.now.get(path)
        if found is None:
            self.change(path.parent, {path: Content(path.read_bytes())})
        else:
            found.now = path.read_bytes()

    def overwriting(self, path: Path, *_: object) -> None:
        """Neither what the file held, nor what it will hold, is there meanwhile."""
        found = self.now.get(path)
        if found is not None:
            found.safe = found.now = TORN
            self.look()

    def overwritten(self, path: Path, *_: object) -> None:
        self.written(path)
        self.synced(path)

    def exchanged(self, file: Path, path: Path) -> None:
        self.change(path.parent, {file: self.now.get(path), path: self.now[file]})

    def renamed(self, file: Path, path: Path) -> None:
        found = self.now.get(file)
        self.change(path.parent, {file: None, path: found or Content(path.read_bytes(), path.read_bytes())})

    def unlinked(self, path: Path, *_: object) -> None:
        if self.now.get(path) is not None:
            self.change(path.parent, {path: None})

    def cleared(self, path: Path, *_: object) -> None:
        if path == self.base:
            self.look()
            self.forget()
        for name in [name for name, found in self.now.items() if found is not None and path in (name, *name.parents)]:
            self.change(name.parent, {name: None})

    def synced(self, path: Path) -> None:
        if path.is_dir():
            for keeper, names in self.pending:
                if keeper == path:
                    self.safe.update(names)
            self.pending = [some for some in self.pending if some[0] != path]
            for made in path.iterdir():  # a folder in which nothing was written yet
                if made.is_dir() and self.now.get(made) is None:
                    self.now[made] = self.safe[made] = Content()
        elif (found := self.now.get(path)) is not None:
            found.safe = found.now

    def forget(self) -> None:
        """Know of nothing; the next process begins with an empty folder of another number."""
        self.now, self.safe, self.pending = {}, {}, []

    # ---- what a power cut leaves ------------------------------------------------------------------------------------

    def drawn(self) -> dict[Path, bytes]:
        """One of the disks that a power cut could leave now: its files."""
        names, share = dict(self.safe), self.chance.random()
        for _, some in self.pending:
            if self.chance.random() < share:
                names.update(some)
        there = {self.base, *(name for name, found in names.items() if found is not None)}
        return {
            name: found.now if self.chance.random() < 0.5 else found.safe
            for name, found in names.items()
            if found is not None
            and found.now is not None
            and all(parent in there for parent in name.parents if self.base in parent.parents)
        }

    def look(self) -> None:
        for _ in range(DRAWN if self.left >= 0 else 0):
            self.looks += 1
            self.judge(self.drawn())

    def judge(self, files: dict[Path, bytes]) -> None:
        """Whether every tile holds what the record says of it."""
        data = files.get(self.base / "record.json")
        if data is None:
            return
        record, row = json.loads(data)["record"], 0
        if record["kind"] not in ("rounds", "passes"):
            return
        height, width, last = record["height"], record["width"], -(-N // record["width"]) - 1
        for level in [level for level, count in record["levels"] for _ in range(count)]:
            passed = (level + 1) * width
            if record["kind"] == "passes":
                passed = {WALKS: OWN, LOWERED: (row // width + 1) * width, FINISHED: N}.get(level, 0)
            if level >= 0:
                half = record["symmetric"] and level <= last
                for first in range(row, min(N, row + height), 64):
                    self.judge_tile(files.get(self.tiles / str(first // 64) / "0"), record, first, passed, half=half)
            row += height

    def judge_tile(self, data: bytes | None, record: dict[str, Any], first: int, vertices: int, *, half: bool) -> None:
        rows, which = slice(first, min(N, first + 64)), f"the tile of row {first}: {record['levels']}"
        if data is None or len(data) != 64 * N * 4 + 4:
            self.broken.append(f"no whole file of {which}")
            return
        right, least = (self.world.after(record["potentials"], k)[rows] for k in (vertices, N))
        found = decode(np.frombuffer(data[:-4], KIND.dtype).reshape(64, N)[: len(right)])
        found[found > KIND.largest_signed] = np.inf
        counts = np.triu(np.ones_like(found, np.bool_), first) if half else np.ones_like(found, np.bool_)
        if (counts & ((found > right) | (found < least))).any():
            self.broken.append(f"wrong entries in {which}")

    def cut(self, process: Process) -> None:
        """End a process by a power cut: what it does from now on is not there."""
        with self.lock:
            files, self.left = self.drawn(), -1
        with suppress(StorageFailed, OSError):
            process.die()
        self.judge(files)
        shutil.rmtree(self.base, ignore_errors=True)
        self.forget()
        for path, data in files.items():
            if path.parent in (self.base, self.tiles) or path.parent.parent == self.tiles:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        for path in self.base.rglob("*"):
            found = Content() if path.is_dir() else Content(path.read_bytes(), path.read_bytes())
            self.now[path] = self.safe[path] = found
        self.left = 10**9


def run_model(seed: int, steps: int, place: Path) -> Counter[str]:
    """Steps from a seed; AssertionError, with the steps, once the law is broken."""
    chance, path = random.Random(seed), place / "d.zarr"
    where = world(seed % 2 == 0)
    platter = Platter(path.with_name(f".{path.name}.working"), where, random.Random(seed + 1))
    process, told, facts = None, list[str](), Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        platter.watch(patch)
        for _ in range(steps):
            try:
                if process is None:
                    platter.left = 10**9
                    process = Process(path, chance, where)
                    told.append(f"begin {process.told}")
                    platter.left = chance.randint(0, 25) if chance.random() < 0.4 else 10**9
                else:
                    act = chance.choice([process.relax] * 6 + [process.commit] * 2 + [process.mirror])
                    told.append(act())
                    end = chance.random()
                    if end < 0.06:
                        process, _ = process.die(), told.append("die")
                    elif end < 0.18:
                        process, _ = platter.cut(process), told.append("power cut")
                        facts["cut"] += 1
            except (StorageFailed, OSError) as error:
                told.append(f"stopped: {error}")
                facts["stopped"] += 1
                platter.left = 10**9
                process = process.die() if process else None
            record = find_record(platter)
            facts.update(steps=1, recorded=bool(record and max(level for level, _ in record["levels"]) >= 0))
            assert not platter.broken, f"seed {seed}: {platter.broken[0]}\n" + "\n".join(told)
        platter.left = 10**9
        if process is not None:
            process.die()
    facts["looks"] = platter.looks
    return facts


@pytest.fixture(autouse=True)
def commits_only_when_told(monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 9e9)


def run_models(place: Path, seeds: range, steps: int) -> Counter[str]:
    facts = Counter[str]()
    for seed in seeds:
        (place / str(seed)).mkdir()
        facts += run_model(seed, steps, place / str(seed))
    print(dict(facts))
    return facts


def test_no_power_cut_leaves_a_record_that_says_more_than_its_tiles_hold(tmp_path):
    facts = run_models(tmp_path, range(8), 40)
    assert facts["steps"] == 320
    assert min(facts["cut"], facts["stopped"]) >= 5
    assert facts["recorded"] >= 60


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_power_cut_leaves_a_record_that_says_more_than_its_tiles_hold_in_many_steps(tmp_path):
    facts = run_models(tmp_path, range(1000, 1100), 50)
    assert facts["steps"] == 5000
    assert facts["recorded"] >= 1000


@pytest.mark.parametrize(
    ("place", "name"), [(FilePool, "settle"), (WorkingMatrix, "_sync_new"), (WorkingMatrix, "_lower_first")]
)
def test_the_model_finds_a_step_that_is_left_out(tmp_path, monkeypatch, place, name):
    monkeypatch.setattr(place, name, lambda *_: None)
    with pytest.raises(AssertionError, match="the tile of row"):
        run_models(tmp_path, range(200, 300), 40)
