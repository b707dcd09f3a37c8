"""A sealed table: pages, order, rows by name; damage is an error, and nothing half written opens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zarr
from scipy.sparse import csr_array

from engine.api.near import near_pairs
from engine.model.problem import Options
from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.files import atomic
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix
from storage.pairs.saving import frame_of_pairs
from storage.tables.reader import open_table
from storage.tables.writer import write_result_table

ABOUT = {"result": "measures", "shape": [5, 5], "dtype": "int32", "directed": True, "unit": "weight"}
FRAME = pl.DataFrame(
    {"vertex": ["a", "b", "c", "d", "e"], "far": [3, 1, None, 1, 7], "mean": [0.5, None, 0.25, 0.5, 2.0]}
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_result_table(tmp_path / "t", FRAME, ABOUT)


def test_facts_and_pages(table: Path):
    with open_table(table) as opened:
        assert opened.columns == {"vertex": "text", "far": "integer", "mean": "number"}
        assert (opened.rows, opened.shape, opened.result, opened.key, opened.directed) == (
            5,
            (5, 5),
            "measures",
            "vertex",
            True,
        )
        assert opened.page(["far", "vertex"], 1, 2).rows() == [(1, "b"), (None, "c")]
        assert opened.page(["vertex"], 4, 10).rows() == [("e",)]
        assert opened.page(["vertex"], 9, 10).rows() == []
        assert opened.bytes == sum(f.stat().st_size for f in table.rglob("*") if f.name != "zarr.json")
        opened.check()
        with pytest.raises(InvalidRequest, match="there is no column 'near'; there are vertex, far, mean"):
            opened.named(["near"])


@pytest.mark.parametrize(
    ("sort", "order"),
    [("far", "bdaec"), ("-far", "eabdc"), ("mean", "cadeb"), ("-mean", "eadcb"), ("-vertex", "edcba")],
)
def test_an_order_is_total_and_what_is_missing_comes_last(table: Path, sort: str, order: str):
    with open_table(table) as opened:
        pages = [opened.page(["vertex"], first, 2, sort)["vertex"].to_list() for first in (0, 2, 4)]
    assert "".join(name for page in pages for name in page) == order


def test_rows_are_found_by_name(tmp_path: Path, table: Path):
    with open_table(table) as opened:
        assert opened.rows_of(["d", "a", "d"], ["far"], 10).rows() == [(3,), (1,)]
        with pytest.raises(NotFound, match="no row of 'x'"):
            opened.rows_of(["a", "x"], ["far"], 10)
        assert opened.rows_of(["a", "b", "c", "x"], ["far"], 1).height == 2
    numbered = write_result_table(tmp_path / "n", FRAME.with_columns(vertex=pl.Series([1, 5, 7, 8, 9])), ABOUT)
    with open_table(numbered) as opened:
        assert opened.rows_of(["5"], ["vertex", "far"], 10).rows() == [(5, 1)]
        with pytest.raises(NotFound, match="no row of 'b'"):
            opened.rows_of(["b"], ["far"], 10)


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_damaged_table_is_not_read(table: Path, how: str):
    file = table / "table.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if how != "gone":
        file.write_bytes(data if how == "changed" else data[:-1])
    with open_table(table) as opened:
        for ask in (
            lambda: opened.page(["far"], 0, 1),
            lambda: opened.values("far"),
            lambda: opened.rows_of(["a"], ["far"], 1),
        ):
            with pytest.raises(StorageFailed, match=r"table\.parquet"):
                ask()


def test_a_table_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "sync_tree", refuse)
        with pytest.raises(StorageFailed):
            write_result_table(tmp_path / "t", FRAME, ABOUT)
    assert list(tmp_path.iterdir()) == []
    made = write_result_table(tmp_path / "t", FRAME, ABOUT)
    with pytest.raises(Conflict):
        write_result_table(made, FRAME, ABOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_it_is_no_matrix(table: Path):
    with pytest.raises(StorageFailed, match="no distances of all pairs"):
        open_matrix(table)
    (table / "zarr.json").write_text((table / "zarr.json").read_text().replace('"rows": 5', '"rows": 6'))
    with pytest.raises(StorageFailed, match="does not agree with its own digest"):
        open_table(table)


def test_near_pairs_are_sparse_rows_and_a_table(tmp_path: Path):
    rng = np.random.default_rng(5)
    graph = build_graph(*rng.integers(0, 50, (2, 200)), rng.integers(1, 9, 200), n=50, directed=True)[0]
    pairs = near_pairs(graph, Options(cutoff=6))
    frame = frame_of_pairs(pairs)
    made = write_result_table(tmp_path / "n", frame, {**ABOUT, "result": "near", "shape": [50, 50]}, pairs)
    group = zarr.open_group(made, mode="r")
    rows = csr_array((group["data"][:], group["indices"][:], group["indptr"][:]), shape=group.attrs["shape"])
    assert abs(rows - pairs.to_scipy()).max() == 0
    with open_table(made) as opened:
        assert opened.page(list(opened.columns), 0, opened.rows).equals(frame)
        assert (opened.key, opened.rows) == ("source", pairs.entries)
        source = str(frame["source"][0])
        assert opened.rows_of([source], ["target"], 1000).height == np.diff(pairs.indptr)[int(source)]
