"""Files that promise more than they hold, or hold more than they show, allocate nothing large."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from storage.files.zstd import zstd

ROOT = Path(__file__).resolve().parents[2]
#: What refusing may cost: a block of text, its columns and a piece of unpacked text, not the gigabytes promised.
ALLOWED = 96 << 20

_CHILD = """
import json, os, sys
from pathlib import Path
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # readers have buffers for each thread
import polars, scipy.sparse
from storage.errors import ApspError
from storage.readers import read_graph

def status(key):
    return next(int(x.split()[1]) * 1024 for x in open("/proc/self/status") if x.startswith(key))

warm, *paths = sys.argv[1:]
read_graph(warm)
for path in paths:
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    try:
        read_graph(path)
        error = None
    except ApspError as caught:
        error = f"{type(caught).__name__}: {caught}"
    print(json.dumps([error, status("VmHWM") - before]))
"""

LAUGHS = "<!DOCTYPE graphml [<!ENTITY a '0123456789'>" + "".join(
    f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(9)
)


def text_bomb() -> bytes:
    return b"1 2 3\n" * (12 << 20)


def npz_bomb() -> bytes:
    out = io.BytesIO()
    scipy.sparse.save_npz(out, scipy.sparse.coo_array((np.ones(6 << 20), (np.zeros(6 << 20, int),) * 2), shape=(1, 1)))
    return out.getvalue()


def npy_header(shape: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return out.getvalue() + bytes(800)


def parquet_bomb() -> bytes:
    out = io.BytesIO()
    rows = 8 << 20
    pl.DataFrame({"source": np.zeros(rows, int), "target": np.ones(rows, int)}).write_parquet(out)
    return out.getvalue()


#: Name, content, and words of the refusal.
BOMBS = {
    "gzip.txt.gz": (lambda: gzip.compress(text_bomb()), "max_ratio"),
    "zstd.txt.zst": (lambda: zstd.compress(text_bomb()), "max_ratio"),
    "zstd-runs.txt.zst": (lambda: zstd.compress(b"1" * (200 << 20)), "max_ratio"),
    "sparse.npz": (npz_bomb, "max_ratio"),
    "dense.npy": (lambda: npy_header((100_000, 100_000)), "promises 80,000,000,000 bytes"),
    "dense.npy.gz": (lambda: gzip.compress(npy_header((100_000, 100_000))), "promises 80,000,000,000 bytes"),
    "table.parquet": (parquet_bomb, "max_ratio"),
    "huge.gr": (lambda: b"p sp 4000000000 1\na 1 2 3\n", "4,000,000,000 vertices"),
    "large.gr": (lambda: b"p sp 130000000 1\na 1 2 3\n", "only 1 arc follow"),
    "pace.gr": (lambda: b"p tw 130000000 1\n1 2\n", "only 1 arc follow"),
    "entries.mtx": (
        lambda: b"%%MatrixMarket matrix coordinate real general\n9 9 900000000000\n1 2 3\n",
        "900,000,000,000 arcs",
    ),
    "vertices.mtx": (
        lambda: b"%%MatrixMarket matrix coordinate real general\n130000000 130000000 1\n1 2 3\n",
        "only 1 arc follow",
    ),
    "array.mtx": (lambda: b"%%MatrixMarket matrix array real general\n46000 46000\n1\n", "so 2116000000 entries"),
    "lists.graph": (lambda: b"130000000 1\n2\n1\n", "but 2 lines follow"),
    "matrix.tsp": (
        lambda: (
            b"DIMENSION: 46000\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
            b"EDGE_WEIGHT_SECTION\n1 2\nEOF\n"
        ),
        "has 2116000000 entries, the file has 2",
    ),
    "digraph.txt": (lambda: b"130000000\n1\n0 1 2\n", "only 1 arc follow"),
    "counts.txt": (lambda: b"130000000 2\n0 1 5\n1 2 5\n", "only 2 arcs follow"),
    "net.tntp": (
        lambda: b"<NUMBER OF NODES> 130000000\n<END OF METADATA>\n~ init_node term_node length\n1 2 3\n",
        "only 1 arc follow",
    ),
    "vertices.net": (lambda: b"*Vertices 130000000\n*Arcs\n1 2\n", "only 1 arc follow"),
    "deep.json": (lambda: b'{"x": ' + b"[" * (8 << 20), "nested too deeply"),
    "wide.json": (lambda: b'{"x": [' + b"[]," * (8 << 20) + b"0]}", "more than 1 MiB of JSON"),
    "long.json": (lambda: b'{"x": "' + b"x" * (16 << 20) + b'"}', "more than 1 MiB of JSON"),
    "laughs.gexf": (
        f"{LAUGHS}]><gexf><graph><node id='&j;'/></graph></gexf>".replace("graphml", "gexf").encode,
        "entities are refused",
    ),
    "laughs.graphml": (
        f"{LAUGHS}]><graphml><graph><node id='&j;'/></graph></graphml>".encode,
        "entities are refused",
    ),
}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure peak memory")
def test_bombs_are_refused_without_allocating(tmp_path: Path) -> None:
    warm = tmp_path / "warm.txt"
    warm.write_text("1 2 3\n" * 100_000)
    for name, (make, _) in BOMBS.items():
        (tmp_path / name).write_bytes(make())
    paths = [str(tmp_path / name) for name in BOMBS]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(warm), *paths], cwd=ROOT, check=True, capture_output=True, text=True
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == len(BOMBS)
    for (name, (_, words)), (error, grown) in zip(BOMBS.items(), outcomes, strict=True):
        assert error is not None, name
        assert words in error, (name, error)
        assert grown < ALLOWED, (name, grown)
