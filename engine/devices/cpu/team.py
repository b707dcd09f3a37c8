"""Threads that run one kernel together, and the atomic counter from which they take work.

numba's own parallel loops spin while they wait, which on a busy machine makes two threads slower than one.  These
threads are ordinary ones that sleep on a lock; kernels release the GIL.  Threads take items from an atomic counter, so
a thread that loses its processor delays the others by one item at most.

Ctrl-C raises an exception in the caller's thread between any two steps.  So threads take tasks from a queue, whose
``put`` is never half done, and each task records whether it is over. A run first waits for the tasks of an interrupted
run. So no thread waits for a task that was never begun, and no two runs mix (decision 166).  Threads are kept before
they start, and start in another thread, so none is lost (decision 195).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.model.system import THREADS_REFUSED, usable_processors
from storage.errors import SolveFailed
from storage.threads import Promise


@intrinsic
def fetch_add(typingctx, address, amount):  # type: ignore[no-untyped-def]
    """Add ``amount`` to the int64 at ``address`` atomically, and return its previous value.

    Args:
        typingctx: numba's typing context.
        address: address of the counter, intp.
        amount: int64.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


#: Wall seconds of shared work after which ``worth_sharing`` decides whether sharing was faster.
JUDGED: Final = 0.05
#: Seconds for which the caller works alone after sharing was not faster.
PAUSE: Final = 0.5
#: Several threads are faster than one if together they get at least this many processor seconds per wall second.
WORTH: Final = 1.1


