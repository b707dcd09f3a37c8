"""Tables by vertex: read with the line of every mistake, written whole or not at all."""

import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.graph.vertex_table import frame_of, read_table, write_table

NAMES = np.array(["a", "b", "c"], np.dtypes.StringDType())
NUMBERS = np.array([5, 7, 10])


def test_columns_are_in_the_order_of_the_labels(tmp_path):
    (tmp_path / "t.csv").write_text("place,jobs,beds\nc, 3 ,1e2\na,1,0\n")
    found = read_table(tmp_path / "t.csv", NAMES)
    assert {name: column.tolist() for name, column in found.items()} == {"jobs": [1, 0, 3], "beds": [0, 0, 100]}
    assert list(read_table(tmp_path / "t.csv", NAMES, ["beds"])) == ["beds"]


@pytest.mark.parametrize("key", [[10, 5], ["10", "5"]])
def test_vertices_that_are_numbers(tmp_path, key):
    pl.DataFrame({"v": key, "jobs": [2.5, 1.0]}).write_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", NUMBERS)["jobs"].tolist() == [1, 0, 2.5]


@pytest.mark.parametrize(("more", "jobs"), [("", [1, 0, 0, 4]), ('"a",2\nb ,3\n', [1, 2, 3, 4])])
def test_white_space_is_part_of_a_name_that_has_it(tmp_path, more, jobs):
    (tmp_path / "t.csv").write_text('v,jobs\n" a",1\n"\u00a0a",4\n' + more)
    names = np.array([" a", "a", "b", "\u00a0a"], np.dtypes.StringDType())
    assert read_table(tmp_path / "t.csv", names)["jobs"].tolist() == jobs


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("v,jobs\na,1\nx,2\n", NotFound, "line 3: no vertex 'x'"),
        ("v,jobs\na,1\n,2\n", NotFound, "line 3: no vertex ''"),
        ("v,jobs\na,1\nb,2\na,3\n", InvalidRequest, "line 4: vertex a was named before"),
        ("v,jobs\na,many\n", InvalidRequest, "line 2: column 'jobs' is 'many'"),
        ("v,jobs\na,1\nb,\n", InvalidRequest, "line 3: column 'jobs' is None"),
        ("v,jobs\na,inf\n", InvalidRequest, "no finite number"),
        (
            "v,jobs\na,0e-500\nb, 1e-400 \nc,-1e-400\n",
            InvalidRequest,
            "line 3: column 'jobs' is '1e-400', which is so small that float64 would take it for 0: give all of them",
        ),
        ("v\na\n", InvalidRequest, "no column of numbers after 'v'"),
        ("a,1200\nb,300\n", InvalidRequest, "line 1: 'a' is a vertex and '1200' a number"),
        ("v,jobs\na,1,2\n", InvalidRequest, "cannot be read as a table"),
        ("v,jobs,beds,jobs\na,1,2,3\n", InvalidRequest, "line 1: two columns are called 'jobs'; rename one"),
        ("", InvalidRequest, "cannot be read as a table"),
        ("v,jobs\n", InvalidRequest, "no row with an entry below the names of its columns"),
        ("v,jobs\n,\n ,\n", InvalidRequest, "no row with an entry below the names of its columns"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, error, said):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(error, match=said):
        read_table(tmp_path / "t.csv", NAMES)


def test_zeros_may_be_written_in_any_way(tmp_path):
    (tmp_path / "t.csv").write_text("v,jobs\na,0e-500\nb,-0.0\nc, .0 \n")
    assert read_table(tmp_path / "t.csv", NAMES)["jobs"].tolist() == [0, 0, 0]


def test_a_header_may_have_numbers_or_the_name_of_a_vertex(tmp_path):
    (tmp_path / "t.csv").write_text("place,2020,2030\na,1,2\n")
    assert read_table(tmp_path / "t.csv", NAMES)["2030"].tolist() == [2, 0, 0]
    (tmp_path / "t.csv").write_text("b,jobs\na,1\n")
    assert read_table(tmp_path / "t.csv", NAMES)["jobs"].tolist() == [1, 0, 0]


def test_mistakes_of_parquet_are_named_with_their_row(tmp_path):
    pl.DataFrame({"v": ["a", "x"], "jobs": [1, 2]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(NotFound, match="row 2: no vertex 'x'"):
        read_table(tmp_path / "t.parquet", NAMES)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InvalidRequest, match="cannot be read as a table"):
        read_table(tmp_path / "t.parquet", NAMES)


def test_files_and_columns_that_are_not_there(tmp_path):
    (tmp_path / "t.csv").write_text("v,jobs\na,1\n")
    with pytest.raises(NotFound, match="no column 'beds' after the first; there are jobs"):
        read_table(tmp_path / "t.csv", NAMES, ["beds"])
    with pytest.raises(NotFound, match="cannot open"):
        read_table(tmp_path / "away.csv", NAMES)
    with pytest.raises(InvalidRequest, match="must end in"):
        read_table(tmp_path / "t.txt", NAMES)


def test_a_table_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    frame = frame_of(NAMES, np.array([2, 0]), {"near": np.array([-1, 1]), "far": np.array([np.nan, 2])}, {"near"})
    assert frame.to_dict(as_series=False) == {"vertex": ["c", "a"], "near": [None, "b"], "far": [None, 2.0]}
    write_table(frame, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "vertex,near,far\nc,,\na,b,2.0\n"

    def fail(self, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_csv", fail)
    with pytest.raises(StorageFailed, match="No space left"):
        write_table(frame.head(1), tmp_path / "t.csv", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert "a,b" in (tmp_path / "t.csv").read_text()
