"""Questions about results by points: taken to vertices as tables of points are, told, flagged and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.auth.callers import Caller
from service.jobs.folders import discard
from storage.geography.coordinates import Coordinates
from storage.geography.snapping import nearest_vertices
from storage.graph.graph import Graph
from tests.unit.service.support import Bench, InlinePool, small_graph

LON, LAT = np.array([24.94, 24.95, 24.96, 25.5]), np.array([60.16, 60.17, 60.165, 60.5])
#: a point near 20, one near 10, and one that is far from all
NEAR_20, NEAR_10, FAR = "24.9502,60.1701", "24.9401,60.1599", "25.1,60.3"


def placed(geographic: bool = True) -> Graph:
    """10 -> 20 -> 30 -> 10, and 40 that nothing reaches, in Helsinki."""
    return replace(small_graph(), coordinates=Coordinates(LON, LAT, geographic))


@pytest.fixture(params=["matrix", "prepared"])
def url(request: pytest.FixtureRequest, bench: Bench, client: TestClient) -> str:
    job = (bench.solved if request.param == "matrix" else bench.prepared)(placed(), "int32")[0]
    from tests.unit.service.support import InlinePool

    client.app.state.service.answering.pool = InlinePool()
    return f"/v1/jobs/{job}"


def expected(text: str) -> tuple[int, float]:
    """The vertex and the distance as the library says."""
    lon, lat = map(float, text.split(","))
    [vertex], [metres] = nearest_vertices(Coordinates(LON, LAT, True), np.array([lon]), np.array([lat]))
    return [10, 20, 30, 40][vertex], float(metres)


def told(text: str) -> dict:
    vertex, metres = expected(text)
    lon, lat = map(float, text.split(","))
    return {"lon": lon, "lat": lat, "vertex": vertex, "snap": pytest.approx(metres), "far": metres > 1000}


def point(text: str) -> dict:
    lon, lat = map(float, text.split(","))
    return {"lon": lon, "lat": lat}


def test_a_distance_between_points(client: TestClient, url: str):
    answer = client.get(f"{url}/distance", params={"source_point": NEAR_10, "target_point": NEAR_20}).json()
    named = client.get(f"{url}/distance", params={"source": "10", "target": "20"}).json()
    assert "source_point" not in named
    assert answer == {**named, "source_point": told(NEAR_10), "target_point": told(NEAR_20)}
    mixed = client.get(f"{url}/distance", params={"source": "10", "target_point": NEAR_20}).json()
    assert mixed == {**named, "target_point": told(NEAR_20)}


@pytest.mark.parametrize("what", ["path", "nearest", "histogram"])
def test_questions_about_a_source(client: TestClient, url: str, what: str):
    more = {"target": "30"} if what == "path" else {}
    answer = client.get(f"{url}/{what}", params={"source_point": NEAR_20, **more})
    named = client.get(f"{url}/{what}", params={"source": "20", **more})
    assert (answer.status_code, named.status_code) == (200, 200), answer.text
    assert "source_point" not in named.json()
    assert answer.json() == {**named.json(), "source_point": told(NEAR_20)}


def test_far_points_are_flagged_and_refused_beyond_a_limit(client: TestClient, url: str):
    asked = {"source_point": FAR, "target": "10"}
    answer = client.get(f"{url}/distance", params=asked).json()
    assert answer["source_point"] == told(FAR)
    assert answer["source_point"]["far"]
    assert client.get(f"{url}/distance", params={**asked, "snap_limit": 1e6}).status_code == 200
    refused = client.get(f"{url}/distance", params={**asked, "snap_limit": 100})
    assert refused.status_code == 422
    assert refused.json()["details"]["field"] == "snap_limit"
    assert "farther than 100 from every vertex" in refused.json()["detail"]
    assert f"{expected(FAR)[1]:,.0f} m" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("asked", "says", "field"),
    [
        ({"source_point": "24.9"}, "two numbers with a comma", "source_point"),
        ({"source_point": "24.9;60.1"}, "two numbers with a comma", "source_point"),
        ({"source_point": "nan,60.1"}, "two numbers with a comma", "source_point"),
        ({"source_point": "1e999,60.1"}, "a coordinate is infinite", "source_point"),
        ({"source_point": "60.1,124.9"}, "may be exchanged", "source_point"),
        ({"source_point": "224.9,60.1"}, "longitude 224.9 is outside -180 .. 180", "source_point"),
        ({"source_point": NEAR_10, "source": "10"}, "both given", "source"),
        ({}, "neither source nor source_point is given", "source"),
        ({"source": "10", "snap_limit": "5"}, "no point is given", "snap_limit"),
        ({"source_point": NEAR_10, "snap_limit": "-1"}, "greater than or equal to 0", "snap_limit"),
        ({"source_point": NEAR_10, "snap_limit": "nan"}, "takes a number: 'nan' is no number", "snap_limit"),
    ],
)
def test_refusals(client: TestClient, bench: Bench, asked: dict, says: str, field: str):
    url = f"/v1/jobs/{bench.solved(placed(), 'int32')[0]}"
    for what in ("distance", "path"):
        answer = client.get(f"{url}/{what}", params={"target": "20", **asked})
        assert answer.status_code == 422
        assert says in answer.json()["detail"]
        assert answer.json()["details"]["field"] == field


def test_without_coordinates_points_are_refused(client: TestClient, bench: Bench):
    job, _ = bench.solved(small_graph(), "int32")
    answer = client.get(f"/v1/jobs/{job}/distance", params={"source_point": NEAR_10, "target": "20"})
    assert answer.status_code == 422
    assert "the graph has no coordinates" in answer.json()["detail"]
    assert "--" not in answer.json()["detail"]  # no option of the command line


def test_a_plane_has_units_of_its_own(client: TestClient, bench: Bench):
    job, _ = bench.solved(replace(small_graph(), coordinates=Coordinates(100 * LON, 100 * LAT, False)), "int32")
    answer = client.get(f"/v1/jobs/{job}/distance", params={"source_point": "2494,6019", "target": "20"}).json()
    assert answer["source_point"] == {
        "x": 2494,
        "y": 6019,
        "vertex": 20,
        "snap": pytest.approx(np.hypot(1, 2)),
        "far": False,
    }
    refused = client.post(f"/v1/jobs/{job}/points", json={"points": [{"lon": 1, "lat": 2}]})
    assert refused.status_code == 422
    assert "the graph has plane coordinates" in refused.json()["detail"]


def test_labels_that_look_like_points_are_labels(client: TestClient, bench: Bench):
    graph = replace(placed(), labels=np.array(["24.9502,60.1701", "b", "c", "d"], np.dtypes.StringDType()))
    job, _ = bench.solved(graph, "int32")
    answer = client.get(f"/v1/jobs/{job}/distance", params={"source": NEAR_20, "target_point": NEAR_20}).json()
    assert (answer["source"], answer["target"]) == (NEAR_20, "b")


def test_tags_depend_on_the_point(client: TestClient, url: str):
    asked = [{"source_point": text, "target": "30"} for text in (NEAR_20, "24.9503,60.1701")]
    first, second = (client.get(f"{url}/distance", params=params) for params in asked)
    assert first.json()["source"] == second.json()["source"] == 20
    assert first.headers["etag"] != second.headers["etag"]
    again = client.get(f"{url}/distance", params=asked[0], headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    other = client.get(f"{url}/distance", params=asked[1], headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def test_pairs_of_points(client: TestClient, url: str):
    pairs = [[10, 20], [point(NEAR_10), 30], [point(FAR), {**point(NEAR_20), "name": "home"}]]
    answer = client.post(f"{url}/distances", json={"pairs": pairs}).json()
    plain = [[10, 20], [10, 30], [expected(FAR)[0], 20]]
    assert answer["distances"] == client.post(f"{url}/distances", json={"pairs": plain}).json()["distances"]
    assert answer["source_points"] == [{"place": 1, **told(NEAR_10)}, {"place": 2, **told(FAR)}]
    assert answer["target_points"] == [{"place": 2, "name": "home", **told(NEAR_20)}]
    paths = client.post(f"{url}/paths", json={"pairs": pairs[:2]}).json()
    assert paths["paths"] == client.post(f"{url}/paths", json={"pairs": plain[:2]}).json()["paths"]
    assert paths["source_points"] == answer["source_points"][:1]
    limited = client.post(f"{url}/distances", json={"pairs": pairs, "snap_limit": 200})
    assert limited.status_code == 422
    wrong = client.post(f"{url}/distances", json={"pairs": [[10, {"lon": 1}]]})
    assert wrong.status_code == 422
    assert "lon and lat, or x and y" in wrong.text
    mixed = client.post(f"{url}/distances", json={"pairs": [[10, point(NEAR_10)], [10, {"x": 1, "y": 2}]]})
    assert "point 1 has lon and lat, and point 2 has x and y" in mixed.json()["detail"]


def test_rows_columns_and_submatrices(client: TestClient, url: str):
    rows = client.get(f"{url}/rows", params={"source_point": [NEAR_20, NEAR_10], "target_point": NEAR_10}).json()
    named = client.get(f"{url}/rows", params={"sources": "20,10", "targets": "10"}).json()
    points = [{"place": 0, **told(NEAR_20)}, {"place": 1, **told(NEAR_10)}]
    assert rows == {**named, "source_points": points, "target_points": [{"place": 0, **told(NEAR_10)}]}
    columns = client.get(f"{url}/columns", params={"target_point": NEAR_20}).json()
    assert columns["distances"] == client.get(f"{url}/columns", params={"targets": "20"}).json()["distances"]
    body = {"sources": [30, point(NEAR_20), 10], "targets": [20]}
    part = client.post(f"{url}/submatrix", json=body).json()
    assert part["sources"] == [30, 20, 10]
    assert part["source_points"] == [{"place": 1, **told(NEAR_20)}]
    assert (
        part["distances"] == client.post(f"{url}/submatrix", json={**body, "sources": [30, 20, 10]}).json()["distances"]
    )
    refused = client.get(f"{url}/rows", params={"source_point": NEAR_20, "format": "csv"})
    assert refused.status_code == 422
    assert "csv has no place for points" in refused.json()["detail"]
    assert client.get(f"{url}/rows", params={"source_point": NEAR_20, "sources": "10"}).status_code == 422
    assert client.get(f"{url}/rows", params={"targets": "10"}).status_code == 422
    assert client.get(f"{url}/columns").status_code == 422
    many = client.post(f"{url}/submatrix", json={"sources": [point(NEAR_10)] * 11, "targets": [20]})
    assert many.status_code == 413
    assert many.json()["details"] == {"limit": 10, "requested": 11, "setting": "APSP_MAX_PAIRS"}


def test_points_are_taken_to_vertices(client: TestClient, url: str):
    asked = [{**point(NEAR_20), "id": 7, "name": "home"}, point(FAR)]
    answer = client.post(f"{url}/points", json={"points": asked}).json()
    assert answer == {"points": [{"id": 7, "name": "home", **told(NEAR_20)}, told(FAR)]}
    assert client.post(f"{url}/points", json={"points": asked, "snap_limit": 100}).status_code == 422
    assert client.post(f"{url}/points", json={"points": [asked[0]] * 11}).status_code == 413


def test_a_path_as_a_line(client: TestClient, url: str):
    asked = {"source": "10", "target": "30"}
    plain = client.get(f"{url}/path", params=asked)
    answer = client.get(f"{url}/path", params={**asked, "format": "geojson"})
    assert answer.headers["content-type"] == "application/geo+json"
    assert (answer.headers["vary"], plain.headers["vary"]) == ("Accept", "Accept")
    path = plain.json()
    assert answer.json() == {
        "type": "Feature",
        "geometry": {"type": "LineString", "coordinates": [[24.94, 60.16], [24.95, 60.17], [24.96, 60.165]]},
        "properties": {
            "source": 10, "target": 30, "distance": path["length"], "unit": None, "vertices": path["vertices"],
        },
    }  # fmt: skip
    by_header = client.get(f"{url}/path", params=asked, headers={"accept": "application/geo+json"})
    assert by_header.content == answer.content
    assert len({found.headers["etag"] for found in (plain, answer, by_header)}) == 3
    tag = by_header.headers["etag"]
    again = client.get(f"{url}/path", params=asked, headers={"accept": "application/geo+json", "if-none-match": tag})
    assert again.status_code == 304
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    assert client.get(f"{url}/path", params=asked, headers=browser).json() == path
    assert client.get(f"{url}/path", params=asked, headers={"accept": "text/csv"}).status_code == 406
    assert client.get(f"{url}/path", params={**asked, "format": "kml"}).status_code == 422


def test_lines_between_points_and_where_there_is_no_way(client: TestClient, url: str):
    points = {"source_point": NEAR_10, "target_point": NEAR_20, "format": "geojson"}
    properties = client.get(f"{url}/path", params=points).json()["properties"]
    assert (properties["source_point"], properties["target_point"]) == (told(NEAR_10), told(NEAR_20))
    none = client.get(f"{url}/path", params={"source": "10", "target": "40", "format": "geojson"}).json()
    assert (none["geometry"], none["properties"]["distance"], none["properties"]["vertices"]) == (None, None, [])
    same = client.get(f"{url}/path", params={"source": "20", "target": "20", "format": "geojson"}).json()
    assert same["geometry"]["coordinates"] == [[24.95, 60.17], [24.95, 60.17]]
    assert same["properties"]["distance"] == 0


def test_a_line_leaves_out_vertices_without_coordinates(client: TestClient, bench: Bench):
    asked = {"source": "10", "target": "30", "format": "geojson"}
    for gone, corners in (([20], [[24.94, 60.16], [24.96, 60.165]]), ([10, 20], None)):
        lon = np.where(np.isin([10, 20, 30, 40], gone), np.nan, LON)
        graph = replace(small_graph(), coordinates=Coordinates(lon, np.where(np.isnan(lon), np.nan, LAT), True))
        job, _ = bench.solved(graph, "int32")
        line = client.get(f"/v1/jobs/{job}/path", params=asked).json()
        assert line["properties"]["without_coordinates"] == gone
        assert line["properties"]["vertices"] == [10, 20, 30]
        assert (line["geometry"] or {}).get("coordinates") == corners


@pytest.mark.parametrize(("graph", "said"), [(placed(False), "those of a plane"), (small_graph(), "no coordinates")])
def test_graphs_without_longitudes_have_no_lines(client: TestClient, bench: Bench, graph: Graph, said: str):
    job, _ = bench.solved(graph, "int32")
    asked = {"source": "10", "target": "30"}
    refused = client.get(f"/v1/jobs/{job}/path", params={**asked, "format": "geojson"})
    assert refused.status_code == 409
    assert said in refused.json()["detail"]
    assert client.get(f"/v1/jobs/{job}/path", params=asked).json()["reachable"]
    page = client.get(f"/jobs/{job}", params=asked).text
    assert "Copy as a table" in page
    assert "GeoJSON" not in page


def test_the_page_links_to_the_line(client: TestClient, url: str):
    page = client.get(url.removeprefix("/v1"), params={"source": "10", "target": "30"}).text
    [link] = [part.split('"')[0] for part in page.split('href="') if "format=geojson" in part.split('"')[0]]
    assert client.get(link.replace("&amp;", "&")).json()["properties"]["vertices"] == [10, 20, 30]


@pytest.mark.parametrize("kind", ["matrix", "prepared", "near"])
def test_a_result_that_is_removed_while_it_is_read_is_gone(
    client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """No answer calls it damaged; and 404 for a chunk would be fill values to clients of Zarr."""
    service = client.app.state.service  # type: ignore[attr-defined]
    service.answering.pool = InlinePool()
    peek = service.results.peek
    asked = ["zarr/zarr.json"]
    if kind == "near":
        asked += ["table", "table?sort=distance", "table?vertices=10", "table/histogram?column=distance",
                  "zarr/table.parquet"]  # fmt: skip
    else:
        asked += ["rows?sources=10,20", "path?source=10&target=30", "nearest?source=20", "sample", "eccentricities",
                  "histogram?source=10", "zarr/distances/c/0/0", "distance?source=10&target=30"]  # fmt: skip
    for path in asked:
        graph = small_graph()
        job = {
            "matrix": lambda graph=graph: bench.solved(graph, "int32")[0],
            "prepared": lambda graph=graph: bench.prepared(graph, "int32")[0],
            "near": lambda graph=graph: bench.tabled(graph, result="near", nearest=3),
        }[kind]()
        assert client.get(f"/v1/jobs/{job}/results").status_code == 200

        def late(job_id: str, caller: Caller) -> object:
            """Return the open result, whose job is deleted right after it was found."""
            found = peek(job_id, caller)
            service.stop_workers()  # so that the process that answers has no table open either
            service.jobs.delete(job_id)
            discard(bench.settings, job_id)
            monkeypatch.setattr(service.results, "peek", peek)
            return found

        monkeypatch.setattr(service.results, "peek", late)
        answer = client.get(f"/v1/jobs/{job}/{path}")
        # what was read before is right, too
        assert answer.status_code in (200, 410), (path, answer.text)
        assert client.get(f"/v1/jobs/{job}/{path}").status_code == 410
        if path.startswith(("table", "zarr/table")) or (kind == "prepared" and "zarr.json" not in path):
            assert answer.status_code == 410, path
