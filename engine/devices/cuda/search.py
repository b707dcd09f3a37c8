"""Searches on a GPU: a batch of sources is searched while the rows of the previous batch are copied out.

Labels (tentative distances) have 16 bits if that may suffice; a larger label is capped at *unreachable*.  No label was
capped if the largest distance found plus the heaviest arc is below *unreachable*, because the first label to be capped
would be the sum of a label that was not capped and the weight of one arc.  Otherwise the batch is searched again with
wider labels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.arcs import SPLIT, incoming
from engine.devices.cuda.betweenness.counting import Counting
from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.context import Modules, allocate, held_device
from engine.devices.cuda.outgoing import Outgoing, Outlet
from engine.devices.cuda.reducing import Reducing, held_bytes, outgoing_of
from engine.devices.cuda.row_facts import RowFactsReader
from engine.devices.cuda.search_kernels import SearchKernels
from engine.model.backend import Arcs
from engine.model.device_layout import LIST_ROW, SearchForm, SearchLayout, narrow_first
from engine.model.dtypes import WORK_TYPES, WorkType
from engine.model.rows import RowFacts

Integers = npt.NDArray[np.int64]

_THREADS: Final = 256
#: Number of blocks of sources (sources that are searched together) in a trial by sweeps.
_TRIAL_BLOCKS: Final = 8
#: Number of blocks of sources in a trial by lists.
_TRIAL_LISTS: Final = 132
#: The largest number of levels (numbers of hops) that are counted: 2^PLANES of hops.cu, where the number of a step has
#: PLANES bits.
_LEVELS: Final = 256
#: If only levels are counted, a batch has at most _MOST_BLOCKS blocks of _COUNTED sources each, which are searched one
#: block after the other.  A batch visits at most about _COUNTED_ARCS arcs, which takes half a second.
_COUNTED: Final = 4096
_MOST_BLOCKS: Final = 8
_COUNTED_ARCS: Final = 1 << 37


@contextmanager
def device_search(
    arcs: Arcs,
    kind: WorkType,
    form: SearchForm,
    sources: Integers,
    *,
    outlet: Outlet | None = None,
    memory: int | None = None,
    rows: int | None = None,
) -> Iterator[DeviceSearch]:
    """Context manager: provide searches on the first device, and free its memory at the end, also after an error.

    Args:
        arcs: weights are non-negative, and reduced if there are potentials.
        kind: the working type of the matrix.
        form: the form of the search.
        sources: vertex indices, one for each row of the matrix.
        outlet: where rows are written; None to leave them on the device.
        memory: bytes of device memory that may be used; None for all that is free.
        rows: the number of sources of a batch; None for the best number.

    Raises:
        InvalidRequest: there is no usable device.
        DoesNotFit: the memory does not suffice.
        SolveFailed: the device failed.
    """
    with held_device(memory) as (found, usable), ExitStack() as held:
        shape, outgoing = (len(sources), len(arcs.indptr) - 1), None
        if outlet is not None:  # begin early: page-locked memory is allocated while arcs are sorted and sent
            outgoing = outgoing_of(found, outlet, shape, kind)
            held.callback(outgoing.release)
        layout = SearchLayout(shape[1], len(arcs.heads), len(sources), kind.itemsize, form.name)
        results = 0 if outlet is None else held_bytes(outlet.sink, shape[1], kind)
        if _counts_levels(form, outgoing):  # no rows are held, so memory does not limit a batch
            batch = _COUNTED * max(1, min(_MOST_BLOCKS, _COUNTED_ARCS // (_COUNTED * max(1, layout.arcs))))
            batches = [range(first, min(first + batch, layout.rows)) for first in range(0, layout.rows, batch)]
        else:
            batches = list(layout.spans(rows or layout.batch(usable - results)))
        search = DeviceSearch(found, arcs, kind, form, sources, batches, outgoing)
        held.callback(search.release)
        yield search


def _counts_levels(form: SearchForm, outgoing: Outgoing | Reducing | Counting | None) -> bool:
    """Return whether a search only counts the vertices at each number of hops, and makes no rows."""
    return form.name == "hops" and isinstance(outgoing, Reducing) and outgoing.levels


class DeviceSearch:
    """The searches of one graph on a device, made by :func:`device_search`.  Not thread-safe.

    Attributes:
        batches: the rows of each batch.
        batch: the number of rows of the largest batch.
    """

    def __init__(  # noqa: PLR0917 - as device_search
        self,
        found: Modules,
        arcs: Arcs,
        kind: WorkType,
        form: SearchForm,
        sources: Integers,
        batches: list[range],
        outgoing: Outgoing | Reducing | Counting | None,
    ) -> None:
        self._found, self._cupy, self._arcs, self._kind, self._form = found, found.cupy, arcs, kind, form
        self._sources, self.batches, self._n = sources, batches, len(arcs.indptr) - 1
        self.batch = max(map(len, batches), default=1)
        self._heaviest = arcs.weights.max(initial=0).item()
        # the planner has proven that the matrix's type suffices; for narrower labels this is checked after each search
        narrow = arcs.potentials is None and narrow_first(kind, self._heaviest)
        self._labels, self._proven = (WORK_TYPES["uint16"], False) if narrow else (kind, True)
        split = None if form.name == "hops" else SPLIT
        cluster = LIST_ROW // self._labels.itemsize if form.name == "lists" else None
        self._incoming = incoming(arcs.indptr, arcs.heads, arcs.weights, cluster=cluster, split=split)
        self._reader = RowFactsReader(found, kind, ARITHMETICS[kind.name, False])
        self._levels = _counts_levels(form, outgoing)
        self._kernels = self._load_kernels()
        count = 1 if self._levels else min(2, max(1, len(batches)))
        shape, held = (
            ((_LEVELS, self.batch), np.dtype(np.uint32)) if self._levels else ((self.batch, self._n), kind.dtype)
        )
        self._out = [allocate(self._cupy, shape, held) for _ in range(count)]
        self._left: list[Any] = [None] * count
        self._potentials = None if arcs.potentials is None else self._cupy.asarray(arcs.potentials.astype(np.float64))
        self._buffer, self._rows = 0, range(0)
        self._outgoing = outgoing

    def begin(self, rows: range) -> None:
        """Queue the search of ``rows``; returns at once."""
        self._buffer, self._rows = (self._buffer + 1) % len(self._out), rows
        if self._left[self._buffer] is not None:
            self._cupy.cuda.get_current_stream().wait_event(self._left[self._buffer])
        self._search()

    def finish(self) -> RowFacts | None:
        """Wait for the search that ``begin`` queued, and return facts of the searched rows.

        If labels of 16 bits may have been capped, the rows are searched again with labels of the matrix's type.

        Returns:
            The facts; None if the search was given up, because it passed the limit of its form (``SearchForm.limit``).
        """
        while True:
            if self._kernels.given_up(self._reader):
                return None
            if self._potentials is not None and len(self._rows):
                ld, n = np.int64(self._n), np.int32(self._n)
                self._launch("restore", self._out[self._buffer], ld, n, self._there(), self._potentials)
            if self._levels:
                return self._counted()
            found = self._reader.facts(self._out[self._buffer], self._there())
            if self._sound(found):
                return found
            self._labels, self._proven = self._kind, True
            self._kernels.release()
            self._kernels = self._load_kernels()
            self._search()

    def histogram(self, width: float, counts: Integers) -> int:
        """Add the distances of the rows searched last to a histogram (see ``RowFactsReader.histogram``)."""
        return self._reader.histogram(self._out[self._buffer], self._there(), width, counts)

    def leave(self) -> tuple[Any, int, int]:
        """Return the rows searched last in the form that :meth:`send` takes."""
        return self._out[self._buffer][: len(self._rows)], self._rows.start, self._buffer

    def send(self, leaving: tuple[Any, int, int]) -> None:
        """Queue the copy of rows from :meth:`leave` to the outlet; the next search may finish before this copy."""
        rows, first, buffer = leaving
        if self._outgoing is not None and not self._levels:
            self._left[buffer] = self._outgoing.send(rows, first)

    def written(self) -> None:
        """Wait until all rows that were sent are written."""
        if self._outgoing is not None:
            self._outgoing.finish()

    def release(self) -> None:
        """Free all memory."""
        if self._outgoing is not None:
            self._outgoing.release()
        self._kernels.release()
        self._reader.release()
        self._out.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _load_kernels(self) -> SearchKernels:
        name, rows = self._form.name, self.batch
        return SearchKernels(
            self._found, self._incoming, self._kind, labels=self._labels, form=name, rows=rows, levels=self._levels
        )

    def _search(self) -> None:
        rows = self._rows
        self._kernels.search(self._sources[rows.start : rows.stop], self._out[self._buffer], self._form.limit)

    def _sound(self, found: RowFacts) -> bool:
        """Return whether it is certain that no label was capped: see the docstring of this module."""
        if self._proven or self._form.name == "hops":
            return True
        largest = found.largest[found.farthest >= 0].max(initial=0)
        return bool(largest + self._heaviest < self._labels.unreachable)

    def _counted(self) -> RowFacts:
        """Give the numbers of vertices at each number of hops to the reduction; return the facts that follow from them.

        These are ``reached`` and ``sums``.  The other two facts, ``largest`` and ``farthest``, are -1.
        """
        rows, longest = self._rows, self._kernels.last_level(self._reader)
        counts = self._out[self._buffer][: longest + 1].get()[:, : len(rows)]
        levels = np.ascontiguousarray(counts.T).astype(np.int64)
        assert isinstance(self._outgoing, Reducing)
        self._outgoing.take_levels(rows.start, levels)
        hops, none = np.arange(longest + 1), np.full(len(rows), -1)
        return RowFacts(levels.sum(axis=1), levels @ hops, none, none)

    def _there(self) -> Any:
        return self._cupy.asarray(self._sources[self._rows.start : self._rows.stop])

    def _launch(self, name: str, *arguments: object) -> None:
        if len(self._rows):
            kernel = self._found.get(name, ARITHMETICS[self._kind.name, False])
            kernel((len(self._rows),), (_THREADS,), arguments)


def trial_seconds(
    arcs: Arcs, kind: WorkType, form: SearchForm, sources: Integers, *, memory: int | None
) -> float | None:
    """Measure a search from a few blocks of sources.

    Args:
        arcs: the arcs of the graph; weights non-negative.
        kind: the working type of the matrix.
        form: the form of the search.
        sources: vertex indices.
        memory: bytes of device memory that may be used; None for all that is free.

    Returns:
        Seconds per source; None if the search was given up.
    """
    lanes = {"sweep": 512, "lists": 128, "hops": 4096 * kind.itemsize}[form.name] // kind.itemsize
    blocks = {"sweep": _TRIAL_BLOCKS, "lists": _TRIAL_LISTS, "hops": 1}[form.name]
    count = min(len(sources), lanes * blocks)
    if count == 0:
        return 0.0
    if form.name == "lists":  # try sources that would share blocks if all sources were searched
        place = incoming(arcs.indptr, arcs.heads, arcs.weights, cluster=lanes).place
        sources = np.argsort(place)
    with device_search(arcs, kind, form, sources[:count], memory=memory, rows=count) as search:
        search.begin(range(count))
        if search.finish() is None:
            return None
        began = time.perf_counter()
        search.begin(range(count))
        search.finish()
        return (time.perf_counter() - began) / count
