"""The threads of a streamed run, one for each device; they report progress and errors to the thread that began it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from engine.model.progress import Monitor
from engine.model.system import THREADS_REFUSED
from storage.errors import Cancelled, SolveFailed
from storage.threads import Dropped, ThreadPool

#: Seconds between two calls of the monitor while no device reports progress.
_PAUSE: Final = 0.1
#: Seconds between two checks for stripes that have come back from a device, while that device waits for another one.
_POLL: Final = 0.0005


class _Stopped(Exception):  # noqa: N818
    """Raised to end a run, because another device failed or the job was cancelled."""


class Member(Protocol):
    """The operations of a device that a crew calls, always in the device's own thread."""

    def guard(self) -> AbstractContextManager[object]:
        """Return a context manager, inside which the device's thread makes its calls."""
        ...

    def drain(self, *, wait: bool) -> None:
        """Report the stripes that have come back from the device; with ``wait``, wait for all of them."""
        ...


class Crew:
    """A thread for each device.  The thread that calls ``run`` reports progress to the monitor, and asks the monitor
    whether to stop.

    Args:
        devices: the devices.
        monitor: receives the number of updates.
        apart: whether a single device, too, gets a thread of its own; otherwise it works in the calling thread.

    Attributes:
        alone: whether there is one device and it works in the calling thread.
        lock: held while data that the threads share are changed.
        change: wakes waiting threads after such a change.
    """

    def __init__(self, devices: Sequence[Member], monitor: Monitor, *, apart: bool = True) -> None:
        self._devices, self._monitor = devices, monitor
        self.alone = len(devices) == 1 and not apart
        # ``with`` is used on the lock, never on the condition, whose methods are Python code: an interrupt in them
        # could leave the lock held (decision 166)
        self.lock = threading.RLock()
        self.change = threading.Condition(self.lock)
        self._stop, self._errors, self._news = False, list[BaseException](), 0
        self._working = len(devices)  # threads that have not ended

    # ---- the calling thread -----------------------------------------------------------------------------------------

    def run(self, work: Callable[[int], None]) -> None:
        """Call ``work`` with the index of each device, in that device's thread, and return when all calls have ended.

        Raises:
            Cancelled: the monitor asked to stop; stripes that were on their way back from a device have been reported.
            SolveFailed: a device has no thread, because the system refused to start one.
            BaseException: the exception of the device that failed first.
        """
        if self.alone:
            self._work_here(work)
            return
        with ThreadPool(len(self._devices), "apsp-stream", together=len(self._devices) > 1) as pool, pool:
            try:
                calls = [pool.submit(self._thread, index, work) for index in range(len(self._devices))]
                while self._working:
                    self._report()
                    for call in (call for call in calls if call.done()):
                        call.result()  # raises if its thread could not be started
                self._report()
            except Dropped as error:
                many = len(self._devices)
                self._fail(SolveFailed(f"{THREADS_REFUSED} ({many} devices need one each): {error}"))
            except BaseException as error:
                self._fail(error)
        if self._errors:
            del self._errors[1:]
            raise self._errors.pop()

    def part(self) -> None:
        """Drop the references to the devices: they are part of reference cycles, which would keep memory in use."""
        self._devices = ()

    def _work_here(self, work: Callable[[int], None]) -> None:
        (device,) = self._devices
        with device.guard():
            try:
                work(0)
            except Cancelled:
                device.drain(wait=True)  # report stripes that are still on their way back from the device
                raise
        self.check()

    def _report(self) -> None:
        with self.lock:
            if not self._news and self._working:
                self.change.wait(_PAUSE)
            news, self._news = self._news, 0
        if not self._stop:
            self._monitor.step(news)

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            self._errors.append(error)
            self._stop = True
            self.change.notify_all()

    # ---- a device's thread ------------------------------------------------------------------------------------------

    def _thread(self, index: int, work: Callable[[int], None]) -> None:
        device = self._devices[index]
        try:
            with device.guard():
                try:
                    work(index)
                except _Stopped:
                    device.drain(wait=True)  # report stripes that are still on their way back from the device
        except BaseException as error:
            self._fail(error)
        finally:
            with self.lock:
                self._working -= 1
                self.change.notify_all()

    def advance(self, amount: int) -> None:
        """Count updates that are done."""
        with self.lock:
            self._news += amount
            if not self.alone:
                self.change.notify_all()

    def check(self) -> None:
        """Raise an error if the run must stop; a device in the calling thread also reports its progress."""
        if self.alone:
            news, self._news = self._news, 0
            self._monitor.step(news)
        elif self._stop:
            raise _Stopped

    def wait(self, device: Member, ready: Callable[[], bool]) -> None:
        """Wait until ``ready`` returns True.

        Meanwhile, stripes that have come back from ``device`` are reported, because other devices may need them.
        """
        while not self._stop and not ready():
            device.drain(wait=False)
            self.check()
            with self.lock:
                if not ready():
                    self.change.wait(_POLL)
        self.check()
