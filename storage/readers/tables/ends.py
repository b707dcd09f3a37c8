"""Decides which named columns of a table hold the vertices of an edge, and which certainly do not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from storage.errors import InvalidRequest
from storage.number_texts import is_digits
from storage.options import spelled
from storage.readers.fields import is_number
from storage.readers.lengths import is_measure, plain

#: Pairs of column names for source and target, without blanks, underscores and endings such as "id"; an earlier pair in
#: this list is preferred.
_PAIRS: Final = (
    ("source", "target"), ("src", "dst"), ("src", "tgt"), ("from", "to"), ("origin", "destination"), ("orig", "dest"),
    ("tail", "head"), ("u", "v"), ("init", "term"), ("sender", "receiver"), ("sender", "recipient"),
    ("start", "end"), ("i", "j"),
    ("parent", "child"), ("follower", "followee"), ("follower", "followed"), ("citing", "cited"), ("caller", "callee"),
    ("predecessor", "successor"), ("departure", "arrival"),
    # German, French, Spanish, Italian
    ("von", "nach"), ("quelle", "ziel"), ("start", "ziel"), ("origine", "destination"), ("source", "cible"),
    ("depart", "arrivee"), ("desde", "hasta"), ("origen", "destino"), ("origine", "destinazione"),
)  # fmt: skip
_SOURCES: Final = tuple(dict.fromkeys(source for source, _ in _PAIRS))
_TARGETS: Final = tuple(dict.fromkeys(target for _, target in _PAIRS))
_ENDINGS: Final = re.compile(r"(node|vertex|osm|stop|station|knoten|ort)?(id|nodeid|index)?$")
_BEGINNINGS: Final = re.compile(r"(?:link|edge|arc|node|vertex|id)(?=[a-z])")
#: Matches a word with a number or letter, as in names of the two ends of an edge: ``stop_a`` and ``stop_b``.
_COUNTED: Final = re.compile(
    r"([a-z]*(?:id|node|vertex|vert|point|stop|station|city|town|place|airport|country|protein|gene|interactor|residue|atom|"
    r"person|user|author|actor|entity|item|bus|stadt|ort|knoten|bahnhof|haltestelle|ville|noeud|gare|sommet|ciudad|nodo|"
    r"estacion)|(?:v|x|var|col|column|field)(?=[0-9]))(?:id)?([0-9]++|[a-z])(?:id)?"
)
#: Matches names that only number the columns (``V1``, ``col2``), as in R, data frames and spreadsheets.
_NUMBERED: Final = re.compile(r"(v|x|c|var|col|column|field|f)([0-9]{1,3})")
#: Matches names of the two ends that begin with the letter A or B: ``A Node`` and ``B Node`` in models of traffic.
_LETTERED: Final = re.compile(r"([ab])(node|vertex|point|stop|station|zone)(?:id|no|nr)?")
#: Names of columns that hold no vertices, but ids, names, kinds, times or weights of the edges themselves.
_NUMBERS: Final = frozenset({"id", "fid", "gid", "oid", "uid", "eid", "objectid", "ogcfid", "osmid", "edgeid", "arcid",
                             "linkid", "index", "idx", "nr", "no", "num", "number", "row", "rowid", "rownumber", "key",
                             "unnamed0", "label", "name", "type", "kind", "timeset", "timestamp", "date", "time",
                             "interval", "weight", "value"})  # fmt: skip
#: The names in ``_NUMBERS`` of columns that only number the rows; such a column is never taken for a length.
_ROW_NUMBERS: Final = frozenset(
    {"id", "fid", "gid", "oid", "objectid", "ogcfid", "index", "idx", "row", "rowid", "rownumber"}
)
_GEOMETRY: Final = frozenset({"wkt", "wkb", "ewkt", "ewkb", "geom", "geometry", "thegeom", "wkbgeometry", "wktgeometry",
                              "shape", "geojson", "coordinates", "coords", "polyline"})  # fmt: skip
_COORDINATE: Final = re.compile(
    r"(?:from|to|start|end|origin|destination|dest|source|target|src|dst|node|stop|point)?"
    r"(?:[xyz]|lon|lat|lng|long|latitude|longitude|easting|northing|[xyz]?coord|point[xyz])(?:from|to|start|end|[0-9]|[ab])?"
)
#: Names of columns that may make a row an arc in both directions.  A column in ``ONE_WAY`` does so by a value in
#: ``_NO``, a column in ``_TWO_WAY`` by a value in ``_YES``, and a column in ``_WAY_BACK`` by holding the length of the
#: reverse arc.
ONE_WAY: Final = frozenset({"oneway", "isoneway", "onewaystreet"})
_TWO_WAY: Final = frozenset({"bidirectional", "bidir", "isbidirectional", "twoway", "reversible", "bothways"})
_WAY_BACK: Final = frozenset({"reversecost", "rcost", "costreverse", "reversetime", "reverselength", "backwardcost"})
_NO: Final = frozenset({"no", "false", "0", "n", "b"})
_YES: Final = frozenset({"yes", "true", "1", "y", "t"})
#: Words in headers that stand neither for vertices nor for lengths.
_ROLES: Final = frozenset({"subject", "predicate", "object", "relation", "relationship", "interaction", "edgetype",
                           "linktype", "edge", "property", "cluster", "group", "community",
                           "module"})  # fmt: skip


def names_ends(names: Sequence[str], *, letters: bool = False) -> bool:
    """Return whether ``names`` contains a usual name of a source column and one of a target column; single letters
    count only with ``letters``.
    """
    known = {_end(name) for name in names if letters or len(name) > 1}
    ends = not known.isdisjoint(_SOURCES) and not known.isdisjoint(_TARGETS)
    return ends or _counted([name for name in names if len(name) > 1]) is not None


def looks_like_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a row above ``rows`` contains names of columns, even if their meaning is unknown.

    Words such as ``node1`` and ``node2`` may be vertices; they count as names of columns only if ``rows`` has no words
    of this kind, and the row above has no number.
    """
    known = {_end(name) for name in names if len(name) > 1}
    if not known.isdisjoint(_SOURCES) and not known.isdisjoint(_TARGETS):
        return True
    stems = {match[1] for name in names if (match := _COUNTED.fullmatch(plain(name)))}
    if stems and any((match := _COUNTED.fullmatch(plain(cell))) and match[1] in stems for row in rows for cell in row):
        return False
    if any(map(is_number, names)) or not rows:
        return False
    long = [name for name in names if len(name) > 1]
    columns = sum(is_column(name) for name in long)
    return _counted(long) is not None or (columns >= 2 and 2 * columns >= len(names))


