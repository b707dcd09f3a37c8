"""Small graphs and sealed stores for tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.graph.graph import Graph
from storage.matrix import format as formats
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from storage.semirings import EVERY

UNREACHABLE = {"uint16": 2**15 - 1, "int32": 2**30 - 1, "float32": np.inf, "float64": np.inf}


def line_graph(n: int, *, text: bool = False, weighted: bool = True) -> Graph:
    """The directed path 0 -> 1 -> ... -> n - 1 of arcs of weight 5, labelled by large numbers or by names."""
    arcs = max(n - 1, 0)
    indptr = np.minimum(np.arange(n + 1, dtype=np.int64), arcs)
    labels: npt.NDArray[np.generic] = np.arange(n, dtype=np.int64) * 3 + 2**33
    if text:
        labels = np.array([f"v{k:06d}ß" for k in range(n)], dtype=np.dtypes.StringDType())
    heads = np.arange(1, arcs + 1, dtype=np.int32)
    return Graph(indptr, heads, np.full(arcs, 5, np.int32), labels, directed=True, weighted=weighted)


def entries_of(rows: int, columns: int, dtype: str, seed: int = 0) -> npt.NDArray[np.generic]:
    """Random entries below 1,000, some of them unreachable."""
    rng = np.random.default_rng(seed)
    entries = (rng.random((rows, columns)) * 1000).astype(dtype)
    entries[rng.random((rows, columns)) < 0.05] = UNREACHABLE[dtype]
    return entries


def make_store(
    path: Path,
    n: int,
    dtype: str = "float32",
    *,
    seed: int = 0,
    text: bool = False,
    compression: str = "none",
    sources: npt.NDArray[np.int64] | None = None,
    targets: npt.NDArray[np.int64] | None = None,
    overwrite: bool = False,
) -> npt.NDArray[np.generic]:
    """Seal a store of random entries at ``path`` and return the entries; the summary holds the seed."""
    rows, columns = (n if side is None else len(side) for side in (sources, targets))
    entries = entries_of(rows, columns, dtype, seed)
    with create_matrix(
        path,
        line_graph(n, text=text),
        MatrixSpec(
            dtype,
            UNREACHABLE[dtype],
            sources=sources,
            targets=targets,
            attributes={"algorithm": "dijkstra", "plan": {"threads": 2}},
            compression=compression,
        ),
        overwrite=overwrite,
    ) as writer:
        writer.write(0, 0, entries)
        writer.seal({"seed": seed, "mean": np.float64(2.5), "radius": float("inf")})
    return entries


def forget_contents(path: Path) -> None:
    """Make the seal of a result one of an earlier version, which does not tell files that end with their own CRC-32C
    from each other.
    """
    document = json.loads((path / "zarr.json").read_bytes())
    seal = document["attributes"]["seal"]
    del seal["contents"], seal["digest"]
    seal["digest"] = formats._digest(document)
    (path / "zarr.json").write_text(json.dumps(document))


def verify_matrix(path: str | Path) -> None:
    """Read every file of a store again and compare sizes and checksums with the manifest; StorageFailed names the first
    one that is missing or damaged."""
    with open_matrix(path, semiring=EVERY) as matrix:
        matrix.check()
