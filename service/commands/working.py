"""``apsp worker``."""

from __future__ import annotations

import sys

from service.sizes import parse_size
from service.workers import Workers, WorkersArgs


def work(  # noqa: PLR0917 - as many as the command has options
    scheduler: str, devices: str, workers: int | None, threads: int | None, memory: str | None, host: str | None
) -> None:
    """Run the workers of this node until told to stop."""
    size = None if memory is None else parse_size(memory, field="--memory")
    found = Workers(WorkersArgs(scheduler, devices, workers, threads, size, host))
    names = ", ".join(slot.name for slot in found.slots)
    print(f"apsp works for {scheduler} with {names}", file=sys.stderr, flush=True)
    found.run()
