"""Names what distances measure, in words and in the metadata of exported tables, for formats that have metadata."""

from __future__ import annotations


def said_unit(stored: object) -> str | None:
    """Return the unit that the user gave for the weights, from what a store says; None if there is none."""
    return None if stored in (None, "weight", "hops") else str(stored)


def measured(unit: str | None, column: str | None, *, weighted: bool = True) -> str:
    """Return what distances measure; pages, pictures and the command line show it behind numbers.

    Args:
        unit: the unit of the weights; None if it is not known.
        column: the column of the weights, which is shown in place of an unknown unit; None if it is not known, or if a
            formula made the weights.
        weighted: whether the arcs have weights; if not, distances count arcs.

    Returns:
        The unit or the name of the column; empty if neither is known.  A column without a header has a number for a
        name, which says nothing.
    """
    if not weighted:
        return "arcs"
    return unit or ("" if column is None or column.isdigit() else column)


def measured_words(unit: str | None, shown: str) -> str:
    """Return ``in min``, or ``(length_m)`` where no unit is known; empty where nothing is.

    Args:
        unit: the unit of the weights; None if it is not known.
        shown: what :func:`measured` returned.
    """
    return f"in {shown}" if shown and (unit or shown == "arcs") else f"({shown})" if shown else ""


def unit_metadata(unit: str | None, measured: str = "distance") -> dict[str, str]:
    """Return the metadata of a Parquet file, or the members of a document, that name a unit.

    Args:
        unit: what the numbers measure; None if that is not known.
        measured: the column with the numbers, ``distance`` or ``value``.
    """
    return {f"{measured}_unit": unit} if unit else {}
