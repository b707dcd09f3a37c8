"""Points go to the vertex nearest to them, compared with all distances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import InvalidRequest
from storage.geography.coordinates import EARTH_RADIUS, Coordinates
from storage.geography.snapping import VertexFinder, nearest_vertices, snap_file


def haversine(lon1, lat1, lon2, lat2):
    """The textbook's formula, which the implementation does not use."""
    a, b, c, d = map(np.radians, (lon1, lat1, lon2, lat2))
    return (
        2
        * EARTH_RADIUS
        * np.arcsin(np.sqrt(np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2))
    )


degrees = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@settings(max_examples=60, deadline=None)
@given(st.lists(degrees, min_size=1, max_size=30), st.lists(degrees, min_size=1, max_size=5), st.booleans())
def test_the_nearest_vertex_is_found(vertices, points, geographic):
    x, y = np.array(vertices).T.copy()
    x[len(x) // 2 + 1 :: 3] = np.nan
    u, v = np.array(points).T
    found, distances = nearest_vertices(Coordinates(x, y, geographic), u, v)
    for i in range(len(u)):
        all_ = haversine(u[i], v[i], x, y) if geographic else np.hypot(u[i] - x, v[i] - y)
        assert distances[i] == pytest.approx(np.nanmin(all_), abs=0.2 if geographic else 1e-9)
        assert all_[found[i]] == pytest.approx(np.nanmin(all_), abs=0.2 if geographic else 1e-9)


def test_across_the_date_line_and_near_a_pole():
    placed = Coordinates(np.array([170.0, -179.9, 0.0]), np.array([0.0, 0.0, 89.0]), True)
    found, distances = nearest_vertices(placed, np.array([179.9, 180.0]), np.array([0.0, 88.9]))
    assert found.tolist() == [1, 2]
    assert distances[0] == pytest.approx(0.2 * np.pi / 180 * EARTH_RADIUS, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([(0.0, 0.0), (-0.0, 1.0), (1.0, 0.0), (3.0, 3.0)]), min_size=1, max_size=60), st.booleans()
)
def test_of_vertices_at_one_place_the_first_is_taken(vertices, geographic):
    x, y = np.array(vertices).T.copy()
    x[::7] = np.nan
    placed = Coordinates(x, y, geographic)
    if not placed.there.any():
        return
    finder = VertexFinder(placed)
    found, distances = finder.nearest(np.array([2.0, 0.1]), np.array([2.9, -0.1]))
    for vertex in found:
        assert vertex == np.flatnonzero((x == x[vertex]) & (y == y[vertex]))[0]
    count = int(placed.there.sum())
    if count > 1:
        (every,), (far,) = finder.nearest(np.array([2.0]), np.array([2.9]), count)
        assert sorted(every) == np.flatnonzero(placed.there).tolist()
        assert list(zip(far, every, strict=True)) == sorted(zip(far, every, strict=True))
        assert (every[0], far[0]) == (found[0], distances[0])


PLACED = Coordinates(np.array([24.93, 24.95]), np.array([60.16, 60.17]), True)


def snap(tmp_path, text, placed=PLACED):
    file = tmp_path / "points.csv"
    file.write_text(text)
    return snap_file(file, placed)


def test_points_keep_ids_and_names_and_far_ones_are_told(tmp_path):
    found = snap(tmp_path, "id,name,lon,lat\n8,Mary,24.9301,60.1601\n9,,24.9,60.5\n")
    assert (found.ids, list(found.titles), found.vertices.tolist()) == (["8", "9"], ["Mary", "9"], [0, 1])
    assert found.distances[0] == pytest.approx(haversine(24.9301, 60.1601, 24.93, 60.16), rel=1e-6)
    assert "2 points of points.csv were taken to 2 vertices" in found.note()
    assert "great-circle" in found.note()
    assert "FAR, more than 1,000 m: 1, 9 (" in found.note()
    found.check_limit(50_000)
    with pytest.raises(InvalidRequest, match=r"farther than 100 from every vertex: 1, 9 \(36,\d\d\d m\)"):
        found.check_limit(100)
    with pytest.raises(InvalidRequest, match="distance from 0, found nan"):
        found.check_limit(float("nan"))


def test_ids_are_names_or_rows_where_no_column_has_them(tmp_path):
    assert snap(tmp_path, "name,lon,lat\nA,24,60\nB,24,61\n").ids == ["A", "B"]
    assert snap(tmp_path, "name,lon,lat\nA,24,60\nA,24,61\n").ids == ["1", "2"]
    assert snap(tmp_path, "lon,lat\n24,60\n").ids == ["1"]


def test_x_and_y_are_read_in_the_system_of_the_graph(tmp_path):
    assert snap(tmp_path, "x,y\n24.94,60.17\n").geographic
    plane = Coordinates(np.array([0.0, 300.0]), np.array([0.0, 0.0]), False)
    found = snap(tmp_path, "x,y\n290,10\n", plane)
    assert (found.vertices.tolist(), found.geographic) == ([1], False)
    assert found.distances[0] == pytest.approx(np.hypot(10, 10))
    assert "distance in the plane" in found.note()


@pytest.mark.parametrize(
    ("text", "placed", "message"),
    [
        ("lon,lat\n1,2\n", None, "the graph has no coordinates: give them with --nodes"),
        (
            "lon,lat\n1,2\n",
            Coordinates(np.zeros(1), np.zeros(1), False),
            "has lonlat coordinates, and the graph has pla",
        ),
        ("x,y\n290,2\n", PLACED, "line 2: longitude 290"),
        ("id,lon,lat\n1,2,3\n2,,\n", PLACED, "line 3: the point has no coordinates"),
        ("id,lon,lat\n1,2,3\n1,2,4\n", PLACED, "line 3: '1' stands also in line 2"),
        ("id,lon,lat\n", PLACED, "holds no points"),
        ("lon,lat\n1,2\n", Coordinates(np.full(2, np.nan), np.full(2, np.nan), True), "no vertex has coordinates"),
    ],
)
def test_points_that_cannot_be_taken_anywhere(tmp_path, text, placed, message):
    with pytest.raises(InvalidRequest, match=message):
        snap(tmp_path, text, placed)
