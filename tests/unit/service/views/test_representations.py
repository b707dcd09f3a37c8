from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from service.jobs.results import ResultReader
from service.views import representations
from service.views.representations import ENCODERS, Selection
from tests.unit.service.support import UNREACHABLE, Bench, small_graph

DTYPES = sorted(UNREACHABLE)
Choose = Callable[..., tuple[Selection, np.ndarray]]


@pytest.fixture
def choose(bench: Bench) -> Choose:
    """A selection of a solved matrix of some type, and the distances it must show (inf where unreachable)."""

    def make(dtype: str, sources: list[int], targets: list[int] | None = None, names: bool = False):
        graph = small_graph(names, real=dtype.startswith("float"))
        job_id, distances = bench.solved(graph, dtype)
        result = ResultReader(bench.settings.store(job_id))
        columns = None if targets is None else np.array(targets)
        expected = distances[sources] if targets is None else distances[np.ix_(sources, targets)]
        return Selection(result, np.array(sources), columns), expected.astype(dtype if dtype[0] == "f" else float)

    return make


def body(kind: str, rows: Selection) -> bytes:
    return b"".join(ENCODERS[kind](rows))


def with_none(values: np.ndarray) -> list:
    return [None if np.isinf(v) else float(str(v)) for v in values.ravel()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_json_has_numbers_and_null(choose: Choose, dtype: str):
    rows, expected = choose(dtype, [3, 0])
    text = body("json", rows)
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["sources"] == [40, 10]
    assert found["targets"] == [10, 20, 30, 40]
    assert [v for row in found["distances"] for v in row] == with_none(expected)
    if dtype == "float32":
        assert b"[0.1," in text  # the shortest digits, not those of the nearest double
    if dtype == "int32":
        assert b"." not in text


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_holds_floats_with_infinity(choose: Choose, dtype: str):
    rows, expected = choose(dtype, [0, 3, 1], [2, 3])
    found = np.load(io.BytesIO(body("npy", rows)), allow_pickle=False)
    assert found.dtype.kind == "f"
    assert np.array_equal(found, expected)


def test_npy_keeps_the_largest_integers_exact(bench: Bench):
    values = np.array([[0, 2**30 - 2], [2**30 - 3, 0]], np.int32)
    assert np.array_equal(values.astype(representations.FLOAT_VIEW["int32"]).astype(np.int64), values)
    small = np.arange(2**15, dtype=np.uint16)
    assert np.array_equal(small.astype(representations.FLOAT_VIEW["uint16"]).astype(np.int64), small)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [False, True])
def test_tables_are_long_with_nulls(choose: Choose, dtype: str, names: bool):
    rows, expected = choose(dtype, [1, 3], names=names)
    labels = ["a", "b,c", "d", 'e"f'] if names else [10, 20, 30, 40]
    tables = [
        pl.read_csv(io.BytesIO(body("csv", rows))),
        pl.read_parquet(io.BytesIO(body("parquet", rows))),
        pl.read_ipc_stream(io.BytesIO(body("arrow", rows))),
    ]
    for table in tables:
        assert table.columns == ["source", "target", "distance"]
        assert table["source"].to_list() == [labels[1]] * 4 + [labels[3]] * 4
        assert table["target"].to_list() == labels * 2
        assert [None if v is None else float(str(np.array(v, rows.result.matrix.dtype))) for v in table["distance"]] \
            == with_none(expected)  # fmt: skip


def test_csv_leaves_unreachable_empty(choose: Choose):
    rows, _ = choose("int32", [0], [0, 3])
    assert body("csv", rows) == b"source,target,distance\n10,10,0\n10,40,\n"


def test_arrow_opens_with_pyarrow(choose: Choose):
    ipc = pytest.importorskip("pyarrow.ipc")
    rows, _ = choose("int32", [0], names=True)
    table = ipc.open_stream(io.BytesIO(body("arrow", rows))).read_all()
    assert table.column("distance").to_pylist() == [0, 1, 3, None]
    assert table.column("target").to_pylist() == ["a", "b,c", "d", 'e"f']


@pytest.mark.parametrize("kind", sorted(ENCODERS))
def test_batches_make_no_difference(choose: Choose, monkeypatch: pytest.MonkeyPatch, kind: str):
    rows, _ = choose("float32", [0, 1, 2, 3, 0])
    at_once = body(kind, rows)
    monkeypatch.setattr(representations, "BATCH", 4)
    assert len(list(rows.batches())) == 5
    piecewise = body(kind, rows)
    if kind in ("parquet", "arrow"):
        read = pl.read_parquet if kind == "parquet" else pl.read_ipc_stream
        assert read(io.BytesIO(piecewise)).equals(read(io.BytesIO(at_once)))
    else:
        assert piecewise == at_once
