"""This process as the only worker of a run: one thread computes the tasks, one after the other.

With it, one process can prepare a graph whose tables exceed its memory, by the same driver and tasks as many workers.
"""

from __future__ import annotations

import os
import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from engine.distributed.dask_cluster import Event, TaskEnded, Ticket
from engine.distributed.messages import WorkerInfo, code_digest
from engine.model.problem import Workers
from storage.threads import ThreadPool

#: The name of the only worker.
SELF: Final = "this process"


class ThisProcess:
    """An object with the methods of ``engine.distributed.dask_cluster.Cluster``, whose only worker is this process.

    It is a context manager, which must be entered twice, like a :class:`ThreadPool`.  At the exit it waits for the
    running task and drops the tasks that have not begun.
    """

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self._pool, self._events = ThreadPool(1, "apsp-spans"), queue.SimpleQueue[Event]()
        self._last: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._pool.close(drop=True)
        finally:
            while self._last:
                self._last.pop()()

    def submit(
        self,
        purpose: Any,
        worker: str,
        call: Callable[..., Any],
        *given: Any,
        device: str | None,  # noqa: ARG002
        share: float = 1.0,  # noqa: ARG002
        urgent: bool = False,  # noqa: ARG002
    ) -> Ticket:
        """Queue ``call(*given)``; the thread makes this call after all earlier ones.

        Args:
            purpose: the driver's own note about the task, kept in the ticket.
            worker: the name of the worker.
            call: the function.
            given: the arguments of the call.
            device, share, urgent: ignored, because calls run one after the other.

        Returns:
            The ticket that the event of the task's end will carry.
        """
        ticket = Ticket(worker, purpose)
        self._pool.submit(self._do, ticket, call, given)
        return ticket

    def events(self, wait: float) -> Iterator[Event]:
        """Yield an event for each task that has ended; wait at most ``wait`` seconds for the first one."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=wait)
            while True:
                yield event
                event = self._events.get_nowait()

    def everywhere(self, call: Callable[..., Any], *given: Any) -> None:
        """Remember ``call(*given)``; it is made at the exit of the context manager, after the thread has ended."""
        self._last.append(partial(call, *given))

    def _do(self, ticket: Ticket, call: Callable[..., Any], given: tuple[Any, ...]) -> None:
        try:
            ended = TaskEnded(ticket, call(*given), None)
        except BaseException as error:  # the driver raises this error
            ended = TaskEnded(ticket, None, error)
        self._events.put(ended)


def described(workers: Workers) -> dict[str, WorkerInfo]:
    """Return this process's description of itself as a worker.

    Args:
        workers: the planner's facts about this process as a worker.
    """
    host, rates = socket.gethostname(), workers.relax_rate
    info = WorkerInfo(code_digest(), "cpu", workers.name, host, os.getpid(), workers.threads, workers.memory, rates)
    return {SELF: info}
