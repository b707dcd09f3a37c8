"""Writes numbers with nouns in the singular or plural: ``1 vertex``, ``2 vertices``."""

from __future__ import annotations

from typing import Final

#: Irregular nouns: the singular by the plural.
_SINGULAR: Final = {"vertices": "vertex", "matrices": "matrix", "indices": "index"}


def singular(noun: str) -> str:
    """Return the singular of an English noun that is given in the plural; other words are returned unchanged."""
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    if noun.endswith(("ches", "shes", "sses", "xes")):
        return noun[:-2]
    return _SINGULAR.get(noun, noun.removesuffix("s"))


def counted(count: int, nouns: str) -> str:
    """Return a number with its noun.

    Args:
        count: the number.
        nouns: what is counted, in the plural; only the last word is made singular.
    """
    *before, noun = nouns.split(" ")
    return " ".join((f"{count:,}", *before, singular(noun) if count == 1 else noun))
