"""Every real graph reads as REFERENCE.json says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.readers import read_graph
from tests.reference_options import OPTIONS, graph_file, read_arguments, references

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_reads_as_the_reference_says(name: str, data_dir: Path, tmp_path: Path) -> None:
    fact = references(data_dir)[name]
    graph, receipt = read_graph(graph_file(name, data_dir, tmp_path), **read_arguments(name))
    assert (graph.n, graph.m, graph.directed) == (fact["n"], fact["m"], fact["directed"])
    assert graph.weighted == fact["weighted"]
    assert graph.integral == fact["integer_weights"]
    assert (receipt.entries, receipt.self_loops) == (fact["lines_or_entries"], fact["self_loops"])
    labels = graph.labels.tolist()
    assert (labels[0], labels[-1]) == (fact["first_vertex"], fact["last_vertex"])
    assert (graph.weights.min(), graph.weights.max()) == (fact["min_weight"], fact["max_weight"])
    assert np.count_nonzero(graph.weights == 0) == fact["zero_weight_arcs"]
    assert np.count_nonzero(graph.weights < 0) == fact["negative_arcs"]


def test_the_options_cover_every_graph(data_dir: Path) -> None:
    assert sorted(OPTIONS) == sorted(references(data_dir))
    assert len(OPTIONS) == 62
