"""What the rounds ask of a device that streams: the verbs, and what all devices of a run share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from engine.model.backend import Array
from engine.model.dtypes import WorkType, work_type
from engine.model.tier import Tier
from engine.model.tiling import Streaming
from storage.errors import SolveFailed


class BelowZero(SolveFailed):
    """A vertex came to lie at less than zero from itself: the graph has a negative cycle, which a caller may name."""


@dataclass
class StripeJob:
    """One run, as its devices see it.

    Attributes:
        streaming, tier, nonnegative: what is streamed and how.
        leaders: which device closes the panel of each round.
        devices: all of them, in order.
        done: to be told (round, stripe, rows) of rows from the tier that are relaxed and in place again.
        advance: to be told of updates done.
        check: raises if the run is to stop.
        panels: where several CPU streamers share theirs.
    """

    streaming: Streaming
    tier: Tier
    nonnegative: bool
    leaders: Sequence[int]
    devices: Sequence[Streamer]
    done: Callable[[int, int, Array], None]
    advance: Callable[[int], None]
    check: Callable[[], None]
    panels: list[Array] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Vertices."""
        return self.tier.n

    @property
    def kind(self) -> WorkType:
        """The working type."""
        return work_type(self.tier.dtype)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return self.streaming.rounds(self.n)

    def rows(self, stripe: int) -> tuple[int, int]:
        """Rows of a stripe."""
        return self.streaming.rows(stripe, self.n)

    def pivot(self, turn: int) -> tuple[int, int]:
        """Vertices of the pivot block of a round."""
        return self.streaming.pivot(turn, self.n)

    def members(self, turn: int) -> range:
        """Stripes of the pivot block of a round."""
        return self.streaming.members(turn, self.n)

    def settles(self, turn: int) -> bool:
        """Whether whole numbers that are no distance are to be made unreachable: in the last round."""
        return turn == self.rounds - 1 and not self.nonnegative and self.kind.integer

    def collected(self, turn: int, stripe: int) -> bool:
        """Whether a streamed stripe has columns that the panel after the next one needs (undirected)."""
        return self.streaming.symmetric and turn + 2 < self.rounds and stripe < self.members(turn + 2).start


class Streamer(Protocol):
    """One device.  All verbs but ``open``, ``seed`` and ``release`` are called from one thread, the device's own.

    They may queue work and return; ``drain`` waits for it.  The row panel P of round k is closed by its leader in
    round k - 1 (``lead``); every device brings it to itself (``follow``) and then relaxes by it: X <- min(X, A (x) P),
    A being X's own pivot columns, which need not be relaxed first since P = C (x) P, C being the closed pivot block.
    Undirected, A is a part of P; what P holds left of its pivot block are the columns of stripes above it, which are
    collected two rounds ahead as those stripes pass.
    """

    @property
    def name(self) -> str:
        """For messages and thread names."""
        ...

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:
        """Take the memory; ``resident`` are the rounds whose stripes will stay here.

        Raises:
            DoesNotFit: the device has not the memory.
        """
        ...

    def guard(self) -> AbstractContextManager[object]:
        """Held by the device's thread while it works: makes the device current, translates its errors."""
        ...

    def keep(self, stripe: int, rows: Array) -> None:
        """A resident stripe comes in; ``rows`` have been read when this returns."""
        ...

    def seed(self, turn: int, stripe: int, rows: Array) -> None:
        """Undirected, before the first round: the columns of panel ``turn`` of a stripe above it."""
        ...

    def lead(self, turn: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Close panel ``turn`` and write it back; ``take`` gives its stripes as the round before found them.

        It is None where they are resident here.  Unless ``first``, they are relaxed by panel ``turn`` - 1.
        """
        ...

    def follow(self, turn: int) -> None:
        """Have the panel of round ``turn`` here, from its leader."""
        ...

    def reside(self, turn: int, *, out: bool) -> None:
        """Relax the resident stripes that are not in panel ``turn`` or the next; ``out``: and copy them to the tier."""
        ...

    def relax(self, turn: int, stripe: int, rows: Array) -> None:
        """Relax a stripe of the tier by panel ``turn``, in place."""
        ...

    def leave(self, turn: int) -> None:
        """All of round ``turn`` has been asked for."""
        ...

    def drain(self, *, wait: bool) -> None:
        """Tell of the streamed stripes that are in place again; ``wait`` until all are."""
        ...

    def hand_over(self) -> None:
        """After the last round: write the resident stripes to the tier, and wait."""
        ...

    def release(self) -> None:
        """Give the memory back; called whatever happened."""
        ...


def below_zero(turn: int) -> BelowZero:
    """The error for a diagonal that fell below zero."""
    return BelowZero(f"round {turn}: a vertex came to lie at less than zero from itself, so there is a negative cycle")


def diagonal(rows: Any, first: int) -> Any:
    """The entries of a stripe that lie on the diagonal, as a view; ``first`` is its first row."""
    block = rows[:, first : first + len(rows)]
    return np.lib.stride_tricks.as_strided(block, (len(rows),), (sum(block.strides),))
