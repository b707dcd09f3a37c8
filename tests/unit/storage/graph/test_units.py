"""Files for other programs name the unit of distances where their format has a place for it, if it is known."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import apsp
from service.cli import main
from service.client.displays import ResultView
from service.jobs.results import ResultReader
from storage.errors import InvalidRequest
from storage.graph.graph import load_graph, save_graph
from storage.graph.units import measured, measured_by, measured_words, unit_metadata
from storage.readers import read_graph

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


@pytest.mark.parametrize(
    ("options", "shown", "words"),
    [
        ([], "minutes", "(minutes)"),
        (["--unit", "min"], "min", "in min"),
        (["--length-of", "minutes * 2"], "", ""),
        (["--length-of", "minutes * 2", "--unit", "half min"], "half min", "in half min"),
        (["--unweighted"], "arcs", "in arcs"),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_what_pages_show_and_programs_read_units_only(
    graph: list[str],
    options: list[str],
    shown: str,
    words: str,
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    known = "--unit" in options
    shown, words = (shown, words) if terminal or known else ("", "")
    run("solve", *graph, *options, "--out", "d.zarr")
    solved = capsys.readouterr().out
    assert ([line.split(None, 1)[1] for line in solved.splitlines() if line.startswith("  unit")] or [""]) == [shown]

    def answer(*question: str) -> str:
        run("query", "d.zarr", *question)
        return capsys.readouterr().out

    number, _, behind = answer("distance", "a", "b").rstrip("\n").partition(" ")
    assert float(number) > 0
    assert behind == shown
    head = f" ({shown})" if shown else ""
    assert answer("row", "a").splitlines()[0] == f"target\tdistance{head}"
    assert answer("path", "a", "b").splitlines()[0] == f"vertex\tweight{head}\tlength{head}"
    assert answer("summary").splitlines()[0].endswith(f"directed, distances {words}" if words else "directed")
    run("export", "d.zarr", "-o", "x.csv")
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith(f"B, distances {words}" if words else "B")
    for command in ("near", "measure"):
        more = ["--nearest", "2"] if command == "near" else []
        run(command, *graph, *options, *more, "--out", f"{command}.csv")
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  unit")]
        assert [line.split(None, 1)[1].removesuffix(", of distances") for line in lines] == ([shown] if shown else [])


def test_the_column_goes_with_the_graph_and_its_results(graph: list[str], tmp_path: Path):
    read, receipt = read_graph("g.csv")
    assert read.weight_column == receipt.weight_column == "minutes"
    save_graph(read, receipt, tmp_path / "kept")
    assert load_graph(tmp_path / "kept")[0].weight_column == "minutes"
    run("solve", *graph, "--out", "d.zarr")
    run("prepare", *graph, "--out", "prepared")
    run("solve", *graph, "--length-of", "minutes / 60", "--out", "hours.zarr")
    Path("p.csv").write_text("from,to,chance\na,b,0.5\nb,c,0.25\n")
    run("solve", "p.csv", "--directed", "--weight", "chance", "--semiring", "max-times", "--out", "products.zarr")
    for place, semiring, column, shown in (
        ("d.zarr", "min-plus", "minutes", "minutes"),
        ("prepared", "min-plus", "minutes", "minutes"),
        ("hours.zarr", "min-plus", None, ""),
        ("products.zarr", "max-times", None, ""),
    ):
        with apsp.open(place, semiring=semiring) as result:
            assert (result.attributes.get("weight_column"), result.measured) == (column, shown), place
            assert result.attributes["unit"] == "weight"


def test_what_distances_measure():
    assert measured("min", "travel_time") == measured("min", None) == "min"
    assert measured(None, "travel_time") == "travel_time"
    assert measured(None, "3") == measured(None, None) == "", "a column without a header is called by its number"
    assert measured(None, "travel_time", weighted=False) == "arcs"
    for name in ("weight", "Weights", "w", "value", "hops", "Hops"):
        assert measured(None, name) == "", "the name says nothing about what is measured"
        assert measured("min", name) == "min"
    assert [measured_words(None, ""), measured_words(None, "arcs")] == ["", "in arcs"]


@pytest.mark.parametrize("word", ["weight", "hops"])
def test_the_words_for_an_unknown_unit_are_no_units(graph: list[str], word: str):
    with pytest.raises(InvalidRequest, match=f"unit '{word}' says in stores that no unit is known") as refused:
        read_graph("g.csv", unit=word)
    assert refused.value.field == "unit"
    given = replace(read_graph("g.csv")[0], unit=word)
    apsp.solve_to_store(given, "d.zarr")
    with apsp.open("d.zarr") as result:
        assert (result.attributes["unit"], result.unit, result.measured) == ("weight", None, "minutes")


def test_widths_of_arcs_without_weights_count_no_arcs(graph: list[str]):
    run("solve", *graph, "--unweighted", "--parallel", "greatest", "--semiring", "max-min", "--out", "w.zarr")
    with apsp.open("w.zarr", semiring="max-min") as result:
        assert (result.unit, result.measured) == (None, "")
        result.attributes["unit"] = "hops"  # as earlier versions wrote it
        assert (result.unit, result.measured, ResultReader(result).unit) == (None, "", None)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"unit": "hops"}, "arcs"),
        ({"unit": "hops", "semiring": "min-plus"}, "arcs"),
        ({"unit": "hops", "semiring": "min-max"}, ""),
        ({"unit": "weight", "semiring": "max-min", "weight_column": "gbits"}, "gbits"),
        ({"unit": "Gbit/s", "semiring": "max-min", "weight_column": "gbits"}, "Gbit/s"),
        ({"unit": "weight", "semiring": "max-times", "weight_column": "share"}, ""),
        ({"unit": "weight", "semiring": "of a later version", "weight_column": "share"}, ""),
        ({"unit": "weight", "weight_column": None}, ""),
    ],
)
def test_what_values_of_a_store_measure(facts: dict[str, str | None], shown: str):
    assert measured_by(facts) == shown
    given = {"job": "j", "shape": [2, 2], "dtype": "int32", "directed": True, "summary": {"rows": 2}, **facts}
    found = re.findall("<th.*?>unit</th><td.*?>(.*?)</td>", ResultView(given)._repr_html_())
    assert found == [shown] * bool(shown), "in a notebook"


def test_values_of_other_semirings_are_no_distances(graph: list[str]):
    run("solve", *graph, "--unit", "m", "--semiring", "max-min", "--out", "w.zarr")
    run("export", "w.zarr", "-o", "w.parquet")
    assert pl.read_parquet_metadata("w.parquet").get("value_unit") == "m"
    assert said("w.parquet") is None


def test_nothing_is_said_of_an_unknown_unit():
    assert unit_metadata(None) == unit_metadata("") == {}
    assert unit_metadata("km") == {"distance_unit": "km"}
