"""The question in numbers: what planning may look at.  Pure data, no graph, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartsFacts:
    """What a trial partition found (``engine.graph.partition``).

    Attributes:
        count: parts; largest: vertices of the largest one; border: of the largest border.
        sweep: updates' worth of time of one row of the matrix.
        prepare: updates made once, before any row.
        entries: numbers held all the time.
        seconds: what finding the parts took.
    """

    count: int
    largest: int
    border: int
    sweep: int
    prepare: int
    entries: int
    seconds: float


@dataclass(frozen=True)
class Statistics:
    """What planning saw of the graph.

    Attributes:
        vertices, arcs: an undirected edge is two arcs.
        least_degree, mean_degree, largest_degree: arcs out of a vertex; degree_deviation: their standard deviation.
        hops_across: arcs of some shortest path; the diameter in arcs is at least this, and seldom much more.
        parts: what a trial partition found; None where none was made, for the reason ``no_parts``.
    """

    vertices: int
    arcs: int
    least_degree: int
    mean_degree: float
    largest_degree: int
    degree_deviation: float
    hops_across: int
    parts: PartsFacts | None = None
    no_parts: str = ""


@dataclass(frozen=True)
class Problem:
    """Facts about a graph and what is asked of it.

    Attributes:
        n: vertices.
        arcs: stored arcs (an undirected edge counts twice).
        rows: how many sources are asked for; n for the whole matrix.
        directed, integral: as in ``storage.graph.graph.Graph``.
        unit: every arc weighs 1.
        decimal: weights are floats of few decimals, so that searches can add them as int32 (``engine.model.decimals``).
        min_weight, max_weight: over all arcs; 0 when there is none.
        smallest_weight: the smallest absolute weight above zero of a float graph; 0 for whole numbers.
        bound: proven bound on the absolute value of every finite distance.
        bound_proof: how ``bound`` was proven, in words.
        max_hops: at most that many arcs a path; None for no limit.
        targets: how many targets are asked for; None for all vertices.
        cutoff: the largest distance wanted; None for no limit.
        parts: what a trial partition found, device_parts: the same in parts that suit a GPU; None without one.
        hops: arcs from a vertex of highest degree to the one farthest from it; 0 where nobody has looked.
        no_parts: why there is none.
        half: of a checkpoint that is gone on from, only what lies above the diagonal is kept.
        permuted: all vertices are sources, or targets, but in an order of their own.
    """

    n: int
    arcs: int
    rows: int
    directed: bool
    integral: bool
    unit: bool
    min_weight: float
    max_weight: float
    smallest_weight: float
    bound: float
    bound_proof: str
    max_hops: int | None
    targets: int | None = None
    cutoff: float | None = None
    hops: int = 0
    decimal: bool = False
    parts: PartsFacts | None = None
    device_parts: PartsFacts | None = None
    no_parts: str = "no trial partition was made"
    half: bool = False
    permuted: bool = False

    @property
    def whole(self) -> bool:
        """Whether the result is the matrix itself, rows and columns in the order of the vertices."""
        return self.rows == self.columns == self.n > 0 and not self.permuted

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.n if self.targets is None else self.targets

    @property
    def negative(self) -> bool:
        """Whether some arc is negative."""
        return self.min_weight < 0


@dataclass(frozen=True)
class Device:
    """A GPU to solve on.

    Attributes:
        name: as the driver calls it.
        memory: bytes of its memory that may be used; total: bytes that it has.
        relax_rate: updates a second per working type.
        count: GPUs of this kind in the machine, numbered from this one's number on; only streaming uses several.
        bus_rate: bytes a second that cross its bus each way, both ways at once; bus_most: of all GPUs together.
        touch_seconds, lock_seconds: what a byte of host memory takes to be had, and to be locked for copies.
    """

    name: str
    memory: int
    total: int
    relax_rate: dict[str, float]
    count: int = 1
    bus_rate: float = 5.0e10
    bus_most: float = 1.06e11
    touch_seconds: float = 0.09 / 2**30
    lock_seconds: float = 0.08 / 2**30


@dataclass(frozen=True)
class Workers:
    """Workers of a Dask scheduler, all of one kind, which solve one graph together.

    Attributes:
        count: how many; device: what each has, ``cpu`` or ``cuda``; name: of that.
        threads: processors of each; memory: bytes for stripes and panels of the one that has least, the GPU's if any.
        relax_rate: updates a second of all together.
        panel_rate: bytes a second that a panel takes through the store, written by one and read by others.
        host_memory: bytes of host memory of the one that has least.
    """

    count: int
    device: str
    name: str
    threads: int
    memory: int
    relax_rate: dict[str, float]
    panel_rate: float = 4.0e9
    host_memory: int = 2**40


@dataclass(frozen=True)
class Machine:
    """What there is to solve with.

    Attributes:
        threads: processors to use.
        memory: bytes of host memory that this process may use in all, what it holds now included.
        resident: bytes of it that the process holds now, the graph among them.
        disk: bytes free where the store goes; None when the result stays in memory.
        relax_rate: updates a second of all threads, per working type, e.g. ``{"float32": 6e10}``.
        search_rate: arcs scanned a second of all threads by searches (heap work included).
        search_seconds: measured seconds a source on the very graph, all threads together; None if not tried.
        hop_search_seconds: the same of searches with one bit a source.
        write_rate: bytes a second written to the store.
        device_search_seconds: the same of the GPU.
        stream_rate: bytes a second that a working store reads and, at the same time, writes.
        stream_work: seconds of a processor that each of these bytes takes.
        stream_write: bytes a second of finished rows that it takes; None if not measured.
        cuda: the GPU that may be used, if any.
        no_cuda: why there is none, in a sentence.
        workers: who solves instead of this process, if anybody.
    """

    threads: int
    memory: int
    resident: int
    disk: int | None
    relax_rate: dict[str, float]
    search_rate: float
    write_rate: float
    search_seconds: float | None = None
    hop_search_seconds: float | None = None
    device_search_seconds: float | None = None
    stream_rate: float = 8.0e8
    stream_work: float = 4.0e-10
    stream_write: float | None = None
    cuda: Device | None = None
    no_cuda: str = "no GPU was looked for"
    workers: Workers | None = None


@dataclass(frozen=True)
class Options:
    """What the user asked for; field names are those of the command line and of ``POST /v1/jobs``.

    ``sources`` and ``targets`` are vertex indices (not labels), in the order of rows and columns, none twice; None for
    all.  Entries beyond ``cutoff``, a distance, are unreachable in the result.  Sizes are bytes.  ``executor`` is
    ``local``, this process, or ``dask``, the workers of the scheduler at the address ``scheduler``.
    """

    dtype: str = "auto"
    algorithm: str = "auto"
    device: str = "auto"
    memory: int | None = None
    device_memory: int | None = None
    max_hops: int | None = None
    sources: tuple[int, ...] | None = None
    threads: int | None = None
    targets: tuple[int, ...] | None = None
    cutoff: float | None = None
    executor: str = "local"
    scheduler: str | None = None
