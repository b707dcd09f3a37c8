"""Tests real graphs with known answers on the command line, from the file to the finished store."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.routes import Router
from storage.graph.graph import Graph
from storage.matrix.reader import Matrix, open_matrix
from storage.readers import read_graph
from tests.commands import run_here
from tests.reference_options import OPTIONS, cli_options, graph_file, read_arguments, references

pytestmark = pytest.mark.data

#: Up to here the whole matrix is solved and compared; larger graphs are compared on their sampled sources.
WHOLE = 12_000


def solve(command: list[str], out: Path) -> dict[str, Any]:
    done = run_here("solve", *command, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def as_float(matrix: Matrix, rows: np.ndarray) -> np.ndarray:
    values = rows.astype(np.float64)
    values[rows == matrix.unreachable] = np.inf
    return values


def blocks(matrix: Matrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Source indices and their rows, some hundred at a time."""
    for first in range(0, matrix.shape[0], 256):
        sources = matrix.sources[first : first + 256]
        yield sources, as_float(matrix, matrix.rows(sources))


def facts_of(matrix: Matrix) -> dict[str, Any]:
    """The facts of REFERENCE.json, recomputed from the store alone."""
    digest, reached, total, size, farthest, reach = hashlib.sha256(), 0, 0.0, 0.0, [], []
    for sources, rows in blocks(matrix):
        finite = np.isfinite(rows)
        digest.update(np.where(finite, rows, -1).astype("<i8").tobytes())
        assert (rows[np.arange(len(sources)), sources] == 0).all()
        total += float(rows.sum(where=finite))  # whole numbers here stay below 2^53, so their sums are exact
        size += float(np.abs(rows).sum(where=finite))
        finite[np.arange(len(sources)), sources] = False
        reached += int(finite.sum())
        farthest += [row[mask].max() for row, mask in zip(rows, finite, strict=True) if mask.any()]
        reach += [int(mask.sum()) + 1 for mask in finite if mask.any()]
    central = [far for far, there in zip(farthest, reach, strict=True) if 10 * there >= 9 * max(reach)]
    return {
        "reachable_pairs": reached,
        "distance_sum": total,
        "size": size,
        "diameter": max(farthest) if farthest else None,
        "radius": min(farthest) if farthest else None,
        "central_radius": min(central) if central else None,
        "central_sources": len(central),
        "sha256_int64": digest.hexdigest(),
    }


def check_pairs(matrix: Matrix, pairs: list[list[Any]], rel: float) -> None:
    for u, v, wanted in pairs:
        source, target = matrix.vertex(str(u)), matrix.vertex(str(v))
        found = matrix.row(source)[target]
        if wanted is None:
            assert found == matrix.unreachable
        else:
            assert float(found) == pytest.approx(wanted, rel=rel)


def check_routes(matrix: Matrix, pairs: list[list[Any]], rel: float) -> None:
    """A route's arcs are the graph's, and their sum is the distance."""
    router = Router(matrix)
    for u, v, wanted in pairs[:6] + pairs[-2:]:
        found = router.route(matrix.vertex(str(u)), matrix.vertex(str(v)))
        if wanted is None:
            assert found is None
        else:
            assert found is not None
            assert found.length == pytest.approx(wanted, rel=rel)
            assert [found.vertices[0], found.vertices[-1]] == [matrix.vertex(str(u)), matrix.vertex(str(v))]


def compare(matrix: Matrix, answer: dict[str, Any], facts: dict[str, Any], *, whole: bool, rel: float) -> None:
    found = facts_of(matrix)
    assert found["reachable_pairs"] == facts["reachable_pairs"]
    if whole:
        assert found["sha256_int64"] == facts["sha256_int64"]
    for name in ("diameter", "radius"):
        assert found[name] == pytest.approx(facts[name], rel=0 if whole else rel)
    # distances of opposite sign cancel in a sum, their rounding does not
    allowed = 0 if whole else rel * found["size"]
    assert found["distance_sum"] == pytest.approx(facts["distance_sum"], rel=0, abs=allowed)
    said = answer["summary"]
    assert said["reached"] == facts["reachable_pairs"]
    assert said["sum"] == pytest.approx(facts["distance_sum"], rel=0, abs=allowed)
    assert said["mean"] * said["reached"] == pytest.approx(said["sum"])
    assert said["diameter"] == pytest.approx(facts["diameter"], rel=0 if whole else rel)
    # the reference's radius is over all sources that reach any; ours is over those that reach nearly as much as any
    assert said["radius"] == pytest.approx(found["central_radius"], rel=0 if whole else rel)
    assert said.get("central_sources", 0) == found["central_sources"]
    check_pairs(matrix, facts["pairs"], 0 if whole else rel)
    check_routes(matrix, facts["pairs"], rel)


