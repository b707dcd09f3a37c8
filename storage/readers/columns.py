"""Columns of arcs that grow while a file streams by, in the narrowest type that holds what has come so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.cleaning import AnyArray, ArcList
from storage.errors import InvalidGraph
from storage.readers.limits import ReadLimits

_ORDER = (np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64))


class Column:
    """A growing array: int32, int64 or float64, widened when a part needs it."""

    def __init__(self) -> None:
        self._array: AnyArray = np.empty(0, np.int32)
        self.length = 0

    def append(self, part: AnyArray) -> None:
        """Add a part of integers or floats."""
        if len(part) == 0:
            return
        kind = max(self._array.dtype, _narrowest(part), key=_ORDER.index)
        if kind != self._array.dtype:
            self._array = self._array[: self.length].astype(kind)
        needed = self.length + len(part)
        if needed > len(self._array):
            # Growing in place lets the C library move pages instead of copying them.
            self._array.resize(max(needed, len(self._array) * 5 // 4), refcheck=False)
        self._array[self.length : needed] = part
        self.length = needed

    def take(self) -> AnyArray:
        """The array; the column is empty afterwards."""
        array, self._array = self._array, np.empty(0, np.int32)
        array.resize(self.length, refcheck=False)
        self.length = 0
        return array


def _narrowest(part: AnyArray) -> np.dtype[np.generic]:
    if part.dtype.kind == "f":
        return np.dtype(np.float64)
    if part.dtype == np.int32:
        return np.dtype(np.int32)
    fits = int(part.min()) >= -(2**31) and int(part.max()) < 2**31
    return np.dtype(np.int32) if fits else np.dtype(np.int64)


class ArcColumns:
    """Tails, heads and, if any, weights of the arcs read so far; counts against ``max_arcs``."""

    def __init__(self, limits: ReadLimits, weighted: bool) -> None:
        self._limits = limits
        self._tails, self._heads = Column(), Column()
        self._weights = Column() if weighted else None

    def __len__(self) -> int:
        return self._tails.length

    def append(self, tails: AnyArray, heads: AnyArray, weights: AnyArray | None) -> None:
        """Add arcs; ``weights`` is ignored by an unweighted list."""
        self._limits.check_arcs(len(self) + len(tails))
        self._tails.append(tails)
        self._heads.append(heads)
        if self._weights is not None:
            if weights is None:
                raise InvalidGraph("weights are missing", field="weight")
            self._weights.append(weights)

    def take(self) -> ArcList:
        """All arcs; this list is empty afterwards."""
        return ArcList(self._tails.take(), self._heads.take(), None if self._weights is None else self._weights.take())


class TextLabels:
    """Codes for text labels in order of appearance, and the labels in order of code point at the end."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Codes of names."""
        known = self._codes
        return np.fromiter((known.setdefault(name, len(known)) for name in names), np.int64, len(names))

    def finish(self, arcs: ArcList) -> AnyArray:
        """Recode ``arcs`` to the order of the labels and return these."""
        names = sorted(self._codes)
        order = np.empty(len(names), np.int32)
        order[[self._codes[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        if names:
            arcs.tails, arcs.heads = order[arcs.tails], order[arcs.heads]
        return np.array(names, np.dtypes.StringDType())
