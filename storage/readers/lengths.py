"""Which of the named columns or attributes of edges is a length: one rule for tables, GML, GraphML and NetworkX.

Columns that say how alike two vertices are (the larger, the closer) are no lengths, and are never taken for one unless
the caller says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from storage.errors import InvalidRequest

#: Names without case, blanks and signs; earlier ones win.
WEIGHT_NAMES: Final = (
    "weight", "w", "wt", "length", "len", "distance", "dist", "cost", "value", "km", "metres", "meters", "time",
    "traveltime", "duration",
)  # fmt: skip
_BEGINNINGS: Final = ("weight", "length", "distance", "cost")
_SIMILAR: Final = (
    "score", "similarity", "confidence", "correlation", "probability", "affinity", "likelihood", "coexpression",
    "closeness", "agreement", "relevance", "rating", "trust", "cosine", "jaccard", "pearson", "spearman",
)  # fmt: skip
_SIMILAR_WORDS: Final = frozenset({"sim", "corr", "prob", "conf", "rho", "identity"})


def plain(name: str) -> str:
    """A name without case, blanks and signs: ``Travel_Time`` is ``traveltime``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def named_length(names: Sequence[str]) -> int | None:
    """The position of the name that means a length, None where none does."""
    short = [plain(name) for name in names]
    known = [short.index(name) for name in WEIGHT_NAMES if name in short]
    known += [i for i, name in enumerate(short) if name.startswith(_BEGINNINGS)]
    return next((i for i in known if not is_similarity(names[i])), None)


def is_similarity(name: str) -> bool:
    """Whether a name says that larger values mean closer vertices."""
    short = plain(name)
    words = re.split(r"[^a-z0-9]", name.lower())
    return short.startswith(_SIMILAR) or short.endswith(_SIMILAR) or not _SIMILAR_WORDS.isdisjoint(words)


def similarity_refused(name: str, values: Sequence[float]) -> InvalidRequest:
    """The error for edges whose only candidate for a length is the similarity ``name``; ``values`` are some of it."""
    largest = max(values, default=0.0)
    top = next((top for top in (1, 100, 1000) if largest <= top), None)
    shown = name if re.fullmatch(r"[^\W\d][\w.]*", name) else f'"{name}"'
    turned = f"1 / {shown}" if top is None else f"{top} - {shown}"
    return InvalidRequest(
        f"{name!r} reads like a similarity (the larger, the closer), which is no length: say --weight {name!r} to take "
        f"it as it is, --length-of {turned!r} to make a length of it, or --unweighted to count arcs",
        field="weight",
    )
