"""Writes a result as an Open Matrix file (OMX 0.2), which programs of transport models read: HDF5, some rows at a time.

``/data`` holds a float64 matrix ``distance`` and one for each quantity, called like its column in a long table.  A
missing path is NaN, as the attribute ``NA`` says.  The attribute ``unit`` is the unit of the distances, if it is known.
``/lookup`` holds the names of the vertices: ``vertex`` where rows and columns are the same vertices, else ``source``
(``DIM`` 0, rows) and ``target`` (``DIM`` 1, columns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from service.views.representations import Selection, column_name
from storage.errors import InvalidRequest

Array = npt.NDArray[Any]

VERSION: Final = b"0.2"
#: Rows that are read and written together: as many as a tile of a store has.
_ROWS: Final = 64
#: Columns of a chunk: a chunk of ``_ROWS`` x ``_COLUMNS`` float64 entries has 256 KiB.
_COLUMNS: Final = 512


def check_omx() -> None:
    """Raise InvalidRequest if h5py, which writes the file, is not installed."""
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise InvalidRequest(
            f"-o: OMX files are written by h5py, which is not here ({error}): pip install 'apsp[omx]'", field="-o"
        ) from None


def write_omx(rows: Selection, path: Path, tell: Callable[[int], None]) -> None:
    """Write all matrices of a result.

    Args:
        rows: the rows and columns to write.
        path: the file.
        tell: called after each batch with the number of its rows.

    Raises:
        OSError: the file cannot be written.
    """
    import h5py

    matrix = rows.result.matrix
    shape = len(rows.sources), rows.width
    with h5py.File(path, "w") as file:
        file.attrs["OMX_VERSION"] = np.bytes_(VERSION)
        file.attrs["SHAPE"] = np.array(shape, np.int32)
        data, lookup = file.create_group("data"), file.create_group("lookup")
        chunks = min(_ROWS, shape[0]), min(_COLUMNS, shape[1])
        tables = list[Any]()
        for name in ("distance", *map(column_name, matrix.also)):
            table = data.create_dataset(name, shape, np.float64, chunks=chunks, compression="gzip", compression_opts=1)
            table.attrs["NA"] = np.nan
            if matrix.unit is not None and not tables:  # the first matrix holds the distances
                table.attrs["unit"] = matrix.unit
            tables.append(table)
        targets = matrix.targets if rows.targets is None else rows.targets
        _write_lookups(lookup, matrix.labels, rows.sources, targets)
        for first, blocks in _bands(rows, targets):
            for table, block in zip(tables, blocks, strict=True):
                table[first : first + len(block)] = block
            tell(len(blocks[0]))


def _bands(rows: Selection, targets: Array) -> Iterator[tuple[int, list[Array]]]:
    """Yield the number of the first row of a band, and the entries of each matrix, float64, NaN for no path."""
    matrix = rows.result.matrix
    columns = None if rows.targets is None else matrix.target_positions(targets)
    for first in range(0, len(rows.sources), _ROWS):
        some = rows.sources[first : first + _ROWS]
        blocks = []
        for one in (matrix, *matrix.also.values()):
            entries = one.rows(some) if columns is None else one.rows(some)[:, columns]
            numbers = _floats(entries)
            numbers[entries == one.unreachable] = np.nan
            blocks.append(numbers)
        yield first, blocks


def _floats(entries: Array) -> Array:
    """Return entries as float64.  A float32 entry is converted by way of its shortest decimal text, so that 0.1 stays
    0.1.
    """
    if entries.dtype != np.float32:
        return entries.astype(np.float64)
    return entries.astype(np.dtypes.StringDType()).astype(np.float64)


def _write_lookups(group: Any, labels: Array, sources: Array, targets: Array) -> None:
    if np.array_equal(sources, targets):
        group.create_dataset("vertex", data=_names(labels[sources]))
        return
    for dimension, (name, vertices) in enumerate((("source", sources), ("target", targets))):
        written = group.create_dataset(name, data=_names(labels[vertices]))
        written.attrs["DIM"] = np.int32(dimension)


def _names(labels: Array) -> Array:
    """Return labels as HDF5 takes them: numbers unchanged, texts as UTF-8 strings of a fixed width."""
    if labels.dtype.kind in "iu":
        return labels
    return np.array([str(label).encode() for label in labels])
