"""Tables in pieces: the same file, one piece at a time, and errors and cancelling as they were raised."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import polars as pl
import pytest

from storage.errors import Cancelled
from storage.tables.pieces import Pieces
from tests.cycles import keepers, no_collection


def frames(count: int, rows: int = 10):
    for k in range(count):
        yield pl.DataFrame({"source": [f"v{k}"] * rows, "distance": range(k, k + rows)})


@pytest.mark.parametrize("count", [1, 2, 40])
def test_pieces_are_the_table(tmp_path: Path, count: int):
    table = Pieces(frames(count))
    assert list(table.schema) == ["source", "distance"]
    table.write_parquet(tmp_path / "t.parquet", together=16, said={"a": "b"})
    assert table.height == 10 * count
    assert pl.read_parquet(tmp_path / "t.parquet").equals(pl.concat(frames(count)))
    assert pl.read_parquet_metadata(tmp_path / "t.parquet")["a"] == "b"


def test_no_rows_are_a_table_with_columns(tmp_path: Path):
    Pieces(frame.head(0) for frame in frames(1)).write_parquet(tmp_path / "t.parquet", said={})
    assert pl.read_parquet(tmp_path / "t.parquet").equals(next(frames(1)).head(0))


def test_pieces_are_made_by_the_caller_and_only_as_they_are_taken(tmp_path: Path):
    threads = set()

    def told():
        for frame in frames(30):
            threads.add(threading.get_ident())
            yield frame

    Pieces(told()).write_parquet(tmp_path / "t.parquet", said={})
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.parametrize("error", [Cancelled("stop"), KeyboardInterrupt(), ValueError("odd")])
def test_what_ends_a_piece_is_raised_as_it_is(tmp_path: Path, at: int, error: BaseException):
    def failing():
        yield from frames(at)
        raise error

    before = threading.active_count()
    with pytest.raises(type(error)) as caught:
        Pieces(failing()).write_parquet(tmp_path / "t.parquet", said={})
    assert caught.value is error
    assert threading.active_count() <= before


def test_a_file_system_that_refuses_ends_the_writing(tmp_path: Path):
    with pytest.raises(OSError, match=r"[Nn]o space"):
        Pieces(frames(2000, 1000)).write_parquet(Path("/dev/full"), said={})


def test_a_file_system_that_refuses_keeps_no_piece(tmp_path: Path):
    class Frames(list):
        pass

    def failing():
        pieces = Frames(frames(20))
        kept.append(weakref.ref(pieces))
        given = Pieces(iter(pieces))
        given.write_parquet(tmp_path / "none" / "t.parquet", said={})

    kept = []
    with no_collection():
        with pytest.raises(OSError, match="No such file"):
            failing()
        assert kept[0]() is None, keepers(kept[0]())
