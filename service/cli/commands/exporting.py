"""``apsp export``: writes a part of a result into a file for other programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, shown_unit
from service.cli.commands.querying import opened
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import selected
from service.jobs.results import ResultReader
from service.units import format_bytes
from service.views.exports import WRITERS, ExportedPart
from service.views.features import FEATURE_FILES, Ends, Features, check_features
from service.views.omx import check_omx, write_omx
from service.views.representations import Selection
from storage.errors import DoesNotFit, InvalidRequest, NotFound
from storage.files.atomic import failure
from storage.files.writing import Writing
from storage.geography.geopackage import GEOPACKAGE, check_geopackage
from storage.graph.units import measured_words, unit_metadata
from storage.semirings import EVERY, MIN_PLUS

if TYPE_CHECKING:
    from service.cli.arguments import AnswerOptions

#: Ending of the names of Open Matrix files.
OMX: Final = ".omx"


class ExportArgs(NamedTuple):
    """What ``apsp export`` writes; see its options.

    Attributes:
        sources, targets: texts that select vertices, see ``selected_vertices``; None for all.
        within: the largest distance; None for no limit.
        nearest: the number of nearest targets of each source; None for all.
        itself: whether a source is among its own nearest targets.
        wide: whether tables have a column for each target.
        also: the quantity whose sums are written in place of distances; None for distances.
        features: what becomes a feature, such as ``targets`` or ``lines``.  None means a table.  If the format holds
            only features, None means targets for one source, and lines for several.
        snap_limit: the farthest that a point may be from its vertex; None for no limit.
    """

    sources: str | None
    targets: str | None
    within: float | None
    nearest: int | None
    itself: bool
    wide: bool
    features: Features | None
    snap_limit: float | None
    also: str | None = None


def export(store: str, out: Path, args: ExportArgs, answer: AnswerOptions | None = None, *, as_json: bool) -> None:
    """Write a part of a result into a file; an existing file is replaced when the new one is complete.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph.
        out: the file, whose suffix decides the format.
        args: what is written.
        answer: the device that computes the answers of a prepared graph; None for the processors.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InvalidRequest: an unknown format, or an option that cannot be understood.
        NotFound: no such store, folder or vertex, or the row or column of a vertex was not solved.
        DoesNotFit: the disk has too little free space.
        StorageFailed: a damaged tile, or the file cannot be written.
    """
    kind = _kind(out)
    _check_form(kind, args)
    if not out.absolute().parent.is_dir():
        raise NotFound(f"-o: the folder {out.absolute().parent} does not exist")
    understood = EVERY if _plain_table(kind, args) else MIN_PLUS
    with opened(store, answer or {}, understood) as found:
        result = ResultReader(found)
        if args.within is not None:
            result.check_within(args.within, "--within")
        if 0 in result.matrix.shape:
            raise InvalidRequest(f"{store} has no entries, there is nothing to export", field="store")
        _check_sums(kind, args, result.matrix.also)
        part = _part(result, args, kind)
        needed, free = part.least_bytes(kind), shutil.disk_usage(out.absolute().parent).free
        if needed > free:
            message = (
                f"{out} becomes {format_bytes(needed)} at least, {format_bytes(free)} are free; "
                "--sources, --targets, --within and --nearest write less"
            )
            raise DoesNotFit(message, resource="disk", needed=needed, available=free)
        with Writing(out, "export"):
            _write(part, out, kind, wide=args.wide)
        unit, measured = None if args.also else result.matrix.unit, part.measured
        shown = None if args.also else shown_unit(result.matrix.unit, result.matrix.measured)
    down, across, size = len(part.rows.sources), part.rows.width, out.stat().st_size
    if as_json:
        said = unit_metadata(unit, measured)
        emit_json({"file": str(out), "sources": down, "targets": across, "bytes": size, **said})
    else:
        about = f", {measured}s {measured_words(unit, shown)}" if shown else ""
        emit(f"{out}: {down:,} sources x {across:,} targets, {format_bytes(size)}{about}")


def _plain_table(kind: str, args: ExportArgs) -> bool:
    """Return whether matrix entries are written unchanged; only then may the values be of any semiring."""
    filtered = args.within is not None or args.nearest is not None
    return kind in (".csv", ".parquet", ".npy") and args.features is None and not filtered


def _kind(out: Path) -> str:
    kind = out.suffix.lower()
    if kind == OMX:
        check_omx()
    elif kind == GEOPACKAGE:
        check_geopackage()
    elif kind not in WRITERS:
        raise InvalidRequest(f"-o: {out.name} should end in {', '.join((*WRITERS, OMX))}", field="-o")
    return kind


def _check_sums(kind: str, args: ExportArgs, there: Iterable[str]) -> None:
    """Refuse options that an OMX file cannot represent, and a quantity that the store lacks."""
    given = {
        "--within": args.within, "--nearest": args.nearest, "--itself": args.itself, "--wide": args.wide,
        "--features": args.features, "--also": args.also,
    }  # fmt: skip
    told = [name for name, value in given.items() if value is not None and value is not False]
    if kind == OMX and told:
        message = f"{told[0]}: an OMX file holds whole matrices, and all of them; leave it out"
        raise InvalidRequest(message, field=told[0])
    if args.also is None:
        return
    if args.also not in there:
        has = ", ".join(there) or "none"
        raise InvalidRequest(f"--also: the store has no {args.also!r}; it has {has}", field="--also")
    if kind != ".npy" and not args.wide:
        message = "--also: a table with a line for each entry has every quantity anyway; it is for --wide and .npy"
        raise InvalidRequest(message, field="--also")


def _check_form(kind: str, args: ExportArgs) -> None:
    """Refuse options that mean nothing for this kind of file."""
    if args.wide and (kind in FEATURE_FILES or args.features is not None):
        raise InvalidRequest("--wide is for tables, and features have a line for each entry", field="--wide")
    if args.features is not None and kind not in (*FEATURE_FILES, ".parquet"):
        message = f"--features is for {', '.join(FEATURE_FILES)} and .parquet, not for {kind}"
        raise InvalidRequest(message, field="--features")


def _part(result: ResultReader, args: ExportArgs, kind: str) -> ExportedPart:
    """Return what is exported; each point has its own row or column, even if several snap to one vertex."""
    matrix = result.matrix
    sources, targets, ends = matrix.sources, None, dict[str, Ends]()
    for side, text in (("sources", args.sources), ("targets", args.targets)):
        if text is None:
            continue
        vertices, points = selected(text, matrix, f"--{side}", args.snap_limit)
        found = np.array(vertices, np.int64)
        if points is not None:
            found, ends[side] = points.vertices, Ends.of_points(points)
        if side == "sources":
            result.check_sources(found)
            sources = found
        else:
            result.check_targets(found)
            targets = found
    features = args.features
    if kind in FEATURE_FILES and features is None:
        features = "targets" if len(sources) == 1 else "lines"
    if features is not None:
        of = matrix.targets if targets is None else targets
        for side, vertices_of in (("sources", sources), ("targets", of)):
            if side not in ends:
                ends[side] = Ends.of_vertices(vertices_of, matrix.labels, matrix.coordinates)
        check_features(ends["sources"], ends["targets"], kind)
    selection = Selection(result, sources, targets)
    return ExportedPart(
        selection, args.within, args.nearest, args.itself, ends.get("sources"), ends.get("targets"), features, args.also
    )


def _write(part: ExportedPart, out: Path, kind: str, *, wide: bool) -> None:
    """Write to a temporary file next to the target first, so that the old file stays until the new one is complete."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
            monitor.begin("export", len(part.rows.sources), "rows")
            if kind == OMX:
                write_omx(part.rows, beside, monitor.step)
            else:
                WRITERS[kind](part, beside, monitor.step, wide)
        beside.replace(out)
    except OSError as error:
        raise failure("write", out, error) from error
    finally:
        beside.unlink(missing_ok=True)
