"""Prints a page with the planner's predictions for many GPUs: python -m benchmarks.scaling > docs/scaling.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Machine, Problem, Workers
from engine.planning.constants import TASK_SECONDS
from engine.planning.cost import Setting
from engine.planning.cost_distributed import Times, in_rounds, times

SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
GPUS = (1, 8, 64, 1024)
#: Rates measured on NVIDIA H200s: updates a second in float32 (docs/out-of-core.md); bytes a second of a host's disk;
#: pairs a second of batched searches, n = 65,536 and four arcs for each vertex (docs/sparse.md); bytes a second of a
#: panel that passes through one host's memory (docs/many-nodes.md).
RATE, DISK, PAIRS, PANEL = 1.64e13, 2.6e9, 65_536**2 / 0.43, 4.0e9
MEMORY = 136 * 2**30
#: Assumptions: GPUs of a host, bytes a second of its network, dollars for a GPU in an hour, bytes of a host's memory.
EACH, NETWORK, PRICE, HOST = 8, 25e9, 3.0, 2**41
ITEM = 4


def setting_of(n: int, gpus: int) -> tuple[Setting, Workers]:
    """Return the planner's input for a directed graph with four arcs for each vertex, in float32, on ``gpus`` GPUs."""
    hosts = math.ceil(gpus / EACH)
    panel_rate = min(PANEL, NETWORK / min(gpus, EACH))
    rate, host = {"float32": gpus * RATE}, HOST // EACH
    workers = Workers(gpus, "cuda", "H200", 16, MEMORY, rate, panel_rate, host)
    machine = Machine(16, 2**40, 2**30, None, {"float32": 1e11}, 1e9, hosts * DISK, stream_rate=hosts * DISK)
    problem = Problem(n, 4 * n, n, True, False, False, 1.0, 100.0, 1.0, 1e6, "", None)
    return Setting(problem, replace(machine, workers=workers), WORK_TYPES["float32"], n * n * ITEM), workers


def first_to_break(took: Times, write: float) -> str:
    """Return the name of the resource that takes longest; ``write`` is the seconds of writing the result."""
    longest = {
        "arithmetic": took.work,
        "panels": took.panels,
        "scheduler": took.orders,
        "memory": took.store,
        "result": write,
    }
    return max(longest, key=lambda name: longest[name])


def row(n: int, gpus: int) -> tuple[str, ...]:
    """Return one line of the table."""
    setting, workers = setting_of(n, gpus)
    found = in_rounds(setting, workers)
    assert found.streaming is not None
    took = times(setting, workers, found.streaming)
    write = setting.store / setting.machine.write_rate
    panels = found.streaming.rounds(n) * found.streaming.width * n * ITEM * gpus
    searched, seconds = max(n * n / PAIRS / gpus, write), took.seconds + write
    return (
        *(f"{n:,}", f"{gpus:,}", f"{found.streaming.width:,}", span(took.seconds), span(write)),
        *(size(took.bytes + panels), first_to_break(took, write), money(gpus * seconds)),
        *(span(searched), money(gpus * searched)),
    )


def span(seconds: float) -> str:
    """Return seconds as text with a suitable unit."""
    for limit, unit in ((60, "s"), (3600, "min"), (86400, "h"), (86400 * 365, "days")):
        if seconds < limit:
            return f"{seconds / {'s': 1, 'min': 60, 'h': 3600, 'days': 86400}[unit]:.3g} {unit}"
    return f"{seconds / 86400 / 365:.3g} years"