@pytest.mark.parametrize("name", OPTIONS)
def test_reference(name: str, data_dir: Path, tmp_path: Path) -> None:
    reference = references(data_dir)[name]
    path = graph_file(name, data_dir, tmp_path)
    command = [str(path), *cli_options(name)]
    if reference["negative_cycle"]:
        check_refused(command, read_graph(path, **read_arguments(name))[0], tmp_path)
    elif reference["n"] <= WHOLE:
        check_whole(command, reference, tmp_path)
    else:
        check_sampled(command, reference, tmp_path)


def check_whole(command: list[str], reference: dict[str, Any], folder: Path) -> None:
    whole = reference["integer_weights"]
    for dtype, rel in [("auto", 0.0)] if whole else [("float32", 1e-6), ("float64", 1e-9)]:
        out = folder / f"{dtype}.zarr"
        answer = solve([*command, "--dtype", dtype], out)
        compare(open_matrix(out), answer, reference["apsp"], whole=whole, rel=rel)


def check_sampled(command: list[str], reference: dict[str, Any], folder: Path) -> None:
    """Graphs whose whole matrix would take long: the sources of the sampled facts, or of the sampled pairs."""
    whole = reference["integer_weights"]
    facts = reference.get("sampled") or reference["apsp"]
    chosen = facts.get("sources") or sorted({u for u, _, _ in facts["pairs"]})
    names = folder / "sources.txt"
    names.write_text("".join(f"{u}\n" for u in chosen))
    for dtype, rel in [("auto", 0.0)] if whole else [("float32", 1e-6), ("float64", 1e-9)]:
        out = folder / f"{dtype}.zarr"
        answer = solve([*command, "--dtype", dtype, "--sources", f"@{names}"], out)
        matrix = open_matrix(out)
        if "sampled" in reference:
            compare(matrix, answer, facts, whole=whole, rel=rel)
            check_sources(matrix, facts["per_source"], rel)
        else:
            check_pairs(matrix, facts["pairs"], 0 if whole else rel)
            check_routes(matrix, facts["pairs"], rel)


def check_sources(matrix: Matrix, per_source: list[list[Any]], rel: float) -> None:
    for label, reached, total, eccentricity in per_source:
        source = matrix.vertex(str(label))
        row = as_float(matrix, matrix.row(source))
        finite = np.isfinite(row)
        finite[source] = False
        assert finite.sum() == reached
        assert row[finite].sum() == pytest.approx(total, rel=rel or 1e-12)
        if eccentricity is not None:
            assert row[finite].max() == pytest.approx(eccentricity, rel=rel)


def check_refused(command: list[str], graph: Graph, folder: Path) -> None:
    """The message names a cycle; its arcs are in the file and their sum is below zero."""
    out = folder / "refused.zarr"
    done = run_here("solve", *command, "--out", out)
    assert done.returncode == 2
    assert not out.exists()
    assert "negative cycle" in done.stderr
    assert "Traceback" not in done.stderr
    route = done.stderr.split("not defined: ")[1].split(" (length")[0].split(" -> ")
    assert route[0] == route[-1]
    position = {str(label): i for i, label in enumerate(graph.labels.tolist())}
    weights = []
    for tail, head in pairwise(route):
        row = slice(graph.indptr[position[tail]], graph.indptr[position[tail] + 1])
        at = np.flatnonzero(graph.heads[row] == position[head])
        assert len(at) == 1
        weights.append(graph.weights[row][at[0]].item())
    assert math.fsum(weights) < 0
