"""Saves near pairs in files: a Zarr group or a NumPy file for programs that compute, a table for all other uses."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.arguments import check_flags, check_given_paths, check_texts, shown
from storage.errors import Conflict, InvalidRequest, NotFound
from storage.files import atomic
from storage.files.writing import Writing
from storage.graph.units import unit_metadata
from storage.matrix.format import ROOT_DOCUMENT
from storage.matrix.frame import consolidate
from storage.matrix.side_arrays import side_array
from storage.pairs.near_pairs import NearPairs
from storage.tables.pieces import Pieces

if TYPE_CHECKING:
    import polars as pl

#: Maximum size of the labels in a NumPy file, in bytes; each label takes as much space as the longest one.
MOST_NAMES: Final = 1 << 30
#: Maximum number of rows of a table that are made at a time.
MOST_ROWS: Final = 1 << 22
#: Value of the attribute ``kind`` of a Zarr group that holds near pairs.
KIND: Final = "near-pairs"
#: Arrays of the group: the vertex index of each row, and the labels of all vertices.
SOURCES: Final = "sources"
LABELS: Final = "vertex"
#: Array beside those of the group: the ids of the points that the sources of a job are, if they are points.
POINTS: Final = "points"
#: File formats by the ending of the name, each with a description.
FORMS: Final = {
    ".zarr": "Zarr group", ".npz": "file of NumPy", ".parquet": "Parquet table", ".csv": "CSV table",
}  # fmt: skip


def check_pairs_target(path: str | Path, *, overwrite: bool, forms: Mapping[str, str] = FORMS) -> Path:
    """Check that near pairs can be saved at a path, and return the absolute path.

    Args:
        path: the path; its ending decides the format.
        overwrite: whether a file, or a group of near pairs, may be replaced.
        forms: the accepted endings, each with a description of its format.

    Raises:
        InvalidRequest: the ending is not that of any format.
        NotFound: the parent folder does not exist.
        Conflict: there is a file or folder at the path that may not be replaced.
    """
    target = Path(path).absolute()
    if target.suffix not in forms:
        known = ", ".join(f"{ending} ({form})" for ending, form in forms.items())
        raise InvalidRequest(f"{target.name}: the ending decides the format; known are {known}", field="out")
    if not target.parent.is_dir():
        raise NotFound(f"the folder {target.parent} does not exist")
    if not target.exists() and not target.is_symlink():
        return target
    if not overwrite:
        raise Conflict(f"{target} exists already; choose another path or ask for it to be overwritten")
    if target.is_dir() and not _is_group(target):
        raise Conflict(f"{target} is a folder that holds no near pairs and is not replaced; choose another path")
    return target


def save_pairs(pairs: NearPairs, path: str | Path, *, overwrite: bool = False, unit: str | None = None) -> Path:
    """Save near pairs; the file or folder appears whole, or not at all.

    ``scipy.sparse.load_npz`` reads the ``.npz`` file, which also holds ``labels`` and ``sources``.  A table has the
    columns source, target and distance, where source and target are labels of vertices.

    Args:
        pairs: the pairs.
        path: ends with ``.zarr``, ``.npz``, ``.parquet`` or ``.csv``.
        overwrite: whether a file, or a group of near pairs, may be replaced.
        unit: what the distances measure, which is stored in the metadata of a Zarr group (``unit``) and of Parquet
            (``distance_unit``).  None if that is not known.

    Returns:
        The absolute path.

    Raises:
        InvalidRequest, NotFound, Conflict: as for :func:`check_pairs_target`.
        StorageFailed: the file system refused.
    """
    if not isinstance(pairs, NearPairs):
        raise InvalidRequest(f"pairs must be NearPairs, found {shown(pairs)}; near_pairs finds them", field="pairs")
    check_flags(overwrite=overwrite)
    check_texts(unit=unit)
    check_given_paths(path=path)
    target = check_pairs_target(path, overwrite=overwrite)
    with Writing(target, "near"):
        check_pairs_target(target, overwrite=overwrite)
        if target.suffix == ".zarr":
            _save_group(pairs, target, {"unit": unit} if unit else {}, overwrite=overwrite)
            return target
        writers: dict[str, Callable[[NearPairs, io.BufferedWriter], None]] = {
            ".npz": _write_npz,
            ".parquet": partial(_write_parquet, unit=unit),
            ".csv": _write_csv,
        }
        write = writers[target.suffix]
        save_file(target, lambda out: write(pairs, out), pairs.entries * 16)
    return target


def _save_group(pairs: NearPairs, target: Path, said: Mapping[str, str], *, overwrite: bool) -> None:
    atomic.clear_stale(target)
    staging = atomic.Staging(target)
    folder = staging.folder
    try:
        write_arrays(pairs, folder)
        consolidate(folder, {**attributes_of(pairs), **said})
        atomic.sync_tree(folder)
        staging.publish(replace=overwrite)
    except OSError as error:
        raise atomic.failure("write", folder, error) from error
    finally:
        staging.discard()


def write_arrays(pairs: NearPairs, folder: Path) -> None:
    """Write near pairs as arrays of Zarr, each in a folder of its own below ``folder``.  Raises OSError."""
    for name, values, dimension in (
        ("indptr", pairs.indptr, "boundary"),
        ("indices", pairs.indices, "entry"),
        ("data", pairs.lengths, "entry"),
        (SOURCES, pairs.sources, "row"),
        (LABELS, pairs.labels, "vertex"),
    ):
        side_array(folder / name, values, (dimension,))


def attributes_of(pairs: NearPairs) -> dict[str, object]:
    """Return the attributes of a Zarr group of near pairs."""
    shape = [len(pairs.sources), len(pairs.labels)]
    return {"kind": KIND, "shape": shape, "cutoff": pairs.cutoff, "nearest": pairs.nearest, "form": "csr"}


def _is_group(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / ROOT_DOCUMENT).read_bytes())["attributes"]["kind"] == KIND)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def save_file(target: Path, write: Callable[[io.BufferedWriter], None], size: int) -> None:
    """Write a file, which appears whole or not at all.

    Args:
        target: the file.
        write: writes the content to the open file that it is passed.
        size: approximate number of bytes of the content, for messages.

    Raises:
        StorageFailed: the file system refused.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
        atomic.sync_path(target.parent)
    except OSError as error:
        raise atomic.failure("write", target, error, size) from error
    finally:
        part.unlink(missing_ok=True)


