"""``apsp measure``: two small files in, a table out; refusals before any work."""

from __future__ import annotations

import csv
import json

import polars as pl
import pytest

from service.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "roads.csv").write_text(
        "from,to,minutes\nstation,market,6\nmarket,school,9\nschool,village,14\nmarket,village,25\n"
    )
    (tmp_path / "jobs.csv").write_text("place,jobs,region\nstation,1200,x\nmarket,300,y\nvillage,40,z\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *words):
    """The standard output of a command that succeeds."""
    assert main.run(["measure", "roads.csv", *words]) == 0
    return capsys.readouterr().out


def test_jobs_within_half_an_hour(folder, capsys):
    words = ["--undirected", "--measures", "reached,mean", "--within", "15,30", "--opportunities", "jobs.csv"]
    told = said(capsys, *words, "--columns", "jobs")
    assert list(csv.reader(told.splitlines()))[:3] == [
        ["vertex", "reached", "mean", "within_15", "within_30", "jobs_15", "jobs_30"],
        ["market", "3", "12.666666666666666", "2", "3", "1500.0", "1540.0"],
        ["school", "3", "12.666666666666666", "3", "3", "1540.0", "1540.0"],
    ]


def test_a_file_is_written_and_said(folder, capsys):
    words = ["--undirected", "--sources", "village", "--targets", "station,market", "--nearest", "2", "-o", "t.parquet"]
    told = said(capsys, *words)
    assert "t.parquet: done" in told
    assert "columns  vertex, reached, sum" in told
    [row] = pl.read_parquet("t.parquet").to_dicts()
    assert (row["vertex"], row["nearest_1"], row["nearest_2_distance"], row["reached"]) == ("village", "market", 29, 2)
    assert main.run(["measure", "roads.csv", *words]) == 2
    assert "exists already; replace it with --overwrite" in capsys.readouterr().err
    said(capsys, *words, "--overwrite")


def test_names_with_separators_of_lines_stay_whole(folder, capsys):
    (folder / "roads.csv").write_text('from,to,minutes\n"a\u2028b",c,1\nc,d,2\n', encoding="utf-8")
    said(capsys, "--measures", "reached", "-o", "t.csv")
    told = said(capsys, "--measures", "reached")
    assert told == (folder / "t.csv").read_text(encoding="utf-8") == "vertex,reached\na\u2028b,2\nc,1\nd,0\n"


def test_json_has_plan_and_rows(folder, capsys):
    told = json.loads(said(capsys, "--direction", "in", "--quantiles", "0.5", "--json"))
    assert told["plan"]["disk"] == 0
    assert told["measures"][2] == {
        **told["measures"][2],
        "vertex": "station",
        "reached": 0,
        "eccentricity": None,
        "quantile_0.5": None,
    }
    assert told["columns"] == list(told["measures"][0])
    told = json.loads(said(capsys, "-o", "t.csv", "--json"))
    assert told["table"] == "t.csv"


def test_the_plan_names_a_table_and_no_matrix(folder, capsys):
    said(capsys, "--undirected")
    main.run(["measure", "roads.csv"])
    told = capsys.readouterr().err
    assert "table   4 x 9, 288 B; no matrix" in told
    assert "  matrix" not in told


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-o", "t.xlsx"], 2, ".parquet or .csv"),
        (["-o", "away/t.csv"], 2, "does not exist"),
        (["--within", "15,soon"], 2, "--within takes numbers with commas: 'soon' is no number"),
        (["--within", "nan"], 2, "--within takes numbers with commas: 'nan' is no number"),
        (["--within", "15,1e-400"], 2, "'1e-400' is so small that float64 would take it for 0: write 0 if that is"),
        (["--quantiles", "2"], 2, "from 0 to 1"),
        (["--opportunities", "jobs.csv", "--columns", "jobs"], 2, "none was given"),
        (["--opportunities", "jobs.csv", "--within", "3"], 2, "line 2: column 'region' is 'x'"),
        (["--columns", "jobs"], 2, "no file was given"),
        (["--measures", "centrality"], 2, "closeness"),
        (["--decay", "linear", "--decay-value", "3"], 2, "none were given"),
        (["--device", "cuda"], 2, "device cuda"),
        (["--memory", "1KiB"], 3, "memory"),
    ],
)
def test_refusals_come_before_any_work(folder, capsys, words, code, message):
    before = sorted(path.name for path in folder.iterdir())
    assert main.run(["measure", "roads.csv", *words]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_prepared_graph_is_measured_like_its_file(folder, capsys):
    assert main.run(["prepare", "roads.csv", "--undirected", "-o", "tables"]) == 0
    words = ["--within", "15,30", "--opportunities", "jobs.csv", "--columns", "jobs", "--quantiles", "0.5"]
    for more in (["--direction", "in"], ["--sources", "village,market", "--targets", "station"], ["--cutoff", "20"]):
        capsys.readouterr()
        want = said(capsys, "--undirected", *words, *more)
        assert main.run(["measure", "tables", *words, *more]) == 0
        told = capsys.readouterr()
        assert told.out == want
        assert "rows are swept from the tables" in told.err


@pytest.mark.parametrize(
    ("place", "words", "message"),
    [
        ("tables", ["--undirected"], "--undirected says how a file is read, and tables is a prepared graph"),
        ("tables", ["--directed"], "--directed says how a file is read"),
        ("tables", ["--from", "u"], "--from says how a file is read"),
        ("tables", ["--weight", "minutes"], "--weight says how a file is read"),
        ("tables", ["--max-hops", "2"], "how many arcs a path has"),
        ("solved", [], "solved is a solved store; apsp measure takes a graph file or a prepared graph"),
        (".", [], "no store that apsp has sealed"),
    ],
)
def test_folders_that_cannot_be_measured_are_refused(folder, capsys, place, words, message):
    for command, out in (("prepare", "tables"), ("solve", "solved")):
        assert main.run([command, "roads.csv", "--undirected", "-o", out]) == 0
    assert main.run(["measure", place, *words]) == 2
    assert message in capsys.readouterr().err
