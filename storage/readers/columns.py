"""Columns of arcs that grow while a file is read, in the narrowest type that holds the values so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, ArcList, chunks
from storage.readers.limits import ReadLimits

if TYPE_CHECKING:
    import polars as pl

#: Up to this number of names go into a dictionary, because filling it takes less time than importing polars.
FEW_NAMES = 1 << 17

_ORDER = (np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64))


class Column:
    """A growing array of int32, int64 or float64; its type is widened when a new part needs it."""

    def __init__(self) -> None:
        self._array: AnyArray = np.empty(0, np.int32)
        self.length = 0

    def append(self, part: AnyArray) -> None:
        """Append an array of integers or floats."""
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
        """Return the array and empty the column."""
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
    """Tails, heads, weights (if the list is weighted) and quantities of the arcs read so far; refuses more arcs than
    ``limits`` allow.
    """

    def __init__(self, limits: ReadLimits, weighted: bool, quantities: Iterable[str] = ()) -> None:
        self._limits = limits
        self._tails, self._heads = Column(), Column()
        self._weights = Column() if weighted else None
        self._quantities = {name: Column() for name in quantities}

    def __len__(self) -> int:
        return self._tails.length

    def append(
        self,
        tails: AnyArray,
        heads: AnyArray,
        weights: AnyArray | None,
        quantities: Mapping[str, AnyArray] = MappingProxyType({}),
    ) -> None:
        """Add arcs; ``weights`` is ignored by an unweighted list."""
        self._limits.check_arcs(len(self) + len(tails))
        self._tails.append(tails)
        self._heads.append(heads)
        if self._weights is not None:
            if weights is None:
                raise InvalidGraph("weights are missing", field="weight")
            self._weights.append(weights)
        for name, column in self._quantities.items():
            column.append(quantities[name])

    def take(self) -> ArcList:
        """Return all arcs and empty this list."""
        weights = None if self._weights is None else self._weights.take()
        quantities = {name: column.take() for name, column in self._quantities.items()}
        return ArcList(self._tails.take(), self._heads.take(), weights, quantities)


class TextLabels:
    """Gives each text label a number (code) in the order of first occurrence; ``finish`` replaces codes by positions in
    the labels sorted by code points.

    The first names go into a dictionary, so that small files need not import polars.  All later names go into a set of
    polars categories, which is ten times as fast as a dictionary of Python strings.
    """

    def __init__(self) -> None:
        self._few: dict[str, int] = {}
        self._many: _Categories | None = None

    def __len__(self) -> int:
        return len(self._few) if self._many is None else self._many.count

    def encode(self, names: pl.Series | Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the code of each name."""
        if len(names) == 0:
            return np.zeros(0, np.uint32)
        few = self._few
        if self._many is None and isinstance(names, list) and len(few) + len(names) <= FEW_NAMES:
            return np.array([few.setdefault(name, len(few)) for name in names], np.uint32)
        if self._many is None:
            self._many = _Categories()
            self._moved = self._many.encode(list(few))
        return self._many.encode(names) + np.uint32(len(few))

    def finish(self, arcs: ArcList) -> AnyArray:
        """Replace the codes in ``arcs`` by positions in the sorted labels, and return these labels."""
        if self._many is None:
            names = sorted(self._few)
            order = np.empty(len(names), np.int32)
            order[[self._few[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        else:
            names, order = self._many.ordered()
            order = np.concatenate([order[self._moved], order])
        for column in (arcs.tails, arcs.heads):
            for part in chunks(len(column)):
                column[part] = order[column[part]]
        return np.array(names, np.dtypes.StringDType())


class _Categories:
    """Codes that polars gives to many names; ``count`` is one more than the largest code."""

    def __init__(self) -> None:
        import polars as pl

        self._categories = pl.Categories.random()
        self._kind = pl.Categorical(self._categories)
        # Polars keeps categories only as long as a column uses them.
        self._anchor = pl.Series([], dtype=self._kind)
        self.count = 0

    def encode(self, names: pl.Series | Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the code of each name."""
        import polars as pl

        if len(names) == 0:
            return np.zeros(0, np.uint32)
        codes = pl.Series(names, dtype=pl.String()).cast(self._kind).to_physical().to_numpy()
        self.count = max(self.count, int(codes.max()) + 1)
        return codes

    def ordered(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Return the names in ascending order, and for each code the position of its name in that order."""
        names = self._categories.to_series()
        # Polars may leave a code without a name; such codes are sorted last, and no arc has them.
        ascending = names.arg_sort(nulls_last=True)
        order = np.empty(len(names), np.int32)
        order[ascending.to_numpy()] = np.arange(len(names), dtype=np.int32)
        return names.gather(ascending).drop_nulls().to_list(), order