def is_column(name: str) -> bool:
    """Return whether a word is a usual name of a column in a table of edges or of vertices."""
    short = plain(name)
    return (
        short in ("node", "vertex", *_NUMBERS, *_GEOMETRY, *_ROLES)
        or _end(name) in (*_SOURCES, *_TARGETS)
        or is_measure(name)
    )


def is_row_number(name: str) -> bool:
    """Return whether a column of this name numbers the rows of a table."""
    return plain(name) in _ROW_NUMBERS


def _end(name: str) -> str:
    """Reduce a column name to its core: ``from_osmid`` and ``linkFrom`` both give ``from``."""
    word = plain(name)
    word = _ENDINGS.sub("", word) or word
    rest = _BEGINNINGS.sub("", word, count=1) if _BEGINNINGS.match(word) else word
    return rest if rest in _SOURCES or rest in _TARGETS else word


def given_column(name: str | None, names: list[str] | None, width: int, field: str) -> int | None:
    """Return the position of the column that the caller gives by name or by number from 1.

    Args:
        name: the name or the number; None if none is given.  If no column has exactly this name, case is ignored.
        names: the names of the columns; None if there is no header.
        width: the number of columns.
        field: the option, for the message.

    Raises:
        InvalidRequest: there is no such column, or there are several.
    """
    if name is None:
        return None
    known = names or []
    same = [i for i, one in enumerate(known) if one == name]
    same = same or [i for i, one in enumerate(known) if one.lower() == name.lower()]
    if len(same) > 1:
        raise _several([known[i] for i in same], same, field)
    if same:
        return same[0]
    if is_digits(name):
        if 1 <= int(name) <= width:
            return int(name) - 1
        raise InvalidRequest(f"there is no column {name}: the rows have {width}", field=field)
    have = f"the header has {', '.join(known)}" if known else "the file has no header row, so give the column's number"
    raise InvalidRequest(f"there is no column {name!r}: {have}", field=field)


def refuse_twins(names: list[str], read: Sequence[int | None], given: Sequence[str | None]) -> None:
    """Refuse a column that is read because of its name, if another one has the same name.

    Args:
        names: the names of the columns.
        read: positions of source, target and weight; None for no weight.
        given: what the caller said for each of them, a name or a number from 1; None if the name of the column decided.

    Raises:
        InvalidRequest: two columns have one name.
    """
    for place, said, field in zip(read, given, ("source", "target", "weight"), strict=True):
        if place is not None and said is None and names[place]:
            same = [i for i, name in enumerate(names) if name == names[place]]
            if len(same) > 1:
                raise _several([names[place]] * len(same), same, field)


def _several(names: list[str], places: list[int], field: str) -> InvalidRequest:
    """Return the error for several columns with one name; the caller has to select one of them by its number."""
    found = " and ".join(f"{place + 1} ({name!r})" for name, place in zip(names, places, strict=True))
    number = f"'${places[0] + 1}'" if field == "length_of" else places[0] + 1
    return InvalidRequest(
        f"columns {found} have one name: say which by its number, such as {spelled(field)} {number}", field=field
    )


