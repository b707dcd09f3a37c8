"""Uploaded tables: checked with their lines, kept once, known to those who uploaded them alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storage.errors import InvalidRequest, LimitExceeded, NotFound
from storage.tables.uploaded import UploadedTables, normal_table

GOOD = "place,jobs,doctors\nstation,1200,2\n market ,300,1.5\n"


def normal(tmp_path: Path, content: str | bytes, rows: int = 100, columns: int = 3) -> Path:
    path = tmp_path / "upload-1"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return normal_table(path, rows, columns)


def test_csv_and_parquet_become_the_same(tmp_path: Path):
    made = pl.read_parquet(normal(tmp_path, GOOD))
    assert made.rows() == [("station", 1200.0, 2.0), ("market", 300.0, 1.5)]
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
        (b"PAR1 and nothing", "cannot be read as a table"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path: Path, content: str | bytes, words: str):
    with pytest.raises(InvalidRequest, match=words) as caught:
        normal(tmp_path, content)
    assert caught.value.field == "table"
    assert str(tmp_path) not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_limits_name_their_setting(tmp_path: Path):
    with pytest.raises(LimitExceeded, match="2 rows, at most 1"):
        normal(tmp_path, GOOD, rows=1)
    with pytest.raises(LimitExceeded, match="2 columns of numbers, at most 1"):
        normal(tmp_path, GOOD, columns=1)


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
    assert tables.add(normal(tmp_path, GOOD), theirs, 9.0, 1)[1]
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