def _write_npz(pairs: NearPairs, out: io.BufferedWriter) -> None:
    names = pairs.labels.tolist()
    longest = max((len(name) for name in names), default=0) if pairs.labels.dtype.kind != "i" else 0
    if 4 * longest * len(names) > MOST_NAMES:
        raise InvalidRequest(
            f"a name has {longest:,} characters, and a file of NumPy would give as many to each of {len(names):,} "
            "names; save the pairs as .zarr, .parquet or .csv",
            field="out",
        )
    labels = pairs.labels if pairs.labels.dtype.kind == "i" else np.array(names, f"<U{max(1, longest)}")
    np.savez(
        out,
        format=np.array(b"csr"),
        shape=np.array([len(pairs.sources), len(pairs.labels)], np.int64),
        _is_array=np.array(True),
        data=pairs.lengths,
        indices=pairs.indices,
        indptr=pairs.indptr,
        sources=pairs.sources,
        labels=labels,
    )


def frame_of_pairs(pairs: NearPairs) -> pl.DataFrame:
    """Return near pairs as a table with the columns source and target (labels) and distance, in the order of rows."""
    return next(frames_of_pairs(pairs, max(1, pairs.entries)))


def frames_of_pairs(pairs: NearPairs, most: int) -> Iterator[pl.DataFrame]:
    """Yield near pairs as tables of up to ``most`` rows, in the form of :func:`frame_of_pairs`; if there are no pairs,
    one empty table.
    """
    import polars as pl

    names = pl.Series(pairs.labels if pairs.labels.dtype.kind == "i" else pairs.labels.tolist())
    for first in range(0, max(1, pairs.entries), most):
        last = min(first + most, pairs.entries)
        low, high = np.searchsorted(pairs.indptr, first, "right") - 1, np.searchsorted(pairs.indptr, last)
        bounds = np.clip(pairs.indptr[low : high + 1], first, last)
        ends = np.repeat(pairs.sources[low:high], np.diff(bounds))
        here = slice(first, last)
        yield pl.DataFrame({
            "source": names[ends], "target": names[np.asarray(pairs.indices[here])],
            "distance": np.asarray(pairs.lengths[here]),
        })  # fmt: skip


def _write_parquet(pairs: NearPairs, out: io.BufferedWriter, unit: str | None) -> None:
    said = unit_metadata(unit)
    if pairs.entries <= MOST_ROWS:
        frame_of_pairs(pairs).write_parquet(out, compression="zstd", metadata=said)
        return
    Pieces(frames_of_pairs(pairs, MOST_ROWS)).write_parquet(out, said=said)


def _write_csv(pairs: NearPairs, out: io.BufferedWriter) -> None:
    for k, frame in enumerate(frames_of_pairs(pairs, MOST_ROWS)):
        frame.write_csv(out, include_header=k == 0)
