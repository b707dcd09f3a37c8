"""A pool of helper processes that read uploads, plan jobs and check long bodies.

Parsing and planning occupy a core for a while and may need gigabytes; in separate processes they block neither the
event loop nor the API's memory.  Clients control what is parsed, so every task has limits of time, memory and open
files.  A process that exceeds its time is killed, and the answer to the request names the limit.

A process reports that it has begun a task.  If it dies before this report, no part of the task was done, so another
process gets the task, once.  A begun task is never repeated, because the task itself may have killed the process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, TypeVar

from service.api.fault import Fault, Refused
from service.pool.process import serve_tasks
from service.pool.tasks import warm_up
from service.settings import variable

T = TypeVar("T")

#: seconds within which a new process must be ready
_START_SECONDS: Final = 120.0
#: seconds without progress after which a message that is being sent to or received from a process is given up
_STUCK_SECONDS: Final = 60.0
_LOST: Final = Fault("worker-lost", "the helper process that did this died, probably because memory ran out")
#: takes the place of a result if the process died before it began the task
_NOT_BEGUN: Final = object()


@dataclass(eq=False)
class _Call:
    """A task with its owner, and the future of its result."""

    task: Callable[..., Any]
    args: tuple[Any, ...]
    owner: str | None
    seconds: float
    future: Future[Any] = field(default_factory=Future)


class ProcessPool:
    """Runs functions in up to ``most`` helper processes; a process that died or was killed is replaced.

    If there are several processes, no owner may occupy all of them, so an owner of very long tasks delays nobody else.

    Args:
        nice: how much the priority of the processes is lowered.
        most: the most processes; a new one starts when there is work and no idle process.
        seconds: time limit of a task, unless :meth:`run` gets another one.
        setting: name of the setting that defines the time limit.
        memory: bytes by which a task may grow its process; three quarters of what is free if None.
    """

    def __init__(
        self, nice: int, most: int = 1, *, seconds: float = 600.0, setting: str = "plan_seconds",
        memory: int | None = None,
    ) -> None:  # fmt: skip
        self._nice, self._most, self._memory = nice, most, memory
        self._seconds, self._setting = seconds, setting
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._running: Counter[str] = Counter()
        self._children: set[_Child] = set()
        self._idle = 0

    def start(self) -> None:
        """Start one process, and let it import the modules that tasks need."""
        self._submit(_Call(warm_up, (), None, _START_SECONDS))

    async def run(
        self, task: Callable[..., T], *args: Any, owner: str | None = None, seconds: float | None = None
    ) -> T:
        """Run ``task(*args)`` in a helper process; its errors are raised here as ``Refused``.

        Args:
            task: a function that can be pickled.
            args: the arguments of the task.
            owner: who asked; no owner may hold all processes.
            seconds: time limit of the task; if None, the limit of the pool.
        """
        call = _Call(task, args, owner, self._seconds if seconds is None else seconds)
        return _unless_refused(await asyncio.wrap_future(self._submit(call)))  # type: ignore[no-any-return]

    def wait(self, task: Callable[..., T], *args: Any, owner: str | None = None) -> T:
        """Run ``task(*args)`` as :meth:`run` does, but block the calling thread; not to be called from the event loop.

        Args:
            task: a function that can be pickled.
            args: the arguments of the task.
            owner: who asked; no owner may hold all processes.
        """
        call = _Call(task, args, owner, self._seconds)
        return _unless_refused(self._submit(call).result())  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Kill the processes without waiting for their tasks."""
        with self._changed:
            children, self._children, self._idle = self._children, set(), 0
            waiting, self._waiting = self._waiting, deque()
            self._running.clear()
            self._changed.notify_all()
        for call in waiting:
            call.future.cancel()
        for child in children:
            child.end()

    def _submit(self, call: _Call) -> Future[Any]:
        with self._changed:
            self._waiting.append(call)
            self._changed.notify_all()
            if len(self._waiting) > self._idle and len(self._children) < self._most:
                child = _Child(self._nice, self._memory, self._setting)
                self._children.add(child)
                # The system kills a child when the thread that started it ends, so each child has a thread of its
                # own that ends no earlier than the child.
                threading.Thread(target=self._attend, args=(child,), name="beside", daemon=True).start()
        return call.future

    def _attend(self, child: _Child) -> None:
        """Give the child one task after another until :meth:`stop`."""
        while (call := self._next(child)) is not None:
            found = child.do(call)
            with self._changed:
                if call.owner is not None and child in self._children:
                    self._running[call.owner] -= 1
                self._changed.notify_all()
            if isinstance(found, BaseException):
                call.future.set_exception(found)
            else:
                call.future.set_result(found)
        child.kill()

    def _next(self, child: _Child) -> _Call | None:
        """Return the oldest task whose owner does not hold all other processes; None after the child was stopped."""
        with self._changed:
            self._idle += 1
            while child in self._children:
                call = next((call for call in self._waiting if self._may_run(call)), None)
                if call is None:
                    self._changed.wait()
                    continue
                self._waiting.remove(call)
                if call.future.set_running_or_notify_cancel():
                    self._idle -= 1
                    if call.owner is not None:
                        self._running[call.owner] += 1
                    return call
            return None

    def _may_run(self, call: _Call) -> bool:
        return call.owner is None or self._running[call.owner] < max(1, self._most - 1)


