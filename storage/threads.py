"""Threads for one piece of work; after an interrupt, none of them continues.

Ctrl-C raises KeyboardInterrupt in the main thread, between any two instructions.  Executors and threads of the standard
library are written in Python and use ``threading.Condition``.  So an interrupt may leave a lock held, a thread that no
code waits for, or a thread that counts as ended while it works.  Here the main thread only puts items into queues and
waits for locks.  Putting and waiting are C code, which an interrupt cannot divide.  Another thread, in which no
interrupt is raised, starts and ends all further threads (decision 172).

The context manager of a pool ends the threads in ``__exit__``, but Python looks for signals once more before it runs
the first instruction of that method.  So pools are entered twice: ``with ThreadPool(4, "apsp-read") as pool, pool:``.
If an interrupt ends the first ``__exit__``, the second one ends the threads.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Generic, Self, TypeVar, cast

T = TypeVar("T")

#: Messages that say why a call was dropped.
_LEFT: Final = "its pool of threads was left"
_REFUSED: Final = "the system refused to start another thread"
_FORGOTTEN: Final = "what failed was over, and its error was forgotten"


class Promise(Generic[T]):
    """A value that a thread provides later, by calling either ``keep`` or ``fail`` once."""

    __slots__ = ("_error", "_lock", "_over", "_value")

    def __init__(self) -> None:
        self._value, self._error = cast("T | None", None), cast("BaseException | None", None)
        self._over, self._lock = False, allocate_lock()
        self._lock.acquire()

    @classmethod
    def of(cls, value: T) -> Self:
        """Return a promise that already has its value."""
        made = cls()
        made.keep(value)
        return made

    def keep(self, value: T) -> None:
        """Provide the value."""
        self._value = value
        self._settle()

    def fail(self, error: BaseException) -> None:
        """Let ``result`` raise ``error``."""
        self._error = error
        self._settle()

    def done(self) -> bool:
        """Return whether there is a value or an error."""
        return self._over

    def wait(self) -> None:
        """Wait until there is a value or an error; after an interrupt, this may be called again."""
        if not self._over:
            with self._lock:
                pass

    def result(self) -> T:
        """Wait, and return the value.

        Raises:
            BaseException: the error that was passed to ``fail``.
        """
        self.wait()
        if self._error is None:
            return cast(T, self._value)
        try:
            raise self._error
        finally:
            del self  # otherwise the error and this frame refer to each other, which keeps arrays in memory

    def forget(self) -> None:
        """Drop the error, if there is one, because nobody will ask for it any more; ``result`` then raises Dropped.

        An error refers to all frames that it has passed through.  If one of these frames refers to this promise, the
        promise and the arrays of all frames would stay in memory until Python's next collection.
        """
        if self._error is not None:
            self._error = Dropped(_FORGOTTEN)

    def _settle(self) -> None:
        self._over = True
        self._lock.release()


class Dropped(RuntimeError):  # noqa: N818
    """The error of a call that was not made: the context of its pool ended first, or no thread could be started."""


class _Call(Promise[T]):
    """A call that a thread of a pool is to make."""

    __slots__ = ("_process", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work
        self._process = os.getpid()

    def wait(self) -> None:
        """Wait as the base class does; a forked child, in which no thread makes the call, gets a RuntimeError."""
        if not self._over and self._process != os.getpid():
            raise RuntimeError("this call was to be made by a thread of the process that has forked this one")
        super().wait()

    def make(self) -> None:
        """Make the call."""
        work, self._work = cast(Callable[[], T], self._work), None
        try:
            value = work()
        except BaseException as error:
            self.fail(error)
        else:
            self.keep(value)
        finally:
            del self, work  # the error refers to this frame: otherwise it would keep itself and arrays in memory

    def drop(self, why: str) -> None:
        """Cancel the call: ``result`` raises Dropped."""
        self._work = None
        self.fail(Dropped(why))


class ThreadPool:
    """Threads that make calls; a context manager, to be entered twice (see the module's docstring).

    Calls may be submitted by any thread.  The end of the context waits until all threads have ended.  The threads first
    make all submitted calls; if an exception has ended the context, they only finish the calls that have begun.

    Args:
        threads: the largest number of threads; they are started when calls are submitted.
        name: the name of the threads, to which numbers are added.
        together: whether calls wait for each other, so that each needs a thread of its own.  If the system then refuses
            to start a thread, the calls without a thread are dropped, and waiting for them raises Dropped.
    """

    def __init__(self, threads: int, name: str = "apsp-thread", *, together: bool = False) -> None:
        self._most, self._name, self._together = max(1, threads), name, together
        self._process = os.getpid()
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._orders: SimpleQueue[bool] = SimpleQueue()  # True starts one more thread, False ends all
        self._ordered = 0
        self._begun = self._sure = self._ending = self._dropping = self._over = self._refused = False
        # ``_managed`` is held by the thread that starts all others; ``_busy`` is free once all threads have ended
        self._managed, self._busy = allocate_lock(), allocate_lock()
        self._busy.acquire()

    def submit(self, function: Callable[..., T], *args: object) -> Promise[T]:
        """Let a thread call ``function(*args)``; return a promise of the value.

        Raises:
            Dropped: the system refused to start any thread.
            RuntimeError: the context of the pool has ended, or the pool belongs to the process that forked this one.
        """
        if self._ending:
            raise RuntimeError("this pool of threads was left")
        if self._process != os.getpid():
            raise RuntimeError("this pool of threads belongs to the process that has forked this one")
        call = _Call(partial(function, *args))
        self._begun = True
        self._start()
        # queue the call before ordering a thread: if no thread can be started, only calls in the queue are dropped
        self._calls.put(call)
        if self._ordered < self._most:
            self._orders.put(True)
            self._ordered += 1
        if self._over or self._refused:
            self._drop_all(_REFUSED if self._refused else _LEFT)
        return call

    def map(self, function: Callable[..., T], *items: Iterable[Any]) -> Iterator[T]:
        """Let threads call ``function`` with each item; yield the values in the order of the items.

        Args:
            function: the function.
            items: one iterable for each argument of ``function``, as for ``map``; the shortest one decides how many
                calls are made.

        Raises:
            BaseException: the exception that the first failed call raised.
        """
        calls = [self.submit(function, *some) for some in zip(*items, strict=False)]
        calls.reverse()

        def results() -> Iterator[T]:
            while calls:
                yield calls.pop().result()

        return results()

    def close(self, *, drop: bool = False) -> None:
        """End the threads, and wait until they have ended.

        Args:
            drop: whether to drop the calls that no thread has begun.
        """
        self._dropping = self._dropping or drop
        self._ending = True
        if self._process != os.getpid():  # the threads belong to the parent, and the locks are never released here
            return
        if sys.is_finalizing():  # Python closes generators at its end, when it has already ended the pool's threads
            return
        if self._begun and not self._over:
            self._orders.put(False)
            self._calls.put(None)  # ends the thread that starts others, if it makes the calls itself
            with contextlib.suppress(Dropped):  # if that thread cannot be started either, no thread is waited for
                self._start()
            if self._sure and not self._over:
                with self._busy:
                    pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(drop=kind is not None)

    def _start(self) -> None:
        """Start the thread that starts all others; start it again if an interrupt came while it was started."""
        if not self._sure:
            try:
                start_new_thread(self._manage, ())
            except RuntimeError as error:
                raise Dropped(f"the system refused to start a thread: {error}") from error
            self._sure = True

    def _manage(self) -> None:
        """Start and end threads as ordered; if no other thread can be started, make the calls in this thread."""
        if not self._managed.acquire(blocking=False):
            return
        threads: list[Thread] = []
        while self._orders.get():
            if len(threads) < self._most:
                thread = Thread(target=self._work, name=f"{self._name}_{len(threads)}", daemon=True)
                try:
                    thread.start()
                    threads.append(thread)
                except (
                    RuntimeError,
                    MemoryError,
                ):  # the system refuses a thread, and code that waits for a call must not wait forever
                    if self._together:
                        self._refused = True
                        self._drop_all(_REFUSED)
                    elif not threads:
                        self._work()
                        break
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join()
        self._over = True
        self._drop_all(_LEFT)
        self._busy.release()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._dropping:
                call.drop(_LEFT)
            else:
                call.make()
            del call  # so that a waiting thread keeps no array in memory

    def _drop_all(self, why: str) -> None:
        """Drop the calls that no thread will make."""
        with contextlib.suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call.drop(why)


def in_threads(
    threads: int,
    function: Callable[..., T],
    *items: Iterable[Any],
    told: Callable[[T], object] | None = None,
    name: str = "apsp-thread",
) -> list[T]:
    """Call ``function`` with each of ``items``, in several threads; return the values in the order of the items.

    No thread continues after this call ends, even if an exception ends it.

    Args:
        threads: the largest number of threads.
        function: the function.
        items: one iterable for each argument of ``function``, as for ``map``; the shortest one decides how many calls
            are made.
        told: called in the calling thread with each value, in order.
        name: name of the threads.

    Raises:
        BaseException: the exception that ``told`` or the first failed call raised; calls that have not begun are not
            made.
    """
    with ThreadPool(threads, name) as pool, pool:
        return [value for value in pool.map(function, *items) if told is None or _heard(told, value)]


def set_from_handler(*events: Event) -> None:
    """Set events from a signal handler, in a thread of their own.

    The handler may have interrupted its thread in a method of an event, for example at the beginning or the end of
    ``wait``, where that thread holds the lock of the event.  ``set`` takes this lock, so the handler would wait for
    ever.
    """

    def set_all() -> None:
        for event in events:
            event.set()

    try:
        start_new_thread(set_all, ())
    except RuntimeError:  # no thread can be started; the lock is probably free, so it is tried here
        set_all()


def _heard(told: Callable[[T], object], value: T) -> bool:
    told(value)
    return True
