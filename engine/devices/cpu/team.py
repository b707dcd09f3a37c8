"""Threads that run one kernel together, and the atomic counter from which they take work.

numba's own parallel loops spin while they wait, which on a busy machine makes two threads slower than one.  These
threads are ordinary ones that sleep on a lock; kernels release the GIL.  Threads take items from an atomic counter, so
a thread that loses its processor delays the other threads by one item at most.

Ctrl-C raises an exception in the caller's thread between any two steps.  So threads take tasks from a queue, whose
``put`` is never half done, and each task records whether it is over. A run first waits for the tasks of an interrupted
run. So no thread waits for a task that was never begun, and no two runs mix (decision 166).  The object of a thread is
kept before the thread starts, and another thread starts it, so an interrupt loses no thread (decision 195).

Starting a thread takes longer than many products take, so the threads of a closed team are parked for the next team;
parked threads that no team needs for some seconds end.  A thread also ends when no reference to its object is left,
wherever an interrupt has stopped the caller.  A team takes only parked threads that may use the same processors as
threads that it would start itself (decision 242).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from itertools import repeat
from queue import Empty, SimpleQueue
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
#: A parked thread ends after at most this many seconds.
IDLE: Final = 5.0
#: Several threads are faster than one if together they get at least this many processor seconds per wall second.
WORTH: Final = 1.1


class Team:
    """A fixed number of threads that run the same kernel together; the caller is one of them.

    Each other thread sleeps on a queue of its own, so that waking it takes a few microseconds; with an executor it
    takes several times as long.  Threads are started when they are first needed.  Not re-entrant: one ``run`` at a
    time.

    Args:
        threads: the number of threads, including the caller; None for one per usable processor.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads, self._process = threads or usable_processors(), os.getpid()
        self._others: list[_Other] = []
        self._parked = _PARKED.setdefault(_mask(), [])
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
        """Wait for all other threads that run, also for those of an earlier run whose waiting was interrupted.

        A forked child has none of the threads, so it starts new ones.
        """
        if self._process != os.getpid():
            self._others, self._running, self._process = [], [], os.getpid()
            self._parked = _PARKED.setdefault(_mask(), [])
        for other in self._running:
            other.wait()
        self._running = []

    def widen(self) -> None:
        """Let all threads take part in the run that has begun with some of them; only worker 0 of the run may call
        this.
        """
        if self.threads > 1:
            self._begin(self.threads - 1)

    def _begin(self, wanted: int) -> None:
        """Let threads other than the caller begin the kernel, until ``wanted`` of them run it."""
        assert self._task is not None
        lacking = wanted - len(self._others)
        if lacking > 0:
            # a single call of C code, so an interrupt cannot lose a thread between ``pop`` and ``extend``; IndexError:
            # fewer threads are parked than are lacking
            with contextlib.suppress(IndexError):
                self._others.extend(map(self._parked.pop, repeat(-1, lacking)))
            self._others.extend(_Other() for _ in range(wanted - len(self._others)))
        while len(self._running) < wanted:
            other = self._others[len(self._running)]
            self._running.append(other)
            other.begin(len(self._running), *self._task)

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
        """Release the threads for the next team (park them), once they have done their tasks."""
        self._settle()
        others, self._others = self._others, []
        self._parked.extend(other for other in others if other.rest())


class _Task:
    """A kernel for one thread to run once.

    Attributes:
        work: the kernel, and its arguments; None once it was taken.
        over: whether the kernel has returned; if so, ``lock`` may be free or held.
        lock: held until the kernel has returned.
        used: the processor seconds that it took.
        error: the exception that the kernel raised; None if it returned.
    """

    __slots__ = ("error", "lock", "over", "used", "work")

    def __init__(self, kernel: Callable[..., object], args: tuple[object, ...]) -> None:
        self.work: tuple[Callable[..., object], tuple[object, ...]] | None = (kernel, args)
        self.over, self.lock = False, threading.Lock()
        self.used, self.error = 0.0, cast("BaseException | None", None)
        self.lock.acquire()

    def run(self) -> None:
        """Run the kernel, in the thread that has taken the task."""
        assert self.work is not None
        (kernel, (worker, *args)), self.work = self.work, None
        try:
            self.used = _timed(kernel, cast("int", worker), tuple(args))
        except BaseException as error:
            self.error = error
        del kernel, args  # so that a waiting thread keeps no array alive
        self.over = True
        self.lock.release()

    def wait(self) -> None:
        """Wait until the kernel has returned; an interrupt ends the waiting, which may then be repeated."""
        if not self.over:
            self.lock.acquire()


