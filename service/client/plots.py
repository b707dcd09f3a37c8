"""Plots a result: a heat map of some rows and columns, and the histogram of all distances."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.client.asking import Patience
from service.client.displays import ResultView
from service.client.flows import job_path, question
from service.client.names import Label, Names
from service.client.reading import sides, submatrix
from service.client.steps import Flow
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlotData:
    """The data of a plot: distances of some rows and columns, floats with +inf, and counts of all distances in bins."""

    distances: Any
    edges: list[float]
    counts: list[int]


def sample(job: str, patience: Patience, size: int) -> Flow[PlotData]:
    """Read the data of a plot: at most ``size`` rows and columns.

    Args:
        job: id of the job.
        patience: how long requests are repeated.
        size: the most rows and columns.
    """
    if size < 1:
        raise InvalidRequest("a picture needs at least one row", field="size")
    down, across = yield from sides(job, patience)
    rows, columns = _some(down, size), _some(across, size)
    found = yield from submatrix(job, Names(), patience, rows, columns, most=8 * size * size)
    bins = yield from question("GET", job_path(job, "histogram"), patience)
    return PlotData(found, bins["edges"], bins["counts"])


def _some(labels: list[Label], size: int) -> list[Label]:
    """At most ``size`` of the labels, evenly spaced."""
    if len(labels) <= size:
        return labels
    return [labels[k * len(labels) // size] for k in range(size)]


def draw(result: ResultView, shown: PlotData) -> Figure:
    """Draw the figure.  Raises InvalidRequest without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidRequest(f"plot needs matplotlib: {error}") from error
    import numpy as np

    rows, columns = result.shape

    class Picture(Figure):
        """A figure that notebooks display, and that pyplot does not keep open."""

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    figure = Picture(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    masked = np.ma.masked_invalid(shown.distances)
    image = left.imshow(masked, extent=(0, columns, rows, 0), aspect="auto", interpolation="nearest")
    left.set(title="distances (white: no path)", xlabel="target", ylabel="source")
    figure.colorbar(image, ax=left, label=result.unit)
    if shown.counts:
        right.stairs(shown.counts, shown.edges, fill=True)
    right.set(title="all pairs", xlabel=f"distance ({result.unit})", ylabel="pairs")
    return figure
