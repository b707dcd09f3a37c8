"""Decides in which directions the rows of a layer of edges may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers.fields import shown
from storage.readers.lengths import plain
from storage.readers.tables.ends import ONE_WAY

if TYPE_CHECKING:
    import polars as pl

Bools = npt.NDArray[np.bool_]
_ALONG, _BACK, _BOTH = (True, False), (False, True), (True, True)
#: The meaning of values in a column of one-way streets: whether a row may be used along its line, and whether against
#: its line.
_MEANINGS: Final[Mapping[str, tuple[bool, bool]]] = MappingProxyType(
    {
        **dict.fromkeys(("yes", "true", "1", "y", "ft", "forward", "along"), _ALONG),
        **dict.fromkeys(("-1", "reverse", "tf", "backward", "against"), _BACK),
        **dict.fromkeys(("no", "false", "0", "n", "b", "both", ""), _BOTH),
    }
)
#: Geofabrik writes F (forward), T (backward) and B (both).  In a column without B, F and T may mean false and true.
_LETTERS: Final = MappingProxyType({"f": _ALONG, "t": _BACK})


class Ways(NamedTuple):
    """For each row, whether it may be used along its line, and whether against its line; two masks of shape (k,)."""

    along: Bools
    against: Bools

    @property
    def both(self) -> Bools:
        """Which rows may be used in both directions."""
        return self.along & self.against


def one_way_column(names: Sequence[str]) -> str | None:
    """Return the column that says which rows are one-way; None if there is none."""
    return next((name for name in names if plain(name) in ONE_WAY), None)


def ways_of(column: pl.Series) -> Ways:
    """Return the directions that a column of one-way streets allows for each row; a missing value means both.

    Raises:
        InvalidGraph: a value is not known, or it is uncertain what F and T mean.
    """
    import polars as pl

    if column.dtype.is_float():
        column = column.cast(pl.Int64(), strict=False) if (column == column.round()).all() else column
    texts = column.cast(pl.String()).str.strip_chars().str.to_lowercase().fill_null("")
    found = texts.unique(maintain_order=True).to_list()
    known: dict[str, Any] = {**_MEANINGS, **(_LETTERS if "b" in found else {})}
    for value in found:
        if value in known:
            continue
        row = int((texts == value).arg_max() or 0)
        why = "may be false and true, or forward and back" if value in _LETTERS else "is no direction that is known"
        raise InvalidGraph(
            f"row {row + 1} of column {column.name!r}: {shown(value)} {why}; write yes, no and -1, or say --directed "
            "to take all rows along their lines, or --undirected to take all of them both ways",
            field=column.name,
        )
    along, against = (
        texts.replace_strict({value: known[value][side] for value in found}, return_dtype=pl.Boolean()).to_numpy()
        for side in (0, 1)
    )
    return Ways(np.array(along, np.bool_), np.array(against, np.bool_))


def without_double(ways: Ways, ends: tuple[AnyArray, AnyArray], name: str) -> Ways:
    """Return the directions of rows, in a layer with columns that name the vertices.  If each two-way row also has a
    row for its reverse, as in directed networks of OSMnx, each row stands for one arc only.

    Args:
        ways: the directions from ``ways_of``.
        ends: tails and heads of the rows, counted from 0, shape (k,) each.
        name: the name of the column of one-way streets, for messages.

    Raises:
        InvalidGraph: most two-way rows, but not all, have a row for their reverse, so that it is uncertain what rows
            stand for.
    """
    first, last = (np.asarray(vertices, np.int64) for vertices in ends)
    back = ways.against & ~ways.along  # a row against its line is a way from its head to its tail
    tails, heads = np.where(back, last, first), np.where(back, first, last)
    many = int(max(tails.max(initial=0), heads.max(initial=0))) + 1
    asked = ways.both & (tails != heads)
    has_back = np.isin(heads[asked] * many + tails[asked], tails * many + heads)
    count, total = int(has_back.sum()), int(asked.sum())
    if total and count == total:
        return Ways(ways.along, ways.against & ~ways.along)
    if 2 * count > total:
        raise InvalidGraph(
            f"column {name!r}: {total:,} rows are both ways, and of {count:,} the way back is a row of its own: say "
            "--directed to take each row as one arc, or --undirected to take all of them both ways",
            field=name,
        )
    return ways
