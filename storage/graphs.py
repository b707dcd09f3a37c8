"""Uploaded graphs on disk: one folder per graph, named by its content."""

from __future__ import annotations

from pathlib import Path

from storage.errors import NotFound
from storage.graph import Graph, Receipt, graph_digest, load_graph, save_graph


class GraphStore:
    """Graphs under ``root/graphs/ID``.

    The id is the beginning of the content's SHA-256, so the same content is kept once whatever file it came from.
    """

    def __init__(self, root: Path) -> None:
        self._graphs = root / "graphs"
        self._graphs.mkdir(parents=True, exist_ok=True)

    def add(self, graph: Graph, receipt: Receipt) -> tuple[str, str]:
        """Save a graph unless it is there already; returns its id and its digest."""
        digest = graph_digest(graph)
        graph_id = digest.removeprefix("sha256:")[:32]
        folder = self.folder(graph_id)
        if not folder.exists():
            save_graph(graph, receipt, folder)
        return graph_id, digest

    def folder(self, graph_id: str) -> Path:
        """Where the graph of this id lies."""
        return self._graphs / graph_id

    def load(self, graph_id: str) -> tuple[Graph, Receipt]:
        """The graph, memory-mapped, and its receipt; NotFound if it is not there."""
        if not self.folder(graph_id).exists():
            raise NotFound(f"there is no graph {graph_id!r}")
        return load_graph(self.folder(graph_id))
