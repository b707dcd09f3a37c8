"""Open Matrix files, read back by h5py, and by the package of the format where it is installed."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.cli.main import run
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix

h5py = pytest.importorskip("h5py", reason="apsp[omx] is not installed")


def make(path: Path, *, text: bool = False, **options) -> None:
    labels = ["Åbo", "b", "c", "d"] if text else [2, 3, 5, 70]
    labels = sorted(labels)
    graph, _ = build_graph(
        [0, 1, 0, 2], [1, 2, 2, 0], [0.1, 0.2, 0.5, 1], labels=labels, directed=True,
        quantities={"toll": [1.5, 2, 0, 0], "metres": [10, 20, 5, 7]},
    )  # fmt: skip
    solve_to_store(graph, Options(also=("toll", "metres"), **options), path)


@pytest.mark.parametrize("options", [{}, {"sources": (0, 2), "targets": (3, 2, 1)}])
@pytest.mark.parametrize("text", [False, True])
def test_matrices_and_lookups(tmp_path, options, text):
    store, file = tmp_path / "d.zarr", tmp_path / "d.omx"
    make(store, text=text, **options)
    assert run(["export", str(store), "-o", str(file)]) == 0
    with open_matrix(store) as matrix, h5py.File(file) as found:
        assert bytes(found.attrs["OMX_VERSION"]) == b"0.2"
        assert found.attrs["SHAPE"].tolist() == list(matrix.shape)
        assert found.attrs["SHAPE"].dtype == np.int32
        assert set(found["data"]) == {"distance", "toll", "metres"}
        for name, one in {"distance": matrix, **matrix.also}.items():
            data, entries = found["data"][name], one.rows(matrix.sources)
            assert data.dtype == np.float64
            assert np.isnan(data.attrs["NA"])
            wanted = np.where(entries == one.unreachable, np.nan, entries)
            assert np.array_equal(data[...].astype(wanted.dtype), wanted, equal_nan=True)
            # the float32 that is nearest to 0.3 is written as 0.3
            assert np.array_equal(data[...], np.round(data[...], 1), equal_nan=True)
        names = {name: lookup[...].tolist() for name, lookup in found["lookup"].items()}
        sides = (
            {"source": matrix.source_labels, "target": matrix.target_labels} if options else {"vertex": matrix.labels}
        )
        wanted = {name: [label.encode() if text else label for label in side.tolist()] for name, side in sides.items()}
        assert names == wanted
        assert [found["lookup"][name].attrs["DIM"] for name in names if options] == ([0, 1] if options else [])


def test_rows_and_columns_are_chosen_when_it_is_written(tmp_path):
    store, file = tmp_path / "d.zarr", tmp_path / "d.omx"
    make(store)
    assert run(["export", str(store), "-o", str(file), "--sources", "5,2", "--targets", "70,5,3"]) == 0
    with h5py.File(file) as found:
        assert np.array_equal(found["data/metres"][...], [[np.nan, 0, 17], [np.nan, 30, 10]], equal_nan=True)
        assert found["lookup/source"][...].tolist() == [5, 2]
        assert found["lookup/target"][...].tolist() == [70, 5, 3]


def test_more_rows_than_are_written_at_once(tmp_path):
    n = 1100
    graph, _ = build_graph(np.arange(n - 1), np.arange(1, n), np.ones(n - 1), n=n, directed=False,
                           quantities={"q": np.arange(n - 1)})  # fmt: skip
    solve_to_store(graph, Options(also=("q",), sources=tuple(range(130))), tmp_path / "d.zarr")
    assert run(["export", str(tmp_path / "d.zarr"), "-o", str(tmp_path / "d.omx")]) == 0
    sums = np.concatenate([[0], np.cumsum(np.arange(n - 1))])
    with h5py.File(tmp_path / "d.omx") as found:
        assert np.array_equal(found["data/q"][...], np.abs(sums[:130, None] - sums))
        assert found["data/q"].chunks == (64, 512)


def test_the_package_of_the_format_reads_it(tmp_path):
    make(tmp_path / "d.zarr")
    assert run(["export", str(tmp_path / "d.zarr"), "-o", str(tmp_path / "d.omx")]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        openmatrix = pytest.importorskip("openmatrix", reason="the package openmatrix is not installed")
        file = openmatrix.open_file(str(tmp_path / "d.omx"))
        try:
            assert file.version() == b"0.2"
            assert tuple(file.shape()) == (4, 4)
            assert sorted(file.list_matrices()) == ["distance", "metres", "toll"]
            assert file.mapping("vertex") == {2: 0, 3: 1, 5: 2, 70: 3}
            assert file["metres"][0, 2] == 30
        finally:
            file.close()


def test_a_quantity_may_be_called_as_the_distances_are(tmp_path):
    quantities = {"distance": [10, 20], "weight": [7, 8], "also distance": [3, 4]}
    graph, _ = build_graph([0, 1], [1, 2], [1, 2], n=3, directed=True, quantities=quantities)
    store = tmp_path / "d.zarr"
    solve_to_store(graph, Options(also=tuple(quantities)), store)
    for name in ("d.omx", "d.csv"):
        assert run(["export", str(store), "-o", str(tmp_path / name)]) == 0
    with h5py.File(tmp_path / "d.omx") as found:
        assert {name: data[0, 2] for name, data in found["data"].items()} == {
            "distance": 3, "also distance": 30, "weight": 15, "also also distance": 7,
        }  # fmt: skip
        columns = (tmp_path / "d.csv").read_text().splitlines()[0].split(",")
        assert set(columns) == {"source", "target", *found["data"]}
