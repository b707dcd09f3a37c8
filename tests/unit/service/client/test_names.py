"""Vertices and points as the client sends them: which pairs have the same vertex at both ends."""

from __future__ import annotations

from service.client.names import Names, same_ends


def test_points_and_texts_of_numbers_are_the_vertices_that_they_stand_for() -> None:
    """An infinite value is null in an answer, as no path is; only from a vertex to itself does null mean infinite."""
    point = {"lon": 24.9, "lat": 60.1}
    given = [(5, 5), (5, "5"), (5, 6), (point, 5), (6, point), (point, point), ("a", "a ")]
    names = Names()
    sent = [[names.place(u), names.place(v)] for u, v in given]
    told = {"lon": 24.9, "lat": 60.1, "snap": 1.0, "far": False}
    answer = {
        "source_points": [{"place": 3, "vertex": 5, **told}, {"place": 5, "vertex": 5, **told}],
        "target_points": [{"place": 4, "vertex": 7, **told}, {"place": 5, "vertex": 5, **told}],
    }
    assert same_ends(sent, answer) == [True, True, False, True, False, True, False]
    assert same_ends([["x", "x"], ["x", "y"]], {"distances": [None, None]}) == [True, False]
