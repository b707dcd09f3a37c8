"""Workers that are no processes: a cluster in one process, in which anything can be lost at any time."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from engine.distributed import sessions
from engine.distributed.dask_cluster import Event, TaskEnded, Ticket, WorkerJoined, WorkerLeft
from engine.distributed.messages import DistributedJob, DriverStopped, TaskFailure, TaskRequest, WorkerInfo, code_digest
from storage.errors import ApspError, SolveFailed

RATES = {"uint16": 1e9, "int32": 1e9, "float32": 1e9, "float64": 1e9}


def worker_info(memory: int = 2**30, device: str = "cpu") -> WorkerInfo:
    return WorkerInfo(code_digest(), device, "toy", "here", 1, 1, memory, RATES)


class Worker:
    """A session of its own, and the tasks that wait for it."""

    def __init__(self) -> None:
        self.session: sessions.WorkerSession | None = None
        self.waiting: list[tuple[Ticket, tuple[Any, ...]]] = []
        self.lock = threading.Lock()

    def do(self, job: DistributedJob, action: str, request: TaskRequest) -> object:
        with self.lock:
            if self.session is None:
                self.session = sessions.make_session(job, 1)
        try:
            return self.session.run(action, request)
        except DriverStopped as stopped:
            return TaskFailure("Stopped", str(stopped))
        except ApspError as error:
            return TaskFailure(type(error).__name__, str(error))


class ToyCluster:
    """The verbs of :class:`engine.distributed.dask_cluster.Cluster`; one task is done at each look, in any order
    unless ``ordered``.

    ``mischief`` is called before each task with the cluster, and may lose and add workers.
    """

    address = "toy"

    def __init__(
        self, count: int, *, seed: int = 0, memory: int = 2**30, ordered: bool = False, device: str = "cpu"
    ) -> None:
        self.random, self.memory, self.number, self.ordered = random.Random(seed), memory, 0, ordered
        self.device = device
        self.workers: dict[str, Worker] = {}
        self.zombies: list[tuple[Worker, tuple[Any, ...]]] = []
        self.news: list[Event] = []
        self.refused: dict[str, str] = {}
        self.mischief: Callable[[ToyCluster], None] = lambda _: None
        self.done: list[str] = []
        self.lost = False
        for _ in range(count):
            self.add()

    def __enter__(self) -> ToyCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            if worker.session is not None:
                worker.session.close()

    def add(self) -> None:
        self.number += 1
        self.workers[f"worker{self.number}"] = Worker()
        self.news.append(WorkerJoined(f"worker{self.number}", worker_info(self.memory, self.device)))

    def kill(self, name: str, *, zombie: bool = False) -> None:
        """A worker is gone; as a zombie it goes on with what it had been given."""
        worker = self.workers.pop(name)
        self.zombies += [(worker, given) for _, given in worker.waiting] if zombie else []
        self.news.append(WorkerLeft(name))

    def submit(
        self,
        purpose: Any,
        worker: str,
        call: Any,
        *given: Any,
        device: str | None,
        share: float = 1.0,
        urgent: bool = False,
    ) -> Ticket:
        ticket = Ticket(worker, purpose)
        if call is sessions.run_task and worker in self.workers:
            self.hand(worker, ticket, given)
        return ticket

    def hand(self, worker: str, ticket: Ticket, given: tuple[Any, ...]) -> None:
        self.workers[worker].waiting.append((ticket, given))

    def everywhere(self, call: Any, *given: Any) -> None:
        pass

    def events(self, wait: float) -> Iterator[Event]:
        self.mischief(self)
        if self.lost:
            raise SolveFailed("the Dask scheduler at toy is lost")
        while self.news:
            yield self.news.pop(0)
        if self.zombies:
            worker, given = self.zombies.pop()
            with suppress(Exception):
                worker.do(*given)
        busy = [w for w in self.workers.values() if w.waiting]
        if busy:
            worker = self.random.choice(busy)
            ticket, given = worker.waiting.pop(0 if self.ordered else self.random.randrange(len(worker.waiting)))
            self.done.append(given[1])
            yield TaskEnded(ticket, worker.do(*given), None)


class BusyCluster(ToyCluster):
    """Workers that do several tasks at a time, as those with a GPU do, some of them twice.

    A worker that is killed goes on with what it had been given, and nobody hears of it.
    """

    THREADS = 4

    def __init__(self, count: int, *, seed: int = 0, twice: float = 0.2, device: str = "cpu") -> None:
        self.pools: dict[str, ThreadPoolExecutor] = {}
        self.everyone: dict[str, Worker] = {}
        self.ended: queue.SimpleQueue[TaskEnded] = queue.SimpleQueue()
        self.twice, self.running, self.most = twice, 0, 0
        super().__init__(count, seed=seed, device=device)

    def __exit__(self, *given: object) -> None:
        for pool in self.pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self.workers = self.everyone
        super().__exit__(*given)

    def add(self) -> None:
        super().add()
        name = f"worker{self.number}"
        self.everyone[name], self.pools[name] = self.workers[name], ThreadPoolExecutor(self.THREADS)

    def hand(self, worker: str, ticket: Ticket, given: tuple[Any, ...]) -> None:
        pause = self.random.random() * 0.003
        self.pools[worker].submit(self.work, ticket, given, pause, last=True)
        if self.random.random() < self.twice:
            self.pools[worker].submit(self.work, ticket, given, 2 * pause, last=False)

    def work(self, ticket: Ticket, given: tuple[Any, ...], pause: float, *, last: bool) -> None:
        error: BaseException | None = None
        result: object = None
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(pause)
        try:
            result = self.everyone[ticket.worker].do(*given)
        except BaseException as found:
            error = found
        self.running -= 1
        if last:
            self.ended.put(TaskEnded(ticket, result, error))

    def events(self, wait: float) -> Iterator[Event]:
        self.mischief(self)
        while self.news:
            yield self.news.pop(0)
        with suppress(queue.Empty):
            done = self.ended.get(timeout=wait)
            if done.ticket.worker in self.workers:
                yield done
