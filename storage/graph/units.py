"""Names the unit of distances, in words and in the metadata of exported tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from storage.errors import InvalidRequest
from storage.semirings import SEMIRINGS, semiring_of

#: The attribute ``unit`` of a store whose unit is not known: WEIGHT for a graph with weights, HOPS for one without.
WEIGHT: Final = "weight"
HOPS: Final = "hops"
#: Names of columns that say nothing about what the weights measure: ``5 weight`` would be no better than ``5``, and
#: ``5 hops`` would read as a number of arcs.
_PLAIN: Final = frozenset({WEIGHT, "weights", "w", "wt", "value", HOPS})


def said_unit(stored: object) -> str | None:
    """Return the unit that the user gave for the weights, from the ``unit`` of a store; None if the user gave none."""
    return None if stored in (None, WEIGHT, HOPS) else str(stored)


def check_unit(unit: str | None) -> None:
    """Raise InvalidRequest if ``unit`` is one of the words that mean, in stores, that the unit is not known."""
    if unit in (WEIGHT, HOPS):
        raise InvalidRequest(
            f"unit {unit!r} says in stores that no unit is known ({HOPS}: distances count arcs), so it cannot be the "
            "unit of weights; leave it out, or use another word",
            field="unit",
        )


def measured(unit: str | None, column: str | None, *, weighted: bool = True) -> str:
    """Return the text that pages, pictures and the command line show after distances, to say what they measure.

    Args:
        unit: the unit of the weights; None if it is not known.
        column: name of the column of the weights, which is shown if the unit is not known; None if it is not known, or
            if a formula made the weights.
        weighted: whether the arcs have weights; if not, distances count arcs.

    Returns:
        ``arcs`` if the arcs have no weights; otherwise the unit, or the name of the column, or an empty text if neither
        is known.  Two kinds of names count as not known: numbers, because they stand for columns without a header, and
        names such as ``weight``, because they do not say what is measured.
    """
    if not weighted:
        return "arcs"
    return said_unit(unit) or ("" if column is None or column.isdigit() or column.casefold() in _PLAIN else column)


def measured_by(facts: Mapping[str, Any]) -> str:
    """Return what the values of a store measure, as :func:`measured` says it; empty for values without a unit.

    In stores of earlier versions, widths and heights in graphs without weights also have the unit ``hops``, although
    these values do not count arcs.

    Args:
        facts: the attributes of the store: ``unit`` and, if they are there, ``weight_column`` and ``semiring``.
    """
    semiring, weighted = SEMIRINGS.get(semiring_of(facts)), facts.get("unit") != HOPS
    if semiring is None or not semiring.measures(weighted=weighted):
        return ""
    return measured(said_unit(facts.get("unit")), facts.get("weight_column"), weighted=weighted)


def measured_words(unit: str | None, shown: str) -> str:
    """Return words to put after ``distance``: for example ``in km`` if the unit is known, or ``(length_m)`` if only the
    name of the column is known; empty if neither is known.

    Args:
        unit: the unit of the weights; None if it is not known.
        shown: the text that :func:`measured` returned.
    """
    return f"in {shown}" if shown and (unit or shown == "arcs") else f"({shown})" if shown else ""


def unit_metadata(unit: str | None, measured: str = "distance") -> dict[str, str]:
    """Return the metadata of a Parquet file, or the members of a document, that name a unit.

    Args:
        unit: the unit of the numbers; None if it is not known.
        measured: name of the column with the numbers, ``distance`` or ``value``.
    """
    return {f"{measured}_unit": unit} if unit else {}
