"""The operations that rounds and passes of Floyd-Warshall call on a device through which stripes are streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from engine.model.backend import Array
from engine.model.dtypes import WorkType, work_type
from engine.model.tier import Tier
from engine.model.tiling import Tiling
from storage.errors import SolveFailed


class BelowZero(SolveFailed):
    """The distance of a vertex to itself fell below zero; callers can search for the negative cycle that causes it."""


@dataclass
class StripeJob:
    """One streamed run: everything that its devices share.

    Attributes:
        tiling: how the matrix is cut into stripes and rounds.
        tier: where the matrix lies.
        nonnegative: promises that no entry is below zero.
        leaders: for each round, the index of the device that closes its panel; empty in passes.
        devices: all devices, in the order of their indices.
        done: called with (round or level, stripe, rows) when a stripe's rows are relaxed and back in the tier's array.
        advance: called with a number of updates when they are done.
        check: raises if the run is to stop.
        panels: row panels that several CPU devices share.
    """

    tiling: Tiling
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
        """The number of rounds."""
        return self.tiling.rounds(self.n)

    def rows(self, stripe: int) -> tuple[int, int]:
        """Return the first row of a stripe, and the row after its last."""
        return self.tiling.rows(stripe, self.n)

    def pivot(self, k: int) -> tuple[int, int]:
        """Return the first vertex of the pivot block of round ``k``, and the vertex after its last."""
        return self.tiling.pivot(k, self.n)

    def members(self, k: int) -> range:
        """Return the stripes of the pivot block of round ``k``."""
        return self.tiling.members(k, self.n)

    def settles(self, k: int) -> bool:
        """Return whether round ``k`` is the last, in which integers that are no distance are set to unreachable."""
        return k == self.rounds - 1 and not self.nonnegative and self.kind.integer

    def collected(self, k: int, stripe: int) -> bool:
        """Return whether round ``k`` copies columns of a streamed stripe into panel ``k`` + 2 (undirected graphs
        only).
        """
        return self.tiling.symmetric and k + 2 < self.rounds and stripe < self.members(k + 2).start


class Streamer(Protocol):
    """One device.  The device's own thread calls all operations except ``open``, ``seed`` and ``release``.

    Operations may queue work and return; ``drain`` waits for it.  The leader of round k closes the row panel P of that
    round in round k - 1 (``lead``).  Every device copies P to itself (``follow``) and then relaxes each stripe X by it:
    X <- min(X, A (x) P), where A are the pivot columns of X.  A need not be multiplied by the closed pivot block C
    first, because P = C (x) P.

    In undirected graphs, A is a part of P: the columns of P left of its pivot block hold, transposed, the pivot columns
    of the stripes above P.  These columns are copied into P two rounds ahead, while the stripes above P are on the
    device.
    """

    @property
    def name(self) -> str:
        """The device's name in messages and thread names."""
        ...

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:
        """Allocate the device's memory.

        Args:
            job: the run.
            index: index of this device in ``job.devices``.
            resident: rounds whose stripes will stay on this device.

        Raises:
            DoesNotFit: the device does not have enough memory.
        """
        ...

    def guard(self) -> AbstractContextManager[object]:
        """Return the context in which the device's thread works.  It makes the device current, and translates errors of
        the device.
        """
        ...

    def keep(self, stripe: int, rows: Array) -> None:
        """Copy a resident stripe to the device; the caller may overwrite ``rows``, shape (rows, n), when this
        returns.
        """
        ...

    def seed(self, k: int, stripe: int, rows: Array) -> None:
        """Copy the columns of panel ``k`` from a stripe above it, before the first round of an undirected graph.

        Args:
            k: the round of the panel.
            stripe: a stripe above the panel.
            rows: the stripe, shape (rows, n).
        """
        ...

    def lead(self, k: int, take: Callable[[int], Array] | None, *, first: bool) -> None:
        """Relax panel ``k`` by panel ``k`` - 1, unless ``first``; then close it and write it back to the tier.

        Args:
            k: the round of the panel.
            take: returns a stripe of the panel as it was before round ``k`` - 1; None where the stripes are resident
                on this device.
            first: whether the run begins with round ``k``, so that the stripes need not first be relaxed by panel ``k``
                - 1.
        """
        ...

    def follow(self, k: int) -> None:
        """Copy the panel of round ``k`` from its leader to this device."""
        ...

    def reside(self, k: int, *, out: bool) -> None:
        """Relax the resident stripes outside of panels ``k`` and ``k`` + 1; with ``out`` also copy them to the tier."""
        ...

    def relax(self, k: int, stripe: int, rows: Array) -> None:
        """Relax a stripe of the tier by panel ``k``, in place.

        Args:
            k: the round.
            stripe: number of the stripe.
            rows: the stripe, shape (rows, n), in host memory.
        """
        ...

    def leave(self, k: int) -> None:
        """Note that all work of round ``k`` has been queued."""
        ...

    def drain(self, *, wait: bool) -> None:
        """Call ``job.done`` for each streamed stripe that has come back from the device; with ``wait``, wait for all of
        them.
        """
        ...

    def hand_over(self) -> None:
        """Write the resident stripes to the tier after the last round, and wait until they are there."""
        ...

    def release(self) -> None:
        """Free the memory; this is called after success and after failure."""
        ...


