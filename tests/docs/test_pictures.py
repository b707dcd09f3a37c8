"""The plots of the documents show the results that lie in the repository."""

import re

import pytest

from benchmarks import pictures


@pytest.mark.parametrize("name", pictures.CHARTS)
def test_a_plot_is_current(name):
    text = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    found = re.search(rf"{pictures.MARK}([0-9a-f]{{64}})", text)
    chart = pictures.CHARTS[name]()
    assert found, f"{name}.svg holds no digest"
    assert found[1] == chart.digest, f"{name}.svg shows other numbers: run python -m benchmarks.pictures {name}"


@pytest.mark.parametrize("name", pictures.CHARTS)
def test_a_plot_shows_something(name):
    chart = pictures.CHARTS[name]()
    assert chart.series
    for points in chart.series.values():
        assert len(points) >= 3
        assert all(y > 0 for _, y in points)


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    chart = pictures.gpus()
    pictures.draw(chart, tmp_path / "1.svg")
    pictures.draw(chart, tmp_path / "2.svg")
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()
    assert chart.digest in (tmp_path / "1.svg").read_text()