class Team:
    """A fixed number of threads that run the same kernel together; the caller is one of them.

    Each of the others sleeps on a queue of its own, so that waking one takes a few microseconds; an executor takes
    several times that.  They are started when they are first needed.  Not re-entrant: one ``run`` at a time.

    Args:
        threads: the number of threads, including the caller; None for one per usable processor.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads, self._process = threads or usable_processors(), os.getpid()
        self._others: list[_Other] = []
        self._running: list[_Other] = []
        self._task: tuple[Callable[..., object], tuple[object, ...]] | None = None
        self._wall = self._used = self._alone_until = 0.0

    def run(self, kernel: Callable[..., object], *args: object, most: int | None = None) -> None:
        """Call ``kernel(worker, *args)`` once for each worker 0, 1, ..., and wait for all of them.

        Args:
            kernel: the function that the threads run.
            args: arguments of ``kernel`` after the number of the worker.
            most: the number of workers for which there is work; None for all.

        Raises:
            Exception: the exception that a worker raised; the first one if several did.
        """
        wanted = self.threads if most is None else max(1, min(self.threads, most))
        if self.threads == 1:
            kernel(0, *args)
            return
        self._settle()
        start, self._task = time.perf_counter(), (kernel, args)
        try:
            self._begin(wanted - 1)
            used = _timed(kernel, 0, args)
        finally:
            others, self._task = self._running, None
            self._settle()
        if others:
            self._used += used + sum(other.used for other in others)
            self._wall += time.perf_counter() - start
        errors = [other.take_error() for other in others]
        try:
            for error in errors:
                if error is not None:
                    raise error
        finally:
            error = None
            del errors[:]  # an error and a frame that refer to each other would keep arrays alive

    def _settle(self) -> None:
        """Wait for the others that run; those of an earlier run are some if an interrupt ended its waiting.

        A forked child has none of the threads, and starts others.
        """
        if self._process != os.getpid():
            self._others, self._running, self._process = [], [], os.getpid()
        for other in self._running:
            other.wait()
        self._running = []

    def widen(self) -> None:
        """Let all threads take part in the run that has begun with some of them; called by its worker 0 only."""
        if self.threads > 1:
            self._begin(self.threads - 1)

    def _begin(self, wanted: int) -> None:
        """Let others begin the kernel, until ``wanted`` of them run it."""
        assert self._task is not None
        while len(self._running) < wanted:
            if len(self._others) == len(self._running):
                self._others.append(_Other(len(self._others) + 1))
            other = self._others[len(self._running)]
            self._running.append(other)
            other.begin(*self._task)

    def worth_sharing(self) -> bool:
        """Return whether work that one thread or all threads could do should now be shared.

        If other processes use all processors but one, threads only wait for each other.  So the processor time of all
        threads in recent runs is compared with the wall time; if the ratio is below ``WORTH``, the caller works alone
        for ``PAUSE`` seconds.
        """
        if self.threads == 1 or time.perf_counter() < self._alone_until:
            return False
        if self._wall < JUDGED:
            return True
        worth = self._used >= WORTH * self._wall
        self._wall = self._used = 0.0
        if not worth:
            self._alone_until = time.perf_counter() + PAUSE
        return worth

    def close(self) -> None:
        """End the threads, once they have done their tasks."""
        if self._process == os.getpid():
            for other in self._others:
                other.end()
        self._others, self._running = [], []


class _Task:
    """A kernel for one thread to run once.

    Attributes:
        work: the kernel, and its arguments after the number of the worker; None once it was taken.
        over: whether the kernel has returned; then ``lock`` may be free or not.
        lock: held until the kernel has returned.
    """

    __slots__ = ("lock", "over", "work")

    def __init__(self, kernel: Callable[..., object], args: tuple[object, ...]) -> None:
        self.work: tuple[Callable[..., object], tuple[object, ...]] | None = (kernel, args)
        self.over, self.lock = False, threading.Lock()
        self.lock.acquire()

    def wait(self) -> None:
        """Wait until the kernel has returned; an interrupt ends the waiting, which may then be repeated."""
        if not self.over:
            self.lock.acquire()


class _Start:
    """Starts one thread; an interrupt leaves none that nobody knows of, and ``thread`` may be called again after it.

    ``Thread.start`` is written in Python.  If an interrupt ended it in this thread, the new one would work or not, and
    nobody could tell.  So another thread starts it, in which no interrupt is raised (decision 172).
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._once, self._started = allocate_lock(), Promise[threading.Thread]()

    def thread(self) -> threading.Thread:
        """Return the thread, which has been started.

        Raises:
            RuntimeError: the system lets no more threads begin.
        """
        if not self._started.done():
            start_new_thread(self._start, ())
        return self._started.result()

    def _start(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        try:
            self._thread.start()
        except BaseException as error:
            self._started.fail(error)
        else:
            self._started.keep(self._thread)


class _Other:
    """One thread of a team, which waits for kernels to run.

    Attributes:
        used: processor seconds of the last kernel.
        error: what the last kernel raised; None if it returned.
    """

    def __init__(self, worker: int) -> None:
        self.used, self.error = 0.0, cast("BaseException | None", None)
        self._worker = worker
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._last, self._sure = cast("_Task | None", None), True
        self._start = _Start(self._run, f"apsp-team-{worker}")

    def begin(self, kernel: Callable[..., object], args: tuple[object, ...]) -> None:
        """Let the thread, which is started if need be, run ``kernel(worker, *args)``."""
        try:
            self._start.thread()
        except (RuntimeError, MemoryError) as error:  # the next run tries again
            self._start = _Start(self._run, f"apsp-team-{self._worker}")
            raise SolveFailed(f"{THREADS_REFUSED} (the thread {self._worker} of a team): {error}") from error
        self._sure, self._last = False, _Task(kernel, args)
        self._tasks.put(self._last)
        self._sure = True

    def wait(self) -> None:
        """Wait until the thread has done all its tasks."""
        if not self._sure:  # an interrupt came: the last task may be in the queue or not, but none is behind this one
            self.begin(_nothing, ())
        if self._last is not None:
            self._last.wait()

    def take_error(self) -> BaseException | None:
        """Return the exception of the last kernel, and forget it; None if the kernel returned."""
        error, self.error = self.error, None
        return error

    def end(self) -> None:
        """End the thread, after all its tasks; one that was never started begins and ends."""
        self._tasks.put(None)
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread could be started, and none is to be ended
            self._start.thread().join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            assert task.work is not None
            (kernel, args), task.work = task.work, None
            self.error = None
            try:
                self.used = _timed(kernel, self._worker, args)
            except BaseException as error:
                self.error = error
            del kernel, args  # so that a waiting thread keeps no array alive
            task.over = True
            task.lock.release()


def _nothing(worker: int) -> None:
    """Do nothing: a thread that has run this has finished all tasks before it."""


def _timed(kernel: Callable[..., object], worker: int, args: tuple[object, ...]) -> float:
    """Run one worker's share; returns the processor seconds it took."""
    start = time.thread_time()
    kernel(worker, *args)
    return time.thread_time() - start
