"""What driver and workers tell each other: small, frozen, picklable.  Numbers of the matrix never go this way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from engine.model.pace import PASSING, PROCESSORS, RESIDENT, Pace
from engine.model.plan import Plan
from engine.model.tiling import Streaming
from engine.rows.summary import PartialSummary
from storage.matrix.exchange import Marks, TileFile


@dataclass(frozen=True)
class Job:
    """One solve, as every worker sees it.

    Attributes:
        run: its name; no two are alike.
        code: of the program that the driver runs; a worker of another one refuses.
        store, room: folders of the store in the making and for new files; the same paths on all nodes.
        plan: what is followed.
        sides: vertex indices of rows and columns of the result as bytes of int64; None for all vertices.
        compression: of tiles.
        nonnegative: no entry is below zero, potentials taken off.
        reduced: ``potentials.npy`` beside the room makes the weights so; integral: weights are whole numbers.
        tile: rows and columns of a tile; shape: of the matrix.
        device: what computes, ``cpu`` or ``cuda``.
    """

    run: str
    code: str
    store: str
    room: str
    plan: Plan
    sides: tuple[bytes | None, bytes | None]
    compression: str
    nonnegative: bool
    reduced: bool
    integral: bool
    tile: tuple[int, int]
    shape: tuple[int, int]
    device: str

    @property
    def n(self) -> int:
        """Vertices, of a solve in rounds."""
        return self.shape[1]

    @property
    def streaming(self) -> Streaming:
        """How the matrix is cut: a stripe is as high as a pivot block is wide."""
        if self.plan.streaming is None:
            raise ValueError("the plan has no rounds")
        return self.plan.streaming

    @property
    def pace(self) -> Pace:
        """How far rounds overlap."""
        if self.device == "cpu":
            return PROCESSORS
        return PASSING if self.plan.tier == "store" else RESIDENT


@dataclass(frozen=True)
class Stored:
    """Where a worker finds a stripe in the store.

    Attributes:
        level: the round that it is of at least; -1 where there is nothing and it is made from the arcs.
        marks: of its tiles.
        upper: only what lies on or right of the diagonal counts; the rest is to be put together from the other stripes.
    """

    level: int
    marks: Marks
    upper: bool = False


@dataclass(frozen=True)
class Order:
    """What one task is to do.

    Attributes:
        stripes: which, in this order.
        level: the round to bring them to.
        panels: names of files of closed panels, by round: those that may be needed.
        stored: where to find stripes that the driver believes not to be with this worker.
        leave: stripes that are written and not held any longer.
        rows: of the result, the first and the one after the last, of a solve by rows.
    """

    stripes: tuple[int, ...] = ()
    level: int = -1
    panels: Mapping[int, str] = field(default_factory=dict)
    stored: Mapping[int, Stored] = field(default_factory=dict)
    leave: frozenset[int] = frozenset()
    rows: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Report:
    """What came of it.

    Attributes:
        levels: the round that each stripe is of now, here.
        missing: stripes that are not here, and of which nothing was said where to find them.
        updates: products made; seconds: that took.
        files: tiles written, by stripe.
        panel: name of the panel's file, where one was written.
        parts: facts of finished rows.
    """

    levels: Mapping[int, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    updates: int = 0
    seconds: float = 0.0
    files: Mapping[int, tuple[TileFile, ...]] = field(default_factory=dict)
    panel: str | None = None
    parts: tuple[PartialSummary, ...] = ()


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself.

    Attributes:
        code: of its program.
        device: ``cpu`` or ``cuda``; name: of the processor or GPU.
        host, process: where it runs.
        threads: processors it uses; memory: bytes for stripes and panels, the GPU's where it has one.
        host_memory: bytes of host memory, where it has a GPU for panels on their way.
        relax_rate: updates a second in the types that were measured.
    """

    code: str
    device: str
    name: str
    host: str
    process: int
    threads: int
    memory: int
    relax_rate: Mapping[str, float]
    host_memory: int = 2**40


@dataclass(frozen=True)
class Failure:
    """A task that could not be done: the class of the error and its message, as errors do not all travel."""

    error: str
    message: str


class Stopped(Exception):  # noqa: N818
    """The driver wants running tasks to end; stripes are between two rounds, which is as good as before."""


@cache
def code_digest() -> str:
    """What tells two versions of the program apart: a digest of all that solves and stores."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in ("engine", "storage"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
