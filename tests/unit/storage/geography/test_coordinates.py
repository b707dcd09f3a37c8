"""Coordinates are kept with graphs and results, checked, and part of a graph's content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

import apsp
from storage.errors import StorageFailed
from storage.geography.coordinates import Coordinates, crow_distances
from storage.graph.graph import build_graph, graph_digest, load_graph, save_graph
from storage.readers import read_graph

NAMES = np.array(["Łódź", "", "c,d"], np.dtypes.StringDType())
PLACED = Coordinates(
    np.array([24.5, np.nan, -180.0]),
    np.array([60.25, np.nan, 90.0]),
    True,
    {"name": NAMES, "zone": np.array([3, 1, 2]), "height": np.array([1.5, np.nan, 0.0])},
)


def arrays(placed: Coordinates) -> list[np.ndarray]:
    return [placed.x, placed.y, *placed.columns.values()]


def same(found: Coordinates | None, wanted: Coordinates) -> None:
    assert found is not None
    assert found.geographic == wanted.geographic
    assert list(found.columns) == list(wanted.columns)
    for one, other in zip(arrays(found), arrays(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def graph():
    plain, _ = build_graph([0, 1, 2], [1, 2, 0], [1, 2, 4], labels=[5, 7, 9], directed=True)
    return replace(plain, coordinates=PLACED, unit="min")


def test_a_saved_graph_keeps_them(tmp_path, graph):
    receipt = read_graph(written(tmp_path, "a b 1\n"))[1]
    save_graph(graph, receipt, tmp_path / "graph")
    again, _ = load_graph(tmp_path / "graph")
    same(again.coordinates, PLACED)
    assert again.unit == "min"
    assert graph_digest(again) == graph_digest(graph)
    (tmp_path / "graph" / "coordinates_x.npy").unlink()
    with pytest.raises(StorageFailed, match="damaged"):
        load_graph(tmp_path / "graph")


def test_they_are_part_of_a_graphs_content_where_there_are_any(graph):
    plain = replace(graph, coordinates=None, unit=None)
    moved = replace(graph, coordinates=replace(PLACED, x=PLACED.x + 1))
    renamed = replace(graph, coordinates=replace(PLACED, columns={}))
    digests = {graph_digest(one) for one in (graph, plain, moved, renamed, replace(graph, unit="s"))}
    assert len(digests) == 5
    # the digest of a graph without coordinates is the one that stores of earlier versions have
    assert graph_digest(plain) == "sha256:6688ad4a95b24c8fd458199c479387a159e623cf028350d887d6287c8fd71830"


def test_results_keep_them_and_so_do_new_weights(tmp_path, graph):
    apsp.solve_to_store(graph, tmp_path / "solved")
    apsp.prepare(graph, tmp_path / "prepared")
    weights = ([5, 7, 9], [7, 9, 5], [10, 20, 40])
    apsp.reweight(tmp_path / "prepared", weights, out=tmp_path / "other")
    for name in ("solved", "prepared", "other"):
        with apsp.open(tmp_path / name) as result:
            same(result.coordinates, PLACED)
            same(result.graph().coordinates, PLACED)
            assert (result.unit, result.graph().unit, result.attributes["unit"]) == ("min", "min", "min")
            result.check()
    group = zarr.open(tmp_path / "solved", mode="r")
    np.testing.assert_array_equal(group["coordinates/x"][:], PLACED.x)
    assert group["coordinates"].attrs["columns"] == ["name", "zone", "height"]


def test_a_damaged_coordinate_is_an_error_and_never_a_number(tmp_path, graph):
    apsp.solve_to_store(graph, tmp_path / "solved")
    file = tmp_path / "solved" / "coordinates" / "y" / "c" / "0"
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)
    with apsp.open(tmp_path / "solved") as result:
        assert result.row(0).tolist() == [0, 1, 3]
        with pytest.raises(StorageFailed, match="coordinates/y"):
            result.coordinates  # noqa: B018


def test_a_result_without_them_opens_as_before(tmp_path, graph):
    apsp.solve_to_store(replace(graph, coordinates=None, unit=None), tmp_path / "solved")
    assert not (tmp_path / "solved" / "coordinates").exists()
    seal = json.loads((tmp_path / "solved" / "zarr.json").read_text())["attributes"]
    assert (seal["unit"], seal["seal"]["version"]) == ("weight", 1)
    with apsp.open(tmp_path / "solved") as result:
        assert (result.coordinates, result.graph().coordinates, result.unit) == (None, None, None)


def test_distances_as_the_crow_flies():
    # a degree of longitude on the equator, a quarter of a meridian, and across the date line
    x1, y1 = np.array([0.0, 10.0, 179.5]), np.array([0.0, 0.0, 0.0])
    x2, y2 = np.array([1.0, 77.0, -179.5]), np.array([0.0, 90.0, 0.0])
    degree = 6_371_008.8 * np.pi / 180
    np.testing.assert_allclose(crow_distances(x1, y1, x2, y2, True), [degree, 90 * degree, degree])
    np.testing.assert_allclose(crow_distances(x1, y1, x2 * 0, y1 + 4, False), np.hypot(x1, 4))


def written(folder: Path, text: str) -> Path:
    file = folder / "g.txt"
    file.write_text(text)
    return file
