"""``apsp worker``."""

from __future__ import annotations

import sys

from engine.distributed.worker_processes import Workers, WorkersArgs
from service.runner.supervisor import devices as devices_of
from service.units import parse_size


def work(  # noqa: PLR0917 - as many as the command has options
    scheduler: str, devices: str, workers: int | None, threads: int | None, memory: str | None, host: str | None
) -> None:
    """Run the workers of this node until they are stopped.

    Args:
        scheduler: address of the Dask scheduler.
        devices: ``auto``, or device names separated by commas.
        workers: workers that share the processors; one if None.
        threads: threads of each worker; its share of the processors if None.
        memory: memory of each worker, such as ``4GiB``; its share if None.
        host: address of this node for scheduler and driver.
    """
    size = None if memory is None else parse_size(memory, field="--memory")
    found = Workers(WorkersArgs(scheduler, devices_of(devices), workers, threads, size, host))
    names = ", ".join(slot.name for slot in found.slots)
    print(f"apsp works for {scheduler} with {names}", file=sys.stderr, flush=True)
    found.run()
