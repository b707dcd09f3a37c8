"""A prepared graph as an array of Zarr: every chunk is computed when it is read, and is that of a solved store."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.prepared.served import ComputedStore
from tests.unit.engine.api.test_prepared import grid_graph


@pytest.fixture
def both(tmp_path):
    graph = grid_graph(15)
    prepare(graph, tmp_path / "prepared")
    solve_to_store(graph, Options(device="cpu"), tmp_path / "solved.zarr")
    with open_result(tmp_path / "prepared") as prepared, open_result(tmp_path / "solved.zarr") as solved:
        yield prepared, solved, tmp_path / "solved.zarr"


def test_chunks_and_metadata_are_those_of_a_solved_store(both):
    prepared, solved, path = both
    store = prepared.zarr_store
    down, across = solved.grid.counts
    assert down > 1
    keys = [f"distances/c/{i}/{j}" for i in range(down) for j in range(across)]
    for key in (*keys, "source/c/0", "target/c/0", "vertex/c/0"):
        assert store.read(key) == (path / key).read_bytes(), key
    for name in ("distances", "source", "target", "vertex"):
        ours, theirs = zarr.open_array(store, path=name), zarr.open_array(path, path=name)
        assert ours.metadata == theirs.metadata
        np.testing.assert_array_equal(ours[...], theirs[...])
    assert store.read("distances/c/99/0") is None
    assert store.read("tables/forward/c/0") is None


def test_a_band_larger_than_the_cache_is_computed_tile_by_tile(both):
    prepared, solved, path = both
    small = ComputedStore(prepared, cache=1)
    assert small.read("distances/c/1/0") == (path / "distances/c/1/0").read_bytes()
    assert small._bands == {}
    np.testing.assert_array_equal(zarr.open_array(small, path="distances")[3:200:7, 5], solved.columns([5])[3:200:7, 0])


def test_the_cache_is_bounded(both):
    prepared, _, _ = both
    store = ComputedStore(prepared, cache=64 * 225 * prepared.dtype.itemsize)
    zarr.open_array(store, path="distances")[...]
    assert len(store._bands) == 1


def test_xarray_and_dask_read_it(both):
    prepared, solved, _ = both
    want = solved.rows(range(225))
    data = xr.open_zarr(prepared.zarr_store, chunks=None)
    np.testing.assert_array_equal(data.distances[3:5, 100:].values, want[3:5, 100:])
    assert data.distances.dims == ("source", "target")
    array = dask.array.from_zarr(prepared.zarr_store, component="distances")
    assert int(array.max().compute()) == want.max()


def test_nothing_is_written(both):
    group = zarr.open(both[0].zarr_store, mode="r")
    assert sorted(group.array_keys()) == ["distances", "source", "target", "vertex"]
    with pytest.raises(ValueError, match="read-only"):
        group["distances"][0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        zarr.open(both[0].zarr_store, mode="w")
