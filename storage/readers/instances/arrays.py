"""Matrices of NumPy and SciPy: dense ``.npy``, sparse ``.npz``; row i, column j is the arc i -> j, vertices from 0.

In a dense matrix, 0 (by SciPy's convention for dense graphs) and +inf mean no arc, and ``True`` is an arc of weight 1.
In a sparse matrix, each stored number is an arc, even 0; a stored ``False`` is no arc.  Before anything is allocated,
the size that a header declares is compared with the number of bytes that follow.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, ArcList, IntArray
from storage.readers.columns import ArcColumns
from storage.readers.left_out import LeftOut
from storage.readers.limits import check_plausible
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.no_lengths import (
    note_triangle,
    refuse_correlations,
    refuse_signs_of_nothing,
    refuse_triangle,
)

#: Exceptions that NumPy raises for damaged headers of arrays, which it parses as Python literals.
_BAD_HEADER = (ValueError, TypeError, LookupError, SyntaxError, tokenize.TokenError, RecursionError, Warning)
#: Exceptions that ZIP archives and their decompressors raise for damaged bytes.
_BAD_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ValueError, LookupError, NotImplementedError, RuntimeError),
)
#: Number of entries of a dense matrix that are read at a time.
_SLAB = 1 << 20


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a dense or a sparse matrix; raises the errors of ``read_graph``."""
    options.refuse_weight("NumPy")
    with source.local() as path:
        return _read_dense(path, options) if source.start.startswith(b"\x93NUMPY") else _read_sparse(path, options)


