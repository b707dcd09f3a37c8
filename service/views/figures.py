"""Draws matrices with matplotlib: a heat map and histograms, for ``apsp plot`` and for notebooks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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


def draw_matrix(axes: Axes, distances: Any, shape: tuple[int, int], unit: str = "") -> None:
    """Draw a heat map; entries without a path are grey.

    Args:
        axes: where it is drawn.
        distances: shape (height, width), the cells' values; +inf or NaN where there is no path.
        shape: rows and columns of the matrix, for the scales.
        unit: what the colours measure.
    """
    import numpy as np

    rows, columns = shape
    axes.set_facecolor("0.8")
    image = axes.imshow(
        np.ma.masked_invalid(distances),
        extent=(0, columns, rows, 0),
        cmap="viridis",
        interpolation="nearest",
        aspect="auto",
    )
    figure: Any = axes.figure
    figure.colorbar(image, ax=axes, shrink=0.6, label=unit)


def draw_histogram(axes: Axes, edges: Sequence[float], counts: Sequence[int], unit: str) -> None:
    """Draw counts of pairs by their distance.

    Args:
        axes: where it is drawn.
        edges: bounds of the bins, one more than counts; both are empty where nothing is reached.
        counts: pairs in each bin.
        unit: what the distances measure.
    """
    axes.set(xlabel=unit, ylabel="pairs")
    if len(counts):
        axes.stairs(counts, edges, fill=True, color="tab:blue")
