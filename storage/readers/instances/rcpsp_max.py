"""Projects with minimum and maximum time lags (RCPSP/max, ``.sch``; Schwindt's generator ProGen/max).

The header is ``activities resources ...``.  Each activity 0 .. n + 1 has a line ``id modes k successors lags``.  The
lag ``[d]`` from i to j becomes the arc i -> j of weight -d, so that longest paths become shortest paths.
"""

from __future__ import annotations

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import ArcList
from storage.readers import fields
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a project line by line, because such files have only a few hundred lines; raises the errors of
    ``read_graph``.
    """
    options.refuse_weight("RCPSP/max")
    tails: list[int] = []
    heads: list[int] = []
    lags: list[int] = []
    n, seen, further = -1, 0, False
    for block in source.blocks():
        for line, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            words = raw.decode("latin-1").split()
            if not words:
                continue
            if n < 0:
                n = fields.whole(words[0], line, "activities") + 2
                options.limits.check_vertices(n, line)
            elif seen < n:
                successors = _activity(words, line, seen, n, lags)
                heads += successors
                tails += [seen] * len(successors)
                seen += 1
            else:
                further = True
    if n < 2 or seen < n:
        raise InvalidGraph(f"expected {max(n, 2)} activities, found {seen}", line=1, field="activities")
    arcs = ArcList(
        np.array(tails, np.int64), np.array(heads, np.int64), None if options.unweighted else np.array(lags, np.int64)
    )
    notes = ["not read: what follows the lags (durations and resources)"] if further else []
    return Parsed(arcs, np.arange(n, dtype=np.int64), directed=True, entries=len(heads), notes=notes)


def _activity(words: list[str], line: int, wanted: int, n: int, lags: list[int]) -> list[int]:
    """Return the successors of one activity, and append the negated lags to ``lags``."""
    if len(words) < 3 or fields.whole(words[0], line, "activity") != wanted:
        raise InvalidGraph(f"expected activity {wanted}, found {fields.shown(' '.join(words))}", line=line)
    count = fields.whole(words[2], line, "successors")
    if count < 0 or len(words) != 3 + 2 * count:
        raise InvalidGraph(
            f"{count} successors need {count} lags: expected {3 + 2 * max(count, 0)} fields, found {len(words)}",
            line=line,
            field="successors",
        )
    successors = [fields.vertex(word, line) for word in words[3 : 3 + count]]
    for j in successors:
        if not 0 <= j < n:
            raise InvalidGraph(f"activity {j} is outside 0 .. {n - 1}", line=line, field="vertex")
    for word in words[3 + count :]:
        if not (word.startswith("[") and word.endswith("]")):
            raise InvalidGraph(f"lag {fields.shown(word)} is not written [d]", line=line, field="weight")
        lags.append(-int(fields.weight(word[1:-1], line, integer=True)))
    return successors
