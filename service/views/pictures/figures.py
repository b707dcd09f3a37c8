"""Draws matrices with matplotlib: a heat map and histograms, for ``apsp plot`` and for notebooks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from service.views.pictures.colours import BARS, NO_PATH, colour_map
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches.  Raises InvalidRequest without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = "a plot needs matplotlib, which is not installed: pip install 'apsp[plot]'"
        raise InvalidRequest(message, field="plot") from error

    class Picture(Figure):
        """A figure that notebooks display, and that pyplot does not keep open."""

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def draw_matrix(
    axes: Axes, distances: Any, shape: tuple[int, int], unit: str = "", *, largest: float | None = None
) -> None:
    """Draw a heat map; light is near, dark is far, and entries without a path are hatched.

    Args:
        axes: the axes to draw on.
        distances: the values of the cells, shape (height, width); +inf or NaN where there is no path.
        shape: rows and columns of the matrix, for the scales.
        unit: the unit of the distances.
        largest: the distance with the darkest colour; None for the greatest distance of a cell.  The lightest colour
            stands for 0, or for the least distance if it is negative.
    """
    import numpy as np

    rows, columns = shape
    ground, lines = NO_PATH
    axes.patch.set(facecolor=ground, edgecolor=lines, hatch="/////", linewidth=0)
    cells = np.ma.masked_invalid(distances)
    known = cells.compressed()
    least = min(0.0, float(known.min())) if len(known) else 0.0
    most = float(known.max()) if largest is None and len(known) else largest or 1.0
    image = axes.imshow(
        cells,
        extent=(0, columns, rows, 0),
        cmap=colour_map(),
        vmin=least,
        vmax=most if most > least else least + 1,
        interpolation="nearest",
        aspect="auto",
    )
    figure: Any = axes.figure
    figure.colorbar(image, ax=axes, shrink=0.6, label=unit, format=lambda value, _: about(value))


def about(value: float) -> str:
    """Return a number rounded to about four digits, for axes and legends."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def draw_histogram(axes: Axes, edges: Sequence[float], counts: Sequence[int], unit: str) -> None:
    """Draw counts of pairs by their distance.

    Args:
        axes: the axes to draw on.
        edges: bounds of the bins, one more than counts; both are empty where nothing is reached.
        counts: pairs in each bin.
        unit: the unit of the distances.
    """
    axes.set(xlabel=unit, ylabel="pairs")
    count_axes(axes)
    if len(counts):
        axes.stairs(counts, edges, fill=True, color=BARS)


def count_axes(axes: Axes) -> None:
    """Write the tick labels of a histogram in full, such as 30,000, without a factor beside the axis."""
    axes.xaxis.set_major_formatter(lambda value, _: about(value))
    axes.yaxis.set_major_formatter(lambda value, _: about(value))
