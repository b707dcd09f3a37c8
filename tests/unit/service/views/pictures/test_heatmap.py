"""``apsp plot``: the reduced matrix against NumPy, what is read, what is drawn, what is refused."""

import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from engine.graph.ordering import halved_places
from engine.model.progress import Monitor
from service.cli import main
from service.views.pictures.heatmap import take_picture
from storage.errors import Cancelled
from storage.matrix.reader import open_matrix
from tests.stores import UNREACHABLE, make_store

EVERYTHING = 2**40


def picture_of(path: Path, side: int, budget: int = EVERYTHING, order: str = "label", monitor: Monitor | None = None):
    with open_matrix(path) as matrix:
        return take_picture(matrix, side=side, budget=budget, order=order, monitor=monitor or Monitor())


def expected(entries: np.ndarray, unreachable: float, side: int) -> np.ndarray:
    """Cell by cell, the slow way: the mean of what is reached."""
    rows, columns = entries.shape
    height, width = min(side, rows), min(side, columns)
    values = entries.astype(float)
    values[entries == unreachable] = np.nan
    across = [k * columns // width for k in range(width + 1)]
    image = np.full((height, width), np.nan)
    for i in range(height):
        inside = [r for r in range(rows) if r * height // rows == i]
        for j in range(width):
            cell = values[inside, across[j] : across[j + 1]]
            if np.isfinite(cell).any():
                image[i, j] = np.nanmean(cell)
    return image


@pytest.mark.parametrize("dtype", UNREACHABLE)
@pytest.mark.parametrize(("n", "side"), [(1, 512), (7, 7), (200, 32), (130, 512)])
def test_cells_are_means_of_what_is_reached(tmp_path, dtype, n, side):
    entries = make_store(tmp_path / "m.zarr", n, dtype, seed=n)
    found = picture_of(tmp_path / "m.zarr", side)
    np.testing.assert_allclose(found.image, expected(entries, UNREACHABLE[dtype], side), rtol=1e-9)
    assert (found.rows_read, found.rows) == (n, n)


def test_eccentricities_leave_the_source_out_and_those_that_reach_nobody(tmp_path):
    entries = make_store(tmp_path / "m.zarr", 150, "int32", compression="zstd")
    values = np.where(entries == UNREACHABLE["int32"], -1, entries)
    np.fill_diagonal(values, -1)
    largest = values.max(axis=1)
    assert sorted(picture_of(tmp_path / "m.zarr", 16).eccentricities) == sorted(largest[largest >= 0])


def test_a_rectangle_has_rows_and_columns_of_its_own(tmp_path):
    sources, targets = np.array([5, 90, 2]), np.array([90, 1, 7, 60])
    entries = make_store(tmp_path / "m.zarr", 100, sources=sources, targets=targets)
    found = picture_of(tmp_path / "m.zarr", 512)
    np.testing.assert_allclose(found.image, expected(entries, np.inf, 512))
    near = picture_of(tmp_path / "m.zarr", 512, order="near")
    assert sorted(near.image[np.isfinite(near.image)]) == sorted(entries[np.isfinite(entries)])


def test_a_budget_picks_bands_evenly_and_reads_nothing_else(tmp_path):
    entries = make_store(tmp_path / "m.zarr", 640, "int32")
    found = picture_of(tmp_path / "m.zarr", 10, budget=5 * 64 * 640 * 4 + 100)
    whole = expected(entries, UNREACHABLE["int32"], 10)
    assert found.rows_read == 5 * 64
    # bands 1, 3, 5, 7, 9 were read; what was not looks like the one above, the first like the first that was
    np.testing.assert_allclose(found.image, whole[[1, 1, 1, 3, 3, 5, 5, 7, 7, 9]])
    assert picture_of(tmp_path / "m.zarr", 10, budget=1).rows_read == 64


def test_memory_is_that_of_a_band_not_of_the_matrix(tmp_path):
    n = 3000
    make_store(tmp_path / "m.zarr", n, "int32")
    picture_of(tmp_path / "m.zarr", 64, budget=1)
    tracemalloc.start()
    try:
        picture_of(tmp_path / "m.zarr", 64)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * n * 4 / 2


def test_reading_stops_when_asked(tmp_path):
    make_store(tmp_path / "m.zarr", 200)

    class Stop(Monitor):
        def cancelled(self) -> bool:
            return True

    with pytest.raises(Cancelled):
        picture_of(tmp_path / "m.zarr", 8, monitor=Stop())


@pytest.mark.parametrize("directed", [False, True])
def test_the_near_order_keeps_neighbours_together(directed):
    """A shuffled path, cut into halves of halves: on average neighbours are a few places apart, not n / 3."""
    n = 500
    names = np.random.default_rng(1).permutation(n)
    arcs = csr_array((np.ones(n - 1), (names[:-1], names[1:])), shape=(n, n))
    if not directed:
        arcs = (arcs + arcs.T).tocsr()
    places = halved_places(arcs.indptr.astype(np.int64), arcs.indices.astype(np.int32))
    assert sorted(places) == list(range(n))
    assert np.abs(np.diff(places[names])).mean() < 8


@pytest.mark.parametrize("n", [0, 1, 3, 9])
def test_the_near_order_of_few_or_lonely_vertices(n):
    places = halved_places(np.zeros(n + 1, np.int64), np.zeros(0, np.int32))
    assert sorted(places) == list(range(n))


@pytest.fixture
def solved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A path of a hundred vertices."""
    graph = tmp_path / "g.csv"
    graph.write_text("from,to,length\n" + "".join(f"{k},{k + 1},2.5\n" for k in range(99)))
    assert main.run(["solve", str(graph), "--out", str(tmp_path / "m.zarr")]) == 0
    graph.unlink()
    capsys.readouterr()
    return tmp_path / "m.zarr"


@pytest.mark.parametrize(
    ("name", "begins"), [("m.png", b"\x89PNG\r\n"), ("m.SVG", b"<?xml"), ("m.pdf", b"%PDF")], ids=["png", "svg", "pdf"]
)
def test_pictures_are_drawn(solved, capsys, name, begins):
    out = solved.parent / name
    out.write_bytes(b"old")
    assert main.run(["plot", str(solved), "-o", str(out), "--side", "20", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"picture": str(out), "cells": [20, 20], "rows": 100, "rows_read": 100}
    assert out.read_bytes().startswith(begins)
    assert sorted(path.name for path in solved.parent.iterdir()) == sorted([name, "m.zarr"])


def test_plots_have_the_order_of_the_page_unless_they_are_asked_for_another(solved, monkeypatch):
    """The page and notebooks draw the matrix as it is stored; two pictures of one matrix can be compared."""
    orders = []

    def taken(matrix, *, order, **more):
        orders.append(order)
        return take_picture(matrix, order=order, **more)

    monkeypatch.setattr("service.cli.commands.plotting.take_picture", taken)
    for more in ([], ["--order", "near"]):
        assert main.run(["plot", str(solved), "-o", str(solved.parent / "m.png"), "--side", "20", *more]) == 0
    assert orders == ["label", "near"]


def test_every_kind_of_summary_can_be_drawn(tmp_path):
    """Two vertices and no arc: nothing is reached, so there is neither histogram nor mean nor eccentricity."""
    graph = tmp_path / "g.gr"
    graph.write_text("p sp 2 0\n")
    assert main.run(["solve", str(graph), "--out", str(tmp_path / "g.zarr")]) == 0
    assert main.run(["plot", str(tmp_path / "g.zarr"), "-o", str(tmp_path / "g.png")]) == 0


def test_eccentricities_between_which_no_number_lies_can_be_drawn(tmp_path):
    graph = tmp_path / "g.csv"
    graph.write_text("from,to,weight\na,b,1.5e17\nb,a,1.5e17\n")
    assert main.run(["solve", str(graph), "--out", str(tmp_path / "g.zarr")]) == 0
    assert main.run(["plot", str(tmp_path / "g.zarr"), "-o", str(tmp_path / "g.png")]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["STORE", "-o", "m.gif"], "m.gif should end in .png, .svg, .pdf"),
        (["STORE", "-o", "away/m.png"], "away does not exist"),
        (["nowhere.zarr", "-o", "m.png"], "nowhere.zarr"),
        (["STORE", "-o", "m.png", "--read", "much"], "--read: 'much' is no size"),
        (["STORE", "-o", "m.png", "--side", "0"], "side"),
        (["STORE"], "--out"),
    ],
)
def test_refusals(solved, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(solved.parent)
    assert main.run(["plot", *[str(solved) if word == "STORE" else word for word in arguments]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_without_matplotlib_it_says_how_to_get_it(solved, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main.run(["plot", str(solved), "-o", str(solved.parent / "m.png")]) == 2
    assert "pip install 'apsp[plot]'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_fails_by_name(solved, capsys):
    out = solved.parent / "taken.png"
    out.mkdir()
    assert main.run(["plot", str(solved), "-o", str(out)]) == 1
    assert "taken.png" in capsys.readouterr().err
    assert not list(solved.parent.glob(".taken*"))


def test_a_damaged_tile_is_no_picture(solved, capsys):
    tile = next(path for path in (solved / "distances" / "c").rglob("*") if path.is_file())
    data = bytearray(tile.read_bytes())
    data[10] ^= 1
    tile.write_bytes(data)
    assert main.run(["plot", str(solved), "-o", str(solved.parent / "m.png")]) == 1
    assert "damaged" in capsys.readouterr().err
    assert not (solved.parent / "m.png").exists()


def test_distances_of_a_real_solve_are_what_is_drawn(tmp_path):
    graph = tmp_path / "g.csv"
    graph.write_text("from,to,length\na,b,2\nb,c,3\nc,a,4\n")
    assert main.run(["solve", str(graph), "--out", str(tmp_path / "g.zarr")]) == 0
    found = picture_of(tmp_path / "g.zarr", 8)
    arcs = csr_array(([2.0, 3.0, 4.0], ([0, 1, 2], [1, 2, 0])), shape=(3, 3))
    np.testing.assert_allclose(found.image, shortest_path(arcs))


def test_a_prepared_graph_is_drawn_from_rows_that_are_found(tmp_path, capsys):
    from engine.api.prepared import prepare
    from tests.unit.engine.api.test_prepared import grid_graph

    prepare(grid_graph(13), tmp_path / "p")
    for read, rows in (("2GiB", 169), ("1", 64)):
        out = tmp_path / f"{rows}.svg"
        assert main.run(["plot", str(tmp_path / "p"), "-o", str(out), "--read", read, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["rows"], told["rows_read"]) == (169, rows)


def test_rows_that_are_read_are_observed(tmp_path):
    entries, seen = make_store(tmp_path / "m.zarr", 130, "int32"), []
    with open_matrix(tmp_path / "m.zarr") as matrix:
        monitor = Monitor()

        def observe(first, block):
            seen.append((first, np.array(block)))

        take_picture(matrix, side=8, budget=EVERYTHING, order="label", monitor=monitor, observe=observe)
    assert [first for first, _ in seen] == np.cumsum([0, *(len(block) for _, block in seen[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([block for _, block in seen]), entries)
