"""Decides which named column or attribute of edges is a length, by the same rule for tables, GML, GraphML and NetworkX.

Only the name decides.  Columns that say how similar two vertices are (larger values mean closer vertices), or how
certain a value is, are no lengths, and are never taken for lengths unless the caller asks for it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from storage.errors import InvalidRequest

#: Names that mean a length, in lower case without blanks and signs; an earlier name is preferred to a later one.
WEIGHT_NAMES: Final = (
    "weight", "w", "wt", "length", "len", "distance", "dist", "cost", "value", "km", "metres", "meters", "time",
    "traveltime", "duration", "weights", "lengths", "distances", "costs", "impedance", "kilometres", "kilometers",
    "metre", "meter", "m", "miles", "mile", "mi", "feet", "ft", "minutes", "mins", "seconds", "secs", "sec", "hours",
    "hrs", "milliseconds", "ms", "latency", "rtt",
    # German, French, Spanish
    "gewicht", "entfernung", "distanz", "lange", "laenge", "kosten", "dauer", "fahrzeit", "reisezeit", "zeit",
    "minuten", "stunden", "kilometer", "poids", "longueur", "cout", "duree", "temps", "peso", "distancia", "costo",
    "coste", "duracion", "tiempo",
)  # fmt: skip
#: Words that mean a length if a name ends in one of them: ``Total_Length``, ``travelTime``.
_LENGTHS: Final = (
    "weight", "length", "leng", "len", "distance", "dist", "cost", "duration", "impedance", "weights", "lengths",
    "distances", "costs",
)  # fmt: skip
_UNITS: Final = (
    "km", "kms", "m", "mi", "ft", "feet", "mile", "miles", "meter", "meters", "metre", "metres", "kilometer",
    "kilometers", "kilometre", "kilometres", "minute", "minutes", "mins", "min", "second", "seconds", "secs", "sec",
    "hour", "hours", "hrs", "hr", "h", "s", "ms", "milliseconds", "mm", "cm", "nm", "angstrom", "usd", "eur", "kg",
)  # fmt: skip
#: Units of time.  A unit of length followed by a unit of time is a speed (``max_m_s``, ``km_h``).
_TIMES: Final = frozenset(_UNITS[_UNITS.index("minute") : _UNITS.index("milliseconds") + 1])
_TYPES: Final = ("float", "double", "int", "integer", "long", "real", "numeric", "number", "decimal", "in", "of")
#: Words that may precede ``time`` or a unit in the name of a length; after words such as departure, end or created,
#: ``time`` means a point in time.
_KINDS: Final = (
    "travel", "traveling", "travelling", "transfer", "transit", "transport", "free", "flow", "freeflow", "ff",
    "min", "minimum", "max", "maximum", "mean", "avg", "average", "median", "total", "sum", "drive", "driving", "walk",
    "walking", "bike", "cycle", "cycling", "run", "running", "ride", "riding", "trip", "journey", "flight",
    "car", "bus", "train", "road", "street", "route", "path", "link", "edge", "arc", "segment", "seg", "track", "shape",
    "congested", "crossing", "elapsed", "wait", "waiting", "network", "estimated", "est", "base",
)  # fmt: skip
#: Words that may precede ``length`` in the name of an edge's length; after any other word it may be the length of a
#: sequence, an alignment or a name.
_WAYS: Final = frozenset({
    *_KINDS, "line", "way", "highway", "section", "branch", "bond", "connection", "cable", "wire", "fiber", "fibre",
    "pipe", "pipeline", "duct", "conduit", "channel", "canal", "river", "stream", "reach", "rail", "railway", "trail",
    "graph", "geom", "geometry", "real", "true", "effective", "physical", "great", "circle", "geodesic", "euclidean",
    "manhattan", "haversine", "weighted", "3", "2", "d",
})  # fmt: skip
#: OpenStreetMap's names for the weight and length limits of vehicles on a road.
_LIMITS: Final = frozenset({"maxweight", "maxlength"})
#: Words with which a name does not mean a length: ``inverse_distance``, ``name_length``, ``log_weight``.
_OTHERS: Final = frozenset(
    {
        "inverse", "inv", "inverted", "reciprocal", "recip", "log", "log2", "log10", "exp", "neg", "negative", "rank",
        "name", "label", "word", "string", "text", "title", "vehicle", "truck", "axle", "node", "vertex", "body",
        "queue", "source", "target", "from", "start", "end", "src", "dst", "tail", "head",
        "no", "non", "number", "count", "num", "n", "is", "has", "per", "speed", "velocity",
    }
)  # fmt: skip
_SIMILAR: Final = (
    "score", "similarity", "confidence", "correlation", "probability", "affinity", "likelihood", "coexpression",
    "closeness", "agreement", "relevance", "rating", "trust", "cosine", "jaccard", "pearson", "spearman",
)  # fmt: skip
_SIMILAR_WORDS: Final = frozenset(
    {"sim", "corr", "cor", "correl", "prob", "conf", "rho", "tau", "identity", "similarities", "correlations"}
)
_SIMILAR_NAMES: Final = frozenset({"r", "r2", "rsquared"})
_SURE: Final = frozenset({"pval", "pvals", "pvalue", "pvalues", "qval", "qvalue", "padj", "adjp", "fdr"})
#: Matches several words written as one: ``totallength``, ``distkm``.
_GLUED: Final = re.compile(
    rf"(?:{'|'.join(_KINDS)})?(?:{'|'.join(_LENGTHS)})(?:{'|'.join(_UNITS)})?|(?:{'|'.join(_KINDS)})?time"
    rf"(?:{'|'.join(_UNITS)})?"
)
#: In a column of times, values of at least this size are dates: seconds since 1970 (1e8 is in 1973), or smaller units.
FIRST_DATE: Final = 1e8


def plain(name: str) -> str:
    """Return a name without case, accents, blanks and signs: ``Travel_Time`` is ``traveltime``, ``Durée`` is
    ``duree``.
    """
    folded = name if name.isascii() else unicodedata.normalize("NFKD", name)
    return re.sub(r"[^a-z0-9]", "", folded.lower())


def words_of(name: str) -> list[str]:
    """Return the words of a name: ``min_transferTime`` gives min, transfer, time."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def named_length(names: Sequence[str]) -> int | None:
    """Return the position of the preferred name that means a length; None if no name does."""
    return next(iter(named_lengths(names)), None)


