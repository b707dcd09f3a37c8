"""The input of planning: the problem, the machine and the user's options.  Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from storage import arguments
from storage.errors import InvalidRequest
from storage.semirings import MIN_PLUS, SEMIRINGS

_Any = TypeVar("_Any")


def changed(one: _Any, **fields: Any) -> _Any:
    """Return a copy of a frozen dataclass with new values of some fields; ``dataclasses.replace`` takes eight times as
    long.

    Args:
        one: an object whose class has no slots, cached properties or ``__post_init__``, such as a plan.
        fields: the values.
    """
    made = object.__new__(type(one))
    made.__dict__.update(one.__dict__, **fields)
    return made


@dataclass(frozen=True)
class PartsFacts:
    """The sizes and costs of a partition, from a trial partition (``engine.graph.partition``).

    Attributes:
        count: number of parts.
        largest: vertices of the largest part.
        border: vertices of the largest border.
        sweep: time of one row of the matrix, expressed in updates.
        prepare: updates that are made once, before any row is computed.
        entries: entries held in memory during the whole solve.
        seconds: time that finding the parts took.
        table: entries of the tables for paths in one direction.
        above: the share of ``prepare`` that computes the lengths to all parts above, in updates.
        closed: entries of the lengths inside parts.
    """

    count: int
    largest: int
    border: int
    sweep: int
    prepare: int
    entries: int
    seconds: float
    table: int = 0
    above: int = 0
    closed: int = 0


@dataclass(frozen=True)
class Statistics:
    """The shape of a graph in numbers.

    Attributes:
        vertices: number of vertices.
        arcs: number of arcs; an undirected edge is two arcs.
        least_degree: smallest number of arcs out of a vertex.
        mean_degree: mean number of arcs out of a vertex.
        largest_degree: largest number of arcs out of a vertex.
        degree_deviation: standard deviation of the number of arcs out of a vertex.
        hops_across: number of arcs of the longest of the shortest paths that were looked at; the diameter in arcs is at
            least this, and seldom much more.  None for short solves that are planned without this number.
        parts: sizes and costs from a trial partition; None if none was made.
        no_parts: why no trial partition was made.
    """

    vertices: int
    arcs: int
    least_degree: int
    mean_degree: float
    largest_degree: int
    degree_deviation: float
    hops_across: int | None
    parts: PartsFacts | None = None
    no_parts: str = ""


@dataclass(frozen=True)
class Problem:
    """What planning needs to know about a graph, and the part of its distance matrix that is wanted.

    Attributes:
        n: vertices.
        arcs: stored arcs (an undirected edge counts twice).
        rows: number of sources; n for the whole matrix.
        directed: False for an undirected graph, whose matrix is symmetric.
        integral: whether all weights are whole numbers.
        unit: whether every arc weighs 1.
        min_weight: the smallest weight; 0 without arcs.
        max_weight: the largest weight; 0 without arcs.
        smallest_weight: the smallest absolute weight above zero of a float graph; 0 for whole numbers.
        bound: proven bound on the absolute value of every finite distance.
        bound_proof: how ``bound`` was proven, in words.
        max_hops: the largest number of arcs of a path; None for no limit.
        targets: number of targets; None for all vertices.
        cutoff: the largest distance wanted; None for no limit.
        hops: arcs from a vertex of highest degree to the vertex farthest from it; 0 if this was not computed.
        across: arcs of the longest shortest path that was looked at (``Statistics.hops_across``); 0 if not computed.
        decimal: whether weights are floats of few decimals, which searches can add as int32
            (``engine.model.decimals``).
        parts: sizes and costs from a trial partition; None without one.
        device_parts: sizes and costs of a partition into parts that suit a GPU; None without a trial partition.
        no_parts: why there is no trial partition.
        half: whether the solve continues a checkpoint that holds only the entries above the diagonal.
        permuted: whether all vertices are sources, or all are targets, but not in ascending order.
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
    across: int = 0
    decimal: bool = False
    parts: PartsFacts | None = None
    device_parts: PartsFacts | None = None
    no_parts: str = "no trial partition was made"
    half: bool = False
    permuted: bool = False

    @property
    def whole(self) -> bool:
        """Whether the result is the whole matrix, with rows and columns in the order of the vertices."""
        return self.rows == self.columns == self.n > 0 and not self.permuted

    @property
    def columns(self) -> int:
        """The number of columns of the result."""
        return self.n if self.targets is None else self.targets

    @property
    def negative(self) -> bool:
        """Whether some arc is negative."""
        return self.min_weight < 0


