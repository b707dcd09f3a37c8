"""Small arrays are written as zarr-python writes them, to the byte, and read back, or left to zarr."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from storage.matrix import side_arrays
from storage.matrix.format import distances_document
from storage.matrix.grid import TileGrid
from storage.matrix.side_arrays import read_side_array, side_array

NAMES = np.array(["a", "", "Ünïcode ☃", "x" * 300, "7"], np.dtypes.StringDType())
ARRAYS = {
    "names": NAMES,
    "no names": NAMES[:0],
    "int64": np.arange(-3, 8),
    "int32": np.arange(9, dtype=np.int32),
    "uint32": np.arange(6, dtype=np.uint32).reshape(2, 3),
    "float64": np.array([0.5, np.inf, -0.0, np.nan]),
    "empty": np.empty(0, np.int64),
    "flat": np.empty((0, 3), np.int64),
}


def by_zarr(folder: Path, values: np.ndarray, dimensions: tuple[str, ...]) -> None:
    text, kind = values.dtype.kind == "T", values.dtype.kind
    array = zarr.create_group(folder).create_array(
        "array",
        shape=values.shape,
        chunks=tuple(max(1, min(side_arrays.SIDE_CHUNK, size)) for size in values.shape),
        dtype="string" if text else values.dtype,
        compressors=[Crc32cCodec()],
        fill_value="" if text else float("nan") if kind == "f" else int(np.iinfo(values.dtype).max),
        dimension_names=dimensions,
        config={"write_empty_chunks": True},
    )
    array[...] = values


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("chunk", [1 << 20, 4])
@pytest.mark.parametrize("name", list(ARRAYS))
def test_files_are_those_of_zarr_and_read_back(tmp_path: Path, name: str, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(side_arrays, "SIDE_CHUNK", chunk)
    values = ARRAYS[name]
    dimensions = ("row", "column")[: values.ndim]
    by_zarr(tmp_path / "theirs", values, dimensions)
    side_array(tmp_path / "ours", values, dimensions)
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs" / "array")
    document = json.loads((tmp_path / "ours" / "zarr.json").read_bytes())
    found = read_side_array(document, lambda key: (tmp_path / "ours" / key).read_bytes())
    assert found is not None
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[...], values)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("kind", "unreachable"), [("uint16", 65534), ("int32", 2**31 - 2), ("float32", np.inf)])
def test_the_matrix_is_described_as_zarr_describes_it(tmp_path: Path, kind: str, unreachable, compression: str) -> None:
    dtype = np.dtype(kind)
    packed = BloscCodec(typesize=dtype.itemsize, cname="zstd", clevel=3, shuffle="shuffle")
    shown = "Infinity" if kind == "float32" else unreachable
    zarr.create_group(tmp_path).create_array(
        "distances",
        shape=(70, 80),
        chunks=(64, 80),
        dtype=dtype.newbyteorder("<"),
        compressors=[Crc32cCodec()] if compression == "none" else [packed, Crc32cCodec()],
        fill_value=float("nan") if kind == "float32" else int(np.iinfo(dtype).max),
        dimension_names=("source", "target"),
        attributes={"long_name": "shortest-path distance", "unit": "weight", "unreachable": shown},
    )
    facts = {"type": kind, "unreachable": unreachable, "unit": "weight", "compression": compression}
    ours = distances_document(TileGrid((70, 80), (64, 80)), facts)
    assert ours == (tmp_path / "distances" / "zarr.json").read_bytes()


def test_a_changed_chunk_is_no_array(tmp_path: Path) -> None:
    for name in ("names", "int64"):
        side_array(tmp_path / name, ARRAYS[name], ("vertex",))
        document = json.loads((tmp_path / name / "zarr.json").read_bytes())
        data = (tmp_path / name / "c" / "0").read_bytes()
        for wrong in (data[:-5], data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], b""):
            with pytest.raises(ValueError, match="does not agree"):
                read_side_array(document, lambda _, wrong=wrong: wrong)


def test_what_something_else_wrote_is_left_to_zarr(tmp_path: Path) -> None:
    side_array(tmp_path / "array", ARRAYS["int64"], ("vertex",))
    document = json.loads((tmp_path / "array" / "zarr.json").read_bytes())
    others = (
        {"data_type": "int8"},
        {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]},
        {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
        {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
        {"storage_transformers": [{"name": "x"}]},
        {"shape": []},
    )
    for other in others:
        assert read_side_array({**document, **other}, lambda key: (tmp_path / "array" / key).read_bytes()) is None
