"""Graphs of layers of edges: their vertices, weights, directions and coordinates, in GeoPackages and GeoParquet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import ApspError, InvalidGraph, InvalidRequest
from storage.geography.coordinates import EARTH_RADIUS
from storage.graph.new_weights import read_weights
from storage.readers import read_graph
from tests.layers import line, multi, write_geoparquet, write_gpkg

DEGREE = EARTH_RADIUS * math.pi / 180
#: A square whose sides are drawn around, and a diagonal.
SQUARE = [line((0, 0), (1, 0)), line((1, 0), (1, 1)), line((1, 1), (0, 1)), line((0, 1), (0, 0)), line((0, 0), (1, 1))]


@pytest.fixture(params=["gpkg", "parquet", "parquet of GeoPandas"])
def write(request, tmp_path):
    """Writes a file of lines in one of the formats."""

    def written(geometry, **fields: Any) -> Path:
        if request.param == "gpkg":
            return write_gpkg(tmp_path / "x.gpkg", "streets", geometry, kind="Unknown", **fields)
        extended = request.param != "parquet"
        return write_geoparquet(tmp_path / "x.parquet", geometry, extended=extended, **fields)

    return written


def arcs(graph) -> dict[tuple[Any, Any], float]:
    """All arcs of a graph by their labels."""
    names = graph.labels.tolist()
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    return {
        (names[u], names[v]): w
        for u, v, w in zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    }


def read(path, **options):
    graph, receipt = read_graph(path, **options)
    return graph, receipt, arcs(graph)


def test_ends_of_lines_become_vertices_with_coordinates(write):
    graph, receipt, found = read(write(SQUARE, cost=[1, 2, 3, 4, 9]))
    assert found == {pair: w for (u, v), w in {(0, 1): 1, (1, 2): 2, (2, 3): 3, (3, 0): 4, (0, 2): 9}.items()
                     for pair in ((u, v), (v, u))}  # fmt: skip
    assert (graph.directed, graph.coordinates.system, receipt.weight_column, graph.unit) == (
        False, "lonlat", "cost", None,
    )  # fmt: skip
    assert (graph.coordinates.x.tolist(), graph.coordinates.y.tolist()) == ([0, 1, 1, 0], [0, 0, 1, 1])
    assert any("no column says which lines are one-way" in note for note in receipt.notes)


def test_without_a_column_of_lengths_the_lines_are_measured(write):
    bent = [line((0, 0), (1, 0), (2, 0)), line((2, 0), (2, 3)), line((-180, 60), (180, 60))]
    graph, receipt, found = read(write(bent, lanes=[1, 2, 3], confidence=[0.5, 0.1, 0.2]))
    assert found[0, 1] == pytest.approx(2 * DEGREE, abs=0.001)
    assert found[1, 2] == pytest.approx(3 * DEGREE, abs=0.001)
    assert found[3, 4] == 0, "both ends of the last line are the same place on the Earth"
    assert (receipt.weight_column, graph.unit, graph.n) == ("metres", "m", 5)
    assert any("along great circles" in note for note in receipt.notes)


def test_what_the_weight_is_can_be_said(write):
    path = write(SQUARE, length=[10, 20, 30, 40, 50], minutes=[5, 4, 3, 2, 1])
    assert read(path)[2][0, 1] == 10
    assert read(path, weight="minutes")[2][0, 1] == 5
    assert read(path, weight="2")[2][0, 2] == 1
    metres, receipt, found = read(path, weight="Metres")
    assert found[0, 1] == pytest.approx(DEGREE, abs=0.001)
    assert (metres.unit, receipt.weight_column) == ("m", "metres")
    walked, receipt, found = read(path, length_of="metres / 80")
    assert found[0, 1] == pytest.approx(DEGREE / 80, abs=0.001)
    assert (walked.unit, receipt.length_of) == (None, "metres / 80")
    plain, _, found = read(path, unweighted=True)
    assert not plain.weighted
    assert found[0, 1] == 1
    both, _ = read_graph(path, weight="minutes", also=["length", "metres"])
    np.testing.assert_allclose(both.quantities["metres"][0], DEGREE, atol=0.001)
    with pytest.raises(InvalidRequest, match="there is no column 'tolls'"):
        read_graph(path, weight="tolls")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False, True, False, True], ">=>=>"),
        ([1, 0, -1, 0, 1], ">=<=>"),
        ([1.0, None, -1.0, 0.0, 1.0], ">=<=>"),
        (["yes", "no", "-1", None, "reverse"], ">=<=<"),
        (["F", "B", "T", "B", "F"], ">=<=>"),
        (["FT", "", "TF", "N", "ft"], ">=<=>"),
    ],
)
def test_one_way_streets(write, values, expected):
    graph, receipt, found = read(write(SQUARE, cost=[1, 2, 3, 4, 9], oneway=values))
    ends = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    wanted = {}
    for (u, v), w, way in zip(ends, [1, 2, 3, 4, 9], expected, strict=True):
        wanted |= ({(u, v): w} if way in ">=" else {}) | ({(v, u): w} if way in "<=" else {})
    assert (found, graph.directed) == (wanted, True)
    assert any(f"column 'oneway': {5 - expected.count('=')} of 5 rows" in note for note in receipt.notes)


def test_one_way_streets_can_be_overruled(write):
    path = write(SQUARE, cost=[1, 2, 3, 4, 9], oneway=["yes", "no", "-1", "no", "yes"])
    assert set(read(path, directed=True)[2]) == {(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)}
    graph, _, found = read(path, directed=False)
    assert (len(found), graph.directed) == (10, False)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["T", "F", "T", "F", "T"], r"row 1 of column 'oneway': 'T' may be false and true, or forward and back"),
        (["yes", "no", "alternating", "no", "no"], "row 3 of column 'oneway': 'alternating' is no direction"),
        ([1, 0, 2, 0, 1], "row 3 of column 'oneway': '2' is no direction"),
    ],
)
def test_one_way_values_that_are_not_known_are_refused(write, values, why):
    with pytest.raises(InvalidGraph, match=why.replace("'T'", "'t'")):
        read_graph(write(SQUARE, cost=[1, 2, 3, 4, 9], oneway=values))


def test_columns_of_other_directions_are_refused(write):
    with pytest.raises(InvalidRequest, match="'reverse_cost' says that some rows are arcs both ways"):
        read_graph(write(SQUARE, cost=[1, 2, 3, 4, 9], reverse_cost=[1, 2, 3, 4, 5]))


def test_new_weights_are_not_matched_by_numbers_of_lines(write):
    """Lines in another order have other numbers, and ``--changed`` would give their weights to other streets."""
    path = write(SQUARE, cost=[1, 2, 3, 4, 9])
    with pytest.raises(
        InvalidRequest, match=r"its vertices are the ends of its lines.*a table with a row for each arc"
    ):
        read_weights(path, {}, directed=False)


def test_new_weights_do_not_follow_one_way_streets(write):
    path = named(write, length=[1, 2, 3, 4, 9], oneway=[False] * 5)
    with pytest.raises(InvalidRequest, match="its column 'oneway' makes rows arcs both ways"):
        read_weights(path, {}, directed=True)


def test_new_weights_of_named_rows(write):
    found = read_weights(named(write, length=[1, 2, 3, 4, 9]), {}, directed=True)
    assert list(zip(found.tails.tolist(), found.heads.tolist(), strict=True)) == PAIRS
    assert found.weights.tolist() == [1, 2, 3, 4, 9]


PAIRS = [(7, 9), (9, 12), (12, 40), (40, 7), (7, 12)]


def named(write, rows=PAIRS, **fields):
    u, v = zip(*rows, strict=True)
    return write(SQUARE[: len(rows)], u=list(u), v=list(v), **fields)


def test_columns_name_the_vertices_and_lines_say_where_they_are(write):
    graph, receipt, found = read(named(write, length=[1.5, 2, 3, 4, 9]))
    assert found == dict(zip(PAIRS, [1.5, 2, 3, 4, 9], strict=True))
    assert graph.labels.tolist() == [7, 9, 12, 40]
    assert (graph.coordinates.x.tolist(), graph.coordinates.y.tolist()) == ([0, 1, 1, 0], [0, 0, 1, 1])
    assert any("the file does not say whether its edges are directed" in note for note in receipt.notes)
    assert "columns 'u' and 'v' name the vertices" in receipt.notes


def test_vertices_may_be_texts_and_other_columns(write):
    path = write(SQUARE, a=["x", "y", "z", "0", "x"], b=["y", "z", "0", "x", "z"], cost=[1, 2, 3, 4, 9])
    graph, _, found = read(path, source="a", target="b")
    assert (graph.labels.tolist(), found["x", "z"]) == (["0", "x", "y", "z"], 9)
    assert graph.coordinates.x.tolist() == [0, 0, 1, 1]


def test_lines_that_contradict_their_vertices_give_no_coordinates(write):
    path = named(write, [(7, 9), (9, 12), (12, 40), (40, 7), (12, 7)], length=[1, 2, 3, 4, 9])
    graph, receipt, _ = read(path)
    assert graph.coordinates is None
    assert any("lines of vertex 7 end at different places" in note or "lines of vertex 12" in note
               for note in receipt.notes)  # fmt: skip


def test_named_rows_stand_for_one_arc_where_the_way_back_is_a_row(write):
    """OSMnx lists both arcs of a street, which may have weights of their own."""
    rows = [(7, 9), (9, 7), (9, 12), (12, 9), (12, 7)]
    path = named(write, rows, length=[1, 5, 2, 6, 3], oneway=[False, False, False, False, True])
    graph, receipt, found = read(path)
    assert found == dict(zip(rows, [1, 5, 2, 6, 3], strict=True))
    assert graph.directed
    assert any("the way back is a row of its own" in note for note in receipt.notes)


@pytest.mark.parametrize("against", ["-1", "TF", "T"])
def test_named_rows_against_their_lines_stay_so_beside_ways_back(write, against):
    both = "B" if against == "T" else "no"
    rows = [(7, 9), (9, 7), (12, 9), (12, 40)]
    path = named(write, rows, length=[1, 5, 2, 6], oneway=[both, both, against, {"T": "F"}.get(against, "yes")])
    _, receipt, found = read(path)
    assert found == {(7, 9): 1, (9, 7): 5, (9, 12): 2, (12, 40): 6}
    assert any("the way back is a row of its own" in note for note in receipt.notes)


def test_a_row_against_its_line_is_no_way_back_of_another_that_runs_the_same_way(write):
    rows = [(7, 9), (9, 7), (12, 40)]  # 9, 7 against its line is 7, 9 once more
    path = named(write, rows, length=[4, 1, 2], oneway=["no", "-1", "yes"])
    assert read(path)[2] == {(7, 9): 1, (9, 7): 4, (12, 40): 2}


def test_named_rows_are_both_ways_where_no_row_is_the_way_back(write):
    graph, _, found = read(named(write, length=[1, 2, 3, 4, 9], oneway=[False, False, True, False, False]))
    assert (12, 40) in found
    assert (40, 12) not in found
    assert all(pair in found and pair[::-1] in found for pair in PAIRS if pair != (12, 40))
    assert graph.directed


def test_named_rows_of_both_kinds_are_refused(write):
    path = named(write, [(7, 9), (9, 7), (9, 12), (12, 40), (40, 12)], length=[1, 5, 2, 6, 3], oneway=[False] * 5)
    with pytest.raises(InvalidGraph, match="5 rows are both ways, and of 4 the way back is a row of its own"):
        read_graph(path)


@pytest.mark.parametrize(
    ("geometry", "why"),
    [
        ([SQUARE[0], None], "there is no geometry"),
        ([SQUARE[0], multi(SQUARE[1], SQUARE[2])], "MultiLineString of 2 parts is no edge"),
        ([SQUARE[0], line()], "the line is empty|there is no geometry"),
        ([SQUARE[0], line((0, 0))], "one point only"),
        ([SQUARE[0], line((0, 0), (500, 1))], "longitude 500 is outside"),
        ([SQUARE[0], line((0, 0), (math.nan, 1))], "a coordinate is not finite"),
    ],
)
def test_lines_that_are_no_edges_are_refused_with_their_row(write, geometry, why):
    with pytest.raises(InvalidGraph, match=rf"row 2( \(fid 2\))?: .*({why})"):
        read_graph(write(geometry, cost=[1, 2]))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"u": [1, None, 3, 4, 5], "v": [2, 3, 4, 5, 1]}, "row 2.* column 'u' is empty"),
        ({"u": ["a", "b", None, "d", "e"], "v": ["b", "c", "d", "e", "a"]}, "row 3.* column 'u' is empty"),
        ({"u": [1.5, 2, 3, 4, 5], "v": [2, 3, 4, 5, 1]}, "column 'u' holds Float64; vertices are whole numbers"),
        ({"cost": [1.5, None, 3, 4, 5]}, "row 2 of column 'cost' is empty"),
        ({"cost": ["a", "b", "c", "d", "e"]}, "column 'cost' holds no numbers"),
    ],
)
def test_values_that_are_missing_are_refused(tmp_path, fields, why):
    path = write_geoparquet(tmp_path / "x.parquet", SQUARE, **fields)
    with pytest.raises(ApspError, match=why):
        read_graph(path)


def test_heights_and_measures_are_left_out(write):
    high = [line((0, 0, 5), (1, 0, 5), thousands=1000), line((1, 0, 9), (2, 0, 9), thousands=1000)]
    graph, receipt, found = read(write(high, cost=[1, 2]))
    assert (graph.n, found[0, 1]) == (3, 1)
    assert "heights (Z) are left out; at 1 vertex ends of different heights meet" in receipt.notes
    both = [line((0, 0, 5, 1), (1, 0, 5, 2), thousands=3000)]
    assert "measures (M) of 1 line are left out" in read(write_other(write, both))[1].notes


def write_other(write, geometry):
    path = write(SQUARE)
    path.unlink()
    return write(geometry)


def test_negative_zero_is_zero(write):
    assert read(write([line((0, 0), (1, 0)), line((-0.0, -0.0), (1, 1))]))[0].n == 3


METRE = {"type": "ProjectedCRS", "name": "UTM 35", "id": {"authority": "EPSG", "code": 32635},
         "conversion": {"method": {"name": "Transverse Mercator"}},
         "coordinate_system": {"axis": [{"unit": "metre"}]}}  # fmt: skip
FOOT = {**METRE, "coordinate_system": {"axis": [{"unit": {"type": "LinearUnit", "conversion_factor": 0.3048}}]}}
WEB = {**METRE, "conversion": {"method": {"name": "Popular Visualisation Pseudo Mercator"}}}
NAD = {"type": "GeographicCRS", "name": "NAD83", "id": {"authority": "EPSG", "code": 4269}}
FLAT = [line((0, 0), (300, 400)), line((300, 400), (300, 500))]


@pytest.mark.parametrize(
    ("gpkg", "projjson", "metres"), [("EPSG:3067", METRE, 500), ("EPSG:2263", FOOT, 152.4), ("EPSG:27700", METRE, 500)]
)
def test_planes_are_measured_in_metres(tmp_path, gpkg, projjson, metres):
    for path in (
        write_gpkg(tmp_path / f"{metres}.gpkg", "s", FLAT, crs=gpkg),
        write_geoparquet(tmp_path / f"{metres}.parquet", FLAT, crs=projjson),
    ):
        graph, receipt, found = read(path)
        assert (graph.coordinates.system, graph.unit) == ("plane", "m")
        assert found[0, 1] == pytest.approx(metres, rel=1e-5)
        assert any("in the plane of EPSG:" in note for note in receipt.notes)


@pytest.mark.parametrize(("gpkg", "projjson"), [("EPSG:3857", WEB), ("EPSG:4087", WEB)])
def test_maps_that_stretch_are_not_measured(tmp_path, gpkg, projjson):
    for path in (
        write_gpkg(tmp_path / "x.gpkg", "s", FLAT, crs=gpkg, cost=[1, 2]),
        write_geoparquet(tmp_path / "x.parquet", FLAT, crs=projjson, cost=[1, 2]),
    ):
        assert read(path)[0].coordinates.system == "plane"
        with pytest.raises(InvalidRequest, match="its lines cannot be measured in metres"):
            read_graph(path, weight="metres")


@pytest.mark.parametrize(("gpkg", "projjson"), [("EPSG:4269", NAD), (None, None)])
def test_systems_that_are_not_known_are_named(tmp_path, gpkg, projjson):
    for path in (
        write_gpkg(tmp_path / "x.gpkg", "s", SQUARE, crs=gpkg),
        write_geoparquet(tmp_path / "x.parquet", SQUARE, crs=projjson),
    ):
        with pytest.raises(
            InvalidRequest, match=r"its coordinates are in .*(4269|unknown|undefined|Undefined).*say --coord"
        ):
            read_graph(path)
        graph, _, found = read(path, coordinates="lonlat")
        assert (graph.coordinates.system, round(found[0, 1])) == ("lonlat", round(DEGREE))
        with pytest.raises(InvalidRequest, match="cannot be measured in metres"):
            read_graph(path, coordinates="plane")
        assert read(path, coordinates="plane", unweighted=True)[0].coordinates.system == "plane"


@pytest.mark.parametrize("seed", range(6))
def test_random_layers_against_a_plain_reading(write, seed):
    rng = np.random.default_rng(seed)
    count = 60
    places = rng.integers(-3, 4, (count, 2, 2)) / 4
    costs = rng.integers(1, 50, count)
    ways = rng.choice(["yes", "no", "-1"], count)
    graph, _, found = read(write([line(*ends) for ends in places], cost=costs.tolist(), oneway=ways.tolist()))
    wanted: dict[Any, int] = {}
    for (first, last), cost, way in zip(places.tolist(), costs.tolist(), ways, strict=True):
        for a, b, allowed in ((first, last, way != "-1"), (last, first, way != "yes")):
            if allowed and a != b:
                pair = tuple(a), tuple(b)
                wanted[pair] = min(wanted.get(pair, cost), cost)
    where = list(zip(graph.coordinates.x.tolist(), graph.coordinates.y.tolist(), strict=True))
    assert len(set(where)) == len(where) == len({tuple(end) for ends in places.tolist() for end in ends})
    assert {(where[u], where[v]): w for (u, v), w in found.items()} == wanted
