"""Uploaded tables: checked with their lines, kept once, known to those who uploaded them alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidRequest, LimitExceeded, NotFound
from storage.graph.demand_table import read_demands
from storage.graph.vertex_table import read_table
from storage.tables.uploaded import UploadedTables, normal_table

GOOD = "place,jobs,doctors\nstation,1200,2\n market ,300,1.5\n"


def normal(tmp_path: Path, content: str | bytes, rows: int = 100, columns: int = 3) -> Path:
    path = tmp_path / "upload-1"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return normal_table(path, rows, columns)


def test_csv_and_parquet_become_the_same(tmp_path: Path):
    made = pl.read_parquet(normal(tmp_path, GOOD))
    assert made.rows() == [("station", 1200.0, 2.0), (" market ", 300.0, 1.5)], (
        "whether blanks belong to a name, the graph of a job decides"
    )
    made.write_parquet(tmp_path / "again")
    assert pl.read_parquet(normal(tmp_path, (tmp_path / "again").read_bytes())).equals(made)
    assert pl.read_parquet(normal(tmp_path, "v,n\n7,1\n12,2\n"))["v"].to_list() == ["7", "12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "upload-1-normal.parquet"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read as a table"),
        ("a,b\n", "found 2 columns and 0 rows"),
        ("a\n1\n", "found 1 columns"),
        ("a,1.5\nb,2\n", "line 1: '1.5' is a number"),
        ("a,b\nx,1\ny,\n", "line 3: column 'b' is None"),
        ("a,b\nx,1\ny,inf\n", "line 3: column 'b' is 'inf'"),
        ("a,b\nx,1\nx,2\n", "vertex x is named more than once"),
        ("a,b\nx,1\n ,2\n", "line 3: no vertex is named"),
        ('a,b\n"x\ny",1\n\n ,2\n', "line 5: no vertex is named"),
        (b"PAR1 and nothing", "cannot be read as a table"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path: Path, content: str | bytes, words: str):
    with pytest.raises(InvalidRequest, match=words) as caught:
        normal(tmp_path, content)
    assert caught.value.field == "table"
    assert str(tmp_path) not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [([" x", "x", "y"], [5, 0, 7]), ([" x", "q", "y"], [5, 0, 7]), (["q", "x", "y"], [0, 5, 7])],
    ids=["both", "with the blank", "without it"],
)
def test_blanks_around_a_name_count_where_a_vertex_has_them(tmp_path: Path, labels: list[str], wanted: list[float]):
    made = normal(tmp_path, 'place,jobs\n" x",5\ny ,7\n')
    assert read_table(made, np.array(labels))["jobs"].tolist() == wanted
    made = demands(tmp_path, 'from,to,cars\n" x",y,5\n" x","y ",2\n')
    read = read_demands(made, np.array(labels))
    assert read.origins.tolist() == [wanted.index(5)] * len(read.origins)
    assert read.destinations.tolist() == [2] * len(read.destinations)


def test_names_that_differ_in_blanks_only_are_two_vertices(tmp_path: Path):
    made = normal(tmp_path, 'place,jobs\n" x",5\n"x",7\n')
    assert read_table(made, np.array([" x", "x"]))["jobs"].tolist() == [5, 7]
    with pytest.raises(InvalidRequest, match="was named before"):
        read_table(made, np.array(["x", "y"]))


def demands(tmp_path: Path, content: str, rows: int = 100, columns: int = 3) -> Path:
    path = tmp_path / "upload-1"
    path.write_text(content)
    return normal_table(path, rows, columns, "demands")


def test_demands_name_two_vertices_in_a_row_and_the_same_ones_again(tmp_path: Path):
    made = pl.read_parquet(demands(tmp_path, "from,to,cars\na, b ,1\na,b,2.5\n7,a,0\n"))
    assert made.rows() == [("a", " b ", 1.0), ("a", "b", 2.5), ("7", "a", 0.0)]
    made.write_parquet(tmp_path / "again")
    record, _ = UploadedTables(tmp_path).add(tmp_path / "again", None, 1.0, 2)
    assert (record.holds, record.key, record.columns) == ("demands", "from", ["cars"])
    for content, words in (
        ("a,b\n1,2\n", "two first columns of vertices, origin and destination.*found 2 columns"),
        ("a,b,c\nx,y,-1\n", "line 2: column 'c' is -1, and no flow may be negative"),
        ("a,b,c\nx,,1\n", "line 2: no vertex is named"),
        ("a,b,c\nx,y,z\n", "line 2: column 'c' is 'z'"),
        ("a,b,3\nx,y,1\n", "line 1: '3' is a number"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            demands(tmp_path, content)
    with pytest.raises(LimitExceeded, match="2 rows, at most 1") as caught:
        demands(tmp_path, "a,b,c\nx,y,1\nx,y,1\n", rows=1)
    assert caught.value.setting == "max_arcs"


def test_a_table_of_an_earlier_version_holds_opportunities(tmp_path: Path):
    tables = UploadedTables(tmp_path)
    record, _ = tables.add(normal(tmp_path, GOOD), None, 5.0, 1)
    facts = tables.path(record.id).with_name("facts.json")
    facts.write_text(facts.read_text().replace(', "holds": "opportunities"', ""))
    assert "holds" not in facts.read_text()
    assert tables.get(record.id, None) == record


def test_limits_name_their_setting(tmp_path: Path):
    with pytest.raises(LimitExceeded, match="2 rows, at most 1"):
        normal(tmp_path, GOOD, rows=1)
    with pytest.raises(LimitExceeded, match="2 columns of numbers, at most 1"):
        normal(tmp_path, GOOD, columns=1)


def test_a_table_that_goes_while_tables_are_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tables = UploadedTables(tmp_path)
    kept, _ = tables.add(normal(tmp_path, GOOD), None, 1.0, 9)
    going, _ = tables.add(normal(tmp_path, GOOD.replace("1200", "1")), None, 2.0, 9)
    glob = Path.glob

    def late(self: Path, pattern: str) -> list[Path]:
        found = list(glob(self, pattern))
        tables.remove(going.id, None)
        return found

    monkeypatch.setattr(Path, "glob", late)
    assert tables.listed(None) == [kept]


def test_tables_belong_to_those_who_uploaded_them(tmp_path: Path):
    tables, mine, theirs = UploadedTables(tmp_path), "key-1", "key-2"
    record, new = tables.add(normal(tmp_path, GOOD), mine, 5.0, 1)
    assert (new, record.rows, record.key, record.columns, record.created) == (
        True,
        2,
        "place",
        ["jobs", "doctors"],
        5.0,
    )
    assert tables.add(normal(tmp_path, GOOD), mine, 9.0, 1) == (record, False)
    assert tables.listed(mine) == [record]
    assert tables.listed(theirs) == tables.listed(None) == []
    with pytest.raises(NotFound):
        tables.get(record.id, theirs)
    with pytest.raises(LimitExceeded, match="may have 1") as caught:
        tables.add(normal(tmp_path, GOOD.replace("1200", "1")), mine, 9.0, 1)
    assert caught.value.setting == "max_tables"
    assert tables.add(normal(tmp_path, GOOD), theirs, 9.0, 1) == (replace(record, created=9.0), True)
    assert (tables.get(record.id, mine), tables.get(record.id, theirs)) == (record, replace(record, created=9.0))
    assert tables.listed(theirs) == [replace(record, created=9.0)]
    tables.remove(record.id, mine)
    assert tables.path(record.id).exists()
    tables.remove(record.id, theirs)
    for call in (lambda: tables.get(record.id, theirs), lambda: tables.remove(record.id, theirs)):
        with pytest.raises(NotFound):
            call()
    for wrong in (record.id, "../../etc/passwd", "", "0" * 32):
        with pytest.raises(InvalidRequest, match="there is no table"):
            tables.path(wrong)
        with pytest.raises(NotFound):
            tables.get(wrong, mine)
