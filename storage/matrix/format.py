"""The parts of a matrix store: names, codecs, fill values, the metadata of the root and its seal.

The store is a Zarr v3 group.  Its root ``zarr.json`` is the seal.  The seal is written last, and neither this program
nor any Zarr client opens a store without seal.  The seal holds the attributes, the summary, the consolidated metadata,
size and checksum of every file but the tiles (``manifest`` has the checksums of tiles), and a digest of itself.
If the last four bytes of a file are the CRC-32C of all bytes before them, the CRC-32C of the whole file is the same
number (``_RESIDUE``) for any content.  So for such files the seal also has the CRC-32C of all bytes but the last four.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest, StorageFailed, raised
from storage.files.checksum import crc32c
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid
from storage.matrix.side_arrays import CHECKSUM, LITTLE_ENDIAN, array_document
from storage.semirings import MIN_PLUS, SEMIRINGS, semiring_of
from storage.version import VERSION

#: Newest version of a store.  It rises when readers of earlier versions would misread new stores; each store has the
#: lowest version that is safe.  In version 1, the columns of the matrix are all vertices.  Version 2 has selected
#: columns, which a reader of version 1 would take for all vertices.  Version 3 has a graph with terminals; routes of a
#: reader of version 2 would pass through these.  Version 4 is a prepared graph, which has tables instead of a matrix.
#: Version 5 is a table of measures or of near pairs, which has no matrix either.  Version 6 has further arrays, whose
#: tiles a reader of version 5 would neither check nor copy.  Version 7 has values of a semiring other than min-plus,
#: which a reader of version 6 would take for distances.  Version 8 is a prepared graph in the compact form, which has
#: no tables.
FORMAT_VERSION: Final = 8
_SEMIRING_VERSION: Final = 7
DISTANCES: Final = "distances"
#: The name of the group of further arrays (sums of quantities along paths), and of the attribute that has their types.
ALSO: Final = "also"
_ALSO_VERSION: Final = 6
#: The array that a prepared graph has unless it is in the compact form (``storage.prepared``), and the version of its
#: store.
TABLES: Final = "tables/forward"
_PREPARED_VERSION: Final = 4
#: The array that a prepared graph in the compact form has instead of tables, and the version of its store.
CLOSED_PARTS: Final = "tables/closed"
_COMPACT_VERSION: Final = 8
#: The file with the rows of a table of a job, such as measures (``storage.tables``), and the version of its store.
TABLE: Final = "table.parquet"
_TABLE_VERSION: Final = 5
ROOT_DOCUMENT: Final = "zarr.json"
COMPRESSIONS: Final = ("none", "zstd")
#: Compression level of Zstandard.  Blosc shuffles the bytes of entries first; without the shuffle, files are larger and
#: slower to read.
ZSTD_LEVEL: Final = 3
_CHECK_BYTES: Final = 1 << 22
#: The residue of CRC-32C: the CRC-32C of any bytes whose last four are the CRC-32C of all preceding bytes.
_RESIDUE: Final = 0x48674BC7

Array = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]


class FileMark(NamedTuple):
    """The size and the checksums of a file, as a seal has them.

    Attributes:
        size: bytes of the file.
        checksum: CRC-32C of all bytes.
        content: CRC-32C of all bytes but the last four, if these are the file's own CRC-32C; else equal to
            ``checksum``.
    """

    size: int
    checksum: int
    content: int

    @classmethod
    def of(cls, size: int, checksum: int, last: bytes) -> FileMark:
        """Return the mark of a file whose last four bytes are ``last``."""
        return cls(size, checksum, int.from_bytes(last, "little") if checksum == _RESIDUE else checksum)

    def agrees(self, sealed: FileMark) -> bool:
        """Return whether a file with this mark agrees with ``sealed``, its mark in a seal.

        Seals of old versions of this program have no ``content``, so they cannot distinguish files of the same size
        that end with their own CRC-32C.
        """
        return self[:2] == sealed[:2] and (self.content == sealed.content or not sealed.told)

    @property
    def told(self) -> bool:
        """Whether the mark distinguishes the file from other files of the same size."""
        return self.content != _RESIDUE


def data_mark(data: bytes | Array) -> FileMark:
    """Return the mark of a file whose content is ``data``."""
    return FileMark.of(len(data), crc32c(data), bytes(data[-CHECKSUM_BYTES:]))


def file_mark(path: Path) -> FileMark:
    """Return the mark of a file.  Raises OSError."""
    size, checksum, last = 0, 0, b""
    with path.open("rb") as file:
        while data := file.read(_CHECK_BYTES):
            size += len(data)
            checksum = crc32c(data, checksum)
            last = (last + data[-CHECKSUM_BYTES:])[-CHECKSUM_BYTES:]
    return FileMark.of(size, checksum, last)


def sealed_files(seal: Mapping[str, Any]) -> dict[str, FileMark]:
    """Return the mark of each file that a seal names.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the seal is not understood.
    """
    contents, files = seal.get("contents") or {}, seal["files"]
    return {
        str(name): FileMark(int(size), int(checksum), int(contents.get(name, checksum)))
        for name, (size, checksum) in files.items()
    }


def fill_value(dtype: np.dtype[np.generic], unreachable: float) -> Any:
    """Return the value that a Zarr client reads in place of a lost tile: NaN for floats, the type's maximum for
    integers.

    These values cannot be mistaken for a distance or for *unreachable*.  Raises InvalidRequest if ``unreachable`` is
    the maximum of an integer type.
    """
    if dtype.kind == "f":
        return float("nan")
    largest = _largest(dtype)
    if unreachable >= largest:
        raise InvalidRequest(
            f"the sentinel {unreachable} of {dtype.name} must lie below {largest}, which marks lost tiles",
            field="unreachable",
        )
    return largest


def _largest(dtype: np.dtype[np.generic]) -> int:
    return int(np.iinfo(dtype.name).max)


def compress(tile: Array) -> bytes:
    """Return the compressed form of a C-contiguous tile, as Zarr's Blosc codec reads it."""
    from numcodecs import blosc

    return bytes(blosc.compress(tile, b"zstd", ZSTD_LEVEL, blosc.SHUFFLE))


