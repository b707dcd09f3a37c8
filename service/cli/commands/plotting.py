"""``apsp plot``: draws a matrix as a heat map, and its distances and eccentricities as histograms, with matplotlib."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from service.cli.arguments import MapOptions
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json
from service.cli.commands.querying import store_folder
from service.cli.mapping import check_map, map_figure
from service.cli.progress import ProgressMonitor
from service.units import parse_size
from service.views.binning import in_bins
from service.views.matrix_summary import compared
from service.views.pictures.colours import BARS, INK, MARK
from service.views.pictures.figures import about, count_axes, draw_histogram, draw_matrix, new_figure
from service.views.pictures.heatmap import Order, Picture, picture_rows, take_picture
from storage.counted import counted
from storage.errors import InvalidRequest, NotFound
from storage.files.atomic import failure
from storage.files.writing import Writing
from storage.graph.units import measured_words
from storage.matrix.sealed import SealedResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from engine.api.from_tables.summary import RowsSummary

#: Kinds of picture, by the ending of the file's name.
SUFFIXES: Final = (".png", ".svg", ".pdf")
_BINS: Final = 64


class HeatMap(NamedTuple):
    """How the matrix is drawn.

    Attributes:
        order: order of rows and columns, see ``take_picture``.
        side: cells of the heat map along each side.
        read: the most bytes of tiles to read, such as ``2GiB``.
    """

    order: Order
    side: int
    read: str


def plot(store: str, out: Path, heat: HeatMap, network: MapOptions, *, as_json: bool) -> None:
    """Draw the matrix of a store, or its network, into a picture file, which is replaced if it exists.

    Args:
        store: folder or address of a solved matrix, or the folder of a prepared graph, whose rows are computed.
        out: file of the picture; its suffix decides the format.
        heat: how the matrix is drawn.
        network: whether the network is drawn instead, and how.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InvalidRequest: matplotlib is not installed, the kind of picture is unknown, ``heat.read`` is not a size like
            1GiB, or the matrix has no entries.
        NotFound: no such store or folder.
        StorageFailed: a damaged tile, or the picture cannot be written.
    """
    from engine.api.prepared_matrix import open_result

    check_map(network)
    figure = new_figure(11, 6)
    if out.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(f"-o: {out.name} should end in {', '.join(SUFFIXES)}", field="-o")
    if not out.absolute().parent.is_dir():
        raise NotFound(f"-o: the folder {out.absolute().parent} does not exist")
    if network["map"]:
        with Writing(out, "plot"):
            _write(map_figure(store, network, as_json=as_json, out=out), out, dpi=170)
        return
    order, budget = heat.order, parse_size(heat.read, field="--read")
    with Writing(out, "plot"), open_result(store_folder(store)) as matrix:
        if 0 in matrix.shape:
            raise InvalidRequest(f"{store} has no entries, there is nothing to draw", field="store")
        taken = _taken(matrix, budget)
        observe = None if taken is None else taken.gather
        with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
            picture = take_picture(matrix, side=heat.side, budget=budget, order=order, monitor=monitor, observe=observe)
        whole = picture.rows_read == picture.rows
        summary = matrix.summary if taken is None else taken.facts(whole=whole)
        _draw(figure, matrix, picture, (order, summary))
        _write(figure, out)
    share = picture.rows_read / picture.rows
    if as_json:
        cells = list(picture.image.shape)
        emit_json({"picture": str(out), "cells": cells, "rows": picture.rows, "rows_read": picture.rows_read})
    else:
        emit(f"{out}: drawn from {picture.rows_read:,} of {counted(picture.rows, 'rows')} ({share:.0%})")


def _taken(matrix: SealedResult, budget: int) -> RowsSummary | None:
    """Return an object that sums up the rows that are read; None for a solved matrix, which stores its summary."""
    from engine.api.from_tables.summary import RowsSummary
    from engine.api.prepared_matrix import PreparedMatrix

    if not isinstance(matrix, PreparedMatrix):
        return None
    return RowsSummary(matrix, np.concatenate(picture_rows(matrix, budget)))


def _draw(figure: Figure, matrix: SealedResult, picture: Picture, shown: tuple[Order, dict[str, Any]]) -> None:
    """Draw the picture and the facts; ``shown`` is the order of the vertices, and the summary."""
    order, summary = shown
    name = f"distance {measured_words(matrix.unit, matrix.measured)}".strip()
    axes = figure.subplot_mosaic([["map", "distances"], ["map", "ends"]], width_ratios=[1.35, 1])
    rows, columns = matrix.shape
    kind = "directed" if matrix.directed else "undirected"
    reached = f"{summary['reached']:,} of {counted(summary['pairs'], 'pairs')} reached" if "reached" in summary else ""
    reached += f" from {counted(summary['sources'], 'vertices')}" if summary.get("sampled") else ""
    figure.suptitle(f"{Path(matrix.path).stem}: {rows:,} × {columns:,} distances, {kind}, {reached}", fontsize=11)
    draw_matrix(axes["map"], picture.image, matrix.shape, f"mean {name}", largest=summary.get("diameter"))
    read = "" if picture.rows_read == rows else f", {counted(picture.rows_read, 'rows')} read"
    axes["map"].set(
        xlabel=f"to (vertices {'beside their neighbours' if order == 'near' else 'by label'})", ylabel="from"
    )
    axes["map"].set_title(f"each cell is a mean: light is near, dark is far, hatched is no path{read}", fontsize=9)
    _draw_distances(axes["distances"], summary, name)
    _draw_ends(axes["ends"], summary, picture, name)


def _draw_distances(axes: Axes, summary: dict[str, Any], name: str) -> None:
    of = f"from {counted(summary['sources'], 'vertices')}" if summary.get("sampled") else "all pairs"
    axes.set_title(f"distances, {of}", fontsize=9)
    histogram = summary.get("histogram") or {"edges": (), "counts": ()}
    draw_histogram(axes, histogram["edges"], histogram["counts"], name)
    if summary.get("reached"):
        axes.axvline(summary["mean"], color=MARK, label=f"mean {about(summary['mean'])}")
        axes.legend(fontsize=8)


def _draw_ends(axes: Axes, summary: dict[str, Any], picture: Picture, name: str) -> None:
    whole = picture.rows_read == picture.rows
    of = f"\nradius {compared(summary)}" if compared(summary) else ""
    axes.set_title(f"eccentricities, {'all' if whole else f'{picture.rows_read:,}'} sources{of}", fontsize=9)
    axes.set(xlabel=f"largest {name} from a vertex", ylabel="vertices")
    count_axes(axes)
    if len(picture.eccentricities):
        counts, edges = in_bins(picture.eccentricities, _BINS)
        if len(counts) == 1:  # equal eccentricities, whose bar would have no width
            edges = edges + np.array([-1, 1]) * max(0.5, abs(edges[1]) / _BINS)
        axes.stairs(counts, edges, fill=True, color=BARS)
    for fact, style in (("radius", ":"), ("diameter", "--")):
        if summary.get(fact) is not None:
            axes.axvline(summary[fact], color=INK, linestyle=style, label=f"{fact} {about(summary[fact])}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _write(figure: Figure, out: Path, dpi: int = 130) -> None:
    """Write to a temporary file next to the target first, so that an old picture stays until the new one is there."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=out.suffix[1:].lower(), dpi=dpi, facecolor=figure.get_facecolor())
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_bytes(drawn.getvalue())
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise failure("write", out, error) from error
