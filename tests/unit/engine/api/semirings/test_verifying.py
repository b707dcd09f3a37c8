"""Verification finds a store that was sealed with a wrong value of any semiring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.api.in_memory import solve
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import build_graph
from storage.matrix.reader import MatrixSpec, create_matrix
from storage.semirings import SEMIRINGS
from tests.semirings import OTHERS
from tests.unit.engine.algorithms.semirings.test_parts import lattice


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


@pytest.mark.parametrize("algorithm", ["partitioned", "floyd-warshall"])
def test_products_of_products_may_differ_by_their_rounding_only(tmp_path: Path, algorithm: str):
    graph = lattice(25, directed=True)
    options = Options(semiring="max-times", algorithm=algorithm)
    solve_to_store(graph, options, tmp_path / "s")
    assert verify_store(tmp_path / "s", "all").searched == 625
    values, outcome = solve(graph, options)
    assert (values != solve(graph, Options(semiring="max-times", algorithm="product-search"))[0]).any()
    for name, factor, known in (("digits", 1 + 1e-12, True), ("none", 0, True), ("searched", 1, False)):
        attributes = {"semiring": "max-times", **({"algorithm": algorithm} if known else {})}
        bad = values.copy()
        bad[7, 600] *= factor
        with create_matrix(tmp_path / name, graph, MatrixSpec("float64", 0, attributes=attributes)) as writer:
            writer.write(0, 0, bad)
            writer.seal(outcome.summary)
        with pytest.raises(StorageFailed, match="is wrong: from "):
            verify_store(tmp_path / name, "all")
        if factor != 1:
            with open_result(tmp_path / name, semiring="max-times") as matrix:
                if factor:
                    with pytest.raises(StorageFailed, match="no path of the"):
                        Router(matrix).route(7, 600)
                else:
                    assert Router(matrix).route(7, 600) is None
