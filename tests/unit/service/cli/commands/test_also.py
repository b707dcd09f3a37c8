"""``--also`` on the command line: solve, plan, query, export; what other commands and a service say to it."""

from __future__ import annotations

import json

import h5py
import numpy as np
import polars as pl
import pytest
import zarr

from engine.api import solve as solving
from engine.api.verify import verify_rows
from engine.model.dtypes import SUM_TYPES
from service.cli.main import run
from storage.errors import StorageFailed
from storage.files.checksum import crc32c
from storage.matrix.reader import open_matrix

ROADS = "from,to,minutes,metres,distance\na,b,4,3000,1\nb,d,4,3500,2\na,c,3,4000,3\nc,d,5,3900,4\nd,e,1,1,5\n"
READ = ["--from", "from", "--to", "to", "--weight", "minutes"]


@pytest.fixture
def store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roads.csv").write_text(ROADS)
    assert run(["solve", "roads.csv", *READ, "--also", "metres,distance", "-o", "s.zarr"]) == 0
    assert "metres (int32), distance (int32) along the paths" in capsys.readouterr().err
    return tmp_path / "s.zarr"


def test_query(store, capsys):
    assert run(["query", "s.zarr", "also", "a", "d"]) == 0
    assert capsys.readouterr().out == "distance\t8\nmetres\t6500\ndistance\t3\n"
    assert run(["query", "s.zarr", "also", "d", "a", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["also"] == {"metres": None, "distance": None}
    assert not answer["reachable"]


def test_tables_and_arrays(store, capsys):
    assert run(["export", "s.zarr", "-o", "t.csv", "--sources", "a", "--targets", "d,a"]) == 0
    assert (
        store.parent / "t.csv"
    ).read_text() == "source,target,distance,metres,also distance\na,d,8,6500,3\na,a,0,0,0\n"
    assert run(["export", "s.zarr", "-o", "t.csv", "--within", "4", "--sources", "a"]) == 0
    assert (store.parent / "t.csv").read_text().splitlines()[1:] == ["a,a,0,0,0", "a,b,4,3000,1", "a,c,3,4000,3"]
    assert run(["export", "s.zarr", "-o", "w.csv", "--wide", "--also", "metres", "--sources", "d"]) == 0
    assert (store.parent / "w.csv").read_text() == "source,a,b,c,d,e\nd,,,,0,1\n"
    assert run(["export", "s.zarr", "-o", "t.npy", "--also", "metres", "--sources", "d,a"]) == 0
    assert np.load(store.parent / "t.npy").tolist() == [[np.inf] * 3 + [0, 1], [0, 3000, 4000, 6500, 6501]]


TAKEN = [
    *("source", "source_name", "source_snap", "target", "target_name", "target_snap"),
    *("distance", "also distance", "also also distance", "weight", "geometry", "metres"),
]


def test_quantities_that_are_called_like_other_columns_keep_their_sums(tmp_path, monkeypatch):
    """In a table between points, with their names, their distances to vertices, and geometry."""
    monkeypatch.chdir(tmp_path)
    values = range(2, 2 + len(TAKEN))
    lines = [",".join(["u", "v", "minutes", *TAKEN]), ",".join(["a", "b", "1", *map(str, values)])]
    (tmp_path / "roads.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "nodes.csv").write_text("id,lon,lat\na,1,1\nb,1,2\n")
    (tmp_path / "points.csv").write_text("id,name,lon,lat\np,P,1,1\nq,Q,1,2\n")
    read = ["--from", "u", "--to", "v", "--weight", "minutes", "--nodes", "nodes.csv"]
    assert run(["solve", "roads.csv", *read, "--also", ",".join(TAKEN), "-o", "s.zarr"]) == 0
    for out, *features in (["t.csv"], ["t.parquet"], ["g.parquet", "--features", "lines"]):
        assert (
            run(["export", "s.zarr", "--sources", "points.csv", "--targets", "points.csv", "-o", out, *features]) == 0
        )
        table = pl.read_csv(out) if out.endswith(".csv") else pl.read_parquet(out)
        row = table.filter(pl.col("source") == "p", pl.col("target") == "q").to_dicts()[0]
        assert (row["source_name"], row["target_snap"], row["distance"]) == ("P", 0, 1)
        assert sorted(value for value in row.values() if type(value) is int)[1:] == list(values)
        for k, name in enumerate(TAKEN):
            assert row[name if name in ("weight", "metres") else f"also {name}"] == values[k]
        assert not features or isinstance(row["geometry"], bytes)


def test_sums_of_two_bytes_are_read_as_those_of_four(tmp_path, monkeypatch, capsys):
    """By every command, and by zarr with the value for *no path* that the array states."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{ends},13106,{toll}" for toll, ends in enumerate(("a,b", "b,c", "c,d", "d,e", "f,a"))]
    (tmp_path / "r.csv").write_text("\n".join(["u,v,metres,toll", *lines]))
    told = {}
    for name, also in (("short", None), ("wide", {"metres": SUM_TYPES["int32"], "toll": SUM_TYPES["int32"]})):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with monkeypatch.context() as patch:
            if also:
                patch.setattr(solving, "types_of_sums", lambda *_, also=also: also)
            words = ["solve", "../r.csv", "--from", "u", "--to", "v", "--unweighted", "--also", "metres,toll"]
            assert run([*words, "-o", "s.zarr"]) == 0
        assert "metres (uint16), toll (uint16) along the paths" in capsys.readouterr().err
        for words in (
            *(["export", "s.zarr", "-o", f"t.{kind}"] for kind in ("csv", "parquet", "omx")),
            *(["export", "s.zarr", "-o", f"{name[0]}.npy", "--also", name] for name in ("metres", "toll")),
            ["export", "s.zarr", "-o", "w.csv", "--wide", "--also", "metres"],
            ["export", "s.zarr", "-o", "near.csv", "--within", "2", "--sources", "b,a,e", "--targets", "c,b,f"],
            ["verify", "s.zarr", "--sample", "all"],
        ):
            assert run(words) == 0, words
        capsys.readouterr()
        for pair in ("ae", "ea", "cc", "fe"):
            assert run(["query", "s.zarr", "also", *pair, "--json"]) == 0
        told[name] = capsys.readouterr().out
    short, wide = tmp_path / "short", tmp_path / "wide"
    assert told["short"] == told["wide"]
    for name in ("t.csv", "w.csv", "near.csv", "m.npy", "t.npy"):
        assert (short / name).read_bytes() == (wide / name).read_bytes(), name
    assert pl.read_parquet(short / "t.parquet").equals(pl.read_parquet(wide / "t.parquet"))
    with h5py.File(short / "t.omx") as one, h5py.File(wide / "t.omx") as other:
        for name in ("distance", "metres", "toll"):
            np.testing.assert_array_equal(one["data"][name][:], other["data"][name][:])
    assert np.load(short / "m.npy").tolist()[5] == [13106, 26212, 39318, 52424, 65530, 0]
    for name, (kind, none) in {"short": ("uint16", 65534), "wide": ("int32", 2**30 - 1)}.items():
        array = zarr.open_array(tmp_path / name / "s.zarr" / "also" / "metres", mode="r")
        assert (array.dtype.name, array.attrs["unreachable"]) == (kind, none)
        floats = np.where(array[:] == none, np.inf, array[:].astype(float))
        np.testing.assert_array_equal(floats, np.load(short / "m.npy"))


def test_a_wrong_sum_is_found(store, capsys):
    assert run(["verify", "s.zarr"]) == 0
    tile = store / "also" / "metres" / "c" / "0" / "0"
    data = np.frombuffer(tile.read_bytes()[:-4], np.int32).copy()
    data[3] += 1
    tile.write_bytes(data.tobytes() + crc32c(data).to_bytes(4, "little"))
    capsys.readouterr()
    assert run(["verify", "s.zarr"]) == 1
    assert "its checksum" in capsys.readouterr().err
    with open_matrix(store) as matrix:
        matrix.also["metres"]._tiles._checksums[0, 0] = crc32c(data)
        with pytest.raises(StorageFailed, match="metres from a to d is 6501, and a new sum along the path is 6500"):
            verify_rows(matrix, "all")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["solve", "roads.csv", *READ, "--also", "nope", "-o", "x.zarr"], "--also nope: there is no column 'nope'"),
        (["solve", "roads.csv", *READ, "--also", "metres,metres", "-o", "x.zarr"], "names 'metres' twice"),
        (["solve", "roads.csv", *READ, "--also", "metres", "-o", "x.zarr", "--max-hops", "2"], "at most K arcs"),
        (["plan", "roads.csv", *READ, "--also", "metres", "--device", "cuda"], "made by processors"),
        (
            ["solve", "hole.csv", *READ, "--also", "metres", "-o", "x.zarr"],
            "line 2: --also metres: the weight is",
        ),
        (
            ["solve", "g.gr", "--also", "metres", "-o", "x.zarr"],
            "--also has no meaning for dimacs files",
        ),
        (["query", "plain.zarr", "also", "a", "b"], "distances only; apsp solve --also"),
        (["export", "s.zarr", "-o", "t.csv", "--also", "metres"], "has every quantity anyway"),
        (["near", "roads.csv", *READ, "--cutoff", "3", "-o", "n.csv", "--also", "metres"], "--also"),
    ],
)
def test_what_is_refused(store, capsys, words, told):
    (store.parent / "hole.csv").write_text("from,to,minutes,metres\na,b,4,\nb,c,1,5\n")
    (store.parent / "g.gr").write_text("p sp 2 1\na 1 2 3\n")
    if "plain.zarr" in words:
        assert run(["solve", "roads.csv", *READ, "-o", "plain.zarr"]) == 0
    capsys.readouterr()
    assert run(words) == 2
    assert told in capsys.readouterr().err
    assert not (store.parent / "x.zarr").exists()
