"""Blocked Floyd-Warshall's order of work, for whatever holds the tiles.

Round k closes the pivot block C of vertices k and relaxes the rows and columns through it, which makes *panel k*; all
the rest is then relaxed by that panel.  What panel k + 1 is made of depends on round k only through its own *strips* of
the rest.  With *look-ahead* the strips are therefore relaxed first and panel k + 1 is closed in round k, so that nobody
waits for it in the next round:

- a device that queues its work is given the rest before that panel, which is then closed beside it (one GPU);
- a device that others wait for closes the panel first (streams);
- processors that would close the panel themselves anyway gain nothing, and close it in its own round.

Everything here is a generator or a number, so that each holder of tiles keeps its own ways of copying and waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Action(Enum):
    """What a step does with panel k, or by it."""

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
        ahead: whether panels are closed a round before their own.
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
        """Return the groups of stripes that the rest of round ``k`` is made of, those of the next panel first.

        The group of panel ``k`` is closed already, and that of a panel which is closed ahead is relaxed there.
        """
        ahead = int(self.ahead)
        groups = sorted(range(self.count), key=lambda group: panels_until(group, k + 1 + ahead, self.count))
        return [group for group in groups if group not in (k, k + ahead)]


def panels_until(group: int, panel: int, count: int) -> int:
    """Return how many panels are closed from ``panel`` on before that of ``group``; closed ones come last.

    Stripes are relaxed in this order, so that those of the next panels are ready when these are closed.

    Args:
        group: a group of stripes, by the number of its panel.
        panel: the next panel to close.
        count: number of panels.
    """
    return (group - panel) % count
