"""The map of a network: what its colours say, in which order lines are drawn, and how large the picture is."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgba

from service.views.pictures.network_map import SCHEMES, NetworkMap, draw_map, round_below
from storage.geography.coordinates import Coordinates
from storage.graph.graph import build_graph

LIGHT = SCHEMES["light"]


def network(distances, **more):
    """A path of four vertices along the equator, one vertex beside it, and one without coordinates."""
    tails, heads = [0, 1, 2, 0, 1], [1, 2, 3, 4, 5]
    graph, _ = build_graph(tails, heads, [1] * 5, n=6, directed=False)
    placed = Coordinates(
        np.array([0.0, 1, 2, 3, 0, np.nan]), np.array([0.0, 0, 0, 0, 1, np.nan]), more.pop("geo", True)
    )
    given = {"graph": graph, "coordinates": placed, "distances": np.array(distances, float), "source": 0}
    return NetworkMap(**given, title="From 0", ends=["zero"], **more)


def lines(figure):
    """The ends of the lines in the order in which they are drawn, in degrees, and their colours."""
    [drawn] = [one for one in figure.axes[0].collections if isinstance(one, LineCollection)]
    degree = 6_371_008.8 * np.pi / 180
    ends = [tuple(tuple((corner / degree).round(6).tolist()) for corner in segment) for segment in drawn.get_segments()]
    return ends, [to_hex(colour) for colour in drawn.get_colors()]


def test_near_edges_are_drawn_over_far_ones_and_those_without_a_path_below_all():
    figure = draw_map(network([0, 2, 5, 9, np.nan, 3]), LIGHT)
    ends, colours = lines(figure)
    x = np.cos(np.radians(0.5))
    steps = [((k * x, 0), ((k + 1) * x, 0)) for k in range(3)]
    wanted = [((0.0, 0.0), (0.0, 1.0)), *reversed(steps)]
    np.testing.assert_allclose(ends, wanted, atol=1e-5)
    assert colours[0] == LIGHT.line
    assert len(set(colours)) == 4
    darkness = [sum(to_rgba(colour)[:3]) for colour in colours[1:]]
    assert darkness == sorted(darkness, reverse=True)  # on light paper, what is near is darkest
    assert figure.get_facecolor() == to_rgba(LIGHT.paper)


def test_on_dark_paper_what_is_near_is_lightest():
    _, colours = lines(draw_map(network([0, 2, 5, 9, np.nan, 3]), SCHEMES["dark"]))
    lightness = [sum(to_rgba(colour)[:3]) for colour in colours[1:]]
    assert lightness == sorted(lightness)


def test_a_distance_at_the_bound_of_a_class_belongs_to_it():
    figure = draw_map(network([0, 2, 4, 100, np.nan, 3], classes=[1, 3, 20], unit="min"), LIGHT)
    _, colours = lines(figure)
    shades = [to_hex(line.get_color()) for line in figure.legends[0].get_lines()]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["up to 1 min", "up to 3 min", "up to 20 min", "farther, or no path"]
    # edges at mean distances of 1, 3 and 52: the first two are exactly the bounds
    assert colours == [LIGHT.line, LIGHT.line, shades[1], shades[0]]


def test_route_and_names():
    figure = draw_map(network([0, 2, 5, 9, 1, 3], route=[0, 1, 2]), LIGHT)
    paths = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert [line.get_color() for line in paths] == [LIGHT.paper, LIGHT.route]
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text() == "zero"] == ["zero"]


@pytest.mark.parametrize("turn", range(0, 360, 30))
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_names_of_the_ends_lie_beside_the_route(turn, scheme):
    """Whichever way the route leads, from the middle of the map and from its edges."""
    away = np.exp(1j * np.radians(turn)) * np.arange(12.0)
    x, y = np.concatenate([away.real, [-15, 15, 0, 0]]), np.concatenate([away.imag, [0, 0, -15, 15]])
    graph, _ = build_graph(range(11), range(1, 12), [1] * 11, n=16, directed=False)
    ends = {"title": "", "ends": ["one", "another"], "source": 0, "route": list(range(12))}
    figure = draw_map(NetworkMap(graph, Coordinates(x, y, False), np.arange(16.0), **ends), scheme)
    axes, canvas = figure.axes[0], FigureCanvasAgg(figure)
    canvas.draw()
    steps = np.linspace(0, 11, 2000)
    drawn = axes.transData.transform(np.column_stack([np.interp(steps, range(12), each[:12]) for each in (x, y)]))
    named = [text for text in axes.texts if text.get_text() in ("one", "another")]
    assert len(named) == 2
    for text in named:
        box = text.get_bbox_patch().get_window_extent(canvas.get_renderer())
        inside = ((drawn > [box.x0, box.y0]) & (drawn < [box.x1, box.y1])).all(1)
        assert not inside.any(), (text.get_text(), turn)


@pytest.mark.parametrize("geo", [True, False])
def test_only_degrees_have_a_scale(geo):
    figure = draw_map(network([0, 2, 5, 9, 1, 3], geo=geo), LIGHT)
    assert [text.get_text() for text in figure.axes[0].texts if "km" in text.get_text()] == (["50 km"] if geo else [])


def test_a_network_across_the_date_line_stays_in_one_piece():
    one = network([0, 2, 5, 9, 1, 3])
    placed = Coordinates(np.array([178.0, 179, -180, -179, 178, np.nan]), one.coordinates.y, True)
    figure = draw_map(NetworkMap(one.graph, placed, one.distances, 0, "x", ends=["zero"]), LIGHT)
    ends, _ = lines(figure)
    assert max(abs(a[0] - b[0]) for a, b in ends) < 1.01


def test_one_vertex_and_a_straight_line_are_drawn():
    graph, _ = build_graph([], [], [], n=1, directed=True)
    placed = Coordinates(np.array([4.0]), np.array([5.0]), True)
    draw_map(NetworkMap(graph, placed, np.array([0.0]), 0, "alone", ends=["a"]), LIGHT).canvas.draw()


@pytest.mark.parametrize(("value", "below"), [(1, 1), (4.99, 2), (5, 5), (99.9, 50), (0.3, 0.2), (1000, 1000)])
def test_round_numbers(value, below):
    assert round_below(value) == pytest.approx(below)
