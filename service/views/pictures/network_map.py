"""Draws a network from its coordinates, coloured by the distance from one vertex, with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from service.views.pictures.figures import about, new_figure
from storage.geography.plane import edge_ends, projected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

    from storage.geography.coordinates import Coordinates
    from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]

#: Sides of the picture in inches: the longer side, and the bounds of the shorter side.
_LONG, _LEAST, _MOST = 9.0, 4.5, 9.0
#: Number of vertices at each end of a route whose mean height decides where the name of the end is written: above the
#: end if these vertices are lower than the end, else below it.
_STEPS: Final = 5
#: Most edges that an SVG or PDF holds as lines.  More edges become one image, because the file would be too large.
_MANY: Final = 60_000
#: Inches above the map for the title, and inches below the map for the scale.
_ABOVE, _BELOW = 0.85, 0.75


@dataclass(frozen=True)
class Scheme:
    """Colours of a map.

    Attributes:
        paper, ink, dim, line: colours of background, text, less important text, and edges without a distance.
        route: colour of the route and of the vertices at its ends.
        near, far: the ends of the part of matplotlib's colour map ``magma`` that is used, from 0 to 1; near distances
            contrast most with the paper.
    """

    paper: str
    ink: str
    dim: str
    line: str
    route: str
    near: float
    far: float


SCHEMES: Final = {
    "light": Scheme("#fcfbf9", "#1d1c1a", "#68645d", "#dcd7ce", "#0f766a", 0.08, 0.84),
    "dark": Scheme("#141513", "#eceae5", "#a19d94", "#3b3c36", "#5cc4b4", 0.98, 0.37),
}


@dataclass(frozen=True, eq=False)
class NetworkMap:
    """The content of a map: a network, distances and a route.

    Attributes:
        graph: the graph whose arcs are drawn as lines.
        coordinates: coordinates of the vertices.
        distances: distance from ``source`` to each vertex, NaN without a path, shape (n,).
        source: index of the vertex from which distances are measured.
        title, subtitle: text above the map.
        route: the vertices of a route, in order; empty for none.
        ends: names of the first and the last vertex of the route, or of the first only.
        classes: bounds of isochrones, ascending; empty for continuous colours.
        unit: the unit of the distances; None if it is not known.
        dots: whether vertices are drawn, too.
    """

    graph: Graph
    coordinates: Coordinates
    distances: Floats
    source: int
    title: str
    subtitle: str = ""
    route: Sequence[int] = ()
    ends: Sequence[str] = ()
    classes: Sequence[float] = field(default=())
    unit: str | None = None
    dots: bool = False


def draw_map(network: NetworkMap, scheme: Scheme) -> Figure:
    """Return the map as a figure.

    Args:
        network: the content of the map; at least one vertex has coordinates.
        scheme: the colours of the map.

    Raises:
        InvalidRequest: matplotlib is not installed.
    """
    x, y = projected(network.coordinates)
    width, height = _size(x, y)
    figure = new_figure(width, height + _ABOVE + _BELOW)
    figure.set_layout_engine("none")
    figure.set_facecolor(scheme.paper)
    whole = height + _ABOVE + _BELOW
    axes = figure.add_axes((0.03, _BELOW / whole, 0.94, height / whole), facecolor=scheme.paper)
    axes.set_axis_off()
    axes.set_aspect("equal")
    lines, colours = _lines(network, x, y)
    colour_map, norm = _colours(network, scheme)
    _draw_lines(axes, (lines, colours), scheme, (colour_map, norm))
    if network.dots:
        _draw_vertices(axes, network, scheme, (colour_map, norm))
    axes.autoscale_view()
    axes.margins(0.03)
    _draw_route(axes, network, scheme, (x, y))
    indent = 0.045
    figure.text(indent, 1 - 0.30 / whole, network.title, color=scheme.ink, size=14, weight="bold", va="center")
    figure.text(indent, 1 - 0.58 / whole, network.subtitle, color=scheme.dim, size=9, va="center")
    _draw_legend(figure, network, scheme, (colour_map, norm))
    if network.coordinates.geographic:
        _draw_scale(axes, scheme)
    return figure


def _size(x: Floats, y: Floats) -> tuple[float, float]:
    """Return width and height of the map in inches."""
    wide, high = float(np.nanmax(x) - np.nanmin(x)) or 1.0, float(np.nanmax(y) - np.nanmin(y)) or 1.0
    if wide >= high:
        return _LONG, min(_MOST, max(_LEAST, _LONG * high / wide))
    return max(_LEAST + 1, min(_MOST, _LONG * wide / high)), _LONG


def _lines(network: NetworkMap, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return coordinates of the ends of each edge, shape (edges, 2, 2), and the mean distance of its two ends.

    Edges are in the order in which they are drawn: edges without a distance first, then from far to near.
    """
    ends = edge_ends(network.graph, ~np.isnan(x))
    distance = network.distances[ends].mean(axis=1)
    order = np.argsort(np.where(np.isnan(distance), np.inf, distance), kind="stable")[::-1]
    ends = ends[order]
    return np.stack([x[ends], y[ends]], axis=2), distance[order]


