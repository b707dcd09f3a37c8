"""A store that comes file by file: nothing is believed but the seal, and nothing is there before all is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import Conflict, NotFound, StorageFailed
from storage.graph.graph import build_graph
from storage.matrix.download import Download, Piece, _is_of_quantity, labels_of, side_files
from storage.matrix.reader import open_matrix
from tests.stores import line_graph, make_store, verify_matrix

N = 150


@pytest.fixture(params=["none", "zstd"])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "origin.zarr"
    make_store(path, N, "uint16", compression=request.param)
    return path


def begin(origin: Path, target: Path, *, overwrite: bool = False) -> Download:
    return Download(target, (origin / "zarr.json").read_bytes(), overwrite=overwrite)


def bring(download: Download, origin: Path, pieces: list[Piece]) -> None:
    for piece in pieces:
        shutil.copy(origin / piece.name, download.draft(piece))
        assert download.accept(piece)


def tiles(download: Download, *, there: bool = False) -> list[Piece]:
    return [piece for piece, found in download.tiles() if found == there]


def test_a_store_that_comes_whole_is_put_in_place(origin, tmp_path):
    target = tmp_path / "target.zarr"
    with begin(origin, target) as download:
        assert download.total is None
        bring(download, origin, download.sides())
        lacking = tiles(download)
        assert len(lacking) == 3
        assert download.total == open_matrix(origin).bytes
        bring(download, origin, lacking)
        assert not target.exists()
        download.publish()
    verify_matrix(target)
    assert open_matrix(target).digest == open_matrix(origin).digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["origin.zarr", "target.zarr"]


def test_what_was_broken_off_is_gone_on_with_tiles_only(origin, tmp_path):
    target = tmp_path / "target.zarr"
    with begin(origin, target) as download:
        bring(download, origin, download.sides())
        bring(download, origin, tiles(download)[:2])
    assert not target.exists()
    with begin(origin, target) as download:
        bring(download, origin, download.sides())
        assert len(tiles(download, there=True)) == 2
        bring(download, origin, tiles(download))
        download.publish()
    verify_matrix(target)


def test_a_kept_tile_that_was_damaged_meanwhile_is_asked_for_again(origin, tmp_path):
    with begin(origin, tmp_path / "target.zarr") as download:
        bring(download, origin, download.sides())
        bring(download, origin, tiles(download))
    kept = tmp_path / ".target.zarr.working" / "store" / "distances" / "c" / "1" / "0"
    data = bytearray(kept.read_bytes())
    data[100] ^= 1
    kept.write_bytes(data)
    with begin(origin, tmp_path / "target.zarr") as download:
        bring(download, origin, download.sides())
        assert [piece.name for piece in tiles(download)] == ["distances/c/1/0"]


@pytest.mark.parametrize("name", ["source/c/0", "distances/zarr.json", "distances/c/0/0"])
@pytest.mark.parametrize("harm", ["flip", "cut", "longer"])
def test_a_file_that_is_not_what_was_sealed_is_not_accepted(origin, tmp_path, name, harm):
    with begin(origin, tmp_path / "target.zarr") as download:
        bring(download, origin, download.sides())
        [piece] = [piece for piece in [*download.sides(), *tiles(download)] if piece.name == name]
        data = bytearray((origin / name).read_bytes())
        data[len(data) // 2] ^= 1
        whole = (origin / name).read_bytes()
        download.draft(piece).write_bytes({"flip": bytes(data), "cut": whole[:-1], "longer": whole + b"x"}[harm])
        assert not download.accept(piece)
        assert not download.draft(piece).exists()


def test_another_store_does_not_go_on_with_this_one(origin, tmp_path):
    other = tmp_path / "other.zarr"
    make_store(other, 7)
    target = tmp_path / "target.zarr"
    with begin(origin, target) as download:
        bring(download, origin, download.sides())
        bring(download, origin, tiles(download))
    with pytest.raises(Conflict, match="begin anew"):
        begin(other, target)
    with begin(other, target, overwrite=True) as download:
        bring(download, other, download.sides())
        assert tiles(download, there=True) == []
        bring(download, other, tiles(download))
        download.publish()
    assert open_matrix(target).shape == (7, 7)


def test_two_at_once_and_a_target_that_is_taken(origin, tmp_path):
    target = tmp_path / "target.zarr"
    with begin(origin, target), pytest.raises(Conflict, match="another process"):
        begin(origin, target)
    with pytest.raises(Conflict, match="exists already"):
        begin(origin, origin)
    with pytest.raises(NotFound, match="does not exist"):
        begin(origin, tmp_path / "no" / "target.zarr")
    target.mkdir()
    (target / "precious").touch()
    with pytest.raises(Conflict, match="no matrix store"):
        begin(origin, target, overwrite=True)


def test_a_seal_that_is_none_is_refused(origin, tmp_path):
    document = json.loads((origin / "zarr.json").read_bytes())
    document["attributes"]["seal"]["files"]["source/c/0"][1] ^= 1
    for data in (b"<html>", b"{}", json.dumps(document).encode()):
        with pytest.raises(StorageFailed):
            Download(tmp_path / "target.zarr", data)
    assert [path.name for path in tmp_path.iterdir()] == ["origin.zarr"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "a\\b", ".x", "zarr.json\0", "a-b", ""])
def test_names_that_lead_elsewhere_are_refused(origin, tmp_path, name, monkeypatch):
    monkeypatch.setattr("storage.matrix.format._digest", lambda document: "sha256:any")
    document = json.loads((origin / "zarr.json").read_bytes())
    document["attributes"]["seal"] |= {"files": {name: [1, 1]}, "digest": "sha256:any"}
    with pytest.raises(StorageFailed, match="which no store has"):
        Download(tmp_path / "target.zarr", json.dumps(document).encode())


@pytest.mark.parametrize(
    "name",
    [
        "also/../zarr.json", "also/./c/0/0", "also/a/b/zarr.json", "also/.a/zarr.json", "also/a\n/zarr.json",
        "also/a/zarr.json\n", "also/a/x", "also/a/c/../0", "also/a/c/0/٠", "graph/quantities/../zarr.json",
        "manifest/also.../c/0", "manifest/also.a.crc32c/../x", "manifest/also.a.other/c/0/0", "manifest/also.a/c/0",
        "also/a./zarr.json", "also//zarr.json", "ALSO/a b/zarr.json",
    ],
)  # fmt: skip
def test_names_of_quantities_lead_nowhere_else(name):
    assert not _is_of_quantity(name)


def test_a_seal_whose_quantities_lead_elsewhere_is_refused(origin, tmp_path, monkeypatch):
    monkeypatch.setattr("storage.matrix.format._digest", lambda document: "sha256:any")
    document = json.loads((origin / "zarr.json").read_bytes())
    document["attributes"]["seal"]["digest"] = "sha256:any"
    for also in ({"../x": {}}, {"a": {}, "b/c": {}}, ["."], 3):
        document["attributes"]["also"] = also
        with pytest.raises(StorageFailed, match="further arrays cannot be understood"):
            Download(tmp_path / "target.zarr", json.dumps(document).encode())


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_sums_come_with_the_distances(tmp_path, compression):
    names = ("toll 2.5%", "a-c-0", "crc32c", "größe")
    graph, _ = build_graph([0, 1], [1, 2], [1, 2], n=3, directed=True, quantities={key: [1, 2] for key in names})
    solve_to_store(graph, Options(also=names), tmp_path / "origin.zarr", compression=compression)
    with begin(tmp_path / "origin.zarr", tmp_path / "target.zarr") as download:
        bring(download, tmp_path / "origin.zarr", download.sides())
        lacking = tiles(download)
        assert [piece.name for piece in lacking] == ["distances/c/0/0", *(f"also/{name}/c/0/0" for name in names)]
        assert download.total == open_matrix(tmp_path / "origin.zarr").bytes
        assert len({download.draft(piece) for piece in (*download.sides(), *lacking)}) == len(
            [*download.sides(), *lacking]
        )
        bring(download, tmp_path / "origin.zarr", lacking)
        download.publish()
    verify_matrix(tmp_path / "target.zarr")
    with open_matrix(tmp_path / "target.zarr") as matrix:
        assert {name: int(sums.entries([0], [2])[0]) for name, sums in matrix.also.items()} == dict.fromkeys(names, 3)


@pytest.mark.parametrize("text", [False, True])
def test_labels_are_read_from_the_files_as_they_came(tmp_path, text):
    store, labels = tmp_path / "small.zarr", line_graph(3, text=text).labels
    make_store(store, 3, text=text)
    document = (store / "zarr.json").read_bytes()
    files = {name: (store / name).read_bytes() for name in side_files(document, ("source", "target"))}
    assert sorted(files) == ["source/c/0", "source/zarr.json", "target/c/0", "target/zarr.json"]
    assert labels_of(document, files, "source") == labels_of(document, files, "target") == labels.tolist()
    files["source/c/0"] = files["source/c/0"][:-1] + b"?"
    with pytest.raises(StorageFailed, match="source/c/0 arrived damaged"):
        labels_of(document, files, "source")
