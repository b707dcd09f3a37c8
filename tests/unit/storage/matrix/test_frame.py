"""Stores of selected sources and targets: the labelled rectangle, and stores of versions without such a selection."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from storage.errors import InvalidRequest, NotFound
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from tests.stores import line_graph, make_store, verify_matrix

SOURCES, TARGETS = np.array([70, 3, 99]), np.array([5, 70, 0, 41])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.zarr"


def test_rows_and_columns_are_named_by_vertex(path):
    entries = make_store(path, 100, "int32", sources=SOURCES, targets=TARGETS)
    labels = line_graph(100).labels
    with open_matrix(path) as matrix:
        assert matrix.shape == (3, 4)
        assert matrix.n == 100
        assert (matrix.attributes["sources"], matrix.attributes["targets"]) == ("subset", "subset")
        np.testing.assert_array_equal(matrix.targets, TARGETS)
        np.testing.assert_array_equal(matrix.labels, labels)
        np.testing.assert_array_equal(matrix.target_labels, labels[TARGETS])
        assert matrix.target_positions(TARGETS).tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(matrix.row(3), entries[1])
        np.testing.assert_array_equal(matrix.rows([99, 70]), entries[[2, 0]])
        np.testing.assert_array_equal(matrix.entries([3, 70], [41, 70]), [entries[1, 3], entries[0, 1]])
        assert matrix.vertex(int(labels[98])) == 98
        assert matrix.graph().n == 100
    verify_matrix(path)


def test_targets_of_all_sources(path):
    entries = make_store(path, 100, "float32", targets=TARGETS)
    with open_matrix(path) as matrix:
        assert matrix.shape == (100, 4)
        assert matrix.attributes["sources"] == "all"
        np.testing.assert_array_equal(matrix.entries([17], [0]), entries[17, [2]])


def test_a_rectangle_wider_than_a_tile(path):
    targets = np.arange(29_999, 0, -1)
    entries = make_store(path, 30_000, "uint16", sources=np.arange(0, 30_000, 300), targets=targets)
    with open_matrix(path) as matrix:
        assert matrix.grid.counts[1] > 1
        np.testing.assert_array_equal(matrix.row(600), entries[2])
        assert matrix.entries([600], [1])[0] == entries[2, 29_998]


def test_vertices_that_are_no_targets_are_not_found(path):
    make_store(path, 100, sources=SOURCES, targets=TARGETS)
    with open_matrix(path) as matrix:
        with pytest.raises(NotFound, match="vertex 8589934595 was not solved as a target; this store holds 4 of 100"):
            matrix.entries([3], [1])
        with pytest.raises(NotFound, match="vertex 8589934595 was not solved as a source; this store holds 3 of 100"):
            matrix.entries([1], [5])
        with pytest.raises(NotFound, match="index 100 does not exist; the graph has 100"):
            matrix.target_positions([100])


def test_xarray_sees_the_labels_of_both_sides(path):
    entries = make_store(path, 100, "int32", sources=SOURCES, targets=TARGETS)
    labels = line_graph(100).labels
    with xr.open_zarr(path) as store:
        found = store.distances.sel(source=labels[99], target=labels[[0, 70]])
        np.testing.assert_array_equal(found, entries[2, [2, 1]])
        np.testing.assert_array_equal(store.vertex, labels)


@pytest.mark.parametrize(
    ("targets", "message"),
    [([1, 2, 1], "target 1 is given more than once"), ([1, 100], "target 100 is no"), ([[1]], "must be a list")],
)
def test_bad_targets(path, targets, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        create_matrix(path, line_graph(100), MatrixSpec("int32", 2**30 - 1, targets=np.array(targets)))
    assert caught.value.field == "targets"


def test_a_store_of_before_targets_could_be_chosen_opens(tmp_path):
    with tarfile.open(Path(__file__).parent / "data" / "store-version-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with open_matrix(tmp_path / "old.zarr") as matrix:
        assert (matrix.shape, matrix.n) == ((2, 5), 5)
        np.testing.assert_array_equal(matrix.row(3), [636, 2**30 - 1, 40, 2**30 - 1, 813])
        np.testing.assert_array_equal(matrix.targets, np.arange(5))
        assert (matrix.attributes["targets"], matrix.attributes["cutoff"]) == ("all", None)
    verify_matrix(tmp_path / "old.zarr")


def test_only_a_rectangle_needs_the_newer_version(tmp_path):
    make_store(tmp_path / "all.zarr", 10, sources=np.array([4, 2]))
    make_store(tmp_path / "some.zarr", 10, targets=np.array([4, 2]))
    versions = [
        json.loads((tmp_path / name / "zarr.json").read_text())["attributes"]["seal"]["version"]
        for name in ("all.zarr", "some.zarr")
    ]
    assert versions == [1, 2]
