"""What the tiles of a checkpoint hold, what a solve wants to find there, and what it may do with the one for the other.

The law of every checkpoint, whatever writes it: *what the record says of a tile is never more than what the tile holds,
at every instant.*  A tile is overwritten by less than the record says of it only where a solve cannot use what is
recorded; then the record is lowered first, durably (``engine.streaming.checkpoint.Journal.lower``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.model.algorithms import by_rows
from engine.model.plan import Plan
from storage.matrix.format import crc32c

#: The potentials of a record that does not say by which potentials its lengths are reduced.  Programs that wrote such
#: records did not keep the law, so the tiles may hold less than the record says.
UNKNOWN: Final = "unknown"


class Way(Enum):
    """How a solve goes on from a checkpoint.

    CONTINUE: everything that is recorded counts.  LOWER: a part of it counts, which the record is lowered to before a
    tile is written.  FORGET: nothing counts, and the record says so before a tile is written.  REFUSE: the tiles are of
    another kind, and the solve does not begin.
    """

    CONTINUE = "continue"
    LOWER = "lower"
    FORGET = "forget"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Form:
    """What tiles hold.

    Attributes:
        dtype: name of the working type.
        kind: ``rows``, finished one after the other; ``rounds``, entries on their way through the rounds; ``whole``,
            distances that a solve in memory writes when it is done.
        cut: height of a stripe and width of a pivot block, of rounds.
        half: only entries on or right of the diagonal count, of rounds.
        potentials: by which the lengths are reduced (:func:`fingerprint`); None for true lengths.
    """

    dtype: str
    kind: str
    cut: tuple[int, int] = (0, 0)
    half: bool = False
    potentials: str | None = None

    @classmethod
    def of_record(cls, record: Mapping[str, Any], dtype: str) -> Form:
        """The form that a record speaks of."""
        if record.get("kind") != "rounds":
            return cls(dtype, "rows")
        cut = int(record["height"]), int(record["width"])
        return cls(dtype, "rounds", cut, bool(record.get("symmetric")), record.get("potentials", UNKNOWN))

    @classmethod
    def of_plan(cls, plan: Plan, potentials: str | None = None) -> Form:
        """The form that a solve which follows ``plan`` writes."""
        if by_rows(plan.algorithm):
            return cls(plan.dtype, "rows")
        if plan.streaming is None:
            return cls(plan.dtype, "whole")
        cut = plan.streaming.height, plan.streaming.width
        return cls(plan.dtype, "rounds", cut, plan.streaming.symmetric, potentials)


def way_on(recorded: Form, wanted: Form) -> Way:
    """How a solve that writes tiles of form ``wanted`` goes on from tiles of form ``recorded``."""
    if recorded.dtype != wanted.dtype or (recorded.kind == "rows") != (wanted.kind == "rows"):
        return Way.REFUSE
    if wanted.kind == "rows":
        return Way.CONTINUE
    if recorded.potentials != wanted.potentials:
        return Way.FORGET
    if wanted.kind == "whole":  # a distance is at least as far as any round
        return Way.CONTINUE
    if recorded.half and not wanted.half:
        return Way.FORGET
    return Way.CONTINUE if (recorded.cut, recorded.half) == (wanted.cut, wanted.half) else Way.LOWER


def fingerprint(potentials: npt.NDArray[Any] | None) -> str | None:
    """What tells potentials apart: lengths reduced by others do not go with each other.  None for none."""
    if potentials is None:
        return None
    values = np.ascontiguousarray(potentials, np.float64)
    return f"{crc32c(values):08x}"
