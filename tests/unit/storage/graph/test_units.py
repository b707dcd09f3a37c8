"""Files for other programs name the unit of distances where their format has a place for it, if it is known."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from service.cli import main
from storage.graph.units import unit_metadata

NODES = "id,lon,lat\n" + "".join(f"{name},24.9{i},60.1{i}\n" for i, name in enumerate("abcd"))


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("from,to,minutes\na,b,1\nb,c,1\nc,d,2\nd,a,5\n")
    Path("nodes.csv").write_text(NODES)
    Path("trips.csv").write_text("origin,destination,flow\na,c,3\n")
    return ["g.csv", "--directed", "--nodes", "nodes.csv"]


def run(*words: str) -> None:
    assert main.run(list(words)) == 0


def said(path: str) -> str | None:
    return pl.read_parquet_metadata(path).get("distance_unit")


@pytest.mark.parametrize("unit", ["min", None])
def test_parquet_of_every_command(graph: list[str], unit: str | None):
    given = [*graph, *(["--unit", unit] if unit else [])]
    run("near", *given, "--nearest", "2", "--out", "near.parquet")
    run("near", *given, "--nearest", "2", "--features", "lines", "--out", "lines.parquet")
    run("near", *given, "--nearest", "2", "--out", "near.zarr")
    run("measure", *given, "--out", "measures.parquet")
    run("assign", *given, "--demands", "trips.csv", "--out", "flows.parquet")
    run("solve", *given, "--out", "d.zarr")
    run("prepare", *given, "--out", "prepared")
    run("export", "d.zarr", "-o", "long.parquet")
    run("export", "d.zarr", "-o", "wide.parquet", "--wide")
    run("export", "d.zarr", "-o", "features.parquet", "--features", "lines")
    run("export", "prepared", "-o", "prepared.parquet")
    run("measure", "prepared", "--out", "again.parquet")
    files = sorted(str(path) for path in Path().glob("*.parquet"))
    assert len(files) == 9
    assert {file: said(file) for file in files} == dict.fromkeys(files, unit)
    assert "geo" in pl.read_parquet_metadata("features.parquet")
    attributes = json.loads(Path("near.zarr/zarr.json").read_text())["attributes"]
    assert attributes.get("unit") == unit


@pytest.mark.parametrize("unit", ["min", None])
def test_what_has_no_place_for_it_is_told_beside(
    graph: list[str], unit: str | None, capsys: pytest.CaptureFixture[str]
):
    run("solve", *graph, *(["--unit", unit] if unit else []), "--out", "d.zarr")
    capsys.readouterr()
    run("export", "d.zarr", "-o", "x.csv")
    assert capsys.readouterr().out.rstrip().endswith("distances in min" if unit else "B")
    run("export", "d.zarr", "-o", "x.npy", "--json")
    assert json.loads(capsys.readouterr().out).get("distance_unit") == unit
    assert Path("x.csv").read_text().startswith("source,target,distance\n"), "programs look for these names"


@pytest.mark.parametrize("unit", ["min", None])
def test_layers_and_open_matrices(graph: list[str], unit: str | None):
    h5py = pytest.importorskip("h5py", reason="apsp[omx] is not installed")
    pytest.importorskip("pyogrio", reason="apsp[geopackage] is not installed")
    run("solve", *graph, *(["--unit", unit] if unit else []), "--out", "d.zarr")
    run("export", "d.zarr", "-o", "x.gpkg")
    run("export", "d.zarr", "-o", "x.omx")
    connection = sqlite3.connect("x.gpkg")
    [(description,)] = connection.execute("SELECT description FROM gpkg_contents")
    connection.close()
    assert (description or None) == (f"distance in {unit}" if unit else None)
    with h5py.File("x.omx") as file:
        assert file["data/distance"].attrs.get("unit") == unit


def test_values_of_other_semirings_are_no_distances(graph: list[str]):
    run("solve", *graph, "--unit", "m", "--semiring", "max-min", "--out", "w.zarr")
    run("export", "w.zarr", "-o", "w.parquet")
    assert pl.read_parquet_metadata("w.parquet").get("value_unit") == "m"
    assert said("w.parquet") is None


def test_nothing_is_said_of_an_unknown_unit():
    assert unit_metadata(None) == unit_metadata("") == {}
    assert unit_metadata("km") == {"distance_unit": "km"}