def named_lengths(names: Sequence[str]) -> list[int]:
    """Return the positions of the names that mean a length, in order of preference."""
    short = [plain(name) for name in names]
    known = [i for word in WEIGHT_NAMES for i, name in enumerate(short) if name == word]
    known += [i for i, name in enumerate(names) if i not in known and _ends_in_length(name)]
    return [i for i in known if not is_similarity(names[i])]


def _ends_in_length(name: str) -> bool:
    """Return whether a name of several words means a length; a unit may follow: ``dist:float``, ``time (s)``."""
    words = words_of(name)
    if not words or not _OTHERS.isdisjoint(words) or plain(name) in _LIMITS or _is_rate(words):
        return False
    while len(words) > 1 and (words[-1] in (*_UNITS, *_TYPES) or words[-1].isdigit()):
        last = words.pop()
        if last in _UNITS and all(word in _KINDS for word in words):
            return True
    if words[-1] == "time":
        return all(word in _KINDS for word in words[:-1])
    of_kind = words[0] in (*_LENGTHS, "time") and all(word in (*_KINDS, *_UNITS) for word in words[1:])
    if words[-1] in ("length", "leng", "len", "lengths"):
        return all(word in (*_WAYS, *_LENGTHS, *_UNITS) for word in words[:-1])
    return words[-1] in _LENGTHS or of_kind or (len(words) == 1 and _GLUED.fullmatch(words[0]) is not None)


def _is_rate(words: Sequence[str]) -> bool:
    """Return whether the words mean a rate, an amount per time: ``max_m_s``, ``flow_h``."""
    speed = any(first in _UNITS and first not in _TIMES and second in _TIMES for first, second in pairwise(words))
    return speed or (words[0] == "flow" and words[-1] in _TIMES)


