"""Predicted costs of a solve over many workers: the width of the pivot block, bytes and seconds.

In rounds every worker relaxes its share of the stripes.  Meanwhile the next panel is closed and sent to all workers
through the exchange folder.  Relaxing overlaps well with closing and sending if the pivot block is neither too narrow
(many panels, short tasks) nor too wide (few stripes to distribute, and a single worker computes the product of the
pivot block and its panel).  Searches are distributed by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.model.pace import PASSING, PROCESSORS, RESIDENT, Pace
from engine.model.plan import Candidate, Phase
from engine.model.problem import Workers
from engine.model.tiling import Tiling
from engine.planning import cost_dijkstra, cost_partitioned, cost_search
from engine.planning.constants import (
    CLOSING_WAITS,
    CONTROL_SECONDS,
    FILL_RATE,
    IDLE_SECONDS,
    LOCKING_SECONDS,
    PANEL_DISK,
    PANEL_LOAD_ROWS,
    ROUND_TASKS,
    ROUNDS_EFFICIENCY,
    TASK_SECONDS,
)
from engine.planning.cost import Setting, candidate
from engine.planning.cost_streaming import ALGORITHM
from engine.planning.layouts import WORKER_WIDTHS, LayoutGrid, whole_width


def over_workers(setting: Setting) -> Iterator[Candidate]:
    """Yield the candidates that workers can execute."""
    problem, workers = setting.problem, setting.machine.workers
    if workers is None:
        return
    if problem.whole and problem.max_hops is None and problem.cutoff is None:
        yield in_rounds(setting, workers)
    device = workers.device == "cuda"
    ways = (
        (
            *(cost_search.estimate, cost_search.estimate_bfs, cost_search.estimate_johnson),
            cost_partitioned.estimate_device,
        )
        if device
        else (cost_dijkstra.estimate, cost_dijkstra.estimate_johnson, cost_partitioned.estimate)
    )
    for way in ways:
        yield _shared_out(way(_of_one(setting, workers)), workers)


def in_rounds(setting: Setting, workers: Workers) -> Candidate:
    """Estimate rounds with the width of the pivot block that is predicted to be fastest."""
    whole = whole_width(setting.problem.n)
    grid = LayoutGrid("host", [w for w in WORKER_WIDTHS if w < whole] or [whole])
    found = [_rounds(setting, workers, tiling) for tiling in grid.layouts()]
    # if no width fits, the narrowest width is estimated, and the refusal says how much memory it needs
    found = [c for c in found if c.device_memory <= workers.memory and lacking(c, setting) is None] or found[:1]
    return min(found, key=lambda c: c.seconds)


def lacking(candidate: Candidate, setting: Setting) -> tuple[int, int] | None:
    """Return the bytes of host memory that each worker needs for rounds and the bytes that it has; None if it has
    enough.
    """
    workers, tiling = setting.machine.workers, candidate.streaming
    if workers is None or tiling is None:
        return None
    n, pace = setting.problem.n, _pace(setting, workers, tiling)
    panel = min(tiling.width, n) * n * setting.kind.itemsize
    cpu = workers.device == "cpu"
    needed, there = (pace.workspace * panel, workers.memory) if cpu else (pace.pieces * panel, workers.host_memory)
    return (needed, there) if needed > there else None


def capacity(tiling: Tiling, n: int, itemsize: int, memory: int, pace: Pace) -> int:
    """Return the number of stripes that a worker can keep besides its workspace.

    Args:
        tiling: the layout.
        n: vertices.
        itemsize: bytes of an entry.
        memory: bytes of the worker's memory.
        pace: how far rounds overlap, which determines the workspace.
    """
    return max(0, memory // max(1, min(tiling.height, n) * n * itemsize) - pace.workspace)


def _pace(setting: Setting, workers: Workers, tiling: Tiling) -> Pace:
    """Return how far rounds overlap: on GPUs as far as possible if all stripes still fit."""
    if workers.device == "cpu":
        return PROCESSORS
    n, share = setting.problem.n, -(-tiling.rounds(setting.problem.n) // workers.count)
    fits = capacity(tiling, n, setting.kind.itemsize, workers.memory, RESIDENT) >= share
    return RESIDENT if fits else PASSING


@dataclass(frozen=True)
class Times:
    """Seconds that each kind of work takes in all rounds together; all kinds overlap, except for the store.

    Attributes:
        work: products, on the worker that has the most stripes.
        panels: closing the panels one after the other while earlier panels are sent; if another worker closed the
            previous panel, closing waits until that panel has arrived.
        orders: the scheduler's work of managing tasks.
        store: reading and writing, in every round, the stripes that do not fit in memory.
        bytes: bytes read and written for these stripes.
        start: allocating memory for panels, before the first round.
        streamed: number of stripes of a worker that do not fit in its memory.
    """

    work: float
    panels: float
    orders: float
    store: float
    bytes: int
    start: float = 0.0
    streamed: int = 0

    @property
    def seconds(self) -> float:
        """The seconds of all rounds: a round takes as long as its longest kind of work."""
        return self.start + max(self.work, self.panels, self.orders) + self.store


def times(setting: Setting, workers: Workers, tiling: Tiling) -> Times:
    """Predict the times of all rounds.

    Args:
        setting: problem, machine and type.
        workers: the workers.
        tiling: the layout, with the width of the pivot block.
    """
    n, size, device = setting.problem.n, setting.kind.itemsize, workers.device == "cuda"
    count, width = tiling.rounds(n), min(tiling.width, n)
    share = -(-count // workers.count)
    efficiency = 1.0 if device else ROUNDS_EFFICIENCY / (1 + PANEL_LOAD_ROWS / width)
    rate = workers.relax_rate[setting.kind.name] / workers.count * efficiency
    stripe, panel = width * width * n / rate, width * n * size
    passed, handed = panel / workers.panel_rate, min(count, workers.count)
    closing = (width**3 + width * width * n) / rate
    # seconds from one panel to the next where the same worker closes both
    own = closing + stripe + 2 * CONTROL_SECONDS + (CLOSING_WAITS * width * width if device else 0.0)
    pace = _pace(setting, workers, tiling)
    streamed = max(0, share - capacity(tiling, n, size, workers.memory, pace))
    moved = 2 * streamed * workers.count * panel * count
    return Times(
        # if tasks overlap, closing a panel takes no extra time, because the panel's own stripe is not relaxed;
        # otherwise each worker closes its share of the panels in addition to its products
        work=count * (share * stripe + IDLE_SECONDS[pace] + (closing / workers.count if pace.share == 1 else 0.0)),
        panels=(count - handed) * max(own, passed) + handed * (own + 2 * passed + 2 * CONTROL_SECONDS),
        orders=count * workers.count * ROUND_TASKS[workers.device] * TASK_SECONDS,
        store=moved / setting.machine.stream_rate,
        bytes=int(moved),
        start=min(pace.pieces, count) * panel * LOCKING_SECONDS,
        streamed=streamed,
    )


def _rounds(setting: Setting, workers: Workers, tiling: Tiling) -> Candidate:
    n, size, machine = setting.problem.n, setting.kind.itemsize, setting.machine
    share, panel = -(-tiling.rounds(n) // workers.count), min(tiling.width, n) * n * size
    device, pace = workers.device == "cuda", _pace(setting, workers, tiling)
    took = times(setting, workers, tiling)
    passing = took.streamed > 0 or pace is PASSING
    relax = Phase("relax", took.seconds, bytes=took.bytes, updates=n**3)
    fill = Phase("ingest", setting.matrix / FILL_RATE / workers.count, bytes=setting.matrix)
    write = Phase("finish", setting.store / machine.write_rate, bytes=setting.store)
    return candidate(
        setting,
        ALGORITHM,
        (fill, relax, write),
        memory=0,
        disk=max(int(PANEL_DISK * setting.matrix), 3 * panel),
        device=workers.device,
        tier="store" if passing else "device" if device else "host",
        device_memory=(pace.workspace + share - took.streamed) * panel if device else 0,
        streaming=tiling,
        workers=workers.count,
    )


def _of_one(setting: Setting, workers: Workers) -> Setting:
    """Return ``setting`` with the machine of one worker alone."""
    machine, count = setting.machine, workers.count
    alone = replace(
        machine,
        threads=workers.threads,
        memory=workers.memory if workers.device == "cpu" else machine.memory,
        relax_rate={name: rate / count for name, rate in workers.relax_rate.items()},
        search_rate=machine.search_rate / machine.threads * workers.threads,
    )
    return replace(setting, machine=alone)


def _shared_out(one: Candidate, workers: Workers) -> Candidate:
    """Return the candidate ``one`` of a single worker, changed so that all workers share its rows in batches.

    Only searches and sweeps are shared; every worker repeats the phases that come before them.
    """
    shared = {"search", "sweep"}
    phases = tuple(
        replace(phase, seconds=phase.seconds / workers.count) if phase.name in shared else phase for phase in one.phases
    )
    return replace(
        one, phases=phases, seconds=sum(phase.seconds for phase in phases), workers=workers.count, from_targets=False
    )
