"""Reads and writes the small arrays of a store (labels, arcs, manifest) in the format of Zarr v3 without importing
zarr.

Importing zarr takes a fifth of the time of solving a graph of a thousand vertices and querying the store.  The files
are identical to those of zarr-python.  Other programs may write arrays in other forms; zarr reads these.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from storage.files import atomic

#: Maximum number of entries of a chunk along each dimension of an array.
SIDE_CHUNK: Final = 1 << 20
#: Arrays with more strings than this are read by zarr, whose decoder is compiled.
MANY_NAMES: Final = 1 << 16

#: Codecs in the notation of Zarr v3's metadata.
CHECKSUM: Final = {"name": "crc32c"}
LITTLE_ENDIAN: Final = {"name": "bytes", "configuration": {"endian": "little"}}
_NAMES: Final = {"name": "vlen-utf8", "configuration": {}}
_COUNT: Final = struct.Struct("<I")

Array = npt.NDArray[np.generic]


def array_document(
    shape: Sequence[int],
    chunks: Sequence[int],
    *,
    kind: str,
    fill: object,
    codecs: Sequence[Mapping[str, object]],
    dimensions: Sequence[str],
    attributes: Mapping[str, object],
) -> bytes:
    """Return the ``zarr.json`` of an array, as zarr-python writes it.

    Args:
        shape, chunks: shape of the array, and of each of its chunks.
        kind: Zarr's name of the type of the entries.
        fill: the value of entries that no file holds, in JSON types.
        codecs: the codecs of a chunk.
        dimensions: a name for each dimension.
        attributes: the attributes of the array, in JSON types.
    """
    document = {
        "shape": list(shape),
        "data_type": kind,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": list(codecs),
        "attributes": dict(attributes),
        "dimension_names": list(dimensions),
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(document, indent=2, allow_nan=False).encode()


def side_array(folder: Path, values: Array, dimensions: tuple[str, ...]) -> None:
    """Write a small array, with checksums; every chunk is written, so that a lost chunk is noticed.

    Args:
        folder: the folder of the array; it is created.
        values: integers, floats or ``StringDType``, any shape.
        dimensions: a name for each dimension.

    Raises:
        OSError: the file system refused.
    """
    text = values.dtype.kind == "T"
    chunk = tuple(max(1, min(SIDE_CHUNK, size)) for size in values.shape)
    fill = "" if text else "NaN" if values.dtype.kind == "f" else int(np.iinfo(values.dtype.name).max)
    document = array_document(
        values.shape,
        chunk,
        kind="string" if text else values.dtype.name,
        fill=fill,
        codecs=[_NAMES if text else LITTLE_ENDIAN, CHECKSUM],
        dimensions=dimensions,
        attributes={},
    )
    folder.mkdir(parents=True)
    atomic.write_file(folder / "zarr.json", [document])
    for place, part in _chunks(values.shape, chunk):
        path = folder.joinpath("c", *(str(i) for i in place))
        path.parent.mkdir(parents=True, exist_ok=True)
        piece = values[part]
        if piece.shape != chunk:
            whole = np.full(chunk, np.nan if fill == "NaN" else fill, values.dtype)
            whole[tuple(slice(0, size) for size in piece.shape)] = piece
            piece = whole
        data = _packed_names(piece) if text else np.ascontiguousarray(piece, piece.dtype.newbyteorder("<")).tobytes()
        atomic.write_file(path, [data, _COUNT.pack(google_crc32c.value(data))])


def read_side_array(document: Mapping[str, Any], read: Callable[[str], bytes]) -> Array | None:
    """Read an array that :func:`side_array` wrote.

    Args:
        document: the content of the array's ``zarr.json``.
        read: returns the content of a file by its name below the array, such as ``c/0``.

    Returns:
        The array; None if zarr must read it, because it has another form or more than MANY_NAMES strings.

    Raises:
        ValueError: a chunk does not agree with its checksum or with the document.
    """
    shape, kind = tuple(document["shape"]), document["data_type"]
    text = kind == "string"
    if not _is_plain(document) or (text and np.prod(shape) > MANY_NAMES):
        return None
    chunk = tuple(document["chunk_grid"]["configuration"]["chunk_shape"])
    dtype: np.dtype[Any] = np.dtypes.StringDType() if text else np.dtype(kind)
    out = np.empty(shape, dtype)
    for place, part in _chunks(shape, chunk):
        name = "/".join(("c", *(str(i) for i in place)))
        data = read(name)
        body, checksum = data[:-4], data[-4:]
        if checksum != _COUNT.pack(google_crc32c.value(body)):
            raise ValueError(f"{name} does not agree with its checksum")
        found = _unpacked_names(body) if text else np.frombuffer(body, dtype.newbyteorder("<"))
        out[part] = found.reshape(chunk)[tuple(slice(0, s.stop - s.start) for s in part)]
    return out


def _is_plain(document: Mapping[str, Any]) -> bool:
    """Return whether an array is of the form that ``side_array`` writes."""
    text = document["data_type"] == "string"
    return bool(
        document["zarr_format"] == 3
        and document["codecs"] == [_NAMES if text else LITTLE_ENDIAN, CHECKSUM]
        and document["data_type"] in ("string", "int32", "int64", "uint32", "uint64", "float64")
        and document["chunk_grid"]["name"] == "regular"
        and document["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}}
        and not document.get("storage_transformers")
        and document["shape"]
    )


def _chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Return, for each chunk, its position in the grid of chunks and the slices of the array that it covers."""
    counts = [range(-(-size // side)) for size, side in zip(shape, chunk, strict=True)]
    pieces = []
    for place in itertools.product(*counts):
        spans = zip(place, chunk, shape, strict=True)
        pieces.append((place, tuple(slice(i * side, min((i + 1) * side, size)) for i, side, size in spans)))
    return pieces


def _packed_names(names: Array) -> bytes:
    """Return the number of names, then the length and the UTF-8 bytes of each."""
    parts = [_COUNT.pack(names.size)]
    for name in names.ravel().tolist():
        data = name.encode()
        parts += [_COUNT.pack(len(data)), data]
    return b"".join(parts)


def _unpacked_names(data: bytes) -> Array:
    """Return the names that :func:`_packed_names` packed; raise ValueError if lengths and bytes do not agree."""
    try:
        (count,), at, names = _COUNT.unpack_from(data), 4, []
        for _ in range(count):
            (length,) = _COUNT.unpack_from(data, at)
            at += 4 + length
            names.append(data[at - length : at].decode())
    except struct.error as error:
        raise ValueError("a chunk of names ends early") from error
    if at != len(data):
        raise ValueError("a chunk of names does not end with the last one")
    return np.array(names, np.dtypes.StringDType())
