"""The order of work in blocked Floyd-Warshall, for all kinds of devices.

Round k closes its pivot block C and relaxes the rows and columns of C, which makes *panel k*.  That panel then relaxes
the *rest*, which is the remainder of the matrix.  Before panel k + 1 can be closed, only its own *strips* of the rest
must be relaxed in round k.  With *look-ahead*, these strips are relaxed first and panel k + 1 is closed in round k, so
that nothing waits for it in the next round:

- a single GPU queues the rest first and then the panel, and computes both at the same time;
- a device whose panel other devices wait for closes the panel first (streaming);
- processors that do all the work themselves gain nothing from look-ahead, and close each panel in its own round.

This module only yields steps and numbers, so that each caller copies and waits in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Action(Enum):
    """The action of a step on a panel."""

    CLOSE = "close the pivot block, and relax the rows and columns through it"
    USE = "bring the closed panel to where it is used"
    STRIPS = "relax the strips of which the next panel is made"
    REST = "relax the rest"


class RoundStep(NamedTuple):
    """One step: an action, and the round of the panel that it is about."""

    action: Action
    k: int


@dataclass(frozen=True)
class RoundOrder:
    """The order of the rounds.

    Attributes:
        count: number of rounds.
        ahead: whether panels are closed one round ahead.
        queued: whether the rest of a round is queued before the next panel is closed.
        first: the round to begin with; above 0 when resuming.
    """

    count: int
    ahead: bool = False
    queued: bool = False
    first: int = 0

    def rounds(self) -> Iterator[tuple[int, list[RoundStep]]]:
        """Yield each round with its steps, in order; the first round begins by closing its own panel."""
        for k in range(self.first, self.count):
            own = [RoundStep(Action.CLOSE, k)] if k == self.first or not self.ahead else []
            strips, following = [], []
            if self.ahead and k + 1 < self.count:
                strips, following = [RoundStep(Action.STRIPS, k)], [RoundStep(Action.CLOSE, k + 1)]
            rest = [RoundStep(Action.REST, k)]
            last = [*rest, *following] if self.queued else [*following, *rest]
            yield k, [*own, RoundStep(Action.USE, k), *strips, *last]

    def groups(self, k: int) -> list[int]:
        """Return the groups of stripes that form the rest of round ``k``, the group of the next panel first.

        Two groups are left out: that of panel ``k``, which is closed, and with look-ahead that of panel ``k`` + 1,
        because closing panel ``k`` + 1 in this round relaxes it first.
        """
        ahead = int(self.ahead)
        groups = sorted(range(self.count), key=lambda group: panels_until(group, k + 1 + ahead, self.count))
        return [group for group in groups if group not in (k, k + ahead)]


def panels_until(group: int, panel: int, count: int) -> int:
    """Return how many panels are closed from now on before the panel of ``group``; groups whose panel is closed already
    come last.

    Stripes are relaxed in this order, so that the stripes of a panel are ready when it is to be closed.

    Args:
        group: a group of stripes, by the number of its panel.
        panel: the next panel to close.
        count: number of panels.
    """
    return (group - panel) % count
