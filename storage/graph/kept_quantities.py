"""Saves the quantities of a graph in the folder of ``save_graph``: an array file with a checksum for each quantity."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import InvalidRequest, StorageFailed
from storage.graph.cleaning import AnyArray, check_quantity_name, chunks


def save_quantities(quantities: Mapping[str, AnyArray], folder: Path) -> list[dict[str, Any]]:
    """Write each quantity into a separate file, and return a description for :func:`load_quantities`, as JSON types.

    The names of the files are numbers, because the name of a quantity may not be allowed for a file.

    Args:
        quantities: numbers of every arc by name, shape (arcs,) each.
        folder: an existing folder.
    """
    kept = []
    for number, (name, values) in enumerate(quantities.items()):
        whole = np.ascontiguousarray(values)
        np.save(folder / _file(number), whole, allow_pickle=False)
        kept.append({"name": name, "type": whole.dtype.str, "crc32": _checksum(whole)})
    return kept


def load_quantities(kept: Sequence[Mapping[str, Any]], folder: Path, arcs: int) -> dict[str, AnyArray]:
    """Return the quantities by name, in the order in which they were saved, memory-mapped.  Every byte is read once, to
    compare the checksums.

    Args:
        kept: the description that :func:`save_quantities` returned.
        folder: the folder that holds the files.
        arcs: the number of arcs, which is the length of each array.

    Raises:
        StorageFailed: a file is damaged or truncated, or belongs to a different graph.
        OSError, ValueError, KeyError, TypeError: a file is missing, or ``kept`` is damaged.
    """
    found: dict[str, AnyArray] = {}
    for number, about in enumerate(kept):
        path, name = folder / _file(number), str(about["name"])
        try:
            check_quantity_name(name)
        except InvalidRequest as error:
            raise StorageFailed(f"{folder} is damaged: {error}") from None
        values: AnyArray = np.load(path, mmap_mode="r" if arcs else None, allow_pickle=False)
        if values.shape != (arcs,) or values.dtype.str != about["type"] or values.dtype.kind not in "if":
            shown = f"{values.dtype} of shape {values.shape}"
            raise StorageFailed(f"{path} is damaged: {shown} where quantity {name!r} has {arcs} of {about['type']}")
        if _checksum(values) != about["crc32"] or name in found:
            raise StorageFailed(f"{path} is damaged: quantity {name!r} does not agree with its checksum")
        found[name] = values
    return found


def _file(number: int) -> str:
    return f"quantity-{number}.npy"


def _checksum(values: AnyArray) -> int:
    found = 0
    for part in chunks(len(values)):
        found = zlib.crc32(np.ascontiguousarray(values[part]).data, found)
    return found
