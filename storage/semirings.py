"""The semirings in which paths are solved: the value of a path, which of two values is better, and the names of
semirings in stores.

A semiring has two operations: one makes the value of a path from its arcs (plus, maximum, minimum, times, logical and);
the other selects the best of all paths (minimum, maximum, logical or).  Names are those of GraphBLAS, with the
selecting operation first.  Distances are *min-plus*.  The command line and the client import this module, so it imports
nothing that takes long to import.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from storage.errors import Conflict

#: The semiring of distances, which every operation understands.
MIN_PLUS: Final = "min-plus"
SemiringName = Literal["min-plus", "max-min", "min-max", "max-times", "lor-land"]


@dataclass(frozen=True)
class Semiring:
    """One semiring.

    Attributes:
        name: GraphBLAS's name.
        title: the name of the best path.
        value: the name of its values, in the plural.
        greatest: whether the greatest value is the best.
        unreachable: the value of a pair without a path; it is worse than the value of any path.
        itself: the value of the path without arcs, from a vertex to itself; it is the best of all values.
    """

    name: str
    title: str
    value: str
    greatest: bool
    unreachable: float
    itself: float

    @property
    def parallel(self) -> str | None:
        """Which of parallel arcs a graph must keep, ``least`` or ``greatest``; None if it makes no difference."""
        return None if self.name == "lor-land" else "greatest" if self.greatest else "least"

    def measures(self, *, weighted: bool) -> bool:
        """Return whether values have a unit: that of the weights, or hops for distances in a graph without weights.

        Products and reachability have no unit.  Without weights, every arc weighs 1; then widths and heights have no
        unit either, because only distances count arcs.

        Args:
            weighted: whether the graph has weights.
        """
        return self.name == MIN_PLUS or (weighted and self.name in ("max-min", "min-max"))


SEMIRINGS: Final = {
    semiring.name: semiring
    for semiring in (
        Semiring(MIN_PLUS, "shortest path", "distances", greatest=False, unreachable=math.inf, itself=0),
        Semiring("max-min", "widest path", "widths", greatest=True, unreachable=-math.inf, itself=math.inf),
        Semiring("min-max", "minimax path", "heights", greatest=False, unreachable=math.inf, itself=-math.inf),
        Semiring("max-times", "most reliable path", "products", greatest=True, unreachable=0, itself=1),
        Semiring("lor-land", "any path", "reachability", greatest=True, unreachable=0, itself=1),
    )
}
#: Names of all semirings, for operations that support every semiring.
EVERY: Final = frozenset(SEMIRINGS)
#: Names, in plans and stores, of the two algorithms that do not multiply products arc by arc from the source on: PARTS
#: multiplies over the borders of parts, DENSE closes the whole matrix.
PARTS: Final = "partitioned"
DENSE: Final = "floyd-warshall"
#: Text for messages: the commands and queries that support every semiring.
ANSWERED: Final = (
    "the queries distance, path, row, nearest and summary, apsp verify, and apsp export as .csv, .parquet and .npy; in "
    "Python: apsp.open(PATH, semiring='NAME')"
)
#: The semirings of operations that support lengths only.
LENGTHS: Final = frozenset({MIN_PLUS})


def needed_parallel(name: str | None) -> Literal["greatest"] | None:
    """Return ``greatest`` if a semiring needs the greatest of parallel arcs; None if the default, which keeps the
    least, is right.
    """
    found = SEMIRINGS.get(name or MIN_PLUS)
    return "greatest" if found is not None and found.parallel == "greatest" else None


def semiring_of(attributes: Any) -> str:
    """Return the semiring that the attributes of a store name; min-plus if they name none."""
    return str(attributes.get("semiring", MIN_PLUS))


def joined_products(attributes: Any) -> bool:
    """Return whether the values of a store are products of products, not multiplied arc by arc from the source on.

    Each multiplication rounds, so the last digits depend on the order of multiplications.
    """
    return semiring_of(attributes) == "max-times" and attributes.get("algorithm") in (PARTS, DENSE)


def check_understood(
    where: object, attributes: Any, understood: str | Collection[str], answered: str = ANSWERED
) -> None:
    """Refuse a store whose values an operation would misunderstand.

    Args:
        where: path of the store, or the name of a result, for the message.
        attributes: the attributes of the store.
        understood: the name or names of the semirings that the operation supports.
        answered: for the message, what is supported for the semiring of the store; NAME stands for its name.

    Raises:
        Conflict: the values are of another semiring.
    """
    name, known = semiring_of(attributes), {understood} if isinstance(understood, str) else set(understood)
    if name in known:
        return
    held = SEMIRINGS[name].value if name in SEMIRINGS else "values"
    where = f"{where} holds {held} of semiring {name}"
    if name != MIN_PLUS and known == LENGTHS:
        raise Conflict(
            f"{where}, and this takes distances (min-plus) only; of {name} there are {answered.replace('NAME', name)}; "
            "for distances, solve again without the option semiring"
        )
    raise Conflict(f"{where}, and {' or '.join(sorted(known))} is asked for")
