"""What a solve over many workers would take: which pivot block, how many bytes, how many seconds.  Pure.

In rounds every worker relaxes its share of the stripes; closing a panel, and bringing it to all others through the
store, hide behind that where the pivot block is neither too narrow (many panels, tasks too short) nor too wide (few
stripes to share out, and the panel's own product is one worker's).  Searches are shared out by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from engine.model.pace import PASSING, PROCESSORS, RESIDENT, Pace
from engine.model.plan import Candidate, Phase
from engine.model.problem import Workers
from engine.model.tiling import GRAIN, Streaming
from engine.planning import cost_dijkstra, cost_johnson, cost_partitioned, cost_search
from engine.planning.cost import INGEST_RATE, OVERHEAD, Setting
from engine.planning.cost_streaming import ALGORITHM, EFFICIENCY, ROWS

#: Widths of a pivot block.
WIDTHS: Final = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
#: Seconds that the driver, the scheduler and a worker take for a task, one after the other.
CONTROL: Final = 0.01
#: Seconds of a round in which a worker has nothing to do, panels that it closes apart.  Measured: four GPUs in rounds
#: of 2,048 where tasks overlap, two in rounds of 2,048 and 4,096 where they did not.
IDLE: Final = {PROCESSORS: 0.01, RESIDENT: 0.015, PASSING: 0.06}
#: Seconds that a GPU takes longer to close a panel, by the square of its width: each of many small kernels, one after
#: the other, waits for a block of the products beside it.
WAITS: Final = 1.3e-8
#: Seconds that a byte of page-locked memory takes to be had, beside the first stripes.
PIECE: Final = 7.0e-11
#: Seconds that the scheduler takes for a task, whoever it is for, and tasks of a worker in a round.
TASK: Final = 0.002
TASKS: Final = {"cpu": 3, "cuda": 4}
#: Share of the matrix that panels may take in the store before there is a commit.
PANELS: Final = 0.25


def over_workers(setting: Setting) -> Iterator[Candidate]:
    """The ways that workers can go."""
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
        else (cost_dijkstra.estimate, cost_johnson.estimate, cost_partitioned.estimate)
    )
    for way in ways:
        yield _shared_out(way(_of_one(setting, workers)), workers)


def in_rounds(setting: Setting, workers: Workers) -> Candidate:
    """Rounds in the pivot block that is predicted to be fastest."""
    whole = -(-setting.problem.n // GRAIN) * GRAIN
    widths = [w for w in WIDTHS if w < whole] or [whole]
    found = [_rounds(setting, workers, Streaming("host", w, w)) for w in widths]
    # the narrowest one says what is needed where none fits
    found = [c for c in found if c.device_memory <= workers.memory and lacking(c, setting) is None] or found[:1]
    return min(found, key=lambda c: c.seconds)


def lacking(candidate: Candidate, setting: Setting) -> tuple[int, int] | None:
    """Bytes of its own host memory that each worker needs for rounds, and has, where that is less."""
    workers, streaming = setting.machine.workers, candidate.streaming
    if workers is None or streaming is None:
        return None
    n, pace = setting.problem.n, _pace(setting, workers, streaming)
    panel = min(streaming.width, n) * n * setting.kind.itemsize
    cpu = workers.device == "cpu"
    needed, there = (pace.workspace * panel, workers.memory) if cpu else (pace.pieces * panel, workers.host_memory)
    return (needed, there) if needed > there else None


def capacity(streaming: Streaming, n: int, itemsize: int, memory: int, pace: Pace) -> int:
    """Stripes that a worker can keep, beside those that are only worked on."""
    return max(0, memory // max(1, min(streaming.height, n) * n * itemsize) - pace.workspace)


def _pace(setting: Setting, workers: Workers, streaming: Streaming) -> Pace:
    """How far rounds overlap: on GPUs as far as may be, where all stripes have room beside that."""
    if workers.device == "cpu":
        return PROCESSORS
    n, share = setting.problem.n, -(-streaming.rounds(setting.problem.n) // workers.count)
    fits = capacity(streaming, n, setting.kind.itemsize, workers.memory, RESIDENT) >= share
    return RESIDENT if fits else PASSING


@dataclass(frozen=True)
class Times:
    """Seconds of all rounds: what each part would take alone; they overlap, but for the store.

    Attributes:
        work: the products of the worker that has most of them.
        panels: closing one after the other, while those before are brought to all; when the next one is another
            worker's, it waits for that.
        orders: the scheduler's own work.
        store: stripes for which there is no memory, read and written in every round; bytes: of those.
        start: memory for panels, before the first of them.
        streamed: stripes of a worker for which there is no memory.
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
        """All rounds: a round is no shorter than its longest part."""
        return self.start + max(self.work, self.panels, self.orders) + self.store


