"""Tests that stores, checkpoints and data directories of earlier versions can be used, with the right answers."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c
from scipy.sparse.csgraph import csgraph_from_dense, shortest_path

from engine.api.solve import make_plan, solve_to_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from storage.graph.graph import Graph, build_graph, index_of
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.integration.service_process import LiveService
from tests.stores import verify_matrix

ARCHIVES = Path(__file__).resolve().parents[1] / "fixtures" / "96d7eee"
UNREACHABLE = 2**30 - 1
NAMES = ("Aachen", "Bonn", "Celle", "Dresden", "Essen", "Fulda", "Görlitz", "Hamm", "Ilmenau", "Jena")


def unpack(name: str, folder: Path) -> Path:
    """The folder of an archive."""
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def distances_of(arcs: dict[str, np.ndarray]) -> np.ndarray:
    """All distances by SciPy, inf where there is no path.  Of parallel arcs, the shortest counts."""
    dense = np.full((arcs["n"], arcs["n"]), np.inf)
    np.minimum.at(dense, (arcs["tails"], arcs["heads"]), arcs["weights"])
    np.fill_diagonal(dense, np.inf)
    return shortest_path(csgraph_from_dense(dense, null_value=np.inf))


def graph_of(arcs: dict[str, np.ndarray]) -> Graph:
    """The graph of the arcs, with the labels that it had."""
    labels = np.arange(0, 7 * int(arcs["n"]), 7)
    return build_graph(arcs["tails"], arcs["heads"], arcs["weights"], labels=labels, directed=True)[0]


def check_store(path: Path, arcs: dict[str, np.ndarray]) -> None:
    """Compare every entry of a store with SciPy's, and every file with the seal."""
    expected = distances_of(arcs)
    assert np.isinf(expected).any(), "some pairs must be unreachable"
    verify_matrix(path)
    with open_matrix(path) as matrix:
        assert (matrix.dtype, matrix.unreachable) == (np.int32, UNREACHABLE)
        stored = matrix.rows(range(matrix.n)).astype(float)
    stored[stored == UNREACHABLE] = np.inf
    np.testing.assert_array_equal(stored, expected)


def load(path: Path) -> dict[str, np.ndarray]:
    """The arcs of a graph as they were given."""
    with np.load(path) as found:
        return dict(found)


class Phases(Monitor):
    """Notes the phases and how much work each had."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.begun.append((phase, total))


def test_a_sealed_store_opens_and_every_entry_is_right(tmp_path: Path):
    folder = unpack("store", tmp_path)
    arcs = load(folder / "arcs.npz")
    check_store(folder / "d.zarr", arcs)
    with open_matrix(folder / "d.zarr") as matrix:
        names = sorted(f"{NAMES[v % 10]} {v // 10}" for v in range(int(arcs["n"])))
        assert list(map(str, matrix.labels)) == names
        source, target = (index_of(matrix.labels, name) for name in ("Aachen 0", "Jena 5"))
        assert (source, target) == (names.index("Aachen 0"), names.index("Jena 5"))
        expected = distances_of(arcs)[source, target]
        assert matrix.entries([source], [target]).tolist() == [UNREACHABLE if np.isinf(expected) else expected]


def test_a_sealed_store_is_replaced_by_todays_program(tmp_path: Path):
    folder = unpack("store", tmp_path)
    arcs = load(unpack("rows", tmp_path) / "arcs.npz")
    solve_to_store(graph_of(arcs), Options(dtype="int32"), folder / "d.zarr", overwrite=True)
    check_store(folder / "d.zarr", arcs)
    assert sorted(path.name for path in folder.iterdir()) == ["arcs.npz", "d.zarr"]


def test_a_checkpoint_of_rows_goes_on_after_them(tmp_path: Path):
    folder = unpack("rows", tmp_path)
    path, arcs = folder / "d.zarr", load(folder / "arcs.npz")
    checkpoint, phases = find_checkpoint(path), Phases()
    assert checkpoint is not None
    done = checkpoint.record["rows"]
    assert 0 < done < arcs["n"]
    solve_to_store(graph_of(arcs), Options(), path, resume=True, compression="zstd", monitor=phases)
    assert ("search", int(arcs["n"]) - done) in phases.begun
    check_store(path, arcs)
    assert find_checkpoint(path) is None


@pytest.mark.parametrize("harmed", [False, True], ids=["as it was", "tiles that hold too little"])
@pytest.mark.parametrize("way", ["the same rounds", "other rounds", "as planned today"])
def test_a_checkpoint_of_rounds_begins_anew(tmp_path: Path, way: str, harmed: bool):
    """Decision 087: records without potentials are not trusted, so what their tiles hold cannot matter."""
    folder = unpack("rounds", tmp_path)
    path, arcs = folder / "d.zarr", load(folder / "arcs.npz")
    checkpoint = find_checkpoint(path)
    assert checkpoint is not None
    assert checkpoint.record["kind"] == "rounds"
    assert max(level for level, _ in checkpoint.record["levels"]) > 0, "it was killed in a later round"
    if harmed:
        for tile in (folder / ".d.zarr.working" / "store" / "distances" / "c").glob("*/*"):
            body = bytes(tile.stat().st_size - 4)
            tile.write_bytes(body + crc32c(body).to_bytes(4, "little"))
    graph, plan = graph_of(arcs), None
    if way != "as planned today":
        plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype="int32"))
        height = 64 if way == "the same rounds" else 128
        plan = replace(plan, tier="store", streaming=Tiling("store", height, 128 if height > 64 else 64))
    solve_to_store(graph, Options(), path, plan=plan, resume=True)
    check_store(path, arcs)
    assert find_checkpoint(path) is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_data_directory_is_served_and_its_jobs_go_on(tmp_path: Path):
    folder = unpack("service", tmp_path)
    arcs = load(folder / "arcs.npz")
    with LiveService(folder / "data") as live:
        jobs = live.http.get("/v1/jobs").json()["jobs"]
        found = {job["name"] or "finished": job["id"] for job in jobs}
        assert set(found) == {"finished", "dismissed", "running", "accepted"}
        compare(live, found["finished"], load(folder / "finished.npz"))
        dismissed = live.job(found["dismissed"])
        assert dismissed["state"] == "dismissed"
        assert live.http.post(dismissed["links"]["resume"]).status_code == 202
        for name in ("running", "accepted", "dismissed"):
            job = live.wait(found[name], seconds=120)
            assert job["state"] == "successful", job
            compare(live, job["id"], arcs)
        again = live.submit(live.job(found["finished"])["graph"], dtype="int32", fresh=True)
        assert live.wait(again["id"], seconds=120)["state"] == "successful"
        compare(live, again["id"], load(folder / "finished.npz"))


def compare(live: LiveService, job: str, arcs: dict[str, np.ndarray]) -> None:
    """Compare every distance that the service answers for a job with SciPy's."""
    sources = ",".join(str(7 * v) for v in range(int(arcs["n"])))
    answer = live.http.get(f"/v1/jobs/{job}/rows", params={"sources": sources, "format": "npy"})
    assert answer.status_code == 200, answer.text
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), distances_of(arcs))