def find_ends(names: Sequence[str], source: int | None, target: int | None) -> tuple[int | None, int | None]:
    """Return the positions of the source and target columns by their names, None where no name decides; positions that
    the caller gave are kept.

    Raises InvalidRequest for ``head, tail``, because the order of the columns and their names contradict each other.
    """
    short = [_end(name) for name in names]
    if source is None and target is None:
        pair = next(((a, b) for a, b in _PAIRS if a in short and b in short), None)
        if pair is not None:
            found = short.index(pair[0]), short.index(pair[1])
            if pair == ("tail", "head") and found[1] < found[0]:
                raise asked(names, "head before tail may mean an arc from the head, as in tables of facts")
            return found
        if counted := _counted(names):
            return counted
    left = _first(short, _SOURCES, target) if source is None else source
    right = _first(short, _TARGETS, left) if target is None else target
    if source is None and target is None and (left is None or right is None):
        if "v" in short and "w" in short and "u" not in short:
            return short.index("v"), short.index("w")
        return None, None  # the name of only one end decides nothing
    return left, right


def _first(short: Sequence[str], known: Sequence[str], other: int | None) -> int | None:
    return next((i for word in known for i, name in enumerate(short) if name == word and i != other), None)


def are_reversed(first: str, second: str) -> bool:
    """Return whether the first column is named like a target, or the second column is named like a source."""
    return _end(first) in _TARGETS or _end(second) in _SOURCES


def _counted(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the two columns named like ``node1`` and ``node2``; None if the number of such columns is not two."""
    stems: dict[str, dict[str, int]] = {}
    for i, name in enumerate(names):
        short = plain(name)
        if match := _COUNTED.fullmatch(short):
            stems.setdefault(match[1], {}).setdefault(match[2], i)
        elif match := _LETTERED.fullmatch(short):
            stems.setdefault(f"_{match[2]}", {}).setdefault(match[1], i)
    for found in stems.values():
        for first, second in (("1", "2"), ("a", "b")):
            if found.keys() == {first, second}:
                return found[first], found[second]
    return None


def is_series(names: Sequence[str]) -> bool:
    """Return whether names only number the columns, as ``V1, V2, V3``, ``X0, X1, X2`` and ``a, b, c`` do; names of
    coordinates, such as ``x, y, z``, do not count.
    """
    short = [plain(name) for name in names]
    letters = [ord(name) for name in short if len(name) == 1]
    if len(letters) == len(short):
        return letters[0] in (ord("a"), ord("p")) and letters == list(range(letters[0], letters[0] + len(letters)))
    found = [_NUMBERED.fullmatch(name) for name in short]
    if not all(found) or len({match[1] for match in found if match}) > 1:
        return False
    return [int(match[2]) for match in found if match] in ([*range(len(short))], [*range(1, len(short) + 1)])


def is_no_vertex(name: str) -> bool:
    """Return whether a column of this name certainly holds no vertices, whatever its position."""
    short = plain(name)
    known = short in _NUMBERS or short in _GEOMETRY or short in _ROLES or _COORDINATE.fullmatch(short) is not None
    return known or is_measure(name)


def asked(names: Sequence[str], why: str) -> InvalidRequest:
    """Return the error for a header that does not say which columns are the vertices."""
    listed = ", ".join(name[:60] or "(no name)" for name in names[:8]) + (
        f" and {len(names) - 8} more" if names[8:] else ""
    )
    return InvalidRequest(
        f"which columns hold the vertices? The header has {listed}, and {why}: say --from COLUMN and --to COLUMN",
        field="source",
    )


def refuse_both_ways(names: Sequence[str], body: Sequence[Sequence[str]], used: Sequence[int | None]) -> None:
    """Refuse a table in which a column that is not read marks some rows as arcs in both directions, or has the lengths
    of reverse arcs.

    Args:
        names: names of the columns.
        body: some rows.
        used: the columns of vertices and lengths, which are not checked.

    Raises:
        InvalidRequest: there is such a column; the message names the options that decide.
    """
    short = [plain(name) for name in names]
    if "osmid" in short and not {"u", "v", "from", "to"} <= set(short):
        # OSMnx lists both arcs of a two-way street, except in its undirected tables, which have columns u, v, from and
        # to.
        return
    for i, name in enumerate(short):
        values = {row[i].strip().lower() for row in body} if i not in used else set()
        both = (name in ONE_WAY and values & _NO) or (name in _TWO_WAY and values & _YES)
        back = name in _WAY_BACK and any(is_number(value) and float(value) >= 0 for value in values)
        if both or back:
            raise InvalidRequest(
                f"column {names[i]!r} says that some rows are arcs both ways, which is not read: write the arc back as "
                "a row of its own, or say --undirected for all of them, or --directed to take the rows as they stand",
                field="directed",
            )
