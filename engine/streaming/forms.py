"""Compares the form of the tiles of a checkpoint with the form that a solve writes, and says how the solve resumes.

Every checkpoint keeps this rule: *at every instant, the record claims no more progress for a tile than the tile's file
contains.*  A solve that cannot use all of the recorded progress may write tiles that contain less than the record
claims; before it writes such a tile, it lowers the record durably (``engine.streaming.checkpoint.Journal.lower``).
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
from engine.model.tiling import Tiling
from storage.files.checksum import crc32c

#: Stands for the potentials of a record that does not name any.  Only older versions of this program wrote such
#: records, and they did not keep the rule above: the tiles may contain less progress than the record says.
UNKNOWN: Final = "unknown"
#: Kinds of records of unfinished matrices, in whose tiles entries may still fall.
LOWERED_KINDS: Final = ("rounds", "passes")


class Way(Enum):
    """How a solve resumes from a checkpoint.

    CONTINUE: the solve uses all recorded progress.  LOWER: it can use a part of the progress, and lowers the record to
    that part before it writes a tile.  FORGET: it can use none of the progress, and writes a record that counts nothing
    before it writes a tile.  REFUSE: the tiles are of another kind, and the solve does not begin.
    """

    CONTINUE = "continue"
    LOWER = "lower"
    FORGET = "forget"
    REFUSE = "refuse"


@dataclass(frozen=True)
class CheckpointForm:
    """The form of the tiles of a checkpoint.

    Attributes:
        dtype: name of the working type.
        kind: ``rows``: rows that are finished one after the other; ``rounds`` and ``passes``: entries that rounds or
            passes still lower; ``whole``: final distances that an in-memory solve writes at its end.
        cut: for ``rounds`` and ``passes``, height of a stripe and width of a pivot block, in rows and columns.
        half: for ``rounds``, whether only entries on or right of the diagonal count.
        potentials: fingerprint of the potentials by which the lengths are reduced (:func:`fingerprint`); None for true
            lengths.
    """

    dtype: str
    kind: str
    cut: tuple[int, int] = (0, 0)
    half: bool = False
    potentials: str | None = None

    @classmethod
    def of_record(cls, record: Mapping[str, Any], dtype: str) -> CheckpointForm:
        """Return the form that ``record`` describes; ``dtype`` is the working type of the store."""
        kind = record.get("kind")
        if kind not in LOWERED_KINDS:
            return cls(dtype, "rows")
        cut = int(record["height"]), int(record["width"])
        return cls(dtype, kind, cut, bool(record.get("symmetric")), record.get("potentials", UNKNOWN))

    @classmethod
    def of_plan(cls, plan: Plan, potentials: str | None = None) -> CheckpointForm:
        """Return the form that a solve by ``plan`` writes; ``potentials`` is the fingerprint of its potentials."""
        if by_rows(plan.algorithm):
            return cls(plan.dtype, "rows")
        if plan.streaming is None:
            return cls(plan.dtype, "whole")
        return cls.of_tiling(plan.dtype, plan.streaming, potentials)

    @classmethod
    def of_tiling(cls, dtype: str, tiling: Tiling, potentials: str | None = None) -> CheckpointForm:
        """Return the form that a solve in the layout ``tiling`` writes."""
        return cls(dtype, kind_of(tiling), (tiling.height, tiling.width), tiling.symmetric, potentials)


def way_on(recorded: CheckpointForm, wanted: CheckpointForm) -> Way:
    """Return how a solve that writes tiles of form ``wanted`` resumes from tiles of form ``recorded``."""
    if recorded.dtype != wanted.dtype or (recorded.kind == "rows") != (wanted.kind == "rows"):
        return Way.REFUSE
    if wanted.kind == "rows":
        return Way.CONTINUE
    if recorded.potentials != wanted.potentials:
        return Way.FORGET
    if wanted.kind == "whole":  # the solve writes only final distances, which hold all progress that a record can claim
        return Way.CONTINUE
    if recorded.half and not wanted.half:
        return Way.FORGET
    return Way.CONTINUE if recorded == wanted else Way.LOWER


def kind_of(tiling: Tiling) -> str:
    """Return the kind of the records that a solve in the layout ``tiling`` writes."""
    return "passes" if tiling.passes else "rounds"


def fingerprint(potentials: npt.NDArray[Any] | None) -> str | None:
    """Return a checksum of potentials; None if there are none.

    Records hold it, so that no solve mixes lengths that are reduced by different potentials.
    """
    if potentials is None:
        return None
    values = np.ascontiguousarray(potentials, np.float64)
    return f"{crc32c(values):08x}"
