"""The messages between driver and workers: small, frozen and picklable.  They never contain entries of the matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from engine.model.pace import PASSING, PROCESSORS, RESIDENT, Pace
from engine.model.plan import Plan
from engine.model.tiling import Tiling
from engine.rows.summary import PartialSummary
from storage.matrix.exchange import Marks, TileFile
from storage.matrix.format import FileMark
from storage.prepared.arrays_file import ArraysFile


@dataclass(frozen=True)
class WorkersJob:
    """The description of one run that every worker receives.

    Attributes:
        run: the unique name of the run.
        code: digest of the driver's program; a worker whose program has another digest refuses the run.
        exchange_dir: folder for new files; the same path on all nodes.
        device: the device that computes, ``cpu`` or ``cuda``.
    """

    run: str
    code: str
    exchange_dir: str
    device: str


@dataclass(frozen=True)
class DistributedJob(WorkersJob):
    """The description of one solve that every worker receives.

    Attributes:
        store: folder of the store in the making; the same path on all nodes.
        plan: the plan of the solve.
        sides: vertex indices of the rows and of the columns of the result, each as bytes of int64; None for all.
        compression: the compression of tiles.
        nonnegative: whether no entry is below zero, after any reduction by potentials.
        reduced: whether the weights are reduced by the potentials in ``potentials.npy`` next to the exchange folder.
        integral: whether all weights are whole numbers.
        tile: rows and columns of a tile.
        shape: rows and columns of the matrix.
    """

    store: str
    plan: Plan
    sides: tuple[bytes | None, bytes | None]
    compression: str
    nonnegative: bool
    reduced: bool
    integral: bool
    tile: tuple[int, int]
    shape: tuple[int, int]

    @property
    def n(self) -> int:
        """The number of vertices, in a solve in rounds."""
        return self.shape[1]

    @property
    def tiling(self) -> Tiling:
        """How the matrix is cut into stripes and pivot blocks; a stripe is as high as a pivot block is wide.

        Raises:
            ValueError: the plan has no rounds.
        """
        if self.plan.streaming is None:
            raise ValueError("the plan has no rounds")
        return self.plan.streaming

    @property
    def pace(self) -> Pace:
        """How far rounds overlap on a worker with the device of this job."""
        if self.device == "cpu":
            return PROCESSORS
        return PASSING if self.plan.tier == "store" else RESIDENT


@dataclass(frozen=True)
class StoredStripe:
    """The state of a stripe in the store.

    Attributes:
        level: a round that all entries of the stripe have reached; -1 if the stripe is not stored but must be made from
            the arcs.
        marks: sizes and checksums of its tiles.
        upper: whether the store has only entries on or right of the diagonal; entries left of the diagonal are
            transposed from the stripes above.
    """

    level: int
    marks: Marks
    upper: bool = False


@dataclass(frozen=True)
class PreparedJob(WorkersJob):
    """The description that every worker receives if a graph is prepared.

    Attributes:
        dtype: the working type.
        directed: whether there are tables in both directions.
        nonnegative: whether no arc is below zero.
        compact: whether only closed parts are wanted, and no tables.
        parts: a file in the exchange folder with starts, parents, ends and borders of the parts, and cuts of the spans.
        arcs: a file in the exchange folder with tails, heads and weights of the arcs of each span.
        chunks: for each array of the result, by name: its number of entries, and the number of entries of one of its
            chunks.
        fill: the value that pads the last chunk of an array.
        threads: number of processors that a worker uses; 0 for the number with which the worker was started.
        kept: the largest number of bytes of arrays that a worker keeps in memory for later tasks.
    """

    dtype: str
    directed: bool
    nonnegative: bool
    compact: bool
    parts: ArraysFile
    arcs: ArraysFile
    chunks: Mapping[str, tuple[int, int]]
    fill: object
    threads: int
    kept: int

    @property
    def results(self) -> Path:
        """The folder to which the driver moves the finished files of workers."""
        return Path(self.exchange_dir).parents[1]


@dataclass(frozen=True)
class SpanRequest:
    """A request to eliminate one span or to compute its tables.

    Attributes:
        span: the number of the span.
        eliminated: the files of finished eliminations that this work needs, by span.
        extended: the files of finished tables that this work needs, by span.
    """

    span: int
    eliminated: Mapping[int, ArraysFile] = field(default_factory=dict)
    extended: Mapping[int, ArraysFile] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkFile:
    """The durable file of a whole chunk of an array of the result; this file itself becomes part of the result.

    Attributes:
        array: the name of the array.
        number: the number of the chunk.
        name: the name of the file.
        dtype: the type of its entries.
        entries: the number of its entries.
        mark: the size and checksum of the file, as in the seal of a store.
        running: the checksums of the chunk's sections as hexadecimal digits of little-endian uint32; empty if there
            are none.
    """

    array: str
    number: int
    name: str
    dtype: str
    entries: int
    mark: FileMark
    running: str = ""


@dataclass(frozen=True)
class SpanResult:
    """The results of a worker for one span.

    Attributes:
        span: the number of the span.
        file: the file of the arrays that other spans need, and of pieces of chunks.
        chunks: the files of whole chunks of the result.
        pieces: for each piece of a chunk: the array of the result, the first entry there, and the number of the piece
            in ``file``.
    """

    span: int
    file: ArraysFile
    chunks: tuple[ChunkFile, ...] = ()
    pieces: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class TaskRequest:
    """The work of one task.

    Attributes:
        stripes: the stripes to work on, in this order.
        level: the round that the stripes should reach.
        panels: names of the files of closed panels that may be needed, by round.
        stored: the state in the store of each stripe that, as far as the driver knows, the worker does not hold.
        release: stripes to write and drop.
        rows: for a solve by rows, the first row of the result, and the row after the last.
        spans: when a graph is prepared, one request for each span (run of parts) to work on.
    """

    stripes: tuple[int, ...] = ()
    level: int = -1
    panels: Mapping[int, str] = field(default_factory=dict)
    stored: Mapping[int, StoredStripe] = field(default_factory=dict)
    release: frozenset[int] = frozenset()
    rows: tuple[int, int] = (0, 0)
    spans: tuple[SpanRequest, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    Attributes:
        levels: the last round that each stripe has reached on this worker.
        missing: stripes that the worker does not hold and whose state in the store was not in the request.
        updates: the number of updates made.
        seconds: the seconds that the updates took.
        files: the files of written tiles, by stripe.
        panel: the name of the panel's file, if a panel was written.
        parts: facts of finished rows, for the driver's summary.
        spans: the results for each span.
    """

    levels: Mapping[int, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    updates: int = 0
    seconds: float = 0.0
    files: Mapping[int, tuple[TileFile, ...]] = field(default_factory=dict)
    panel: str | None = None
    parts: tuple[PartialSummary, ...] = ()
    spans: tuple[SpanResult, ...] = ()


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's description of itself.

    Attributes:
        code: digest of its program.
        device: ``cpu`` or ``cuda``.
        name: the name of the processor or GPU.
        host: the name of its node.
        process: its process id.
        threads: the number of processors that it uses.
        memory: bytes for stripes and panels: of the GPU's memory if the worker has a GPU, else of host memory.
        relax_rate: updates per second in each measured type.
        host_memory: bytes of host memory, which a worker with a GPU uses for panels in transit.
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
class TaskFailure:
    """The failure of a task: the class of the error and its message, because not every exception can be pickled."""

    error: str
    message: str


class DriverStopped(Exception):  # noqa: N818
    """Raised in a task because the driver has asked tasks to stop; each stripe then has the state after some round."""


@cache
def code_digest() -> str:
    """Return a digest of all modules that solve and store; two versions of the program have different digests."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in ("engine", "storage"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
