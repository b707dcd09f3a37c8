"""Pools of threads: every call is made once, and wherever an interrupt comes, no thread is left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import threads as threads_module
from storage.threads import Dropped, Promise, ThreadPool, in_threads, set_from_handler
from tests.cycles import no_collection
from tests.interrupting import Interruption, by_itself

ROOT = Path(__file__).resolve().parents[3]


def at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("apsp-thread")]


def test_values_come_in_order_of_the_items() -> None:
    def slow(x: int, y: int) -> int:
        time.sleep(0.001 * (20 - x))
        return x * y

    told: list[int] = []
    expected = [x * x for x in range(20)]
    assert in_threads(4, slow, range(20), range(99), told=told.append) == told == expected
    assert at_work() == []


def test_no_more_threads_than_calls_or_than_allowed() -> None:
    seen: set[str] = set()
    together = threading.Barrier(3)

    def note(k: int) -> None:
        seen.add(threading.current_thread().name)
        if k < 3:  # each of three threads takes one, however late it begins
            together.wait(60)

    in_threads(8, note, range(3, 5))
    assert len(seen) <= 2
    in_threads(3, note, range(40))
    assert seen == {f"apsp-thread_{k}" for k in range(3)}


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_pool_makes_all_calls_before_it_ends(count: int) -> None:
    done: list[int] = []

    def work(k: int) -> None:
        time.sleep(0.001)
        done.append(k)

    with ThreadPool(2) as pool, pool:
        for k in range(count):
            pool.submit(work, k)
    assert sorted(done) == list(range(count))
    assert at_work() == []


def test_the_first_error_comes_out_and_what_was_not_begun_is_dropped() -> None:
    made: list[int] = []

    def work(k: int) -> None:
        time.sleep(0.005)
        made.append(k)
        if k == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_threads(2, work, range(2000))
    assert 3 <= len(made) < 1000, "far from all, even where this thread waits two seconds for a processor"
    assert at_work() == []


def test_a_call_that_was_dropped_says_so() -> None:
    begun, go = threading.Event(), threading.Event()
    pool = ThreadPool(1)

    def work() -> bool:
        begun.set()
        return go.wait(60)

    first, second = pool.submit(work), pool.submit(int)
    assert begun.wait(60)

    def let_go() -> None:
        while not pool._dropping:
            time.sleep(0.001)
        go.set()

    threading.Thread(target=let_go, daemon=True).start()
    pool.close(drop=True)
    assert first.result() is True
    assert second.done()
    with pytest.raises(Dropped):
        second.result()
    with pytest.raises(RuntimeError, match="was left"):
        pool.submit(int)


def test_a_call_that_failed_keeps_nothing_in_memory() -> None:
    """The error has the frame in which it was caught; if that frame had the call, the error would keep itself."""

    class Matrix:
        pass

    def fails(matrix: Matrix) -> None:
        raise ValueError(matrix)

    matrix = Matrix()
    gone = weakref.ref(matrix)
    with no_collection():
        with ThreadPool(2) as pool, pool:
            call = pool.submit(fails, matrix)
            call.wait()
        del call, matrix
        assert gone() is None


def test_calls_may_be_submitted_by_the_calls() -> None:
    with ThreadPool(2) as pool, pool:
        promises = [pool.submit(lambda k=k: pool.submit(lambda: k * 2)) for k in range(50)]
        assert [promise.result().result() for promise in promises] == [2 * k for k in range(50)]


def test_a_call_submitted_while_the_pool_ends_is_made_or_dropped() -> None:
    """Never forgotten: whoever waits for it would wait for ever."""
    for _ in range(30):
        pool, found = ThreadPool(2), list[Promise[int]]()
        pool.submit(int)

        def submit(pool: ThreadPool = pool, found: list[Promise[int]] = found) -> None:
            with contextlib.suppress(RuntimeError):
                while True:
                    found.append(pool.submit(int))
                    time.sleep(0)

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        pool.close(drop=True)
        thread.join(60)
        assert all(promise.done() for promise in found)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError("none is left")])
@pytest.mark.parametrize("most", [0, 1])
def test_a_system_that_refuses_threads_only_makes_it_slower(
    monkeypatch: pytest.MonkeyPatch, error: Exception, most: int
) -> None:
    """Whoever waits for what a call does would wait for ever if it were dropped: not everybody looks at the promise."""
    started: list[threading.Thread] = []

    class Refused(threading.Thread):
        def start(self) -> None:
            if len(started) == most:
                raise error
            started.append(self)
            super().start()

    def work() -> list[int]:
        first = in_threads(3, abs, range(5))
        started.clear()
        with ThreadPool(2) as pool, pool:
            promises = [pool.submit(lambda k=k: pool.submit(abs, k)) for k in range(5)]
            return first + [promise.result().result() for promise in promises]

    def leave() -> bool:
        started.clear()
        with pytest.raises(ZeroDivisionError):
            in_threads(2, lambda k: 1 // k, range(5))
        return True

    monkeypatch.setattr(threads_module, "Thread", Refused)
    assert by_itself(work) == [*range(5), *range(5)]
    assert by_itself(leave)
    assert at_work() == []


_LEFT_TO_THE_INTERPRETER = """
from storage.threads import ThreadPool
def values():
    with ThreadPool(2) as pool, pool:
        yield from pool.map(abs, range(5))
