"""A network as lines of a plane: each pair once, against a set of pairs, and degrees as metres."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.geography.coordinates import Coordinates, crow_distances
from storage.geography.plane import edge_ends, packed_network, projected
from storage.graph.graph import build_graph


@given(st.data())
def test_each_joined_pair_is_one_edge(data: st.DataObject):
    n = data.draw(st.integers(2, 12))
    vertex = st.integers(0, n - 1)
    arcs = data.draw(st.lists(st.tuples(vertex, vertex), min_size=1, max_size=40))
    there = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    graph, _ = build_graph(*zip(*arcs, strict=True), np.ones(len(arcs)), n=n, directed=data.draw(st.booleans()))
    wanted = {(min(a, b), max(a, b)) for a, b in arcs if a != b and there[a] and there[b]}
    assert edge_ends(graph, there).tolist() == [list(pair) for pair in sorted(wanted)]


def test_lengths_in_the_plane_are_those_on_the_ground():
    rng = np.random.default_rng(5)
    lon, lat = 15.6 + rng.uniform(-0.1, 0.1, 50), 48.4 + rng.uniform(-0.05, 0.05, 50)
    x, y = projected(Coordinates(lon, lat, True))
    truth = crow_distances(lon[:-1], lat[:-1], lon[1:], lat[1:], True)
    np.testing.assert_allclose(np.hypot(np.diff(x), np.diff(y)), truth, rtol=2e-3)


def test_a_plane_stays_as_it_is_and_missing_coordinates_are_missing():
    placed = Coordinates(np.array([3.0, np.nan, -1e7]), np.array([0.5, np.nan, 4.0]), False)
    x, y = projected(placed)
    np.testing.assert_array_equal(x, placed.x)
    np.testing.assert_array_equal(y, placed.y)
    assert np.isnan(projected(Coordinates(placed.x / 1e6, placed.y, True))[0]).tolist() == [False, True, False]


def test_labels_beyond_the_whole_numbers_of_javascript_are_text():
    for label, wanted in ((2**53 - 1, [5, 2**53 - 1]), (2**53 + 1, ["5", str(2**53 + 1)])):
        graph, _ = build_graph([0], [1], [1], n=2, labels=[5, label], directed=True)
        placed = Coordinates(np.array([0.0, 1]), np.array([0.0, 1]), False)
        packed = packed_network(graph, placed, {"sources": None, "targets": None})
        size = int.from_bytes(packed[:4], "little")
        assert json.loads(packed[4 : 4 + size])["labels"] == wanted
