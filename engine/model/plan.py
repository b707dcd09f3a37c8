"""The plan of a solve: the immutable result of planning, which users see before any work is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from engine.model.algorithms import by_rows
from engine.model.problem import Statistics
from engine.model.tiling import Tiling
from storage.semirings import MIN_PLUS


@dataclass(frozen=True, init=False)
class Phase:
    """One phase of a solve with its predicted cost.

    Planning creates about twenty phases.  So the class has an ``__init__`` of its own, which takes half the time of the
    one that a frozen dataclass generates.
    """

    name: str
    seconds: float
    bytes: int
    updates: int

    def __init__(self, name: str, seconds: float, bytes: int = 0, updates: int = 0) -> None:  # noqa: A002 - the field
        self.__dict__.update(name=name, seconds=seconds, bytes=bytes, updates=updates)


@dataclass(frozen=True)
class Candidate:
    """One algorithm with its predicted costs.

    Attributes:
        algorithm, memory, seconds, phases, device, device_memory, tier, streaming, batch, workers, devices: as in
            :class:`Plan`.
        disk: bytes of disk.
        feasible: whether the candidate can do the job on this machine.
        rejected: why it was not selected, with numbers; None for the selected candidate.
        from_targets: searches begin at the targets and follow the arcs backwards, because the targets are fewer than
            the sources; stored as ``turned``.
    """

    algorithm: str
    memory: int
    disk: int
    seconds: float
    phases: tuple[Phase, ...] = ()
    feasible: bool = True
    rejected: str | None = None
    device: str = "cpu"
    device_memory: int = 0
    tier: str = "host"
    streaming: Tiling | None = None
    from_targets: bool = False
    batch: int = 0
    workers: int = 0
    devices: int = 1

    def to_dict(self) -> dict[str, object]:
        """Return the candidate as JSON types."""
        return _stored(asdict(self))


@dataclass(frozen=True)
class Plan:
    """A plan: the algorithm, device and type of a solve, why they were selected, and the numbers of every rejected
    candidate.

    Attributes:
        algorithm: name, e.g. ``dijkstra``.
        dtype: working and stored type.
        device: ``cpu`` or ``cuda``.
        threads: processors used.
        shape: rows and columns of the matrix.
        memory: projected peak of host memory, bytes.
        disk: bytes of the finished store.
        seconds: predicted wall time.
        reason: why this algorithm was selected: a sentence with numbers.
        dtype_reason: why this type is safe, in a sentence.
        max_hops: the largest number of arcs of a path; None for no limit.
        device_reason: why this device was selected, in a sentence; empty if there was only one device to select.
        device_memory: projected peak of the GPU's memory, bytes.
        tier: where the matrix lies during the solve: ``device``, ``host`` or ``store``.
        streaming: how the matrix is cut into stripes and rounds; None where it is not streamed.
        phases: the predicted phases, in order.
        candidates: all candidates that were considered, the selected one first.
        cutoff: the largest distance in the result; None for no limit.
        from_targets: whether searches begin at the targets and follow the arcs backwards.
        batch: the number of rows that are searched or swept before they are written; 0 where rows are not in batches.
        workers: number of workers of a Dask scheduler; 0 where this process solves.
        devices: number of GPUs of this process that share a streamed matrix; 1 where it is not streamed, or on the CPU.
        statistics: the shape of the graph in numbers.
        task: fingerprints of the graph and of the request (``engine.planning.binding``); not stored.  Empty for a plan
            that is bound to no task.
        semiring: name of the semiring, as in ``Options``; stored only where it is not min-plus.
        sums: how quantities are summed along the paths: the uses of the kernels for it, without the type of the
            distances (``engine.execution.kernel_list``); not stored.  Empty if nothing is summed.
        counted: if fractions are searched in whole units, the type of these numbers, and how many units make 1; not
            stored.  None where rows are searched in the type ``dtype``.
    """

    algorithm: str
    dtype: str
    device: str
    threads: int
    shape: tuple[int, int]
    memory: int
    disk: int
    seconds: float
    reason: str
    dtype_reason: str
    max_hops: int | None = None
    device_reason: str = ""
    device_memory: int = 0
    tier: str = "host"
    streaming: Tiling | None = None
    phases: tuple[Phase, ...] = ()
    candidates: tuple[Candidate, ...] = field(default=())
    cutoff: float | None = None
    from_targets: bool = False
    batch: int = 0
    workers: int = 0
    devices: int = 1
    statistics: Statistics | None = None
    task: tuple[str, str] | tuple[()] = ()
    semiring: str = MIN_PLUS
    sums: tuple[str, ...] = ()
    counted: tuple[str, int] | None = None

    @property
    def searched(self) -> str:
        """The type in which rows are searched."""
        return self.dtype if self.counted is None else self.counted[0]

    @property
    def execution(self) -> str:
        """How this process solves into a store: ``streamed``, ``by-rows`` (finished rows are kept) or ``whole``."""
        return "streamed" if self.streaming is not None else "by-rows" if by_rows(self.algorithm) else "whole"

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON types."""
        plan = asdict(self)
        del plan["task"], plan["sums"], plan["counted"]
        if self.semiring == MIN_PLUS:
            del plan["semiring"]
        plan["candidates"] = tuple(_stored(candidate) for candidate in plan["candidates"])
        if self.streaming is not None:
            plan["streaming"]["rounds"] = self.streaming.rounds(self.shape[1])
        return _stored(plan)


def _stored(fields: dict[str, Any]) -> dict[str, object]:
    """Return ``fields`` under the names that stores and job records have always used."""
    return {"turned" if name == "from_targets" else name: value for name, value in fields.items()}