def is_time(name: str) -> bool:
    """Return whether the name of a length contains a word for time, so that its values may be dates."""
    return any(word in plain(name) for word in ("time", "zeit", "temps", "tiempo"))


def is_moment(name: str) -> bool:
    """Return whether a name consists of a word for time only, so that it may mean a point in time or a duration."""
    return plain(name) in ("time", "zeit", "temps", "tiempo")


def is_similarity(name: str) -> bool:
    """Return whether a name means a similarity (larger values, closer vertices) or a significance (p-values)."""
    short = plain(name)
    if short.startswith(_SIMILAR) or short.endswith(_SIMILAR) or short in _SIMILAR_NAMES or _is_sure(name):
        return True
    return not _SIMILAR_WORDS.isdisjoint([*words_of(name), *re.split(r"[^a-z0-9]", name.lower())])


def is_measure(name: str) -> bool:
    """Return whether a column of this name is recognised as a length or as a similarity."""
    return is_similarity(name) or named_length([name]) is not None


def _is_sure(name: str) -> bool:
    """Return whether the name of a column means a measure of significance, such as a p-value or a q-value."""
    words = words_of(name)
    pairs = pairwise(words)
    apart = any(first in ("p", "q") and second in ("val", "value", "values", "adj") for first, second in pairs)
    return apart or words in (["p"], ["q"]) or not _SURE.isdisjoint(words)


def similarity_refused(name: str, values: Sequence[float]) -> InvalidRequest:
    """Return the error for edges that have no length, but a similarity called ``name``; ``values`` are some values of
    the similarity.
    """
    largest = max(values, default=0.0)
    top = next((top for top in (1, 100, 1000) if largest <= top), None)
    shown = name if re.fullmatch(r"[^\W\d][\w.]*", name) else f'"{name}"'
    formula = f"1 / {shown}" if top is None else f"{top} - {shown}"
    what = "p-value" if _is_sure(name) else "similarity (the larger, the closer)"
    return InvalidRequest(
        f"{name!r} reads like a {what}, which is no length: say --weight {name!r} to take "
        f"it as it is, --length-of {formula!r} to make a length of it, or --unweighted to count arcs",
        field="weight",
    )


def length_among(names: Sequence[str], values: Sequence[float]) -> int | None:
    """Return the position of the length among the attributes of an edge; None if none is named like a length.

    Raises InvalidRequest if the only candidate is a similarity, or a time whose value is a date.
    """
    named = named_lengths(names)
    dates = [i for i in named if is_time(names[i]) and values[i] >= FIRST_DATE]
    found = next((i for i in named if i not in dates), None)
    if found is not None:
        return found
    for i in (i for i, name in enumerate(names) if is_similarity(name)):
        raise similarity_refused(names[i], [values[i]])
    if dates:
        raise unnamed_refused([names[dates[0]]], " (its values are dates)")
    return None


def unnamed_refused(names: Sequence[str], why: str = "") -> InvalidRequest:
    """Return the error for edges whose columns of numbers, ``names``, do not have names of lengths; ``why`` is appended
    to the message.
    """
    listed = ", ".join(repr(name[:60]) for name in names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")
    one = f"column {listed} holds numbers, but is not"
    which = one if len(names) == 1 else f"columns {listed} hold numbers, but none is"
    return InvalidRequest(
        f"{which} named like a length{why}: say --weight {names[0]!r} to take it for the length"
        f"{'' if len(names) == 1 else ' (or another of them)'}, or --unweighted to count arcs",
        field="weight",
    )


def dates_refused(column: int) -> InvalidRequest:
    """Return the error for an edge list without column names whose third column may hold dates."""
    return InvalidRequest(
        f"column {column} holds whole numbers that read like dates (20240131, or seconds since 1970): "
        f"say --weight {column} to take it for the length, or --unweighted to count arcs",
        field="weight",
    )
