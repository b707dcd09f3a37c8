"""``apsp solve-many``: reads a folder or list of graph files; writes a folder of stores, or a table of summaries."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, cast

from service.cli.commands.failures import FAILED, complain
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, jsonable, table
from service.cli.commands.solving import GraphArgs, budgets_of, load, options_of
from service.cli.progress import ProgressMonitor
from service.options import BulkOptions, Compression
from service.units import format_seconds
from storage.counted import counted
from storage.errors import Conflict, InvalidRequest, NotFound
from storage.files.atomic import write_file
from storage.graph.graph import Graph, Receipt, graph_digest
from storage.matrix.reader import open_matrix
from storage.options import FileReadingOptions, ReadingOptions
from storage.threads import in_threads

if TYPE_CHECKING:
    from engine.api.bulk import BulkFailure, BulkResult
    from engine.planning.bulk import Group

#: A batch is full at this many graphs (``BATCH``) or bytes of graphs (``BATCH_BYTES``).  A longer list is solved batch
#: after batch, so that memory holds little more than one batch.
BATCH: Final = 8192
BATCH_BYTES: Final = 2**30
#: Number of files that are read at the same time, each in a thread of its own.
READERS: Final = 8
#: Most failures that are reported on standard error.
SHOWN: Final = 20
COLUMNS: Final = (
    "graph", "status", "vertices", "arcs", "directed", "dtype", "device", "pairs", "reached", "sum", "mean",
    "diameter", "radius", "store", "error", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class ManyArgs:
    """What to solve and where the results go."""

    graphs: Sequence[str]
    reading: ReadingOptions
    options: BulkOptions
    out: Path | None
    summary: Path | None
    compression: Compression
    overwrite: bool


@dataclass
class Tally:
    """The outcomes so far: table rows and readers' notes by position of the graph, and the groups solved together."""

    rows: dict[int, dict[str, object]] = field(default_factory=dict)
    groups: list[dict[str, object]] = field(default_factory=list)
    noted: dict[int, str] = field(default_factory=dict)
    failures: list[dict[str, object]] = field(default_factory=list)

    def note(self, index: int, path: Path, notes: Sequence[str]) -> None:
        """Keep the reader's notes on a graph; the notes on the first graphs are also printed at once.

        Args:
            index: position of the graph in the list.
            path: file of the graph.
            notes: remarks of the reader.
        """
        if notes:
            if len(self.noted) < SHOWN:
                _tell(f"note: {path}: {note}" for note in notes)
            elif len(self.noted) == SHOWN:
                _tell(["note: there are notes on more graphs; --summary has them all"])
            self.noted[index] = "; ".join(notes)

    def fail(self, index: int, path: Path, failure: BulkFailure) -> None:
        """Record the failure of one graph; the first ``SHOWN`` failures are also printed at once.

        Args:
            index: position of the graph in the list.
            path: file of the graph.
            failure: what went wrong.
        """
        if len(self.failures) < SHOWN:
            complain(f"{path}: {failure.message}")
        elif len(self.failures) == SHOWN:
            complain("more graphs fail; --json and --summary name them all")
        self.rows[index] = {"graph": str(path), "status": "failed", "error": failure.message}
        self.failures.append(
            {
                "graph": str(path),
                "code": failure.kind,
                "message": failure.message,
                "details": dict(failure.details),
            }
        )


def solve_many(args: ManyArgs, *, as_json: bool) -> int:
    """Solve every graph that has no finished store yet; returns the exit code.

    Raises:
        InvalidRequest, NotFound: the arguments cannot be understood; nothing was solved.
    """
    budgets_of(args.options)
    paths = graph_files(args.graphs)
    targets = _targets(paths, args)
    started, tally = time.perf_counter(), Tally()
    for batch in _batches(paths, args, tally):
        _solve_batch(batch, paths, targets, args, tally)
    rows = [{**tally.rows[index], "notes": tally.noted.get(index)} for index in sorted(tally.rows)]
    if args.summary is not None:
        write_file(args.summary, [_table(rows, args.summary.suffix).encode()])
    counts = Counter(str(row["status"]) for row in rows)
    seconds = time.perf_counter() - started
    if as_json:
        numbers = {status: counts[status] for status in ("done", "skipped", "failed")}
        facts = {"graphs": len(rows), **numbers, "seconds": seconds}
        emit_json({**facts, "groups": tally.groups, "failures": tally.failures})
    else:
        emit(f"{counted(len(rows), 'graphs')} in {format_seconds(seconds)}: {_counted(counts)}")
    return FAILED if tally.failures else 0