@dataclass(frozen=True)
class Device:
    """A GPU to solve on.

    Attributes:
        name: the CUDA driver's name for it.
        memory: bytes of its memory that may be used.
        total: bytes of its memory.
        relax_rate: updates per second for each working type.
        count: number of GPUs of this kind in the machine, with consecutive device numbers; only streaming uses several.
        bus_rate: bytes per second over its bus in each direction, while both directions are used.
        bus_most: the limit of ``bus_rate`` for all GPUs together.
        touch_seconds: seconds to allocate and touch a byte of host memory.
        lock_seconds: seconds to page-lock a byte of host memory for copies.
        free: bytes of its memory that a larger budget could use; None if that is not known.
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
    free: int | None = None


@dataclass(frozen=True)
class Workers:
    """Workers of a Dask scheduler, all of one kind, which solve one graph together.

    Attributes:
        count: number of workers.
        device: ``cpu`` or ``cuda``.
        name: name of the device.
        threads: processors of each worker.
        memory: bytes for stripes and panels, on the GPU if there is one; of the worker with the least memory.
        relax_rate: updates a second of all workers together, for each working type.
        panel_rate: bytes per second at which one worker sends a panel to all others through the exchange folder.
        host_memory: bytes of host memory of the worker with the least host memory.
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
    """The processors, memory, disk and devices to solve with, and their rates.

    Attributes:
        threads: processors to use.
        memory: bytes of host memory that this process may use in all, including what it holds now.
        resident: bytes of ``memory`` that the process holds now, including the graph.
        disk: free bytes on the store's disk; None where the result stays in memory.
        relax_rate: updates a second of all threads for each working type, e.g. ``{"float32": 6e10}``.
        search_rate: arcs per second that searches on all threads scan (heap work included).
        write_rate: bytes per second written to the store.
        stream_rate: bytes per second read from the unfinished store of a streamed solve while as many are written.
        stream_work: processor seconds for each byte that is read from this store or written to it.
        stream_write: bytes per second at which the unfinished store of a streamed solve takes finished rows; None if
            not measured.
        cuda: the GPU that may be used; None without one.
        no_cuda: why there is no GPU, in a sentence.
        workers: the workers that solve instead of this process; None where this process solves.
        free: bytes of host memory that a larger budget could use; None if that is not known.
        thread_bytes: bytes of ``resident`` for each thread, which are not needed with fewer threads.
    """

    threads: int
    memory: int
    resident: int
    disk: int | None
    relax_rate: dict[str, float]
    search_rate: float
    write_rate: float
    stream_rate: float = 8.0e8
    stream_work: float = 4.0e-10
    stream_write: float | None = None
    cuda: Device | None = None
    no_cuda: str = "no GPU was looked for"
    workers: Workers | None = None
    free: int | None = None
    thread_bytes: int = 0


def with_threads(machine: Machine, threads: int) -> Machine:
    """Return the machine with another number of threads; rates of all threads together change in proportion."""
    if threads == machine.threads:
        return machine
    share = threads / machine.threads
    return changed(
        machine,
        threads=threads,
        resident=machine.resident + (threads - machine.threads) * machine.thread_bytes,
        relax_rate={name: rate * share for name, rate in machine.relax_rate.items()},
        search_rate=machine.search_rate * share,
    )


@dataclass(frozen=True)
class Trials:
    """Seconds per source that trial searches of this graph took on this machine; None where they were not measured.

    Attributes:
        search: on the processors, with all threads.
        hop_search: breadth-first on the processors, with one bit per source.
        device_search: on the GPU; infinite if these searches were given up.
        found: rows that these trials have computed; a solve by searches on the processors reuses them.
    """

    search: float | None = None
    hop_search: float | None = None
    device_search: float | None = None
    found: int = 0