def _unless_refused(found: Any) -> Any:
    if isinstance(found, Fault):
        raise Refused(found)
    return found


def _limit_silence(pipe: Connection, seconds: float) -> None:
    """Let reads and writes of a pipe fail with OSError if no byte moves for ``seconds``.

    A message that is longer than the buffer of the pipe would otherwise wait for ever for a process that was stopped
    (SIGSTOP), because the limit of time begins when a task is sent.
    """
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, limit)


class _Child:
    """One helper process, restarted when it has ended.
    Only one thread uses it, but any thread may end it."""

    def __init__(self, nice: int, memory: int | None, setting: str) -> None:
        self._nice, self._memory, self._setting = nice, memory, setting
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._ended, self._starting = False, threading.Lock()

    def do(self, call: _Call) -> Any:
        """Return what the task returned, a Fault, or the exception that prevented sending the task."""
        found = self._tried(call)
        if found is _NOT_BEGUN:
            found = self._tried(call)
        return _LOST if found is _NOT_BEGUN else found

    def end(self) -> None:
        """Kill the process now, and start no other process for this child."""
        with self._starting:
            self._ended, process = True, self._process
        if process is not None:
            process.kill()
            process.join()

    def kill(self) -> None:
        """Kill the process now.  Only the thread that uses the process may call this."""
        process, pipe, self._process, self._pipe = self._process, self._pipe, None, None
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()

    def _tried(self, call: _Call) -> Any:
        """Try the task once.  Return what :meth:`do` returns, or ``_NOT_BEGUN`` if the process died before the task."""
        began = False
        try:
            pipe = self._ready()
            pipe.send((call.task, call.args))
            end = time.monotonic() + call.seconds
            while pipe.poll(max(0.0, end - time.monotonic())):
                found = pipe.recv()
                if began:
                    return found
                began = True
            message = f"this took longer than the {call.seconds:.3g} s that it may take, and was stopped"
            found = Fault("limit-exceeded", message, {"limit": call.seconds, "setting": variable(self._setting)})
        except TimeoutError:  # the process was not ready in time; a second one would probably not be, either
            found = _LOST
        except (EOFError, OSError):
            found = _LOST if began else _NOT_BEGUN
        except Exception as error:  # the task cannot be pickled
            found = error
        self.kill()
        return found

    def _ready(self) -> Connection:
        """Return the pipe to a process that waits for a task.  Raises OSError if none can be started."""
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        self.kill()
        context = multiprocessing.get_context("spawn")
        with self._starting:
            if self._ended:
                raise BrokenPipeError("the pool was stopped")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=serve_tasks, args=(other, self._nice, self._memory), daemon=True)
            try:
                self._process.start()
            except BaseException:
                self._process = None  # there is nothing to kill
                raise
            finally:
                other.close()
        _limit_silence(self._pipe, _STUCK_SECONDS)
        if not self._pipe.poll(_START_SECONDS):
            raise TimeoutError("the process did not begin")
        self._pipe.recv()
        return self._pipe
