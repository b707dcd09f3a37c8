"""Names the unit of distances in the metadata of exported tables, for formats that have metadata."""

from __future__ import annotations


def unit_metadata(unit: str | None, measured: str = "distance") -> dict[str, str]:
    """Return the metadata of a Parquet file, or the members of a document, that name a unit.

    Args:
        unit: what the numbers measure; None if that is not known.
        measured: the column with the numbers, ``distance`` or ``value``.
    """
    return {f"{measured}_unit": unit} if unit else {}
