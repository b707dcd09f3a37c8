"""Whose the stripes are: shared out by what workers can do, neighbours to one of them.

A worker with neighbouring stripes closes their panels one after the other, and waits for no other worker's in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.distributed.dask_cluster import Ticket
from engine.distributed.messages import WorkerInfo

#: How much of what is known of a worker's rate stays with each task more.
KEPT: Final = 0.9


@dataclass
class Stripe:
    """What the driver knows of a stripe.

    Attributes:
        level: the round that it is of, where it is; stored: in the store.
        upper: only its part on or right of the diagonal is right in the store.
        owner: who has it, or will; held: whether it is there already.
        ticket, saving: what is being done to it.
        finished: whether its rows are in the store for good.
    """

    level: int
    stored: int
    upper: bool = False
    owner: str = ""
    held: bool = False
    ticket: Ticket | None = None
    saving: Ticket | None = None
    finished: bool = False


@dataclass
class AssignedWorker:
    """What the driver knows of a worker.

    Attributes:
        rate: updates a second; lately: updates and seconds of its last tasks.
        capacity: stripes that it can keep.
        tickets, saving: what it has to do.
    """

    info: WorkerInfo
    rate: float
    capacity: int
    tickets: list[Ticket] = field(default_factory=list)
    saving: Ticket | None = None
    lately: tuple[float, float] = (0.0, 0.0)

    def learn(self, updates: int, seconds: float, least: float) -> None:
        """A task took so long; of less than ``least`` seconds in all nothing is concluded."""
        done, spent = (KEPT * old + new for old, new in zip(self.lately, (updates, seconds), strict=True))
        self.lately = done, spent
        if spent > least:
            self.rate = done / spent


def share_out(stripes: Sequence[Stripe], workers: Mapping[str, AssignedWorker]) -> None:
    """Give every stripe that nobody holds an owner: each worker as many as it can do, beside those that it has."""
    if not workers:
        return
    free = [s for s in stripes if not (s.finished or s.held or s.ticket is not None)]
    kept = [s for s in stripes if not s.finished and (s.held or s.ticket is not None)]
    load = {name: sum(s.owner == name for s in kept) / w.rate for name, w in workers.items()}
    share = dict.fromkeys(workers, 0)
    for _ in free:
        name = min(load, key=lambda name: load[name] + 1 / workers[name].rate)
        share[name] += 1
        load[name] += 1 / workers[name].rate
    owners = (name for name, count in share.items() for _ in range(count))
    for stripe, name in zip(free, owners, strict=True):
        stripe.owner = name


def level_out(stripes: Sequence[Stripe], workers: Mapping[str, AssignedWorker]) -> Iterator[tuple[int, str]]:
    """After a commit: stripes that may move to workers that came late, and to which; to read one is all it costs."""
    total = sum(w.rate for w in workers.values())
    spare = [i for i, s in enumerate(stripes) if not s.finished]
    fair = {name: len(spare) * w.rate / total for name, w in workers.items()}
    own = {name: [i for i in spare if stripes[i].owner == name] for name in workers}
    for name in workers:
        while len(own[name]) + 1 <= fair[name]:
            other = max(own, key=lambda o: len(own[o]) - fair[o])
            free = [i for i in own[other] if _may_move(stripes[i])]
            if len(own[other]) - 1 < fair[other] or not free:
                break
            number = free[-1]
            own[other].remove(number)
            own[name].append(number)
            yield number, name


def _may_move(stripe: Stripe) -> bool:
    return stripe.ticket is None and stripe.saving is None and stripe.stored == stripe.level