found = values()
print(next(found))
"""


def test_a_pool_that_is_left_to_the_end_of_the_interpreter_does_not_stop_it() -> None:
    """Other threads are gone then, and nobody would end the waiting for them."""
    command = [sys.executable, "-c", _LEFT_TO_THE_INTERPRETER]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_promise_is_kept_for_all_who_wait() -> None:
    promise: Promise[int] = Promise()
    assert not promise.done()
    found: list[int] = []
    waiting = [threading.Thread(target=lambda: found.append(promise.result())) for _ in range(5)]
    for thread in waiting:
        thread.start()
    promise.keep(3)
    for thread in waiting:
        thread.join()
    assert found == [3] * 5
    assert Promise.of(7).result() == 7
    broken: Promise[int] = Promise()
    broken.fail(KeyError("x"))
    for _ in range(2):
        with pytest.raises(KeyError):
            broken.result()


def test_an_error_that_is_forgotten_keeps_nothing_in_memory() -> None:
    """The error passes through a frame that has the promise, so they refer to each other."""

    class Matrix:
        pass

    def ask(promise: Promise[int], matrix: Matrix) -> None:
        promise.result()

    promise, matrix = Promise[int](), Matrix()
    promise.fail(KeyError("x"))
    gone = weakref.ref(matrix)
    with no_collection():
        with pytest.raises(KeyError):
            ask(promise, matrix)
        del matrix
        assert gone() is not None
        promise.forget()
        assert gone() is None
    with pytest.raises(Dropped, match="forgotten"):
        promise.result()
    kept = Promise.of(3)
    kept.forget()
    assert kept.result() == 3


Begun = list[int]


def whole_block(begun: Begun, ended: Begun) -> None:
    """A pool with all that is done to one."""

    def work(k: int) -> int:
        begun.append(k)
        time.sleep(0.0005)
        ended.append(k)
        return k

    with ThreadPool(3) as pool, pool:
        first = pool.submit(work, 0)
        for k in pool.map(work, range(1, 4)):
            assert k >= 1
        last = pool.submit(work, 4)
        assert first.result() == 0
        last.wait()


def shared(begun: Begun, ended: Begun) -> None:
    """The same by the function."""

    def work(k: int) -> None:
        begun.append(k)
        time.sleep(0.0005)
        ended.append(k)

    in_threads(2, work, range(4), told=lambda _: None)


#: Between the exit of a context and the jump that follows it Python 3.13 has instructions, but looks for no signals.
EVERY = pytest.param(True, marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="no signal comes there"))


@pytest.mark.parametrize("every", [False, EVERY])
@pytest.mark.parametrize("block", [whole_block, shared])
def test_an_interrupt_at_any_step_leaves_no_thread_and_no_call_half_made(
    block: Callable[[Begun, Begun], None], every: bool
) -> None:
    def work() -> int:
        for at in range(1, 10**5):
            begun, ended = Begun(), Begun()
            hit = Interruption(at, threads_module, sys.modules[__name__], every=every).hits(
                lambda begun=begun, ended=ended: block(begun, ended)
            )
            left = at_work()
            assert (left, sorted(begun)) == ([], sorted(ended)), f"after step {at}"
            if not hit:
                assert len(ended) >= 4
                return at
        return 0

    assert by_itself(work) > (200 if every else 60)


def test_an_interrupt_while_threads_work_waits_for_what_they_have_begun() -> None:
    begun, ended = Begun(), Begun()

    def work(k: int) -> None:
        begun.append(k)
        time.sleep(0.02)
        ended.append(k)

    def tell(_: None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(2, work, range(1000), told=tell)
    assert sorted(begun) == sorted(ended)
    assert 1 <= len(ended) < 500


def test_calls_that_wait_for_each_other_are_dropped_if_one_has_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    start, names = threading.Thread.start, list[str]()

    def one(thread: threading.Thread) -> None:
        names.append(thread.name)
        if len(names) > 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    go = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", one)
    with ThreadPool(2, together=True) as pool, pool:
        calls = [pool.submit(go.wait, 60), pool.submit(int)]
        with pytest.raises(Dropped, match="refused to start another thread"):
            calls[1].result()
        go.set()


def test_no_call_is_forgotten_if_its_thread_was_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not be started before its call was there left that call to whoever had time, or to nobody."""

    start = threading.Thread.start

    def none(thread: threading.Thread) -> None:
        if thread.name.startswith("apsp-thread"):
            raise RuntimeError("can't start new thread")
        start(thread)

    class Slow:
        """A queue that whoever puts a call into it is slow to reach."""

        def __init__(self, queue: Any) -> None:
            self._queue = queue
            self.get, self.get_nowait = queue.get, queue.get_nowait

        def put(self, item: Any) -> None:
            time.sleep(0.05)
            self._queue.put(item)

    monkeypatch.setattr(threading.Thread, "start", none)
    with ThreadPool(2, together=True) as pool, pool:
        pool._calls = Slow(pool._calls)  # type: ignore[assignment]

        def told(call: Promise[int]) -> str:
            with pytest.raises(Dropped) as error:
                call.result()
            return str(error.value)

        for _ in range(3):
            call = pool.submit(int)
            assert "refused to start another thread" in by_itself(lambda call=call: told(call), 10)


@pytest.mark.parametrize("refused", [False, True])
def test_an_event_is_set_by_a_signal_that_comes_while_its_lock_is_held(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """As at the beginning and at the end of ``wait``: a handler that took the lock would wait for ever."""
    event, before = threading.Event(), signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: set_from_handler(event))
    try:
        if refused:
            monkeypatch.setattr(threads_module, "start_new_thread", refuse)
            signal.raise_signal(signal.SIGUSR1)
        else:
            with event._cond:  # type: ignore[attr-defined]
                signal.raise_signal(signal.SIGUSR1)
                assert not event.is_set()
        assert event.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")