def _counted(counts: Mapping[str, int]) -> str:
    skipped = f", {counts['skipped']:,} had their store already" if counts["skipped"] else ""
    failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
    return f"{counts['done']:,} done{skipped}{failed}"


# ---- what to solve --------------------------------------------------------------------------------------------------


def graph_files(names: Sequence[str]) -> list[Path]:
    """Return the files that ``names`` select: files, all files of folders (sorted, without hidden ones), and ``@LIST``.

    Raises:
        NotFound: there is no such file, folder or list.
        InvalidRequest: the names select no file.
    """
    found: list[Path] = []
    for name in names:
        if name.startswith("@"):
            lines = Path(name[1:]).read_text(encoding="utf-8").splitlines()
            found += [Path(line.strip()) for line in lines if line.strip()]
            continue
        path = Path(name)
        if path.is_dir():
            found += sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        elif path.exists():
            found.append(path)
        else:
            raise NotFound(f"there is no file or folder {name}")
    if not found:
        raise InvalidRequest(f"no graph file in {', '.join(names)}", field="graphs")
    return found


def _targets(paths: Sequence[Path], args: ManyArgs) -> list[Path | None]:
    """Return the path of the store of each graph; None for each without ``--out``.

    A store is named after the whole name of the graph file, so that no two stores have the same path.
    """
    if args.out is None:
        if args.summary is None:
            raise InvalidRequest("give --out FOLDER for stores, --summary FILE for a table, or both", field="out")
        return [None] * len(paths)
    if args.out.exists() and not args.out.is_dir():
        raise InvalidRequest(f"--out: {args.out} is no folder", field="out")
    targets: list[Path | None] = [args.out / f"{path.name}.zarr" for path in paths]
    names = Counter(path.name for path in paths)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        both = ", ".join(str(path) for path in paths if path.name == twice)
        raise InvalidRequest(f"{both} would all have the store {args.out / twice}.zarr", field="graphs")
    args.out.mkdir(parents=True, exist_ok=True)
    return targets


Batch = dict[int, Graph]


def _batches(paths: Sequence[Path], args: ManyArgs, tally: Tally) -> Iterator[Batch]:
    """Yield the graphs, read by several threads, in batches; graphs that cannot be read are recorded as failed."""
    from engine.api.bulk import failure_of

    def read(path: Path) -> tuple[Graph, Receipt] | BulkFailure:
        try:
            return load(GraphArgs(path, cast(FileReadingOptions, args.reading)))
        except Exception as error:
            return failure_of(error)

    batch: Batch = {}
    size = 0
    for first in range(0, len(paths), READERS):
        # All threads of a slice of files end before the yield, because a generator that is never resumed could not end
        # them.
        some = paths[first : first + READERS]
        for index, found in enumerate(in_threads(READERS, read, some, name="apsp-read"), first):
            if not isinstance(found, tuple):
                tally.fail(index, paths[index], found)
                continue
            graph, receipt = found
            tally.note(index, paths[index], receipt.notes)
            batch[index] = graph
            size += graph.heads.nbytes + graph.weights.nbytes + graph.indptr.nbytes + graph.labels.nbytes
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        if INTERRUPTS.requested():
            raise KeyboardInterrupt
    if batch:
        yield batch


# ---- solving --------------------------------------------------------------------------------------------------------


