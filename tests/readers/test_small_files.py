"""A small file is read line by line, without polars, to the same graph, or the same refusal, as a large one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from storage.errors import ApspError
from storage.graph.cleaning import ArcList
from storage.readers import read_graph
from storage.readers.columns import TextLabels
from storage.readers.tables import table

#: Files of any size are worth comparing, but not the seconds that a large one takes line by line.
LARGEST = 600_000

SAMPLES = {
    "names.csv": "from,to,km\nb,a,1.5\nä,b,2\n'c d',ä,3\n",
    "spellings.txt": "# c\n1 02 3\n2 1 +4\n",
    "huge.txt": "1 2 9007199254740993\n",
    "quoted.csv": 'u,v,w\n"x, y",z,1\nz,"x, y",2e0\n',
    "commas.csv": "u;v;w\n1;2;0,5\n2;3;1,25\n",
    "whole.csv": "1,2,3.0\n2,3,4\n",
    "short.csv": "1,2,3\n2,3\n",
    "infinite.csv": "1,2,inf\n2,1,4\n",
    "not.csv": "1,2,3\n2,3,x\n",
    "matrix.csv": "0,1,2\n1,0,3\n2,3,0\n",
    "square.csv": ",a,b\na,0,1\nb,2,0\n",
    "blank.txt": "\n\n1\t 2  3\n\n 2 3 4 \n",
}


def outcome(path: Path) -> object:
    try:
        graph, receipt = read_graph(path)
    except ApspError as error:
        return type(error), str(error)
    arrays = [graph.indptr, graph.heads, graph.weights, graph.labels]
    return [a.tolist() for a in arrays], [str(a.dtype) for a in arrays], graph.directed, graph.weighted, receipt


def check_alike(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_columns = outcome(path)
    with monkeypatch.context() as patch:
        patch.setattr(table, "FEW_BYTES", LARGEST)
        patch.setattr("storage.readers.columns.FEW_NAMES", LARGEST)
        assert outcome(path) == by_columns, path.name


@pytest.mark.parametrize("name", list(SAMPLES))
def test_samples(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text(SAMPLES[name])
    check_alike(tmp_path / name, monkeypatch)


@pytest.mark.data
def test_real_and_broken_files(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(file for folder in (data_dir, data_dir / "broken") for file in folder.iterdir())
    small = [file for file in files if file.is_file() and file.stat().st_size <= LARGEST // 3]
    assert len(small) > 60
    for file in small:
        check_alike(file, monkeypatch)


@pytest.mark.parametrize("few", [0, 3, 5, 99])
def test_names_keep_their_codes_when_there_come_many(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.readers.columns.FEW_NAMES", few)
    labels, blocks = TextLabels(), [["b", "ä", "b"], ["c", "ä"], ["", "z", "b"], ["a"]]
    codes = np.concatenate([labels.encode(block) for block in blocks])
    assert len(labels) == 6
    arcs = ArcList(codes.astype(np.int64), codes.astype(np.int64), None)
    names = labels.finish(arcs)
    assert names.tolist() == sorted({name for block in blocks for name in block})
    assert names[arcs.tails].tolist() == names[arcs.heads].tolist() == [name for block in blocks for name in block]


def test_a_small_file_needs_no_polars(tmp_path: Path) -> None:
    small = ("names.csv", "whole.csv", "square.csv")
    for name in small:
        (tmp_path / name).write_text(SAMPLES[name])
    code = (
        "import sys; from storage.readers import read_graph; "
        "[read_graph(name) for name in sys.argv[1:]]; "
        "sys.exit(' '.join({'polars', 'scipy', 'numba', 'zarr'} & set(sys.modules)))"
    )
    files = [str(tmp_path / name) for name in small]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