def _npy_header(file: IO[bytes], size: int, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return the shape and type of an array; refuse arrays of objects, and headers that do not fit a file of ``size``
    bytes.
    """
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except _BAD_HEADER as error:
        why = f"{error} ".splitlines()[0][:200].strip()
        raise InvalidGraph(f"{name} is no array: its header cannot be read: {why}", field=name) from None
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise InvalidGraph(f"{name} has a shape of {shape}", field=name)
    if dtype.hasobject or dtype.kind not in "biufUS":
        raise InvalidGraph(f"{name} holds {dtype}, not numbers", field=name)
    promised = math.prod(shape) * dtype.itemsize
    if promised != size - file.tell():
        raise InvalidGraph(
            f"the header of {name} promises {promised:,} bytes ({dtype}, shape {shape}), "
            f"but {size - file.tell():,} follow",
            field=name,
        )
    return shape, dtype


def _read_dense(path: Path, options: ReadOptions) -> Parsed:
    with path.open("rb") as file:
        shape, dtype = _npy_header(file, path.stat().st_size, "the array")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidGraph(f"a graph needs a square matrix, this one has shape {shape}", field="shape")
    if dtype.kind not in "biuf":
        raise InvalidGraph(f"the array holds {dtype}, not numbers", field="dtype")
    n = shape[0]
    options.limits.check_vertices(n)
    matrix = np.load(path, mmap_mode="r", allow_pickle=False) if n else np.zeros((0, 0))
    columns = ArcColumns(options.limits, dtype.kind != "b" and not options.unweighted)
    step = max(1, _SLAB // max(1, n))
    for top in range(0, n, step):
        slab = matrix[top : top + step]
        _check_lengths(slab, top)
        present = (slab != 0) if dtype.kind != "f" else (slab != 0) & (slab != np.inf)
        rows, heads = np.nonzero(present)
        columns.append(rows + top, heads, _as_weights(slab[rows, heads]))
    entries, arcs = len(columns), columns.take()
    refuse_correlations(arcs, n)
    refuse_signs_of_nothing(arcs)
    notes = refuse_triangle(arcs, n) if options.directed is None else []
    return Parsed(arcs, np.arange(n, dtype=np.int64), directed=True, entries=entries, notes=notes)


def _check_lengths(slab: AnyArray, top: int) -> None:
    if slab.dtype.kind != "f":
        return
    wrong = np.isnan(slab) | (slab == -np.inf)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidGraph(
            f"the entry in row {row + top}, column {column} is {slab[row, column]}; no arc is written 0 or inf",
            field=f"[{row + top}, {column}]",
        )


def _as_weights(values: AnyArray) -> AnyArray:
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    if values.dtype == np.uint64 and len(values) and int(values.max()) >= 2**63:
        raise InvalidGraph(f"weight {values.max()} is beyond 2^53, so sums would not be exact", field="weight")
    return values.astype(np.int64)


def _read_sparse(path: Path, options: ReadOptions) -> Parsed:
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, path.stat().st_size, options)
    except _BAD_ARCHIVE as error:
        raise InvalidGraph(f"the .npz archive is damaged: {error}") from None


def _read_archive(archive: zipfile.ZipFile, size: int, options: ReadOptions) -> Parsed:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise InvalidGraph("a member of the .npz archive is there twice", field="archive")
    options.limits.check_bytes(sum(info.file_size for info in members.values()), size)
    for name in ("format", "shape", "data"):
        if name not in members:
            raise InvalidGraph(f"{name}.npy is missing: this is no matrix of scipy.sparse.save_npz", field=name)
    written = _member(archive, members["format"])
    if written.size != 1:
        raise InvalidGraph(f"format.npy holds {written.size} values, not one", field="format")
    form = written.item()
    form = form.decode("ascii", "replace") if isinstance(form, bytes) else str(form)
    needed = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(form)
    if needed is None:
        raise InvalidGraph(f"a matrix of format {form!r}; save it as csr, csc or coo", field="format")
    for name in needed:
        if name not in members:
            raise InvalidGraph(f"{name}.npy is missing", field=name)
    sizes = _member(archive, members["shape"])
    shape = sizes.ravel()[:8].tolist()
    if sizes.dtype.kind not in "iu" or len(shape) != 2 or shape[0] != shape[1] or shape[0] < 0:
        raise InvalidGraph(f"a graph needs a square matrix, this one has shape {tuple(shape)}", field="shape")
    n = shape[0]
    options.limits.check_vertices(n)
    data = _member(archive, members["data"])
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise InvalidGraph(f"the weights are {data.dtype} of {data.ndim} axes", field="data")
    options.limits.check_arcs(len(data))
    check_plausible(n, len(data), None)
    pair = [_whole_member(archive, members[name], name) for name in needed]
    rows, heads = _coordinates(form, pair, n, len(data))
    others = LeftOut("members of the archive")
    others.add(sorted(members.keys() - {"format", "shape", "data", "_is_array", *needed}))
    weights = None if options.unweighted or data.dtype.kind == "b" else _as_weights(data)
    if data.dtype.kind == "b":
        rows, heads = rows[data], heads[data]
    arcs, labels = ArcList(rows, heads, weights), np.arange(n, dtype=np.int64)
    refuse_correlations(arcs, n)
    notes = [*others.notes(), *(note_triangle(arcs, n) if options.directed is None else [])]
    return Parsed(arcs, labels, directed=True, entries=len(rows), notes=notes)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> AnyArray:
    name = info.filename
    with archive.open(info) as file:
        _npy_header(file, info.file_size, name)
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _whole_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> IntArray:
    array = _member(archive, info)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidGraph(f"{name} must hold whole numbers, not {array.dtype} of {array.ndim} axes", field=name)
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise InvalidGraph(f"{name}: {array.max()} is beyond the range of int64", field=name)
    return array.astype(np.int64, copy=False)


def _coordinates(form: str, pair: list[IntArray], n: int, entries: int) -> tuple[IntArray, IntArray]:
    """Return the row and the column index of each entry, after checking that all indices lie within the matrix."""
    first, second = pair
    if form != "coo":
        indices, indptr = pair
        if len(indptr) != n + 1 or indptr[0] != 0 or indptr[-1] != entries or bool(np.any(np.diff(indptr) < 0)):
            raise InvalidGraph(f"indptr does not ascend from 0 to {entries} in {n + 1} steps", field="indptr")
        lines = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
        first, second = (lines, indices) if form == "csr" else (indices, lines)
    for name, index in (("row", first), ("column", second)):
        if len(index) != entries:
            raise InvalidGraph(f"{entries} weights, but {len(index)} {name} indices", field=name)
        if entries and not (index.min() >= 0 and index.max() < n):
            wrong = index.min() if index.min() < 0 else index.max()
            raise InvalidGraph(f"{name} index {wrong} is outside 0 .. {n - 1}", field=name)
    return first, second
