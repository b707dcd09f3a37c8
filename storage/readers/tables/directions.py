"""Columns that say which edges are directed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from storage.errors import InvalidGraph
from storage.readers.fields import shown
from storage.readers.lengths import plain

#: Values of Gephi's column ``Type`` and whether they mean directed.
KINDS: Final = MappingProxyType({"directed": True, "undirected": False})
#: Values of a column ``directed`` and whether they mean directed.
YES: Final = MappingProxyType({**KINDS, "true": True, "yes": True, "1": True, "false": False, "no": False, "0": False})


def kinds_of(name: str) -> Mapping[str, bool]:
    """Return the values that a column of this name may have, and whether each means directed; an empty mapping if such
    a column does not say which edges are directed.
    """
    short = plain(name)
    return KINDS if short in ("type", "edgetype") else YES if short in ("directed", "isdirected") else {}


def direction_of(name: str, values: Iterable[str]) -> bool:
    """Return whether the column ``name`` says that all edges are directed; raise InvalidGraph if some are directed and
    some are not, or if a value is unknown.
    """
    known, found = kinds_of(name), set()
    for value in set(values):
        if value.lower() not in known:
            raise InvalidGraph(f"{name} {shown(value)} says no direction; say --directed or --undirected", field=name)
        found.add(known[value.lower()])
    if len(found) > 1:
        raise InvalidGraph("edges both directed and undirected; say which with --directed or --undirected", field=name)
    return found != {False}
