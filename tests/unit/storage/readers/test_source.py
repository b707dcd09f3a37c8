"""Compression, encodings, line ends and limits: what lies below every format."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from storage.errors import InvalidGraph, LimitExceeded, NotFound
from storage.files.zstd import zstd
from storage.readers import ReadLimits, read_graph
from storage.readers import source as source_module
from storage.readers.source import Source

LINES = b"".join(b"%d %d %d\n" % (i, i + 1, i % 7 + 1) for i in range(2000))


def text_of(path: Path, size: int | None = None) -> bytes:
    blocks = list(Source(path, ReadLimits()).blocks(size))
    line = 1
    for block in blocks:
        assert block.line == line
        assert block.data.endswith(b"\n")
        line += block.data.count(b"\n")
    return b"".join(block.data for block in blocks)


def with_checksum(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


@pytest.mark.parametrize("size", [1, 17, 4096, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_and_blocks_do_not_show(
    tmp_path: Path, size: int, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "BLOCK", size)
    path = tmp_path / "g.txt"
    data = LINES[:3000] if size == 1 else LINES
    path.write_bytes(data.replace(b"\n", end))
    assert text_of(path, size) == (data if data.endswith(b"\n") else data + b"\n")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_encodings_with_a_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes("# Straße\n1 2\n".encode(encoding))
    assert text_of(path) == "# Straße\n1 2\n".encode()


def test_utf_16_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(b"\xfe\xff" + "1 2\n2 3\n".encode("utf-16-be"))
    assert read_graph(path)[0].m == 2


def test_damaged_utf_16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes("1 2\n".encode("utf-16") + b"\x00")
    with pytest.raises(InvalidGraph, match="UTF-16"):
        read_graph(path)


@pytest.mark.parametrize(
    ("pack", "suffix", "name"),
    [
        (gzip.compress, ".gz", "gzip"),
        (lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]), ".gz", "gzip"),
        (with_checksum, ".zst", "zstd"),
        (lambda data: with_checksum(data[:5000]) + with_checksum(data[5000:]), ".zst", "zstd"),
        (with_checksum, "", "zstd"),
    ],
    ids=["gzip", "gzip members", "zstd", "zstd frames", "by content"],
)
def test_compressed_files(tmp_path: Path, pack, suffix: str, name: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / f"g.txt{suffix}"
    path.write_bytes(pack(LINES))
    graph, receipt = read_graph(path)
    assert (graph.n, graph.m, receipt.compression) == (2001, 2000, name)


def test_zstd_is_unpacked_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "g.txt.zst"
    content = b"1 2\n" * (3 << 20) + LINES
    path.write_bytes(zstd.compress(content) + zstd.compress(LINES))
    pieces = list(Source(path, ReadLimits(max_ratio=10**6)).content())
    assert max(map(len, pieces)) <= 1 << 20
    assert b"".join(pieces) == content + LINES


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (with_checksum, ".zst")])
def test_cut_streams_are_refused(tmp_path: Path, pack, suffix: str) -> None:  # type: ignore[no-untyped-def]
    packed = pack(LINES)
    path = tmp_path / f"g.txt{suffix}"
    for length in (len(packed) - 1, len(packed) // 2, 12):
        path.write_bytes(packed[:length])
        with pytest.raises(InvalidGraph, match="cut off"):
            read_graph(path)


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (with_checksum, ".zst")])
def test_flipped_bits_are_refused(tmp_path: Path, pack, suffix: str) -> None:  # type: ignore[no-untyped-def]
    packed = bytearray(pack(LINES))
    packed[len(packed) // 2] ^= 0x55
    path = tmp_path / f"g.txt{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InvalidGraph):
        read_graph(path)


def test_a_wrong_crc_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINES))
    packed[-8:-4] = zlib.crc32(b"else").to_bytes(4, "little")
    path = tmp_path / "g.txt.gz"
    path.write_bytes(packed)
    with pytest.raises(InvalidGraph, match="CRC"):
        read_graph(path)


def test_a_name_that_promises_otherwise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.txt.zst"
    path.write_bytes(gzip.compress(LINES))
    with pytest.raises(InvalidGraph, match="promises zstd"):
        read_graph(path)


def test_a_nul_byte_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(b"1 2\n2 3\n3 \x00 4\n")
    with pytest.raises(InvalidGraph, match="line 3: a NUL byte"):
        read_graph(path)


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BLOCK", 1 << 10)
    monkeypatch.setattr(source_module, "LINE", 1 << 12)
    path = tmp_path / "g.txt"
    path.write_bytes(b"1 2\n" + b"3" * 8000)
    with pytest.raises(InvalidGraph, match="a line of more than"):
        read_graph(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gr", tmp_path):
        with pytest.raises(NotFound, match="cannot open"):
            read_graph(path)


def test_the_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(LINES)
    for target in (path, tmp_path / "g.txt.gz"):
        target.write_bytes(gzip.compress(LINES) if target.suffix == ".gz" else LINES)
        with pytest.raises(LimitExceeded, match="max_bytes") as caught:
            read_graph(target, limits=ReadLimits(max_bytes=1000))
        assert caught.value.limit == 1000


@pytest.mark.parametrize(("setting", "value"), [("max_vertices", 2000), ("max_arcs", 1999)])
def test_the_count_limits(tmp_path: Path, setting: str, value: int) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(LINES)
    with pytest.raises(LimitExceeded, match=setting) as caught:
        read_graph(path, limits=ReadLimits(**{setting: value}))
    assert (caught.value.limit, caught.value.setting) == (value, setting)
    assert read_graph(path, limits=ReadLimits(**{setting: value + 1}))[0].m == 2000


def test_a_comment_may_be_latin_1_but_a_name_may_not(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_bytes(b"# Stra\xdfe\nA,B\nB,C\n")
    assert read_graph(path)[0].m == 2
    path.write_bytes(b"A,B\nB,Stra\xdfe\n")
    with pytest.raises(InvalidGraph, match="line 2: not valid UTF-8"):
        read_graph(path)
