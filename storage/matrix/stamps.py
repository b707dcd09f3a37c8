"""The stamp of a checkpoint: the same random text in the record and in a file among the tiles shows that record and
tiles belong together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from storage.files import atomic
from storage.matrix.format import DISTANCES, ROOT_DOCUMENT

#: Name of the file that holds the stamp; readers of tiles ignore files whose name is not a number.
_STAMP: Final = ".stamp"


def fault_of(store: Path, document: Mapping[str, Any]) -> str | None:
    """Return why the tiles in ``store`` do not belong to the record ``document``; None if they do.

    Tiles and record belong together if their stamps are equal.  Records of earlier versions have no stamp, and are
    accepted.  A store loses its stamp just before it is published; from then on its seal takes the place of the stamp.
    """
    if not stamp_file(store).parent.is_dir():
        return f"the tiles that belong to it are gone from {store}: bring them back, or begin anew (--overwrite)"
    if "stamp" not in document:
        return None
    try:
        same = stamp_file(store).read_text() == document["stamp"]
    except FileNotFoundError:
        same = "publishing" in document and document["publishing"] == seal_of(store)
    if same:
        return None
    return f"the tiles in {store} are not those of its record: bring them back, or begin anew (--overwrite)"


def stamp_file(store: Path) -> Path:
    """Return the path of the stamp in the folder of a store in the making."""
    return store / DISTANCES / "c" / _STAMP


def put_stamp(store: Path, stamp: str | None) -> None:
    """Write the record's stamp into the folder of the tiles, durably; do nothing if it is None.  Raises OSError."""
    if stamp is not None:
        path = stamp_file(store)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{_STAMP}~")
        atomic.write_file(draft, [stamp.encode()])
        atomic.sync_path(draft)
        draft.replace(path)
        atomic.sync_path(path.parent)


def stamp_in(record: bytes) -> str | None:
    """Return the stamp in the bytes of a record; None if it has none or is damaged."""
    try:
        stamp = json.loads(record).get("stamp")
    except (ValueError, AttributeError):
        return None
    return None if stamp is None else str(stamp)


def seal_of(store: Path) -> str | None:
    """Return the digest of the root document of a store; None if it has none."""
    try:
        return hashlib.sha256((store / ROOT_DOCUMENT).read_bytes()).hexdigest()
    except OSError:
        return None
