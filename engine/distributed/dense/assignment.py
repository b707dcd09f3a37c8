"""Assigns stripes to workers: in proportion to their rates, and adjacent stripes to the same worker.

A worker with adjacent stripes can close their panels one after the other without waiting for panels of other workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.distributed.dask_cluster import Ticket
from engine.distributed.messages import WorkerInfo

#: A worker's rate is a weighted mean over its tasks: the last task has weight 1, and each task before it has KEPT times
#: the weight of its successor.
KEPT: Final = 0.9


@dataclass
class Stripe:
    """The driver's state of a stripe.

    Attributes:
        level: the last round that the stripe has reached, on a worker or in the store.
        stored: the last round that its tiles in the store have reached.
        upper: whether the store has only its entries on or right of the diagonal.
        owner: the worker that holds the stripe or will hold it; empty if there is none.
        held: whether the owner holds the stripe already.
        ticket: the task that computes on the stripe; None if there is none.
        saving: the task that saves the stripe; None if there is none.
        finished: whether the final rows of the stripe are in the store.
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
    """The driver's state of a worker.

    Attributes:
        info: the worker's description of itself.
        rate: updates per second.
        capacity: the number of stripes that the worker can keep in memory.
        tickets: its tasks that have not ended.
        saving: its task that saves stripes; None if there is none.
        recent: sums of updates and of seconds over its last tasks, in which older tasks have less weight.
    """

    info: WorkerInfo
    rate: float
    capacity: int
    tickets: list[Ticket] = field(default_factory=list)
    saving: Ticket | None = None
    recent: tuple[float, float] = (0.0, 0.0)

    def learn(self, updates: int, seconds: float, least: float) -> None:
        """Update the rate with a task that has ended.

        Args:
            updates: updates that the task made.
            seconds: seconds that the task took.
            least: the rate changes only if the recent tasks took more than this number of seconds in all.
        """
        done, spent = (KEPT * old + new for old, new in zip(self.recent, (updates, seconds), strict=True))
        self.recent = done, spent
        if spent > least:
            self.rate = done / spent


def stripes_at(levels: npt.NDArray[np.int64], *, upper: bool = False) -> list[Stripe]:
    """Return stripes that no worker holds, at the rounds that they have reached in the store.

    Args:
        levels: the last round that each stripe has reached in the store, shape (stripes,); -1 for none.
        upper: whether the store has only the entries on or right of the diagonal.
    """
    return [Stripe(level, level, upper and level >= 0) for level in levels.tolist()]


def assign_stripes(stripes: Sequence[Stripe], workers: Mapping[str, AssignedWorker]) -> None:
    """Assign every stripe that no worker holds to a worker, so that all workers need about the same time per round."""
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


def rebalance(stripes: Sequence[Stripe], workers: Mapping[str, AssignedWorker]) -> Iterator[tuple[int, str]]:
    """Yield the number of each stripe that should move, and its new worker, one that has less than its share.

    This is called after a commit, because the new worker must be able to read the stripe from the store.
    """
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
