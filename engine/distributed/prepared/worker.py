"""A worker's side of preparing a graph: it eliminates spans of parts, or computes their tables, and writes files.

A task depends only on files, and the files that it writes have unique names.  So a task may run twice, on one worker or
on two; and if a worker is lost, only its unfinished tasks must be repeated.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from engine.algorithms.both_ways import compute_tables
from engine.algorithms.eliminated import (
    Eliminated,
    Mask,
    PartRecorder,
    eliminated_blocks,
    gathered,
    scatter,
    tables_of,
)
from engine.algorithms.part_lengths import PartWork
from engine.algorithms.prepared.compact import closed_parts
from engine.algorithms.prepared.spans import OwnParts, Spans, own_graph
from engine.distributed.locks import StopMonitor
from engine.distributed.messages import (
    ChunkFile,
    PreparedJob,
    SpanRequest,
    SpanResult,
    TaskRequest,
    TaskResult,
)
from engine.graph.partition import Parts
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES, settle
from storage.files import atomic
from storage.prepared.arrays_file import ArraysFile, new_name, read_arrays, write_arrays
from storage.prepared.writer import write_chunk

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend

#: The name of a file in the exchange folder that each worker reads first, to show that it can use the folder.
LOOKED_AT: Final = "look.bin"


class PreparedWorker:
    """The tasks of one worker in preparing a graph.

    Args:
        job: the description of the run.
        threads: number of processors to use.
    """

    def __init__(self, job: PreparedJob, threads: int) -> None:
        self.job, self._threads = job, threads
        self._kind, self._exchange_dir = WORK_TYPES[job.dtype], Path(job.exchange_dir)
        self._lock = threading.Lock()
        self._known: Spans | None = None
        self._backend: CpuBackend | None = None
        self._kept: OrderedDict[str, list[Array]] = OrderedDict()

    def run(self, action: str, request: TaskRequest) -> TaskResult:
        """Run the task ``action`` (``look``, ``eliminate`` or ``extend``) for ``request``."""
        with self._lock:
            if action == "look":
                return self._look()
            began, work = time.monotonic(), {"eliminate": self._eliminate, "extend": self._extend}[action]
            found = tuple(work(each) for each in request.spans)
            return TaskResult(seconds=time.monotonic() - began, spans=found)

    def close(self) -> None:
        """Release all memory and threads."""
        with self._lock:
            self._kept.clear()
            if self._backend is not None:
                self._backend.shutdown()
                self._backend = None

    def _look(self) -> TaskResult:
        """Show the driver that this worker can use the exchange folder: copy the driver's file there to a new file.

        Raises:
            StorageFailed: this worker cannot read or write there.
        """
        try:
            there = np.fromfile(self._exchange_dir / LOOKED_AT, np.int64)
        except OSError as error:
            raise atomic.failure("read", self._exchange_dir / LOOKED_AT, error) from error
        return TaskResult(spans=(SpanResult(-1, write_arrays(self._exchange_dir, new_name("seen"), [there])),))

    def _eliminate(self, request: SpanRequest) -> SpanResult:
        """Eliminate a span, and write the results for all of its parts to a file."""
        spans, s = self._spans(), request.span
        own = spans.for_eliminating(s)
        parts = closed_parts(own.parts)
        closed: Array = np.empty(int(parts.sizes @ parts.sizes), self._kind.dtype)
        found = Eliminated.empty(parts, self._kind)
        for k, part in enumerate(spans.below[s]):
            other = int(spans.owner[part])
            found.rest(k)[...] = self._rest(other, part, request.eliminated[other])
        arcs = read_arrays(self._exchange_dir, self.job.arcs, (3 * s, 3 * s + 1, 3 * s + 2))
        self._work(parts, s, arcs).eliminate(closed, found, own.mask, PartRecorder())
        first, last = spans.range(s)
        tables = tables_of(parts, closed)
        blocks = [eliminated_blocks(tables, found, own.first + i) for i in range(last - first)]
        arrays = [np.arange(first, last), *gathered(blocks)]
        file = write_arrays(self._exchange_dir, new_name(f"eliminated-{s}"), arrays)
        self._keep(file.name, arrays)
        return SpanResult(s, file)

    def _rest(self, other: int, part: int, file: ArraysFile) -> Array:
        """Read the lengths between the vertices of a part's border; the part belongs to another span."""
        parts, first = self._spans().parts, int(self._spans().cuts[other])
        squares = parts.depths[first : part + 1] ** 2
        last, (values,) = int(squares.sum()), self._arrays(file, (4,))
        side = int(parts.depths[part])
        return np.asarray(values[last - side * side : last].reshape(side, side))

    def _extend(self, request: SpanRequest) -> SpanResult:
        """Compute the tables of a span, and write them: whole chunks of the result, and pieces of other chunks."""
        spans, s = self._spans(), request.span
        own, chain = spans.for_extending(s), spans.above(s)
        eliminated = self._arrays(request.eliminated[s], (1, 2, 3))
        above = [self._top_tables(request.extended[int(spans.owner[part])]) for part in chain]
        work = self._work(own.parts, s, _none(self._kind.dtype))
        found = compute_tables(work, _GivenParts(own, eliminated, above))
        count = int((own.parts.sizes * own.parts.widths())[own.mask].sum())
        flats = [found.forward] if found.backward is None else [found.forward, found.backward]
        tables = [flat[:count] for flat in flats]
        whole = [table.copy() for table in tables] if spans.in_top[s] else []
        if not self.job.nonnegative:
            for table in tables:
                settle(table)
        first = int(self._begins[spans.cuts[s]])
        chunks, arrays, pieces = list[ChunkFile](), list[Array](), list[tuple[str, int, int]]()
        for name, table in zip(("tables/forward", "tables/backward"), tables, strict=False):
            for at, piece in self._chunked(name, first, table, chunks):
                pieces.append((name, at, len(arrays)))
                arrays.append(piece)
        file = write_arrays(self._exchange_dir, new_name(f"extended-{s}"), [*arrays, *whole])
        if whole:
            self._keep(file.name, whole)
        return SpanResult(s, file, tuple(chunks), tuple(pieces))

    def _chunked(self, name: str, first: int, table: Array, chunks: list[ChunkFile]) -> Iterator[tuple[int, Array]]:
        """Write the chunks that lie wholly in ``table`` to files.  Yield the pieces of all other chunks: for each the
        index of its first entry, and its entries.
        """
        entries, chunk = self.job.chunks[name]
        last = first + len(table)
        low = -(-first // chunk) * chunk
        high = last if last == entries else last // chunk * chunk
        if low >= high:
            yield first, table
            return
        yield first, table[: low - first]
        for at in range(low, high, chunk):
            path = self._exchange_dir / new_name(f"chunk-{at // chunk}")
            piece = table[at - first : min(high, at + chunk) - first]
            try:
                mark, running = write_chunk(path, piece, chunk, self.job.fill)
                atomic.sync_path(path)
            except OSError as error:
                raise atomic.failure("write", path, error, piece.nbytes) from error
            told = "" if running is None else running.astype("<u4").tobytes().hex()
            chunks.append(ChunkFile(name, at // chunk, path.name, self.job.dtype, chunk, mark, told))
        yield high, table[high - first :]

    def _spans(self) -> Spans:
        """Return the spans; the first call reads them from the exchange folder.  Their parts have no positions."""
        if self._known is None:
            starts, parents, ends, borders, cuts = read_arrays(self._exchange_dir, self.job.parts)
            nobody = np.empty(0, np.int64)
            self._known = Spans(Parts(nobody, starts, parents, ends, borders), cuts)  # type: ignore[arg-type]
        return self._known

    @cached_property
    def _begins(self) -> Array:
        """The index at which the table of each part begins in the result, shape (parts,)."""
        parts = self._spans().parts
        sizes = parts.sizes * parts.widths()
        return np.asarray(np.cumsum(sizes) - sizes)

    def _work(self, parts: Parts, s: int, arcs: Sequence[Array]) -> PartWork:
        """Return the object that computes the lengths of a span with these arcs."""
        if self._backend is None:
            from engine.devices.cpu.backend import CpuBackend

            self._backend = CpuBackend(self._threads)
        graph = own_graph(self._spans(), s, arcs, directed=self.job.directed)
        monitor = StopMonitor(self._exchange_dir)
        return PartWork(self._backend, graph, parts, self._kind, self.job.nonnegative, monitor)

    def _arrays(self, file: ArraysFile, numbers: Sequence[int]) -> list[Array]:
        """Return arrays of a file: from memory if this worker has written the file recently, else from the disk."""
        known = self._kept.get(file.name)
        return read_arrays(self.job.results, file, numbers) if known is None else [known[k] for k in numbers]

    def _top_tables(self, file: ArraysFile) -> list[Array]:
        """Return the tables of a part in the top of the tree: of the graph and, if directed, of the reversed graph."""
        known = self._kept.get(file.name)
        if known is not None:
            self._kept.move_to_end(file.name)
            return known
        count = len(file.arrays)
        known = read_arrays(self.job.results, file, range(count - 1 - self.job.directed, count))
        self._keep(file.name, known)
        return known

    def _keep(self, name: str, arrays: list[Array]) -> None:
        self._kept[name] = arrays
        held = sum(array.nbytes for each in self._kept.values() for array in each)
        while held > self.job.kept:
            _, gone = self._kept.popitem(last=False)
            held -= sum(array.nbytes for array in gone)


class _GivenParts(PartRecorder):
    """Restores the results that the tables of a span are computed from: its elimination, and the tables above it.

    Args:
        own: the span and the parts above it.
        eliminated: flat arrays of the lengths inside its parts, to their borders, and from their borders.
        above: the tables of each part above, nearest first, for the graph and, if it is directed, for the reversed one.
    """

    def __init__(self, own: OwnParts, eliminated: Sequence[Array], above: Sequence[Sequence[Array]]) -> None:
        self._own, self._given, self._above = own, eliminated, above

    def begin(self, parts: Parts, flat: Array, eliminated: Eliminated) -> None:
        """Fill the arrays with the known results; see :meth:`PartRecorder.begin` for the arguments."""
        self._parts, tables = parts, tables_of(parts, flat)
        blocks = [eliminated_blocks(tables, eliminated, i)[:3] for i in range(self._own.count)]
        scatter(self._given, blocks)
        self._fill(tables, 0)

    def begin_backward(self, flat: Array) -> None:
        """Fill the tables of the parts above for the reversed graph."""
        self._fill(tables_of(self._parts, flat), 1)

    def todo(self, step: str, parts: Parts) -> Mask:
        """Return a mask of the parts of the span; for step ``eliminate`` none, because all are eliminated already."""
        return np.zeros(parts.count, np.bool_) if step == "eliminate" else self._own.mask

    def _fill(self, tables: list[Array], way: int) -> None:
        for table, known in zip(tables[self._own.count :], self._above, strict=True):
            table[...] = known[way].reshape(table.shape)


def _none(dtype: np.dtype[np.generic]) -> list[Array]:
    """Return tails, heads and weights of no arcs."""
    return [np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, dtype)]
