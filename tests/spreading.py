"""Workers that are no processes: a cluster in one process, in which anything can be lost at any time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from engine.spread import tasks
from engine.spread.cluster import Came, Done, Event, Ticket, Went
from engine.spread.job import Failure, Hello, Job, Order, Stopped, code_digest
from storage.errors import ApspError, SolveFailed

RATES = {"uint16": 1e9, "int32": 1e9, "float32": 1e9, "float64": 1e9}


def hello(memory: int = 2**30, device: str = "cpu") -> Hello:
    return Hello(code_digest(), device, "toy", "here", 1, 1, memory, RATES)


class Worker:
    """A desk of its own, and the tasks that wait for it."""

    def __init__(self) -> None:
        self.desk: tasks.Desk | None = None
        self.waiting: list[tuple[Ticket, tuple[Any, ...]]] = []

    def do(self, job: Job, verb: str, order: Order) -> object:
        if self.desk is None:
            self.desk = tasks.made(job, 1)
        try:
            return getattr(self.desk, verb)(order)
        except Stopped as stopped:
            return Failure("Stopped", str(stopped))
        except ApspError as error:
            return Failure(type(error).__name__, str(error))


class ToyCluster:
    """The verbs of :class:`engine.spread.cluster.Cluster`; one task is done at each look, in any order
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
            if worker.desk is not None:
                worker.desk.close()

    def add(self) -> None:
        self.number += 1
        self.workers[f"worker{self.number}"] = Worker()
        self.news.append(Came(f"worker{self.number}", hello(self.memory, self.device)))

    def kill(self, name: str, *, zombie: bool = False) -> None:
        """A worker is gone; as a zombie it goes on with what it had been given."""
        worker = self.workers.pop(name)
        self.zombies += [(worker, given) for _, given in worker.waiting] if zombie else []
        self.news.append(Went(name))

    def submit(
        self, note: Any, worker: str, call: Any, *given: Any, device: str | None, urgent: bool = False
    ) -> Ticket:
        ticket = Ticket(worker, note)
        if call is tasks.work and worker in self.workers:
            self.workers[worker].waiting.append((ticket, given))
        return ticket

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
            yield Done(ticket, worker.do(*given), None)