def times(setting: Setting, workers: Workers, streaming: Streaming) -> Times:
    """What rounds in this pivot block take."""
    n, size, device = setting.problem.n, setting.kind.itemsize, workers.device == "cuda"
    count, width = streaming.rounds(n), min(streaming.width, n)
    share = -(-count // workers.count)
    efficiency = 1.0 if device else EFFICIENCY / (1 + ROWS / width)
    rate = workers.relax_rate[setting.kind.name] / workers.count * efficiency
    stripe, panel = width * width * n / rate, width * n * size
    passed, handed = panel / workers.panel_rate, min(count, workers.count)
    closing = (width**3 + width * width * n) / rate
    # from one panel to the next, where both are one worker's
    own = closing + stripe + 2 * CONTROL + (WAITS * width * width if device else 0.0)
    pace = _pace(setting, workers, streaming)
    streamed = max(0, share - capacity(streaming, n, size, workers.memory, pace))
    moved = 2 * streamed * workers.count * panel * count
    return Times(
        # where tasks overlap a panel is closed while others are relaxed, and its own stripe is not relaxed by it
        work=count * (share * stripe + IDLE[pace] + (closing / workers.count if pace.share == 1 else 0.0)),
        panels=(count - handed) * max(own, passed) + handed * (own + 2 * passed + 2 * CONTROL),
        orders=count * workers.count * TASKS[workers.device] * TASK,
        store=moved / setting.machine.stream_rate,
        bytes=int(moved),
        start=min(pace.pieces, count) * panel * PIECE,
        streamed=streamed,
    )


def _rounds(setting: Setting, workers: Workers, streaming: Streaming) -> Candidate:
    n, size, machine = setting.problem.n, setting.kind.itemsize, setting.machine
    share, panel = -(-streaming.rounds(n) // workers.count), min(streaming.width, n) * n * size
    device, pace = workers.device == "cuda", _pace(setting, workers, streaming)
    took = times(setting, workers, streaming)
    passing = took.streamed > 0 or pace is PASSING
    relax = Phase("relax", took.seconds, bytes=took.bytes, updates=n**3)
    fill = Phase("ingest", setting.matrix / INGEST_RATE / workers.count, bytes=setting.matrix)
    write = Phase("finish", setting.store / machine.write_rate, bytes=setting.store)
    return Candidate(
        algorithm=ALGORITHM,
        device=workers.device,
        tier="store" if passing else "device" if device else "host",
        memory=machine.resident + OVERHEAD,
        device_memory=(pace.workspace + share - took.streamed) * panel if device else 0,
        disk=setting.store + max(int(PANELS * setting.matrix), 3 * panel),
        seconds=fill.seconds + relax.seconds + write.seconds,
        phases=(fill, relax, write),
        streaming=streaming,
        workers=workers.count,
    )


def _of_one(setting: Setting, workers: Workers) -> Setting:
    """What one worker sees."""
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
    """The same with rows dealt out in batches; what comes before the rows every worker does for itself."""
    shared = {"search", "sweep"}
    phases = tuple(
        replace(phase, seconds=phase.seconds / workers.count) if phase.name in shared else phase for phase in one.phases
    )
    return replace(
        one, phases=phases, seconds=sum(phase.seconds for phase in phases), workers=workers.count, from_targets=False
    )