class PanelDevice(Protocol):
    """One device of passes.  It holds the panel that is relaxed, and other stripes pass through it or stay on it.

    Its own thread calls all operations except ``open`` and ``release``.  Operations may queue work and return;
    ``drain`` waits for it.  For one panel, callers call ``begin``, then ``lower`` for each stripe that relaxes the
    panel, then ``close`` in the pass down, then ``give``.  They call ``forget`` once, between the two passes.
    """

    @property
    def name(self) -> str:
        """The device's name in messages and thread names."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether the device still holds the panel of the last ``give`` while it relaxes the next panel."""
        ...

    @property
    def most_held(self) -> int:
        """How many stripes the open device can hold until ``forget``; at most ``Tiling.resident``."""
        ...

    def open(self, job: StripeJob, index: int, resident: Sequence[int]) -> None:
        """Allocate the device's memory.

        Args:
            job: the run.
            index: not used.
            resident: not used.

        Raises:
            DoesNotFit: the device does not have enough memory.
        """
        ...

    def guard(self) -> AbstractContextManager[object]:
        """Return the context in which the device works.  It makes the device current, and translates its errors."""
        ...

    def begin(self, k: int, take: Callable[[int], Array]) -> None:
        """Load the stripes of panel ``k``; ``take`` returns the rows of a stripe of the tier."""
        ...

    def lower(self, k: int, stripe: int, rows: Array | None, *, hold: bool = False) -> None:
        """Relax panel ``k`` by a stripe: P <- min(P, P[:, S] (x) X), where S are the stripe's rows as columns.

        Args:
            k: the panel.
            stripe: number of the stripe.
            rows: the rows X of the stripe, shape (rows, n), in host memory; None if the device holds them, or still
                keeps them as a part of the panel of the last ``give``.
            hold: hold the stripe until ``forget``.  There are never more such stripes than ``most_held``.
        """
        ...

    def forget(self) -> None:
        """Release all stripes that the device holds."""
        ...

    def close(self, k: int) -> None:
        """Close the pivot block of panel ``k``, and relax the panel by it."""
        ...

    def give(self, k: int, level: int) -> None:
        """Copy panel ``k`` to the tier; ``job.done`` is called for each of its stripes, which have reached ``level``.

        In finished rows, whole numbers that are no distance are set to unreachable.
        """
        ...

    def drain(self, *, wait: bool) -> None:
        """Call ``job.done`` for each stripe that has come back from the device; with ``wait``, wait for all of them."""
        ...

    def release(self) -> None:
        """Free the memory; this is called after success and after failure."""
        ...


def below_zero(k: int) -> BelowZero:
    """Return the error for an entry of the diagonal that fell below zero in round ``k``."""
    return BelowZero(f"round {k}: the distance of a vertex to itself became negative, so there is a negative cycle")


def diagonal(rows: Any, first: int) -> Any:
    """Return a view of the entries of a stripe that lie on the diagonal; ``first`` is the stripe's first row."""
    block = rows[:, first : first + len(rows)]
    return np.lib.stride_tricks.as_strided(block, (len(rows),), (sum(block.strides),))
