"""Verification finds a store that was sealed with a wrong value of any semiring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.api.in_memory import solve
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import build_graph
from storage.matrix.reader import MatrixSpec, create_matrix
from storage.semirings import SEMIRINGS
from tests.semirings import OTHERS


@pytest.mark.parametrize("semiring", OTHERS)
def test_a_wrong_value_is_found(tmp_path: Path, semiring: str):
    parallel = SEMIRINGS[semiring].parallel
    graph, _ = build_graph([0, 1, 2], [1, 2, 3], [0.5, 0.25, 1.0], n=5, directed=True, parallel=parallel)
    values, outcome = solve(graph, Options(semiring=semiring))
    spec = MatrixSpec(values.dtype, SEMIRINGS[semiring].unreachable, attributes={"semiring": semiring})
    for source, target, wrong in ((0, 2, values[0, 2] / 2 if semiring != "lor-land" else 0), (4, 0, 1), (3, 3, 0.5)):
        bad = values.copy()
        bad[source, target] = wrong
        path = tmp_path / f"{source}{target}"
        with create_matrix(path, graph, spec) as writer:
            writer.write(0, 0, bad)
            writer.seal(outcome.summary)
        with pytest.raises(StorageFailed, match=f"is wrong: from {source} to {target} it holds"):
            verify_store(path, "all")
        if (source, target) == (0, 2) and semiring not in ("lor-land", "min-max"):
            with open_result(path, semiring=semiring) as matrix, pytest.raises(StorageFailed, match="no path of the"):
                Router(matrix).route(0, 2)
    assert np.all(values[:, 4][:4] == SEMIRINGS[semiring].unreachable)
