"""What charts draw; histograms are tested with the pages that show them."""

from __future__ import annotations

import math

import pytest

from service.dashboard.charts import WIDTH, line_of_stops


def test_stops_stand_where_the_path_is_when_it_reaches_them():
    line = line_of_stops(["a", "b", "c", "d"], [0, 3, 3, 12])
    assert line is not None
    assert [(tick["vertex"], tick["x"]) for tick in line["ticks"]] == [("a", 0), ("b", WIDTH / 4), ("d", WIDTH)]
    assert (line["tail"], line["head"], line["longest"]) == ("c", "d", 9)
    assert (line["from"], line["to"]) == (WIDTH / 4, WIDTH)
    heights = [tick["bottom"] - tick["top"] for tick in line["ticks"]]
    assert heights[0] == heights[-1] > heights[1], "the ends are taller"
    assert all(0 <= tick["top"] < tick["bottom"] <= line["height"] for tick in line["ticks"])


@pytest.mark.parametrize("so_far", [[0], [0, 0], [0, 5, 3], [0, -1], [0, math.inf], [0, 2, -1, 4]])
def test_a_path_that_no_line_shows_is_not_drawn(so_far: list[float]):
    assert line_of_stops(list(range(len(so_far))), so_far) is None


def test_a_long_path_has_no_more_ticks_than_pixels():
    line = line_of_stops(list(range(100_001)), [k / 7 for k in range(100_001)])
    assert line is not None
    assert len(line["ticks"]) <= WIDTH + 2
    assert (line["ticks"][0]["x"], line["ticks"][-1]["x"]) == (0, WIDTH)
