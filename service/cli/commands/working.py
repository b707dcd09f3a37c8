"""``apsp worker``."""

from __future__ import annotations

import sys

from engine.distributed.worker_processes import WorkerProcesses, WorkersArgs
from service.runner.supervisor import devices as devices_of
from service.units import parse_size


def work(  # noqa: PLR0917 - as many as the command has options
    scheduler: str, devices: str, workers: int | None, threads: int | None, memory: str | None, host: str | None
) -> None:
    """Run the workers of this node until told to stop."""
    size = None if memory is None else parse_size(memory, field="--memory")
    found = WorkerProcesses(WorkersArgs(scheduler, devices_of(devices), workers, threads, size, host))
    names = ", ".join(slot.name for slot in found.slots)
    print(f"apsp works for {scheduler} with {names}", file=sys.stderr, flush=True)
    found.run()
