"""Real graphs with known answers, through the device.

Graphs come from their files, or where APSP_SAVED_GRAPHS is set from that folder of saved graphs (``save_graph``), so
that a machine without the readers' packages can run this.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.graph.graph import Graph, load_graph
from storage.matrix.reader import open_matrix
from storage.readers import read_graph
from tests.integration.test_real_graphs import compare
from tests.reference_options import OPTIONS, graph_file, read_arguments, references

pytestmark = [pytest.mark.gpu, pytest.mark.data, pytest.mark.usefixtures("cupy")]

#: Whole matrices up to here.
LARGEST = 50_000


def graph_of(name: str, data_dir: Path, scratch: Path) -> Graph:
    saved = os.environ.get("APSP_SAVED_GRAPHS")
    if saved:
        return load_graph(Path(saved) / name.replace("#", "@"))[0]
    return read_graph(graph_file(name, data_dir, scratch), **read_arguments(name))[0]


@pytest.mark.parametrize("name", OPTIONS)
def test_reference(name: str, data_dir: Path, tmp_path: Path) -> None:
    reference = references(data_dir)[name]
    if reference["negative_cycle"] or reference["n"] > LARGEST:
        pytest.skip("no distances" if reference["negative_cycle"] else f"more than {LARGEST:,} vertices")
    graph, whole = graph_of(name, data_dir, tmp_path), reference["integer_weights"]
    for dtype, rel in [("auto", 0.0)] if whole else [("float32", 2e-6), ("float64", 1e-9)]:
        out = tmp_path / f"{dtype}.zarr"
        outcome = solve_to_store(graph, Options(device="cuda", dtype=dtype), out)
        assert outcome.plan.device == "cuda"
        with open_matrix(out) as matrix:
            compare(matrix, {"summary": outcome.summary}, reference["apsp"], whole=whole, rel=rel)
        shutil.rmtree(out)
