"""One colour means one distance wherever a matrix is drawn."""

import json
import re
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

import service
from service.views.pictures.colours import NO_PATH, STOPS, colour_map
from service.views.pictures.figures import about, draw_matrix
from service.views.pictures.network_map import SCHEMES


def test_the_page_has_the_same_colours():
    script = Path(service.__file__).with_name("dashboard") / "static" / "heat.js"
    found = re.search(r"const STOPS = (\[\[.*?\]\]);", script.read_text())
    assert found
    assert tuple(map(tuple, json.loads(found[1]))) == STOPS
    style = script.with_name("apsp.css").read_text()
    assert all(colour in style for colour in NO_PATH)


def test_the_map_of_the_page_has_the_colours_of_the_plotted_one():
    static = Path(service.__file__).with_name("dashboard") / "static"
    script = (static / "cartography.js").read_text()
    found = re.search(r"const MAGMA = (\[\[.*?\]\]);", script)
    assert found
    magma = (colormaps["magma"](np.linspace(0, 1, 16))[:, :3] * 255).round()
    np.testing.assert_array_equal(json.loads(found[1]), magma)
    parts = dict(re.findall(r"(light|dark): (\[[\d., ]+\])", script))
    assert {name: json.loads(part) for name, part in parts.items()} == {
        name: [scheme.near, scheme.far] for name, scheme in SCHEMES.items()
    }
    style = (static / "apsp.css").read_text()
    for scheme in SCHEMES.values():
        assert all(f"{name}: {colour};" in style for name, colour in (
            ("--paper", scheme.paper), ("--street", scheme.line), ("--accent", scheme.route), ("--ink", scheme.ink),
        ))  # fmt: skip


def test_near_is_light_and_far_is_dark():
    shades = colour_map()(np.linspace(0, 1, 64))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(shades) < 0).all()
    ends = (colour_map()([0.0, 1.0])[:, :3] * 255).round()
    assert tuple(map(tuple, ends)) == (STOPS[0], STOPS[-1])


def test_colours_span_from_zero_to_the_largest_distance():
    figure = Figure()
    for distances, largest, span in (
        ([[0.0, 4.0], [np.inf, 9.0]], None, (0, 9)),
        ([[3.0, 4.0]], 12.0, (0, 12)),
        ([[-5.0, 4.0]], None, (-5, 4)),
        ([[0.0]], 0.0, (0, 1)),
        ([[np.nan]], None, (0, 1)),
    ):
        axes = figure.add_subplot()
        draw_matrix(axes, np.array(distances), (1, 1), largest=largest)
        assert axes.images[0].get_clim() == span
        assert axes.patch.get_hatch(), "what has no path is hatched, not coloured"


def test_numbers_beside_a_picture():
    assert [about(value) for value in (12_290.4, 0.585, 33.0, -1e6)] == ["12,290", "0.585", "33", "-1,000,000"]
