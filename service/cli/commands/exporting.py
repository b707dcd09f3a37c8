"""``apsp export``: parts of a result as a file for other programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json
from service.cli.commands.querying import store_folder
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import selected_vertices
from service.jobs.results import ResultReader
from service.units import format_bytes
from service.views.exports import WRITERS, ExportedPart
from service.views.omx import check_omx, write_omx
from service.views.representations import Selection
from storage.errors import DoesNotFit, InvalidRequest, NotFound
from storage.files.atomic import failure

#: End of the name of an Open Matrix file.
OMX: Final = ".omx"


class ExportArgs(NamedTuple):
    """What ``apsp export`` writes; see its options.

    Attributes:
        sources, targets: texts that mean vertices, see ``selected_vertices``; None for all.
        within: the largest distance; None for no limit.
        nearest: the number of nearest targets of each source; None for all.
        itself: whether a source is among its own nearest targets.
        wide: whether tables have a column for each target.
        also: the quantity whose sums are written in place of distances; None for distances.
    """

    sources: str | None
    targets: str | None
    within: float | None
    nearest: int | None
    itself: bool
    wide: bool
    also: str | None = None


def export(store: str, out: Path, args: ExportArgs, *, as_json: bool) -> None:
    """Write a part of a result into a file; one that is there is replaced when the new one is complete.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph.
        out: the file, whose suffix decides the format.
        args: what is written.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InvalidRequest: an unknown format, or an option that means nothing.
        NotFound: no such store, folder or vertex, or its row or column was not solved.
        DoesNotFit: the disk has too little room.
        StorageFailed: a damaged tile, or the file cannot be written.
    """
    kind = _kind(out)
    if not out.absolute().parent.is_dir():
        raise NotFound(f"-o: the folder {out.absolute().parent} does not exist")
    from engine.api.prepared_matrix import open_result

    result = ResultReader(open_result(store_folder(store)))
    if args.within is not None:
        result.check_within(args.within, "--within")
    if 0 in result.matrix.shape:
        raise InvalidRequest(f"{store} has no entries, there is nothing to export", field="store")
    _check_form(kind, args, result.matrix.also)
    part = ExportedPart(_selection(result, args), args.within, args.nearest, args.itself, args.also)
    needed, free = part.least_bytes(kind), shutil.disk_usage(out.absolute().parent).free
    if needed > free:
        message = (
            f"{out} becomes {format_bytes(needed)} at least, {format_bytes(free)} are free; "
            "--sources, --targets, --within and --nearest write less"
        )
        raise DoesNotFit(message, resource="disk", needed=needed, available=free)
    _write(part, out, kind, wide=args.wide)
    down, across, size = len(part.rows.sources), part.rows.width, out.stat().st_size
    if as_json:
        emit_json({"file": str(out), "sources": down, "targets": across, "bytes": size})
    else:
        emit(f"{out}: {down:,} sources x {across:,} targets, {format_bytes(size)}")


def _kind(out: Path) -> str:
    kind = out.suffix.lower()
    if kind == OMX:
        check_omx()
    elif kind not in WRITERS:
        raise InvalidRequest(f"-o: {out.name} should end in {', '.join((*WRITERS, OMX))}", field="-o")
    return kind


def _check_form(kind: str, args: ExportArgs, there: Iterable[str]) -> None:
    """Refuse what a form of file has no place for, and a quantity that the store has not."""
    given = {"--within": args.within, "--nearest": args.nearest, "--itself": args.itself, "--wide": args.wide}
    told = [name for name, value in given.items() if value not in (None, False)]
    if kind == OMX and (told or args.also is not None):
        name = (told or ["--also"])[0]
        raise InvalidRequest(f"{name}: an OMX file holds whole matrices, and all of them; leave it out", field=name)
    if args.also is None:
        return
    if args.also not in there:
        raise InvalidRequest(
            f"--also: the store has no {args.also!r}; it has {', '.join(there) or 'none'}", field="--also"
        )
    if kind != ".npy" and not args.wide:
        message = "--also: a table with a line for each entry has every quantity anyway; it is for --wide and .npy"
        raise InvalidRequest(message, field="--also")


def _selection(result: ResultReader, args: ExportArgs) -> Selection:
    matrix = result.matrix
    sources, targets = matrix.sources, None
    if args.sources is not None:
        sources = np.array(selected_vertices(args.sources, matrix.labels, "--sources"), np.int64)
        result.check_sources(sources)
    if args.targets is not None:
        targets = np.array(selected_vertices(args.targets, matrix.labels, "--targets"), np.int64)
        result.check_targets(targets)
    return Selection(result, sources, targets)


def _write(part: ExportedPart, out: Path, kind: str, *, wide: bool) -> None:
    """Write beside the target first, so that what is there stays whole until the new file is."""
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
