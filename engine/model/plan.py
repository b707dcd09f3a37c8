"""The plan: the frozen outcome of planning, shown before any work is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from engine.model.problem import Statistics
from engine.model.tiling import Streaming


@dataclass(frozen=True)
class Phase:
    """One phase of a solve with its predicted cost."""

    name: str
    seconds: float
    bytes: int = 0
    updates: int = 0


@dataclass(frozen=True)
class Candidate:
    """One algorithm as the planner saw it.

    ``feasible`` says whether it could do the job here; ``rejected`` says why it was not chosen, with numbers, and is
    None for the chosen one.  ``memory`` is the host's, ``device_memory`` the GPU's; ``tier`` is where the matrix lies
    while it is worked on (``device``, ``host`` or ``store``), ``streaming`` how it is cut, where it is streamed.
    ``turned``: searches go from the targets over the arcs turned round, because the targets are fewer than the sources.
    ``batch``: most rows that are searched or swept before they leave; 0 where rows do not come in batches.
    ``workers``: of a Dask scheduler; 0 where this process solves.
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
    streaming: Streaming | None = None
    turned: bool = False
    batch: int = 0
    workers: int = 0


@dataclass(frozen=True)
class Plan:
    """What will be done, on what, in which type, and why; every rejected candidate comes with its numbers.

    Attributes:
        algorithm: name, e.g. ``dijkstra``.
        dtype: working and stored type.
        device: ``cpu`` or ``cuda``; device_reason: why, where there was something to decide, in a sentence.
        threads: processors used.
        shape: rows and columns of the matrix.
        memory: projected peak of host memory, bytes; device_memory: of the GPU's; disk: bytes of the finished store.
        seconds: predicted wall time.
        tier: where the matrix lies while it is worked on: ``device``, ``host`` or ``store``.
        streaming: how it is cut into stripes and rounds; None where it is not streamed.
        reason: why this one, in a sentence with numbers.
        phases: the predicted phases, in order.
        candidates: all that were considered, the chosen one first.
        statistics: the graph as planning saw it.
        cutoff: the largest distance in the result; turned, batch, workers: as in :class:`Candidate`.
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
    streaming: Streaming | None = None
    phases: tuple[Phase, ...] = ()
    candidates: tuple[Candidate, ...] = field(default=())
    cutoff: float | None = None
    turned: bool = False
    batch: int = 0
    workers: int = 0
    statistics: Statistics | None = None

    def to_dict(self) -> dict[str, object]:
        """The plan as JSON types."""
        plan = asdict(self)
        if self.streaming is not None:
            plan["streaming"]["rounds"] = self.streaming.rounds(self.shape[1])
        return plan