@dataclass(frozen=True)
class Options:
    """The user's options; the command line and ``POST /v1/jobs`` use the same names.

    Attributes:
        dtype: working type, or ``auto``.
        algorithm: name, or ``auto``.
        device: ``cpu``, ``cuda`` or ``auto``.
        memory: the largest number of bytes of host memory to use; None for all free memory.
        device_memory: the largest number of bytes of the GPU's memory to use; None for all free memory.
        max_hops: the largest number of arcs of a path; None for no limit.
        sources: vertex indices (not labels) of the rows, in order, none twice; None for all vertices.
        threads: the largest number of processors to use; None for all.
        targets: vertex indices (not labels) of the columns, in order, none twice; None for all vertices.
        cutoff: a distance; entries beyond it are unreachable in the result.  None for no limit.
        executor: ``local`` for this process, or ``dask`` for the workers of a Dask scheduler.
        scheduler: address of the scheduler.
        also: quantities of the graph that are summed along the shortest paths, each into an array of the same store.
        semiring: which path is best: ``min-plus`` for the shortest, ``max-min`` for the widest, ``min-max`` for the
            path over the lowest pass, ``max-times`` for the most reliable, ``lor-land`` for any path; values then say
            whether there is a path.
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
    also: tuple[str, ...] = ()
    semiring: str = MIN_PLUS

    def __post_init__(self) -> None:
        """Check types, names and bounds.  Raises InvalidRequest, which names the option."""
        from engine.model.dtypes import WORK_TYPES  # imported here, because that module imports this one

        arguments.check_choice("dtype", self.dtype, ("auto", *WORK_TYPES))
        arguments.check_choice("device", self.device, ("auto", "cpu", "cuda"))
        arguments.check_choice("executor", self.executor, ("local", "dask"))
        arguments.check_choice("semiring", self.semiring, SEMIRINGS)
        arguments.check_texts(scheduler=self.scheduler, algorithm=self.algorithm)  # planners check the algorithm's name
        plain: dict[str, object] = {"also": arguments.check_names("also", self.also)}
        for name in ("memory", "device_memory", "max_hops", "threads"):
            if (whole := getattr(self, name)) is not None:
                plain[name] = arguments.check_whole(name, whole, 1)
        for name in ("sources", "targets"):
            if (vertices := getattr(self, name)) is not None:
                plain[name] = arguments.check_indices(name, vertices)
        if self.cutoff is not None:
            plain["cutoff"] = arguments.check_distance("cutoff", self.cutoff)
        vars(self).update(plain)


def given_options(options: Options | None) -> Options:
    """Return the options that a caller passed, or the default options if the caller passed None.

    Raises:
        InvalidRequest: ``options`` is neither None nor an :class:`Options`.
    """
    if options is not None and not isinstance(options, Options):
        raise InvalidRequest(f"options must be an Options, found {arguments.shown(options)}", field="options")
    return options or Options()


def refuse_also(options: Options, what: str, instead: str) -> None:
    """Refuse quantities where nothing is summed along paths.

    Args:
        options: the options.
        what: the operation that sums nothing, for the message.
        instead: how to get sums, for the message.

    Raises:
        InvalidRequest: the options ask for quantities.
    """
    if options.also:
        raise InvalidRequest(f"{what} sums nothing along paths, and also asks for {', '.join(options.also)}; {instead}",
                             field="also")  # fmt: skip


def refuse_semiring(options: Options, what: str) -> None:
    """Refuse another semiring than min-plus where only distances are understood.

    The tables of measures, near pairs and betweenness do not name a semiring, so a width in them would be read as a
    distance.  Their cutoffs, sums and counts of paths also have a meaning for lengths only.

    Args:
        options: the options.
        what: the operation that takes distances only, for the message.

    Raises:
        InvalidRequest: the options ask for another semiring.
    """
    if options.semiring != MIN_PLUS:
        raise InvalidRequest(
            f"{what} takes distances (min-plus) only, and semiring {options.semiring} is asked for; a matrix of that "
            "semiring is solved on processors, with executor local (apsp solve, apsp.solve_to_store, apsp.solve), and "
            "apsp query STORE nearest gives the targets with the best values",
            field="semiring",
        )


def over_workers(options: Options) -> bool:
    """Return whether the solve runs on workers of a Dask scheduler instead of in this process.

    Raises:
        InvalidRequest: the executor contradicts the scheduler.
    """
    if options.executor == "local" and options.scheduler is not None:
        raise InvalidRequest("a scheduler is used with executor dask only", field="scheduler")
    return options.executor == "dask"
