"""Names the unit of distances, in words and in the metadata of exported tables."""

from __future__ import annotations


def said_unit(stored: object) -> str | None:
    """Return the unit that the user gave for the weights, from the ``unit`` of a store; None if the user gave none."""
    return None if stored in (None, "weight", "hops") else str(stored)


def measured(unit: str | None, column: str | None, *, weighted: bool = True) -> str:
    """Return the text that pages, pictures and the command line show after distances, to say what they measure.

    Args:
        unit: the unit of the weights; None if it is not known.
        column: name of the column of the weights, which is shown if the unit is not known; None if it is not known, or
            if a formula made the weights.
        weighted: whether the arcs have weights; if not, distances count arcs.

    Returns:
        The unit or the name of the column; empty if neither is known.  A number is not shown as a name: it stands for a
        column without a header.
    """
    if not weighted:
        return "arcs"
    return unit or ("" if column is None or column.isdigit() else column)


def measured_words(unit: str | None, shown: str) -> str:
    """Return ``in min`` if the unit is known, else the column as ``(length_m)``; empty if neither is known.

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
