"""The journal of a run that prepares a graph: it commits finished parts at intervals.

Once a step is done for a part, the arrays that it filled do not change any more.  A resumed run computes the remaining
parts from these arrays as an uninterrupted run would, so the tables are the same to the last bit.
"""

from __future__ import annotations

import hashlib
import time
from typing import Final

import numpy as np

from engine.algorithms.eliminated import (
    Eliminated,
    Indices,
    Mask,
    PartRecorder,
    eliminated_blocks,
    gathered,
    scatter,
    tables_of,
)
from engine.graph.partition import Parts
from engine.graph.profile import GraphProfile
from engine.model.backend import Array
from storage.graph.graph import graph_digest
from storage.matrix.format import software
from storage.prepared.journal import PreparedJournal, committed

#: Seconds between two commits; a run that takes less time makes no commit.
EVERY: Final = 10.0
#: Approximate limit on the bytes of the arrays in one file of a commit, because they are copied to write the file.
PIECE_BYTES: Final = 32 << 20
#: The dissection of a graph is committed as soon as it is known if vertices and arcs together are at least this many:
#: finding it then takes a second or more.
LARGE: Final = 1 << 18
_DISSECTION: Final = "dissection"
STEPS: Final = ("eliminate", "extend", "backward")


class PartJournal(PartRecorder):
    """Commits finished parts, and restores the parts that an earlier run has committed.

    Attributes:
        resumed: for each step, the number of parts that were restored and not computed again.
    """

    def __init__(self, kept: PreparedJournal) -> None:
        self._kept, self._last = kept, time.monotonic()
        self.resumed = dict.fromkeys(STEPS, 0)

    def begin(self, parts: Parts, flat: Array, eliminated: Eliminated) -> None:
        """Fill the arrays with the committed parts, and keep references to the arrays for later commits.

        Args:
            parts: the parts.
            flat: the tables.
            eliminated: the other results of elimination.

        Raises:
            StorageFailed: a committed file is damaged.
        """
        self._parts, self._eliminated, self._tables = parts, eliminated, tables_of(parts, flat)
        self._of = digest_of(parts, flat.dtype.name)
        self._done = {step: np.zeros(parts.count, np.bool_) for step in STEPS}
        self._new: dict[str, list[Indices]] = {step: [] for step in STEPS}
        for step in STEPS[:2]:
            self._take_up(step)

    def begin_backward(self, flat: Array) -> None:
        """Fill the tables of the reversed graph with the parts that an earlier run has committed.  Raises
        StorageFailed."""
        self._backward = tables_of(self._parts, flat)
        self._take_up("backward")

    def todo(self, step: str, parts: Parts) -> Mask:
        """Return a mask of the parts that were not committed, shape (parts,)."""
        del parts
        return ~self._done[step]

    def add(self, step: str, some: Indices) -> None:
        """Note that a step is done for some parts, and commit if the interval since the last commit is over.

        Args:
            step: the name of the step.
            some: numbers of parts.

        Raises:
            StorageFailed: the file system refused.
        """
        self._new[step].append(some)
        if time.monotonic() - self._last >= EVERY:
            self.commit()

    def commit(self) -> None:
        """Commit all finished parts.  Raises StorageFailed."""
        for step in STEPS:
            if self._new[step]:
                some = np.concatenate(self._new[step]).astype(np.int64)
                for piece in self._pieces(step, some):
                    blocks = gathered([self._blocks(step, i) for i in piece.tolist()])
                    self._kept.commit(step, [piece, *blocks], of=self._of)
                self._new[step] = []
        self._last = time.monotonic()

    def _pieces(self, step: str, some: Indices) -> list[Indices]:
        """Cut ``some`` parts into runs whose arrays have about ``PIECE_BYTES`` bytes together; a part with more bytes
        is a run of its own.
        """
        sizes = [sum(block.nbytes for block in self._blocks(step, i)) for i in some.tolist()]
        return np.split(some, np.flatnonzero(np.diff(np.cumsum(sizes) // PIECE_BYTES)) + 1)

    def _take_up(self, step: str) -> None:
        for entry in self._kept.record:
            if entry["step"] == step and entry.get("of") == self._of:
                some, *values = self._kept.read(entry)
                scatter(values, [self._blocks(step, i) for i in some.tolist()])
                self._done[step][some] = True
        self.resumed[step] = int(self._done[step].sum())

    def _blocks(self, step: str, i: int) -> list[Array]:
        """Return those arrays of part ``i`` that a step fills."""
        if step == "eliminate":
            return eliminated_blocks(self._tables, self._eliminated, i)
        size = int(self._parts.starts[i + 1] - self._parts.starts[i])
        return [self._backward[i]] if step == "backward" else [self._tables[i][:, size:]]


def digest_of(parts: Parts, dtype: str) -> str:
    """Return a fingerprint of parts and of the type of their tables."""
    digest = hashlib.sha256(dtype.encode())
    for array in (parts.position, parts.starts, parts.parents, parts.ends, parts.borders):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def identity_of(profile: GraphProfile) -> dict[str, str]:
    """Return fingerprints of graph and program; a run resumes from an earlier run only if both are the same."""
    return {"graph": graph_digest(profile.graph), "software": software()}


def keep_dissection(profile: GraphProfile, kept: PreparedJournal) -> None:
    """Commit the dissection of a large graph, unless it is committed already.

    Args:
        profile: the graph with terminals opened (:meth:`GraphProfile.open`).
        kept: the journal.

    Raises:
        StorageFailed: the file system refused.
    """
    known = any(entry["step"] == _DISSECTION for entry in kept.record)
    if profile.dissected and not known and profile.graph.n + profile.graph.arcs >= LARGE:
        found = profile.dissection(0)
        assert found is not None  # the dissection is known, so this computes nothing
        kept.commit(_DISSECTION, found)


def take_dissection(profile: GraphProfile, inner: GraphProfile, target: str) -> None:
    """Read the dissection that an interrupted run into ``target`` has committed, if there is one, and set it in the
    profile ``inner``.

    Args:
        profile: the graph.
        inner: the same graph, opened (:meth:`GraphProfile.open`); it receives the dissection.
        target: the path of the prepared graph that is to be made.
    """
    if inner.dissected:
        return
    found = committed(target, lambda: identity_of(profile), _DISSECTION)
    if found is not None:
        rank, begin, border, parent = found
        if len(rank) == len(parent) == len(begin) - 1 == inner.graph.n:
            inner.dissect_as((rank, begin, border, parent))  # type: ignore[arg-type]