def size(bytes_: float) -> str:
    """Return bytes as text with a suitable unit."""
    unit = min(4, int(math.log10(max(1.0, bytes_)) // 3) - 2) if bytes_ >= 1e9 else 0
    return f"{bytes_ / 10 ** (6 + 3 * unit):.3g} {('MB', 'GB', 'TB', 'PB', 'EB')[unit]}"


def money(gpu_seconds: float) -> str:
    """Return the price of seconds of a GPU as text, in dollars."""
    found = gpu_seconds / 3600 * PRICE
    return f"${found:,.0f}" if found >= 10 else f"${found:.2f}"


HEAD = (
    "n", "GPUs", "pivot block", "rounds", "result to the store", "through store and network", "breaks first", "cost",
    "searches", "cost of those",
)  # fmt: skip

INTRODUCTION = """# Scaling on paper

This page holds predictions, not measurements: what the planner's own functions (`engine.planning.cost_distributed`) say
of many GPUs. `python -m benchmarks.scaling` makes the page, and a test compares it.

Measured: {rate:.1f} T updates/s of an H200 in float32, {disk:.1f} GB/s of a host's disk, {pairs:.1f} billion pairs a
second of batched searches at n = 65,536 with four arcs a vertex, {task:.0f} ms of the Dask scheduler for a task.
Assumed: {each} GPUs, 2 TiB of memory and {network:.0f} GB/s of network a host, a shared store as fast as the hosts'
disks together, ${price:.0f} for a GPU and hour. The largest run that was measured is four GPUs of one host
([many nodes](many-nodes.md)): everything beyond that is arithmetic.

*Rounds* are blocked Floyd–Warshall in float32 with the pivot block that is predicted to be fastest. *Searches* are
batched searches of a graph with four arcs a vertex. The time of one source is assumed to grow with the number of
vertices; where writing the result takes longer than searching, that time counts.
"""

CLOSING = """
## What breaks first, and what would be done

- **arithmetic**: nothing is broken. n³ updates have to be done; undirected graphs could take half as many
  (decision 080).
- **panels**: the chain of panels, each closed by one GPU and read by all, takes longer than a worker's share of the
  rounds. More GPUs then make a solve slower, because the chain passes from one worker to the next more often: start
  fewer. To use more, several GPUs would have to close a panel together, and workers would have to send panels to each
  other, not through the store.
- **scheduler**: one process hands out all tasks. Larger tasks (several rounds of a stripe at a time), or a driver for
  each group of workers, would relieve it.
- **memory**: the matrix is larger than all GPUs together, and every round reads and writes what they do not hold. The
  hosts' memory beside the GPUs, which one process can use ([out of core](out-of-core.md)), would hold several times as
  much.
- **result**: n² entries have to reach the store, whoever computes them: {largest} at n = 10,000,000. Then only
  asking for less helps: sources, targets, cutoffs.

## Beside the records

"""

RECORDS = (
    ("", "what", "GPUs", "n", "reached"),
    ("DSNAPSHOT (SC20)", "distributed Floyd–Warshall, float32", "24,576 V100", "4.4 M in about 21 min, as we read it",
     "136 PF/s, 90 % weak scaling"),
    ("Sao et al. (HPDC'21)", "with the hosts' memory", "256 Summit nodes", "2.5 × what the GPUs hold, 20 % slower",
     "8.1 PF/s, 80 % parallel efficiency"),
    ("COAST (SC22)", "communication-optimal Floyd–Warshall", "73,600 GCDs", "not known to us", "1.004 EF/s"),
    ("Fast-APSP (ICS'23)", "partition and searches", "2,048", "11.5 M in 12.45 min, surely not stored",
     "87 million pairs a second and GPU"),
)  # fmt: skip

END = """
One update is two operations: 136 PF/s are 68,000 T updates/s, 2.8 T for each V100. The first three send panels from GPU
to GPU by MPI; `apsp` is not meant for that many GPUs.
"""


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first of the rows is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]) + "\n"


def page() -> str:
    """Return the whole page."""
    begin = INTRODUCTION.format(
        rate=RATE / 1e12,
        disk=DISK / 1e9,
        pairs=PAIRS / 1e9,
        task=1000 * TASK_SECONDS,
        each=EACH,
        network=NETWORK / 1e9,
        price=PRICE,
    )
    lines = [HEAD, *(row(n, gpus) for n in SIZES for gpus in GPUS)]
    return f"{begin}\n{table(lines)}{CLOSING.format(largest=size(SIZES[-1] ** 2 * ITEM))}{table(RECORDS)}{END}"


if __name__ == "__main__":
    print(page(), end="")
