"""Damaged files: each is refused by the reader that met it, with a sentence, and never read as something else."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import os
import subprocess
import threading
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from storage import readers
from storage.errors import InvalidGraph, LimitExceeded, NotFound, StorageFailed
from storage.readers import ReadLimits, read_graph, unforeseen
from tests.commands import APSP


def refused(tmp_path: Path, content: str | bytes, words: str, **options: object) -> None:
    path = tmp_path / "g"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidGraph) as caught:
        read_graph(path, **options)  # type: ignore[arg-type]
    assert words in str(caught.value)


# ---------------------------------------------------------------- NumPy


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(72)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3), }}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (True, True), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -3), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 3L",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': 3, }",
        b"{'descr': ('<f8',), 'fortran_order': False, 'shape': (3, 3), }",
        b"{'descr': [[]], 'fortran_order': False, 'shape': (3, 3), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (3, 3), }",
        b"{[]: 1}",
        b"(" * 9000,
        b"'\\x",
        b"\xff" * 40,
        b"",
    ],
)
def test_headers_of_arrays(tmp_path: Path, header: bytes) -> None:
    refused(tmp_path, npy(header), "the array")


def archive(**members: np.ndarray) -> bytes:  # type: ignore[type-arg]
    out = io.BytesIO()
    matrix = scipy.sparse.csr_array((np.ones(40), (np.arange(40), np.arange(40)[::-1])), shape=(40, 40))
    scipy.sparse.save_npz(out, matrix)
    with zipfile.ZipFile(out) as whole:
        parts = {info.filename: whole.read(info) for info in whole.infolist()}
    for name, array in members.items():
        raw = io.BytesIO()
        np.save(raw, array)
        parts[f"{name}.npy"] = raw.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, raw_bytes in parts.items():
            whole.writestr(name, raw_bytes)
    return out.getvalue()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"format": np.array(["csr", "csc"])}, "format.npy holds 2 values"),
        ({"shape": np.array([True, True])}, "a square matrix"),
        ({"shape": np.array([40.0, 40.0])}, "a square matrix"),
        ({"shape": np.arange(1000)}, "a square matrix"),
        ({"data": np.ones((40, 1))}, "the weights are float64 of 2 axes"),
    ],
)
def test_members_of_archives(tmp_path: Path, members: dict[str, np.ndarray], words: str) -> None:  # type: ignore[type-arg]
    refused(tmp_path, archive(**members), words)


def test_a_member_that_is_there_twice(tmp_path: Path) -> None:
    out = io.BytesIO(archive())
    with zipfile.ZipFile(out, "a") as whole, pytest.warns(UserWarning, match="Duplicate name"):
        whole.writestr("data.npy", whole.read("data.npy"))
    refused(tmp_path, out.getvalue(), "twice")


def test_every_flipped_byte_of_an_archive_is_told_or_harmless(tmp_path: Path) -> None:
    """Decompressors, CRCs, offsets and names: whatever breaks is refused by the reader itself."""
    good = archive()
    path = tmp_path / "g"
    outcomes = set()
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        try:
            read_graph(path, format="npz")
            outcomes.add("read")
        except InvalidGraph:
            outcomes.add("refused")
        except LimitExceeded:
            outcomes.add("limited")
    assert "refused" in outcomes


# ---------------------------------------------------------------- XML


@pytest.mark.parametrize("encoding", ["utf-9", "punycode", "hex", "idna", "utf-32", "shift_jis"])
def test_encodings_that_the_parser_lacks(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><graphml><graph edgedefault="directed"/></graphml>'
    refused(tmp_path, text, f"line 1: XML in the encoding '{encoding}' is not read")


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8", "ISO-8859-1", "windows-1252", "us-ascii"])
def test_encodings_that_it_knows(tmp_path: Path, encoding: str) -> None:
    nodes = '<node id="1"/><node id="2"/><edge source="1" target="2"/>'
    text = (
        f"<?xml version='1.0' encoding='{encoding}'?><graphml><graph edgedefault='directed'>{nodes}</graph></graphml>"
    )
    (tmp_path / "g").write_text(text)
    assert read_graph(tmp_path / "g")[0].m == 1


TWO = '<node id="1"/><node id="2"/>'
EDGE = '<edge source="1" target="2">'


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (f'{TWO}{EDGE}<edge source="2" target="1"/></edge>', "<edge> stands inside <edge>"),
        (f'<node id="1"><node id="2"/></node>{EDGE}</edge>', "<node> stands inside <node>"),
        (f'<node id="1"><graph edgedefault="directed"><node id="2"/></graph></node>{EDGE}</edge>', "no plain graph"),
        (f'{TWO}{EDGE}<data key="weight">5</data><data key="weight">6</data></edge>', "'weight' stands twice"),
        (f'{TWO}{EDGE}<data key="weight">1{chr(10) * 5000}5</data></edge>', "is not a number"),
        (f"{TWO}{EDGE}</edge>{'<x>' * 200}{'</x>' * 200}", "nested deeper than 100"),
    ],
)
def test_elements_of_graphml_out_of_place(tmp_path: Path, inside: str, words: str) -> None:
    refused(tmp_path, f'<graphml><graph edgedefault="directed">{inside}</graph></graphml>', words)


def test_elements_of_other_programs_stand_in_data(tmp_path: Path) -> None:
    other = (
        '<data key="d"><y:edge><y:node id="1"/><data key="weight">9</data></y:edge></data><data key="weight">5</data>'
    )
    text = f'<graphml xmlns:y="y"><graph edgedefault="directed">{TWO}{EDGE}{other}</edge></graph></graphml>'
    (tmp_path / "g").write_text(text)
    assert read_graph(tmp_path / "g")[0].weights.tolist() == [5]


# ---------------------------------------------------------------- GML


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("edge [ source 1 target 2 target 1 weight 5 ]", "line 2: 'target' of this edge stands twice"),
        ("edge [ source 1 target 2 weight 5 weight 6 ]", "line 2: 'weight' of this edge stands twice"),
        ("edge [ source 1 target 2 weight [ x 5 ] ]", "line 2: 'weight' of this edge is a list"),
        ("edge [ source 1 target 2 ] node [ id 3 id 4 ]", "line 2: 'id' of this node stands twice"),
        ("edge [ source 1 target 2 ]\ndirected 7", "line 3: 'directed' '7' is neither 0 nor 1"),
        ("edge [ source 1 target 2 ] directed 1 directed 0", "line 2: 'directed' stands twice"),
        ("edge [ source 1 target 2 ] ] graph [", "line 2: a second graph in one file"),
    ],
)
def test_gml_that_says_two_things(tmp_path: Path, inside: str, words: str) -> None:
    refused(tmp_path, f"graph [ node [ id 1 ] node [ id 2 ]\n{inside} ]\n", words)


def test_gml_keys_that_do_not_matter_may_repeat(tmp_path: Path) -> None:
    (tmp_path / "g").write_text("graph [ node [ id 1 tag 1 tag 2 ] node [ id 2 ] edge [ source 1 target 2 x 1 x 2 ] ]")
    assert read_graph(tmp_path / "g")[0].m == 1


# ---------------------------------------------------------------- METIS and other lists


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_only_blanks_and_tabs_separate_numbers(tmp_path: Path, odd: str, encoding: str) -> None:
    text = f"4 3\n2\n1{odd}3\n2 {odd} 4\n3\n".encode(encoding)
    for directed in (None, True):
        refused(tmp_path, text, "line 3", format="metis", directed=directed)
    refused(tmp_path, f"1 2 5\n1{odd}3 6\n".encode(encoding), "line 2", format="edges")
    refused(tmp_path, f"p sp 3 1\na 1{odd}2 3\n".encode(encoding), "line 2", format="dimacs")
    refused(tmp_path, f"2\n1\n0{odd}1 3\n".encode(encoding), "line 3", format="algs4")
    head = "DIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n"
    refused(tmp_path, f"{head}0 1\n1{odd}0\n".encode(encoding), "line 6", format="tsplib")


def test_tsplib_that_says_two_things(tmp_path: Path) -> None:
    head = "DIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nDIMENSION: 3\nEDGE_WEIGHT_SECTION\n0 1\n1 0\n"
    refused(tmp_path, head, "line 3: DIMENSION stands also on line 1", format="tsplib")


# ---------------------------------------------------------------- Parquet


def test_a_panic_of_polars_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*args: object) -> None:
        raise pl.exceptions.PanicException("range end index 900 out of range")

    out = io.BytesIO()
    pl.DataFrame({"source": [1], "target": [2]}).write_parquet(out)
    monkeypatch.setattr(pl, "scan_parquet", panic)
    refused(tmp_path, out.getvalue(), "the Parquet file is damaged: range end index 900")


# ---------------------------------------------------------------- wide rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"," * (2 << 20), "a row of more than 1,048,576 bytes"),
        (b"1 " * (1 << 20) + b"\n", "a row of more than 1,048,576 bytes"),
        (b"1,2,3\n" + b"1," * (3 << 20), "line 2: a row of more than 1,048,576 bytes"),
        (b'1,2,"3"\n' + b'"1",' * (2 << 20), "line 2: a row of more than 1,048,576 bytes"),
        (b"," * 1000 + b"\n", "line 1: a row of 1,001 fields: rows of edges have at most 1,000"),
        (b"# c\n" + b"1\t" * 30_000 + b"1\n", "line 2: a row of 30,001 fields"),
        (b"<NUMBER OF NODES> 2\n<END OF METADATA>\n" + b"1\t" * 3000 + b"1\n", "a row of 3,001 fields"),
    ],
)
def test_wide_rows(tmp_path: Path, text: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = pl.read_csv

    def narrow(*args: object, schema: dict[str, pl.DataType], **kwargs: object) -> pl.DataFrame:
        assert len(schema) <= 1000
        return parse(*args, schema=schema, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(pl, "read_csv", narrow)
    refused(tmp_path, text, words)


def test_as_many_columns_as_may_be(tmp_path: Path) -> None:
    names = ["source", "target", *(f"c{i}" for i in range(997)), "weight"]
    rows = [",".join(names), ",".join(["a", "b", *["x"] * 997, "5"])]
    (tmp_path / "g").write_text("\n".join(rows))
    assert read_graph(tmp_path / "g")[0].weights.tolist() == [5]


# ---------------------------------------------------------------- the net


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), pl.exceptions.PanicException("y"), RecursionError("z")])
def test_an_unforeseen_error_is_a_refusal_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(source: object) -> str:
        raise error

    monkeypatch.setattr(readers, "unforeseen", unforeseen)
    monkeypatch.setattr(readers, "detect", fail)
    with caplog.at_level(logging.ERROR):
        refused(tmp_path, "1 2\n", f"the file could not be read as a graph: {type(error).__name__}: {error}")
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("error", [MemoryError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_fault_of_the_file_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(source: object) -> str:
        raise error

    monkeypatch.setattr(readers, "unforeseen", unforeseen)
    monkeypatch.setattr(readers, "detect", fail)
    (tmp_path / "g").write_text("1 2\n")
    with pytest.raises(type(error)):
        read_graph(tmp_path / "g")


# ---------------------------------------------------------------- pipes


def through_a_pipe(tmp_path: Path, content: bytes, **limits: int) -> tuple[int, str | None]:
    """Vertices and compression of a graph that another thread writes into a named pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            path.write_bytes(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        graph, receipt = read_graph(path, limits=ReadLimits(**limits))
    finally:
        writer.join()
    return graph.n, receipt.compression


def test_a_graph_comes_through_a_pipe(tmp_path: Path) -> None:
    rows = b"".join(b"%d %d 5\n" % (i, i + 1) for i in range(200_000))
    assert through_a_pipe(tmp_path, rows) == (200_001, None)
    (tmp_path / "pipe").unlink()
    assert through_a_pipe(tmp_path, gzip.compress(rows[: rows.index(b"\n9090 ") + 1])) == (9091, "gzip")


def test_inspect_reads_standard_input() -> None:
    command = [*APSP, "inspect", "--json", "/dev/stdin"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, input=b"a,b,5\nb,c,6\n", capture_output=True, check=True, cwd=root)
    assert json.loads(done.stdout)["vertices"] == 3


def test_an_array_comes_through_a_pipe(tmp_path: Path) -> None:
    out = io.BytesIO()
    np.save(out, np.ones((5, 5)))
    assert through_a_pipe(tmp_path, out.getvalue()) == (5, None)


def test_an_empty_pipe(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match="the file is empty"):
        through_a_pipe(tmp_path, b"")


def test_a_pipe_without_end_is_refused_at_the_limit(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded, match="max_bytes"):
        through_a_pipe(tmp_path, b"1 2 3\n" * 1_000_000, max_bytes=100_000)


def test_a_disk_without_room_for_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageFailed, match=r"a temporary file in .*absent cannot be written: No such file"):
        read_graph(tmp_path / "pipe")


def test_devices_are_no_graphs() -> None:
    with pytest.raises(InvalidGraph, match="/dev/null is neither a file nor a pipe"):
        read_graph("/dev/null")
    with pytest.raises(NotFound, match="cannot open"):
        read_graph("/dev/absent")
