"""Writes and seals the table of a job as Parquet; near pairs are also written as sparse rows in Zarr arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.files import atomic
from storage.graph.units import said_unit, unit_metadata
from storage.matrix.format import TABLE, seal_document, software
from storage.matrix.frame import write_seal
from storage.matrix.side_arrays import side_array
from storage.pairs.saving import POINTS, attributes_of, write_arrays
from storage.tables.pieces import Pieces

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from storage.pairs.near_pairs import NearPairs
    from storage.remote.generation import Generation

#: Number of rows in a row group of the table: to return a page of rows, only the row groups with these rows are read.
ROWS_TOGETHER: Final = 1 << 16


def write_result_table(
    path: str | Path,
    frame: pl.DataFrame | Pieces,
    about: Mapping[str, object],
    pairs: NearPairs | None = None,
    sums: Mapping[str, object] | None = None,
    *,
    points: npt.NDArray[np.generic] | None = None,
    remote: Generation | None = None,
) -> Path:
    """Write and seal the table of a job; its folder, or its objects in an object store, appear whole or not at all.

    Args:
        path: the folder, which must not exist.
        frame: the table, whole or in pieces; its first column names vertices.
        about: attributes of the result: ``result`` (``measures``, ``near`` and so on), attributes of the graph, the
            options asked for, and ``shape``.
        pairs: the same result as sparse rows, which are written beside the table as arrays of Zarr; None for other
            results.
        sums: facts for the summary in addition to the number of rows and the names of columns.
        points: the ids of the points that are sources of ``pairs``, shape (k,), strings; None if vertices are.
        remote: where in an object store the result is sent and sealed; nothing then remains at ``path``.  None to keep
            the result at ``path``.

    Returns:
        The absolute path.

    Raises:
        Conflict: there is something at the path, or another result was sealed at the address.
        StorageFailed: the file system or the object store refused; nothing is at the path.
    """
    target = Path(path).absolute()
    atomic.clear_stale(target)
    staging = atomic.Staging(target)
    folder = staging.folder
    said = unit_metadata(said_unit(about.get("unit")))
    try:
        if pairs is not None:
            write_arrays(pairs, folder)
        if points is not None:
            side_array(folder / POINTS, points, ("point",))
        with (folder / TABLE).open("wb") as out:
            if isinstance(frame, Pieces):
                frame.write_parquet(out, together=ROWS_TOGETHER, said=said)
            else:
                frame.write_parquet(out, compression="zstd", row_group_size=ROWS_TOGETHER, metadata=said)
        data = seal_document(folder, _attributes(frame, about, pairs, sums))
        if remote is not None:
            remote.send_folder(folder, data, staging.check_held)
            sealed, remote = remote, None
            sealed.tidy()
            return target
        write_seal(folder, data)
        staging.publish(replace=False)
    except OSError as error:
        raise atomic.failure("write", folder, error, _size(frame)) from error
    finally:
        staging.discard()
        if remote is not None:
            remote.abandon()
    return target


def _attributes(
    frame: pl.DataFrame | Pieces,
    about: Mapping[str, object],
    pairs: NearPairs | None,
    sums: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the attributes of the result; call this after the table is written, because the number of rows is known
    only then.
    """
    columns = [{"name": name, "type": _type(kind)} for name, kind in frame.schema.items()]
    return {
        **({} if pairs is None else attributes_of(pairs)), **about, "rows": frame.height, "columns": columns,
        "software": software(), "summary": {"rows": frame.height, "columns": list(frame.schema), **(sums or {})},
    }  # fmt: skip


def _size(frame: pl.DataFrame | Pieces) -> int:
    """Return the approximate number of bytes of the table, for messages."""
    return 8 * frame.height * len(frame.schema) if isinstance(frame, Pieces) else int(frame.estimated_size())


def _type(kind: pl.DataType) -> str:
    """Return what a column holds: ``integer``, ``number`` or ``text``."""
    return "integer" if kind.is_integer() else "number" if kind.is_float() else "text"