class _Start:
    """Starts one thread, which no interrupt can lose; ``thread`` may be called again after an interrupt.

    ``Thread.start`` is written in Python.  If an interrupt ended that call, the new thread might run or not, and the
    caller could not find out.  So another thread, in which no interrupt is raised, makes the call (decision 172).
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
    """One thread of a team, which waits for kernels to run; it ends when this object is deleted."""

    def __init__(self) -> None:
        self._last, self._sure = cast("_Task | None", None), True
        self._tasks, self._start = self._thread()

    def _thread(self) -> tuple[SimpleQueue[_Task | None], _Start]:
        """Return a new queue of tasks, and the only thread that takes tasks from this queue, not started yet.

        The thread holds only a weak reference to this object.  When the object is deleted, the callback of the
        reference puts None into the queue, which ends the thread.  The object cannot hold the reference itself: if both
        were deleted as parts of a cycle, Python would not run the callback.  The callback is not written in Python,
        because an exception that an interrupt raised in it would be lost.
        """
        tasks: SimpleQueue[_Task | None] = SimpleQueue()
        gone = weakref.ref(self, partial(tasks.put, None))
        return tasks, _Start(partial(_serve, tasks, gone), "apsp-team")

    @property
    def used(self) -> float:
        """Processor seconds of the last kernel."""
        return 0.0 if self._last is None else self._last.used

    def begin(self, worker: int, kernel: Callable[..., object], args: tuple[object, ...]) -> None:
        """Let the thread run ``kernel(worker, *args)``; start the thread if that has not been done."""
        try:
            self._start.thread()
        except (RuntimeError, MemoryError) as error:  # the next run tries again
            self._tasks.put(None)  # the refused thread may start after all; None then ends it
            self._tasks, self._start = self._thread()
            raise SolveFailed(f"{THREADS_REFUSED} (the thread {worker} of a team): {error}") from error
        self.take_error()
        self._sure, self._last = False, _Task(kernel, (worker, *args))
        self._tasks.put(self._last)
        self._sure = True

    def wait(self) -> None:
        """Wait until the thread has done all its tasks."""
        if not self._sure:  # after an interrupt: the last task may not be queued
            self.begin(0, _nothing, ())
        if self._last is not None:
            self._last.wait()

    def take_error(self) -> BaseException | None:
        """Return the exception of the last kernel, and forget it; None if the kernel returned."""
        if self._last is None:
            return None
        error, self._last.error = self._last.error, None
        return error

    def rest(self) -> bool:
        """Forget the last kernel; return whether there was one, which means that the thread was started."""
        self.take_error()
        before, self._last = self._last, None
        return before is not None

    def serves(self, tasks: SimpleQueue[_Task | None]) -> bool:
        """Return whether this thread takes its tasks from the queue ``tasks``."""
        return self._tasks is tasks

    def end(self) -> None:
        """End the thread, after all its tasks."""
        self._tasks.put(None)
        self._start.thread().join()


#: Threads that belong to no team, by the processors that they may use.
_PARKED: Final[dict[frozenset[int], list[_Other]]] = {}


def _serve(tasks: SimpleQueue[_Task | None], gone: object) -> None:
    """Run tasks from the queue until None arrives.  A parked thread that gets no task for ``IDLE`` seconds ends.

    Args:
        tasks: the queue of this thread.
        gone: the weak reference whose callback puts None into the queue; it is only kept here.
    """
    while True:
        try:
            task = tasks.get(timeout=IDLE)
        except Empty:
            _forget(tasks)
            continue
        if task is None:
            return
        task.run()
        del task


def _forget(tasks: SimpleQueue[_Task | None]) -> None:
    """Let the thread that takes its tasks from the queue ``tasks`` end, if it is parked."""
    for parked in list(_PARKED.values()):
        for other in [one for one in parked if one.serves(tasks)]:
            with contextlib.suppress(ValueError):  # a team has taken the thread meanwhile
                parked.remove(other)


@atexit.register
def end_parked() -> None:
    """End the threads that belong to no team."""
    for parked in list(_PARKED.values()):
        with contextlib.suppress(IndexError):  # no thread is left; a team may have taken some
            while True:
                parked.pop().end()


os.register_at_fork(after_in_child=_PARKED.clear)  # a forked child has none of the threads


def _mask() -> frozenset[int]:
    """Return the processors that the calling thread may use; threads that it starts may use the same ones."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _nothing(worker: int) -> None:
    """Do nothing.  A thread that has run this function has finished all its earlier tasks."""


def _timed(kernel: Callable[..., object], worker: int, args: tuple[object, ...]) -> float:
    """Call ``kernel(worker, *args)``; return the processor seconds that the call took."""
    start = time.thread_time()
    kernel(worker, *args)
    return time.thread_time() - start
