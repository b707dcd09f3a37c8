"""The frame of a store, which is everything but the tiles and the seal: labels, arcs and metadata.

This module checks the description of the matrix, and writes the frame.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.geography.coordinates import GROUP, described, named_arrays
from storage.graph.graph import Graph, graph_digest
from storage.graph.units import HOPS, WEIGHT, said_unit
from storage.matrix.format import (
    ALSO,
    COMPRESSIONS,
    DISTANCES,
    ROOT_DOCUMENT,
    IntArray,
    consolidated,
    distances_document,
    fill_value,
    group_document,
    plain,
    quantity_document,
    read_seal,
    software,
)
from storage.matrix.grid import TileGrid
from storage.matrix.side_arrays import side_array

#: Attributes that only the store itself may set.
_OWN: Final = frozenset(
    {"type", "unreachable", "directed", "graph", "sources", "targets", "compression", "summary", "seal", "also"}
)
#: The group of the quantities of arcs, whose sums along paths are in the group ``also``.
QUANTITIES: Final = "quantities"
#: Vertex indices of the rows and of the columns; None for all vertices, in order.
Sides = tuple[IntArray | None, IntArray | None]
#: Default values of attributes that every store has; values of the caller replace these.
_USUAL: Final = {"algorithm": None, "plan": None, "max_hops": None, "cutoff": None}
#: Attributes that are not compared when a solve resumes a checkpoint.  "compression" is one of them because the
#: compression that the spec asks for is compared instead.
_CIRCUMSTANCES: Final = frozenset({"algorithm", "plan", "software", "compression", "weight_column"})


@dataclass(frozen=True, eq=False)
class MatrixSpec:
    """The content of a store apart from the graph: type, vertices of rows and columns, attributes, compression.

    Attributes:
        dtype: type of the entries (uint16, int32, float32, float64).
        unreachable: the stored value for *no path*; +inf for floats.
        sources: vertex indices of the rows, shape (rows,), all different; None for all vertices, in order.
        targets: vertex indices of the columns, shape (columns,), all different; None for all vertices, in order.
        attributes: other attributes of the store (``algorithm``, ``plan``, ``max_hops``, ``cutoff``, ``unit``), JSON
            types.
        compression: ``none`` or ``zstd``.
        also: for each quantity of the graph that is summed along paths, by name, the type of its array and the value
            for *no path*.
    """

    dtype: npt.DTypeLike
    unreachable: float
    sources: IntArray | None = None
    targets: IntArray | None = None
    attributes: Mapping[str, object] | None = None
    compression: str = "none"
    also: Mapping[str, tuple[str, float]] | None = None


@dataclass(frozen=True)
class Frame:
    """A store before its tiles are written: its path, the graph, the vertices of its rows and columns, and its
    attributes.
    """

    target: Path
    graph: Graph
    sides: Sides
    common: Mapping[str, object]
    overwrite: bool


def frame_of(path: str | Path, graph: Graph, spec: MatrixSpec, *, overwrite: bool) -> Frame:
    """Check the arguments of ``create_matrix`` and compute the attributes of the store; write nothing.

    Folders that killed writers to ``path`` have left are removed.

    Args:
        path, graph, spec, overwrite: the target, the graph, the description of the matrix, and whether an existing
            store may be replaced, as in ``create_matrix``.

    Raises:
        ApspError: as in ``create_matrix``.
    """
    target = Path(path).absolute()
    # A writer that was killed between two renames leaves the old store beside the target; ``clear_stale`` moves the
    # store back.
    atomic.clear_stale(target)
    check_target(target, overwrite)
    return Frame(target, graph, *described_matrix(graph, spec), overwrite)


def described_matrix(graph: Graph, spec: MatrixSpec) -> tuple[Sides, dict[str, object]]:
    """Check a graph and a description of its matrix.

    Returns:
        The vertices of the rows and of the columns, and the attributes of the store.

    Raises:
        InvalidRequest: they contradict each other, or such a matrix cannot be stored.
    """
    kind, compression = np.dtype(spec.dtype), spec.compression
    attributes = dict(spec.attributes or {})
    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise InvalidRequest(f"unknown compression {compression!r}; known are {known}", field="compression")
    if clash := sorted(_OWN & attributes.keys()):
        raise InvalidRequest(f"the store sets these attributes itself: {', '.join(clash)}", field="attributes")
    if kind.kind not in "uif":
        raise InvalidRequest(f"a matrix of type {kind} cannot be stored", field="dtype")
    fill_value(kind, spec.unreachable)
    rows, columns = _checked(spec.sources, graph.n, "source"), _checked(spec.targets, graph.n, "target")
    common = {
        **_USUAL,
        "unit": unit_of(graph),
        **_column_of(graph),
        **attributes,
        "type": kind.name,
        "unreachable": float(spec.unreachable) if kind.kind == "f" else int(spec.unreachable),
        "directed": graph.directed,
        "graph": graph_digest(graph),
        "sources": "all" if rows is None else "subset",
        "targets": "all" if columns is None else "subset",
        "compression": compression,
        "software": software(),
    }
    if graph.terminals:
        common["terminals"] = graph.terminals
    if spec.also:
        if lost := sorted(set(spec.also) - set(graph.quantities)):
            raise InvalidRequest(f"the graph has no quantity {', '.join(lost)}", field="also")
        common[ALSO] = {
            name: {"type": kind, "unreachable": plain(value if kind == "float64" else int(value))}
            for name, (kind, value) in spec.also.items()
        }
    return (rows, columns), common


def identity_of(sides: Sides, common: Mapping[str, object], compression: str) -> dict[str, object]:
    """Return what must be equal for a solve to continue from the checkpoint of another one: the attributes of the
    store, except for the circumstances of a solve, and which vertices are its rows and columns.

    Args:
        sides, common: the vertices and the attributes, as from :func:`described_matrix`.
        compression: the compression that was asked for.
    """
    identity = {name: value for name, value in common.items() if name not in _CIRCUMSTANCES}
    identity["compression"] = compression
    for name, side in zip(("sources", "targets"), sides, strict=True):
        if side is not None:
            identity[name] = f"{len(side)} vertices, CRC-32C {crc32c(side):08x}"
    return identity


def unit_of(graph: Graph) -> str:
    """Return the unit of the distances of a graph: its unit if known, else ``weight``, or ``hops`` without weights."""
    return said_unit(graph.unit) or (WEIGHT if graph.weighted else HOPS)


def _column_of(graph: Graph) -> dict[str, str]:
    return {"weight_column": graph.weight_column} if graph.weighted and graph.weight_column else {}


def write_frame(folder: Path, graph: Graph, sides: Sides, grid: TileGrid, common: Mapping[str, object]) -> None:
    """Write everything but the tiles and the seal.

    Args:
        folder: the folder in which the store is made.
        graph: the graph, whose labels and arcs are stored.
        sides: vertex indices of rows and columns.
        grid: shape and tiles of the matrix.
        common: the attributes of the store.

    Raises:
        OSError: the file system refused.
    """
    (folder / DISTANCES / "c").mkdir(parents=True, exist_ok=True)
    atomic.write_file(folder / DISTANCES / ROOT_DOCUMENT, [distances_document(grid, common)])
    for name in further(common):
        (folder / ALSO / name / "c").mkdir(parents=True, exist_ok=True)
        atomic.write_file(folder / ALSO / name / ROOT_DOCUMENT, [quantity_document(grid, name, common)])
    if further(common):
        consolidate(folder / ALSO, {})
    for name, vertices in zip(("source", "target"), sides, strict=True):
        side_array(folder / name, graph.labels if vertices is None else graph.labels[vertices], (name,))
    side_array(folder / "vertex", graph.labels, ("vertex",))
    for name, dimension, vertices in zip(("sources", "targets"), ("row", "column"), sides, strict=True):
        if vertices is not None:
            side_array(folder / "graph" / name, vertices, (dimension,))
    write_graph(folder, graph)


def write_graph(folder: Path, graph: Graph) -> None:
    """Write the arcs, the coordinates if there are any, and the ``zarr.json`` of the Zarr groups.  Raises OSError."""
    arcs = folder / "graph"
    side_array(arcs / "indptr", graph.indptr, ("boundary",))
    side_array(arcs / "heads", graph.heads, ("arc",))
    side_array(arcs / "weights", graph.weights, ("arc",))
    for name, values in graph.quantities.items():
        side_array(arcs / QUANTITIES / name, values, ("arc",))
    if graph.quantities:
        consolidate(arcs / QUANTITIES, {"names": list(graph.quantities)})
    terminals = {"terminals": graph.terminals} if graph.terminals else {}
    unit = {"unit": graph.unit} if graph.unit is not None else {}
    kept = {"parallel": graph.parallel} if graph.parallel != "least" else {}
    facts = {"directed": graph.directed, "weighted": graph.weighted, **terminals, **unit, **kept, **_column_of(graph)}
    consolidate(folder / "graph", facts)
    if graph.coordinates is not None:
        for name, values in named_arrays(graph.coordinates):
            side_array(folder / GROUP / name, values, ("vertex",))
        consolidate(folder / GROUP, described(graph.coordinates))


def further(common: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Return type and ``unreachable`` of each array of sums, by quantity, from the attributes of a store."""
    found: dict[str, dict[str, Any]] = plain(common.get(ALSO) or {})
    return found