def decompress(data: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return the entries of a compressed tile as an array of one dimension."""
    from numcodecs import blosc

    return np.frombuffer(blosc.decompress(data), dtype)


def distances_document(grid: TileGrid, attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of the array ``distances``, whose tiles ``MatrixWriter`` writes.

    Args:
        grid: shape and tiles of the matrix.
        attributes: the attributes of the store; type, unreachable, unit and compression are used.
    """
    dtype: np.dtype[np.generic] = np.dtype(attributes["type"])
    shuffled = {"typesize": dtype.itemsize, "cname": "zstd", "clevel": ZSTD_LEVEL, "shuffle": "shuffle", "blocksize": 0}
    packed = [] if attributes["compression"] == "none" else [{"name": "blosc", "configuration": shuffled}]
    about = {name: plain(attributes[name]) for name in ("unit", "unreachable")}
    semiring = semiring_of(attributes)
    long_name = "shortest-path distance" if semiring == MIN_PLUS else f"{SEMIRINGS[semiring].title}, {semiring}"
    return array_document(
        grid.shape,
        grid.tile,
        kind=dtype.name,
        fill=plain(fill_value(dtype, attributes["unreachable"])),
        codecs=[LITTLE_ENDIAN, *packed, CHECKSUM],
        dimensions=("source", "target"),
        attributes={"long_name": long_name, **about},
    )


def quantity_document(grid: TileGrid, name: str, attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of the array with the sums of a quantity along paths.

    Args:
        grid: shape and tiles of the matrix.
        name: name of the quantity.
        attributes: the attributes of the store: its compression, and type and unreachable of the quantity are used.
    """
    about = attributes[ALSO][name]
    document = json.loads(distances_document(grid, {**attributes, **about, "unit": name}))
    document["attributes"] = {
        "long_name": f"{name}, summed along the shortest path",
        "unreachable": plain(about["unreachable"]),
    }
    return json.dumps(document, indent=2, allow_nan=False).encode()


def software() -> str:
    """Return name and version of this program, for the attributes of a store."""
    return f"apsp {VERSION}"


def plain(value: object) -> Any:
    """Return ``value`` as strict JSON types; as in Zarr, NaN and infinities become the texts "NaN", "Infinity" and
    "-Infinity".
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def consolidated(folder: Path, tiles: Collection[Path] = ()) -> dict[str, object]:
    """Return the consolidated metadata of all nodes below ``folder``, as zarr-python writes it.

    Args:
        folder: the folder of the store.
        tiles: folders below ``folder`` that hold only tiles; they are not visited.
    """
    nodes = {}
    for document in _files(folder, tiles):
        if document.name == ROOT_DOCUMENT and document.parent != folder:
            nodes[document.parent.relative_to(folder).as_posix()] = json.loads(document.read_bytes())
    return {"kind": "inline", "must_understand": False, "metadata": nodes}


def group_document(attributes: Mapping[str, object], metadata: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return the ``zarr.json`` of a Zarr v3 group, with consolidated metadata if ``metadata`` is given."""
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": plain(attributes)}
    if metadata is not None:
        document["consolidated_metadata"] = metadata
    return document


def seal_document(folder: Path, attributes: Mapping[str, object], known: Mapping[str, FileMark] | None = None) -> bytes:
    """Return the bytes of the root document that seals the store in ``folder``; all other files exist already.

    Args:
        folder: the folder of the store.
        attributes: the attributes of the root.
        known: marks of files that need not be read again, by their names in the folder.
    """
    known, further = known or {}, list(plain(attributes.get(ALSO) or {}))
    tiles = {folder / DISTANCES / "c", *(folder / ALSO / name / "c" for name in further)}
    files, contents = {}, {}
    for path in _files(folder, tiles):
        name = path.relative_to(folder).as_posix()
        mark = known[name] if name in known else file_mark(path)
        files[name] = mark[:2]
        if mark.content != mark.checksum:
            contents[name] = mark.content
    document = group_document(attributes, consolidated(folder, tiles))
    version = 3 if attributes.get("terminals") else 1 if attributes.get("targets", "all") == "all" else 2
    version = _ALSO_VERSION if further else version
    version = version if semiring_of(attributes) == MIN_PLUS else _SEMIRING_VERSION
    version = _PREPARED_VERSION if (folder / TABLES).is_dir() else _TABLE_VERSION if TABLE in files else version
    version = _COMPACT_VERSION if (folder / CLOSED_PARTS).is_dir() else version
    document["attributes"]["seal"] = {"version": version, "files": files, "contents": contents}
    document["attributes"]["seal"]["digest"] = _digest(document)
    return json.dumps(document, indent=1, allow_nan=False).encode()


def _files(folder: Path, left_out: Collection[Path]) -> list[Path]:
    """Return all files below ``folder``, sorted, except those in the folders ``left_out``, which are not visited.

    Raises OSError if a folder cannot be listed: otherwise the seal would lack the folder's files and look complete.
    """
    found = []
    for root, folders, names in os.walk(folder, onerror=raised):
        here = Path(root)
        folders[:] = [name for name in folders if here / name not in left_out]
        found += [path for name in names if (path := here / name).is_file()]
    return sorted(found)


def is_foreign(data: bytes) -> bool:
    """Return whether a root document is valid JSON without a seal, as Zarr stores of other programs have."""
    try:
        document = json.loads(data)
    except ValueError:
        return False
    attributes = document.get("attributes") if isinstance(document, dict) else None
    return not (isinstance(attributes, dict) and "seal" in attributes)


def is_prepared(data: bytes) -> bool:
    """Return whether a root document belongs to a prepared graph, in the compact form or with tables."""
    try:
        metadata = json.loads(data)["consolidated_metadata"]["metadata"]
        return TABLES in metadata or CLOSED_PARTS in metadata
    except (ValueError, KeyError, TypeError):
        return False


def is_compact(data: bytes) -> bool:
    """Return whether a root document belongs to a prepared graph in the compact form."""
    return is_prepared(data) and CLOSED_PARTS in json.loads(data)["consolidated_metadata"]["metadata"]


def is_table(data: bytes) -> bool:
    """Return whether a root document belongs to a result in rows, such as a table of measures or of near pairs."""
    try:
        return TABLE in json.loads(data)["attributes"]["seal"]["files"]
    except (ValueError, KeyError, TypeError):
        return False


def read_seal(path: Path | str, data: bytes, holds: str | None = DISTANCES) -> dict[str, Any]:
    """Parse the root document and check its seal.

    Args:
        path: the path of the store, for errors.
        data: the root document.
        holds: what the store must have: ``DISTANCES``, ``TABLES`` or ``TABLE``; None if any of them will do.

    Raises:
        StorageFailed: the seal is damaged, or the store lacks ``holds``; the message names ``path`` and the reason.
    """
    try:
        document = json.loads(data)
        seal = document["attributes"]["seal"]
        found, stated = seal["version"], seal.pop("digest")
        metadata = document["consolidated_metadata"]["metadata"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFailed(
            f"{path} is no sealed matrix store: its {ROOT_DOCUMENT} is not understood ({error!r})"
        ) from None
    if found not in range(1, FORMAT_VERSION + 1):
        raise StorageFailed(f"{path} has store version {found}; this program reads versions 1 to {FORMAT_VERSION}")
    names = {DISTANCES: DISTANCES, TABLES: TABLES, CLOSED_PARTS: TABLES}
    there = [kind for name, kind in names.items() if name in metadata] + [TABLE] * (TABLE in (seal.get("files") or ()))
    if _digest(document) == stated and holds == DISTANCES and there == [TABLES]:
        raise StorageFailed(f"{path} is a prepared graph, which has no tiles; open it with apsp.open or apsp query")
    if _digest(document) == stated and holds in (DISTANCES, TABLES) and there == [TABLE]:
        raise StorageFailed(
            f"{path} is a table of measures or near pairs, which has no distances of all pairs; read its {TABLE}"
        )
    if _digest(document) != stated or holds not in (None, *there) or not there:
        raise StorageFailed(f"{path} is damaged: {ROOT_DOCUMENT} does not agree with its own digest")
    seal["digest"] = stated
    return dict(document)


def _digest(document: Mapping[str, object]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