def _solve_batch(
    batch: Batch, paths: Sequence[Path], targets: Sequence[Path | None], args: ManyArgs, tally: Tally
) -> None:
    from engine.api.bulk import Entry, failure_of, make_bulk_plan, run
    from engine.api.solve import StoreOptions

    todo: dict[int, Graph] = {}
    for index, graph in batch.items():
        try:
            finished = _finished(graph, targets[index], args)
        except Exception as error:  # the store cannot be read, or belongs to another graph
            tally.fail(index, paths[index], failure_of(error))
            continue
        if finished is None:
            todo[index] = graph
        else:
            tally.rows[index] = {"graph": str(paths[index]), "status": "skipped", **_facts(graph), **finished}
    if not todo:
        return
    options = options_of(args.options, next(iter(todo.values())))
    plan = make_bulk_plan(todo, options, stores=args.out is not None, out=args.out)
    tally.groups += [group.to_dict() for group in plan.groups]
    _tell(describe_groups(plan.groups))
    entries = {index: Entry(graph, targets[index]) for index, graph in todo.items()}
    stores = StoreOptions(compression=args.compression, overwrite=args.overwrite)
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        _collect(run(entries, plan, options, stores, monitor), todo, paths, targets, tally)


def _collect(
    results: Iterable[BulkResult],
    graphs: Mapping[int, Graph],
    paths: Sequence[Path],
    targets: Sequence[Path | None],
    tally: Tally,
) -> None:
    for result in results:
        index = result.index
        if result.failure is not None:
            tally.fail(index, paths[index], result.failure)
            continue
        assert result.plan is not None
        found = {"dtype": result.plan.dtype, "device": result.plan.device, "store": targets[index]}
        facts = {"graph": str(paths[index]), "status": "done", **_facts(graphs[index])}
        tally.rows[index] = {**facts, **found, **(result.summary or {})}


def _facts(graph: Graph) -> dict[str, object]:
    return {"vertices": graph.n, "arcs": graph.arcs, "directed": graph.directed}


def _finished(graph: Graph, target: Path | None, args: ManyArgs) -> dict[str, object] | None:
    """Return the facts of an existing sealed store with the wanted matrix; None if the store has to be made."""
    if target is None or args.overwrite or not target.exists():
        return None
    with open_matrix(target) as matrix:
        attributes = matrix.attributes
        if attributes["graph"] != graph_digest(graph):
            raise Conflict(f"{target} is the store of another graph; remove it, or give --overwrite")
        hops = args.options["max_hops"]
        hops = None if hops is None or hops >= graph.n - 1 else hops
        asked = {"max_hops": hops, "sources": "all"}
        if args.options["dtype"] != "auto":
            asked["type"] = args.options["dtype"]
        for name, value in asked.items():
            if attributes[name] != value:
                found = f"{name} {attributes[name]}, and {value} was asked for"
                raise Conflict(f"{target} was solved with {found}; remove it, or give --overwrite")
        device = (attributes["plan"] or {}).get("device")
        return {"dtype": attributes["type"], "device": device, "store": target, **matrix.summary}


def describe_groups(groups: Sequence[Group]) -> list[str]:
    """Return the groups of graphs of a bulk solve as text, with a line for each group."""
    head = ("graphs", "way", "device", "type", "side", "at a time", "seconds", "")
    rows = [
        (f"{len(g.members):,}", g.way, g.device, g.dtype, f"{g.side:,}", f"{g.launch:,}", f"{g.seconds:.3g}", g.reason)
        for g in groups
    ]
    return table([head, *rows], right=(0, 4, 5, 6)) if rows else []


def _tell(lines: Iterable[str]) -> None:
    stream: TextIO = sys.stderr
    for line in lines:
        print(line, file=stream, flush=True)


# ---- the table ------------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Mapping[str, object]], suffix: str) -> str:
    """Return the table as CSV with a header, or one JSON object a line if ``suffix`` is ``.jsonl`` or ``.ndjson``."""
    plain = [{name: _cell(row.get(name)) for name in COLUMNS} for row in rows]
    if suffix in (".jsonl", ".ndjson"):
        return "".join(json.dumps(jsonable(row), ensure_ascii=False, allow_nan=False) + "\n" for row in plain)
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue()


def _cell(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