def consolidate(folder: Path, attributes: Mapping[str, object]) -> None:
    """Write the ``zarr.json`` of the group in ``folder``, with the metadata of all nodes below it.  Raises OSError."""
    data = json.dumps(group_document(attributes, consolidated(folder)), indent=1)
    atomic.write_file(folder / ROOT_DOCUMENT, [data.encode()])


def write_seal(folder: Path, data: bytes) -> None:
    """Seal the store in ``folder``, after all other files were written.  Raises OSError.

    The seal becomes durable only after the files that it lists.

    Args:
        folder: the folder of the store.
        data: the root document, from ``seal_document``.
    """
    atomic.sync_tree(folder)
    atomic.write_file(folder / ROOT_DOCUMENT, [data])
    atomic.sync_path(folder / ROOT_DOCUMENT)
    atomic.sync_path(folder)


def _checked(vertices: IntArray | None, n: int, name: str) -> IntArray | None:
    """Check the vertex indices of the rows or columns; ``name`` is ``source`` or ``target``, for messages."""
    if vertices is None:
        return None
    side = np.ascontiguousarray(vertices, dtype=np.int64)
    if side.ndim != 1:
        raise InvalidRequest(f"{name}s must be a list of vertex indices", field=f"{name}s")
    if len(side) and (side.min() < 0 or side.max() >= n):
        wrong = int(side[(side < 0) | (side >= n)][0])
        raise InvalidRequest(f"{name} {wrong} is no vertex index: the graph has {n} vertices", field=f"{name}s")
    values, counts = np.unique(side, return_counts=True)
    if len(values) < len(side):
        raise InvalidRequest(f"{name} {int(values[counts > 1][0])} is given more than once", field=f"{name}s")
    return side


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a target that may not be replaced.  Only a store may be replaced, so that a mistyped path removes no other
    folder.

    Raises:
        NotFound: the parent folder of the target does not exist.
        Conflict: the target exists and ``overwrite`` is False, it is a symbolic link or no store, or it lies inside a
            sealed store.
    """
    if not target.parent.is_dir():
        raise NotFound(f"the folder {target.parent} does not exist")
    inside = target.parent.resolve()
    for folder in (inside, *inside.parents):
        if _is_sealed(folder):
            raise Conflict(f"{target} lies inside the sealed store {folder}, which stays as it is; choose another path")
    if not target.exists() and not target.is_symlink():
        return
    if not overwrite:
        raise Conflict(f"{target} exists already; choose another path or ask for it to be overwritten")
    if target.is_symlink():
        raise Conflict(
            f"{target} is a symbolic link, which is not replaced; give the path {target.resolve()}, or remove the link"
        )
    if _is_sealed(target):
        return
    raise Conflict(f"{target} is no matrix store of this program and is not replaced; remove it or choose another path")


def _is_sealed(folder: Path) -> bool:
    with contextlib.suppress(OSError, StorageFailed):
        read_seal(folder, (folder / ROOT_DOCUMENT).read_bytes(), None)
        return True
    return False
