"""The workers of a Dask scheduler, as the drivers see them: the only module that imports Dask.

The driver pins each task to a worker, and it alone decides which task runs again and where.  Dask carries control
messages and reports which workers join and leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from engine.distributed import sessions
from engine.distributed.messages import TaskFailure, WorkerInfo, code_digest
from storage.errors import InvalidRequest, SolveFailed

log = logging.getLogger("apsp.engine")

#: Time after which a connection without messages is closed; Dask refuses values below about ten seconds.
SILENCE: Final = "15s"
#: Time limit in seconds of the wait for the scheduler, and of the wait for the ``WorkerInfo`` of the first worker.
REACH: Final = 30.0
#: Seconds between two requests for the list of workers; if a worker joins or leaves, the next request comes at once.
LOOK: Final = 2.0


@dataclass(eq=False)
class Ticket:
    """A task that was submitted to ``worker``.

    ``purpose`` is the driver's own note about the task.  A ``dropped`` task is cancelled, and its result is ignored.
    The future of an ``ended`` task has ended without a result.
    """

    worker: str
    purpose: Any
    future: Any = None
    dropped: bool = False
    ended: bool = False


@dataclass(frozen=True)
class TaskEnded:
    """A task has ended with a result, or with an unexpected error."""

    ticket: Ticket
    result: Any
    error: BaseException | None


@dataclass(frozen=True)
class WorkerJoined:
    """A worker has joined.  It runs the same version of the program as the driver."""

    worker: str
    info: WorkerInfo


@dataclass(frozen=True)
class WorkerLeft:
    """A worker has left the scheduler; there will be no ``TaskEnded`` for its unfinished tasks."""

    worker: str


Event = TaskEnded | WorkerJoined | WorkerLeft


class Cluster:
    """A connection to a scheduler; a context manager, which cancels all unfinished tasks at its end.

    Raises:
        InvalidRequest: Dask is not installed, or no scheduler answers at that address.
    """

    def __init__(self, address: str) -> None:
        try:
            import dask.config
            import distributed
        except ImportError as error:
            raise InvalidRequest(
                f"executor dask needs Dask: pip install 'apsp[dask]' ({error})", field="executor"
            ) from None
        self.address = address
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._known: dict[str, str] = {}
        self._asked: dict[str, Ticket] = {}
        self._refused: dict[str, str] = {}
        self._stack = contextlib.ExitStack()
        self._open: dict[Ticket, None] = {}
        self._looked = 0.0
        self._count = 0
        self._membership_changed = threading.Event()
        timeouts = {"distributed.comm.timeouts.tcp": SILENCE, "distributed.comm.timeouts.connect": SILENCE}
        self._stack.enter_context(dask.config.set(timeouts))
        try:
            self._keep: Callable[[Any], None] = distributed.fire_and_forget
            client = _client_class(distributed.Client)(address, timeout=REACH, set_as_default=False, name="apsp")
            self._client: Any = self._stack.enter_context(contextlib.closing(client))
        except (OSError, ValueError, TimeoutError) as error:
            self._stack.close()
            # A function of Dask keeps the error in a variable, so error and traceback are a cycle.  The frames of the
            # traceback refer to those of all callers, and so to their graphs.
            error.__traceback__ = None
            why = str(error) or f"nothing within {REACH:g} s"
            raise InvalidRequest(f"no Dask scheduler answers at {address} ({why})", field="scheduler") from None
        self._client.subscribe_topic("all", self._on_scheduler_event)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for ticket in list(self._open):
            self.drop(ticket)
        self._stack.close()

    @property
    def refused(self) -> dict[str, str]:
        """The workers that may not take part: for each address of a worker, the reason."""
        return dict(self._refused)

    def submit(
        self,
        purpose: Any,
        worker: str,
        call: Callable[..., Any],
        *given: Any,
        device: str | None,
        share: float = 1.0,
        urgent: bool = False,
    ) -> Ticket:
        """Submit a function call to a worker.

        Args:
            purpose: the driver's own note about the task, kept in the ticket.
            worker: the address of the worker.
            call: the function; it is sent by its name.
            given: the arguments of the call.
            device: the resource, ``cpu`` or ``cuda``, of which the call occupies a share while it runs; None if the
                call needs neither.
            share: the share of the resource, at most 1.
            urgent: whether the call runs before all calls that are not urgent.

        Returns:
            The ticket that the event of the task's end will carry.
        """
        ticket = Ticket(worker, purpose)
        self._count += 1
        ticket.future = self._client.submit(
            call,
            *given,
            key=f"apsp-{call.__name__}-{id(self):x}-{self._count}",
            workers=[worker],
            resources={resource(device): share} if device else None,
            priority=10 if urgent else 0,
            pure=False,
            retries=0,
        )
        self._open[ticket] = None
        ticket.future.add_done_callback(lambda future: self._on_future_done(ticket, future))
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Cancel a task; its result is ignored."""
        ticket.dropped = True
        self._open.pop(ticket, None)
        if ticket.future is not None:
            with contextlib.suppress(Exception):
                ticket.future.cancel(force=True)

    def events(self, wait: float) -> Iterator[Event]:
        """Yield the events that have occurred; wait at most ``wait`` seconds for the first one.

        Raises:
            SolveFailed: the connection to the scheduler is lost.
        """
        self._look()
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=wait)
            while True:
                if isinstance(event, TaskEnded) and event.ticket.purpose is _WORKER_INFO:
                    event = self._admit(event)
                if event is not None and not (isinstance(event, TaskEnded) and event.ticket.dropped):
                    yield event
                event = self._events.get_nowait()

    def everywhere(self, call: Callable[..., Any], *given: Any) -> None:
        """Submit a function call to all workers; results and errors are ignored."""
        for worker in [w for w, state in self._known.items() if state == "in"]:
            with contextlib.suppress(Exception):
                ticket = self.submit(None, worker, call, *given, device=None)
                self._keep(ticket.future)
                self._open.pop(ticket, None)
                ticket.dropped = True

    # ---- reports from Dask -------------------------------------------------------------------------------------------

    def _on_scheduler_event(self, event: Any) -> None:
        """Note that workers have joined or left; a thread of Dask's client calls this."""
        message = event[1]
        if isinstance(message, dict) and message.get("action") in ("add-worker", "remove-worker"):
            self._membership_changed.set()

    def _on_future_done(self, ticket: Ticket, future: Any) -> None:
        """Queue the event of a task's end; a thread of Dask's client calls this."""
        if ticket.dropped:
            return
        result = error = None
        try:
            if future.status == "finished":
                result = future.result(timeout=REACH)
            elif future.status == "error":
                error = future.exception(timeout=REACH)
            else:
                raise asyncio.CancelledError
        except BaseException:  # the worker or the scheduler is gone; the next call of _look finds out which
            ticket.ended = True
            self._membership_changed.set()
            return
        ticket.future = None
        self._open.pop(ticket, None)
        self._events.put(TaskEnded(ticket, result, error))

    def _look(self) -> None:
        """Compare the scheduler's workers with the known ones, if something has changed or enough time has passed."""
        if self._client.status != "running":
            raise self._lost()
        now = time.monotonic()
        if not self._membership_changed.is_set() and now - self._looked < LOOK:
            return
        self._membership_changed.clear()
        self._looked = now
        client: Any = self._client
        try:
            workers = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=REACH)["workers"]
        except Exception as error:
            raise self._lost() from error
        for worker in [w for w in self._known if w not in workers]:
            if self._known.pop(worker) == "in":
                self._events.put(WorkerLeft(worker))
            self._asked.pop(worker, None)
            for ticket in [t for t in self._open if t.worker == worker]:
                self.drop(ticket)
        for ticket in [t for t in self._open if t.ended]:  # the worker is present: the driver must repeat the task
            self._open.pop(ticket, None)
            self._events.put(TaskEnded(ticket, TaskFailure("Lost", "the task was cancelled"), None))
        for worker in workers:
            if worker not in self._known:
                self._known[worker] = "asked"
                self._asked[worker] = self.submit(_WORKER_INFO, worker, sessions.worker_info, device=None)

    def _admit(self, done: TaskEnded) -> Event | None:
        """Return the event for a worker that has sent its ``WorkerInfo``; refuse a worker that runs another version."""
        worker, info = done.ticket.worker, done.result
        self._asked.pop(worker, None)
        if worker not in self._known:
            return None
        why = ""
        if done.error is not None or isinstance(info, TaskFailure):
            why = f"it cannot run apsp ({done.error or info})"
        elif info.code != code_digest():
            why = f"it runs another version of apsp ({info.code}, here {code_digest()})"
        if why:
            self._known[worker] = "refused"
            self._refused[worker] = why
            log.warning("worker %s is refused: %s", worker, why)
            return None
        self._known[worker] = "in"
        return WorkerJoined(worker, info)

    def settled(self) -> bool:
        """Return whether there are workers, and all of them have sent their ``WorkerInfo``."""
        return bool(self._known) and not self._asked

    def _lost(self) -> SolveFailed:
        return SolveFailed(f"the Dask scheduler at {self.address} is lost")


def _client_class(base: Any) -> Any:
    """Return Dask's class of clients, but with a limit on the time of the whole start.

    Dask waits without a limit for the first message of a program that has accepted its connection.
    """

    class PunctualClient(base):  # type: ignore[misc]
        """A client that gives up a second after Dask's own limit of time."""

        def start(self, **given: Any) -> None:
            """Connect to the scheduler.  Raises TimeoutError."""
            try:
                super().start(**given, callback_timeout=REACH + 1)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.close(timeout=1)
                    self._loop_runner.stop()  # ``close`` leaves the thread of a client that Dask has closed
                raise

    return PunctualClient


_WORKER_INFO: Final = object()


def resource(device: str) -> str:
    """Return the name of the Dask resource for a device; each worker with that device has one unit of it."""
    return {"cuda": "GPU", "cpu": "CPU"}[device]
