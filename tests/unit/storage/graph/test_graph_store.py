from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.errors import NotFound
from storage.graph.graph import Receipt, build_graph, graph_digest
from storage.graph.graph_store import GraphStore


def test_same_content_has_one_id(tmp_path: Path):
    store = GraphStore(tmp_path)
    first, _ = build_graph([0, 1], [1, 2], [1, 2], n=3, directed=True)
    same, _ = build_graph([1, 0, 0], [2, 1, 1], [2.0, 5.0, 1.0], n=3, directed=True)
    other, _ = build_graph([0, 1], [1, 2], [1, 3], n=3, directed=True)
    graph_id, digest = store.add(first, Receipt("csv", None, 2, 0, 0, 0, None, ("note",)))
    assert digest == graph_digest(first)
    assert digest.startswith(f"sha256:{graph_id}")
    assert store.add(same, Receipt("gml", None, 3, 0, 1, 0, None)) == (graph_id, digest)
    assert store.add(other, Receipt("csv", None, 2, 0, 0, 0, None))[0] != graph_id
    loaded, receipt = store.load(graph_id)
    assert np.array_equal(loaded.heads, first.heads)
    assert (receipt.format, receipt.notes) == ("csv", ("note",))
    with pytest.raises(NotFound, match="nothing"):
        store.load("nothing")
