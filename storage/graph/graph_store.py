"""Uploaded graphs: one folder per graph, named by a digest of the content, on the disk and optionally in an object
store.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from storage.errors import Conflict, NotFound
from storage.files import atomic
from storage.graph.graph import Graph, Receipt, graph_digest, load_graph, save_graph
from storage.remote.objects import Objects

#: This file is written last, so a folder without it holds no complete graph.
_ABOUT = "graph.json"


class GraphStore:
    """Stores graphs in folders ``root/graphs/ID``.

    The id is the beginning of the content's SHA-256, so equal content is stored once, whatever files it came from.

    Args:
        root: a folder on the disk.
        address: address in an object store, or None.  With an address, graphs are stored under ``address/graphs/ID``,
            and ``root`` holds copies.
    """

    def __init__(self, root: Path, address: str | None = None) -> None:
        self._graphs = root / "graphs"
        self._graphs.mkdir(parents=True, exist_ok=True)
        self._objects = None if address is None else Objects(address).below("graphs")

    def add(self, graph: Graph, receipt: Receipt) -> tuple[str, str]:
        """Save a graph unless it is stored already; return the graph's id and digest."""
        digest = graph_digest(graph)
        graph_id = digest.removeprefix("sha256:")[:32]
        folder = self.folder(graph_id)
        if not folder.exists():
            save_graph(graph, receipt, folder)
        if self._objects is not None and self._objects.stat(f"{graph_id}/{_ABOUT}") is None:
            files = [(path, f"{graph_id}/{path.name}") for path in folder.iterdir()]
            self._objects.send(pair for pair in files if pair[0].name != _ABOUT)
            self._objects.send(pair for pair in files if pair[0].name == _ABOUT)
        return graph_id, digest

    def folder(self, graph_id: str) -> Path:
        """Return the folder of the graph with this id; the folder need not exist."""
        return self._graphs / graph_id

    def load(self, graph_id: str) -> tuple[Graph, Receipt]:
        """Return the graph, memory-mapped, and its receipt.  Raises NotFound if it is not stored."""
        folder = self.folder(graph_id)
        if not folder.exists() and self._objects is not None:
            self._fetch(self._objects, graph_id, folder)
        if not folder.exists():
            raise NotFound(f"there is no graph {graph_id!r}")
        return load_graph(folder)

    def _fetch(self, objects: Objects, graph_id: str, folder: Path) -> None:
        """Copy a graph from the object store; the folder appears complete or not at all."""
        if objects.stat(f"{graph_id}/{_ABOUT}") is None:
            raise NotFound(f"there is no graph {graph_id!r}")
        staging = atomic.Staging(folder)
        try:
            for name in objects.names(f"{graph_id}/"):
                objects.fetch(name, staging.folder / Path(name).name)
            with contextlib.suppress(Conflict):  # another process has fetched the graph meanwhile
                staging.publish(replace=False)
        except OSError as error:
            raise atomic.failure("write", folder, error) from error
        finally:
            staging.discard()