def _colours(network: NetworkMap, scheme: Scheme) -> tuple[Colormap, Normalize]:
    """Return the colour map of distances: continuous, or with a colour for each class and ``line`` beyond the last."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap, Normalize

    magma = colormaps["magma"]
    if network.classes:
        count = len(network.classes)
        shades = [magma(at) for at in np.linspace(scheme.near, scheme.far, count)]
        listed = ListedColormap(shades).with_extremes(over=scheme.line, bad=scheme.line)
        least = min(0.0, float(np.nanmin(network.distances)))
        bounds = [least, *network.classes]
        # a distance that equals a bound belongs to the class below it
        return listed, BoundaryNorm([np.nextafter(bound, np.inf) for bound in bounds], count)
    spread: Any = magma(np.linspace(scheme.near, scheme.far, 256))
    known = network.distances[~np.isnan(network.distances)]
    most = float(known.max()) or 1.0
    least = min(0.0, float(known.min()))
    continuous = LinearSegmentedColormap.from_list("distance", spread).with_extremes(bad=scheme.line)
    return continuous, Normalize(least, most)


def _draw_lines(axes: Axes, lines: tuple[Floats, Floats], scheme: Scheme, colours: tuple[Colormap, Normalize]) -> None:
    from matplotlib.collections import LineCollection

    segments, distances = lines
    width = float(np.clip(3.2 - 0.55 * math.log10(max(1, len(segments))), 0.3, 2.4))
    drawn = LineCollection(
        list(segments),
        colors=_shades(distances, scheme, colours),
        linewidths=width,
        capstyle="round",
        rasterized=len(segments) > _MANY,
        zorder=2,
    )
    axes.add_collection(drawn)


def _draw_vertices(axes: Axes, network: NetworkMap, scheme: Scheme, colours: tuple[Colormap, Normalize]) -> None:
    """Draw all vertices as dots, from far to near."""
    x, y = projected(network.coordinates)
    far = np.where(np.isnan(network.distances), np.inf, network.distances)
    order = np.argsort(far, kind="stable")[::-1]
    shades = _shades(network.distances[order], scheme, colours)
    size = float(np.clip(1500 / len(order), 4, 40))
    axes.scatter(x[order], y[order], s=size, c=shades, edgecolors=scheme.paper, linewidths=0.5, zorder=2.5)


def _shades(distances: Floats, scheme: Scheme, colours: tuple[Colormap, Normalize]) -> Any:
    """Return the colour of each distance, shape (k, 4)."""
    from matplotlib.colors import to_rgba

    colour_map, norm = colours
    shades = colour_map(norm(np.ma.masked_invalid(distances)))
    shades[np.isnan(distances)] = to_rgba(scheme.line)
    return shades


def _draw_route(axes: Axes, network: NetworkMap, scheme: Scheme, place: tuple[Floats, Floats]) -> None:
    """Draw the route with a light border, and its end vertices with their names."""
    x, y = place
    route = np.asarray(network.route, np.int64)
    if len(route) > 1:
        path: Any = {"solid_capstyle": "round", "solid_joinstyle": "round"}
        axes.plot(x[route], y[route], color=scheme.paper, linewidth=6.5, zorder=3, **path)
        axes.plot(x[route], y[route], color=scheme.route, linewidth=3.2, zorder=4, **path)
    marks = [network.source, *([int(route[-1])] if len(route) > 1 else [])]
    for vertex, name, filled in zip(marks, network.ends, (True, False), strict=False):
        face = scheme.route if filled else scheme.paper
        axes.plot(
            x[vertex], y[vertex], "o", markersize=10, color=face, markeredgecolor=scheme.route if not filled else
            scheme.paper, markeredgewidth=2.4, zorder=6,
        )  # fmt: skip
        near = [vertex, *(route[:_STEPS] if filled else route[-_STEPS:]).tolist()]
        _write_name(axes, (float(x[vertex]), float(y[vertex])), name, scheme, float(np.nanmean(y[near])))


def _write_name(axes: Axes, spot: tuple[float, float], name: str, scheme: Scheme, route: float) -> None:
    """Write the name of a vertex beside it, on the side where there is more space, and not on the route.

    ``spot`` is the position of the vertex, x and y, and ``route`` the mean y of the route near the vertex.
    """
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across = spot[0] > (left + right) / 2
    below = route > spot[1] or (route == spot[1] and spot[1] > low + 0.9 * (high - low))
    axes.annotate(
        name,
        spot,
        xytext=(-11 if across else 11, -15 if below else 15),
        textcoords="offset points",
        ha="right" if across else "left",
        va="center",
        size=10,
        weight="bold",
        color=scheme.ink,
        bbox={"boxstyle": "round,pad=0.28", "facecolor": scheme.paper, "edgecolor": scheme.line, "alpha": 0.92},
        zorder=7,
        annotation_clip=False,
    )


def _draw_legend(figure: Figure, network: NetworkMap, scheme: Scheme, colours: tuple[Colormap, Normalize]) -> None:
    """Draw the legend of the colours below the map."""
    from matplotlib.colorbar import ColorbarBase
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    whole = figure.get_figheight()
    colour_map, norm = colours
    if network.classes:
        _draw_classes(figure, network, scheme, colour_map)
        return
    axes = figure.add_axes((0.045, 0.42 / whole, 0.36, 0.10 / whole))
    bar = ColorbarBase(axes, cmap=colour_map, norm=norm, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(5)
    bar.formatter = FuncFormatter(lambda value, _: about(value))
    bar.update_ticks()
    axes.tick_params(color=scheme.dim, labelcolor=scheme.dim, labelsize=8, length=2, pad=2)
    figure.text(0.418, 0.47 / whole, network.unit or "", color=scheme.dim, size=9, va="center")


def _draw_classes(figure: Figure, network: NetworkMap, scheme: Scheme, colour_map: Colormap) -> None:
    """Draw a legend with a swatch for each class, and a swatch for distances beyond the last class."""
    from matplotlib.lines import Line2D

    unit = f" {network.unit}" if network.unit else ""
    handles = [
        Line2D([], [], color=colour_map(i), linewidth=5, label=f"up to {bound:,g}{unit}")
        for i, bound in enumerate(network.classes)
    ]
    handles.append(Line2D([], [], color=scheme.line, linewidth=5, label="farther, or no path"))
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.035, 0.12 / figure.get_figheight()),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        labelcolor=scheme.dim,
        handlelength=1.1,
        columnspacing=1.4,
        borderaxespad=0,
    )


def _draw_scale(axes: Axes, scheme: Scheme) -> None:
    """Draw a bar of a round number of metres or kilometres at the lower right of the map."""
    left, right = axes.get_xlim()
    across = right - left
    length = round_below(across / 5)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    box: Any = {"transform": axes.transAxes, "clip_on": False, "zorder": 8, "color": scheme.dim}
    share = length / across
    axes.plot([1 - share, 1], [-0.035, -0.035], linewidth=2, solid_capstyle="butt", **box)
    axes.text(1 - share / 2, -0.05, text, ha="center", va="top", size=8, color=scheme.dim, transform=axes.transAxes)


def round_below(value: float) -> float:
    """Return the largest number of the form 1, 2 or 5 times a power of ten that is at most ``value`` (positive)."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1.0, 2.0, 5.0) if step * power <= value * (1 + 1e-12))
