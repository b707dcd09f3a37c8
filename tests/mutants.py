"""Real graph files and made ones, each changed in a random way: what the net brings, repeatable from a seed."""

from __future__ import annotations

import gzip
import io
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import scipy.sparse

from storage.files.zstd import zstd

#: Larger files are cut to about this length, at a line end where they are text.
LONGEST = 60_000
#: What a mutation puts in: numbers at the edge of types, words of the formats, odd characters.
WORDS = (
    *(
        b"0",
        b"-1",
        b"1",
        b"2147483648",
        b"9007199254740993",
        b"9223372036854775808",
        b"1e309",
        b"1e-400",
        b"-0",
        b"007",
    ),
    *(b"nan", b"inf", b"-inf", b"NA", b"+5", b"1.", b".5", b"1D2", b"0x10", b"1_0", b"1,5", b"9" * 30, b"4000000000"),
    *(
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b",",
        b";",
        b":",
        b'"',
        b"'",
        b"#",
        b"%",
        b"[",
        b"]",
        b"<",
        b">",
        b"&a;",
    ),
    *(
        b"\x00",
        b"\x0b",
        b"\x0c",
        b"\x1c",
        b"\x85",
        b"\xa0",
        b"\xc2\xa0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\\",
    ),
    *(
        b"p sp 3 3\n",
        b"a 1 2 3\n",
        b"edge [",
        b"node [",
        b"graph [",
        b"EOF",
        b"EDGE_WEIGHT_SECTION\n",
        b"<edge",
        b"</node>",
    ),
    *(
        b"symmetric",
        b"pattern",
        b"array",
        b"directed 1",
        b"DIMENSION: 5\n",
        b"<NUMBER OF NODES> 7\n",
        b"[0]",
        b"True",
        b"L",
    ),
)


def _arcs(n: int, m: int) -> list[tuple[int, int, int]]:
    draw = random.Random(n)
    return [(draw.randrange(n), draw.randrange(n), draw.randrange(1, 99)) for _ in range(m)]


def _bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def made() -> dict[str, bytes]:
    """A small file of every format, by name."""
    n, arcs = 30, _arcs(30, 90)
    rows = "".join(f"{u} {v} {w}\n" for u, v, w in arcs)
    from_one = "".join(f"{u + 1} {v + 1} {w}\n" for u, v, w in arcs)
    matrix = np.zeros((n, n))
    for u, v, w in arcs:
        matrix[u, v] = w * (u != v)
    both = matrix + matrix.T
    lists = [" ".join(f"{v + 1} {int(both[u, v])}" for v in np.flatnonzero(both[u])) for u in range(n)]
    edges = np.count_nonzero(both) // 2
    nodes = "".join(f'  node [ id {i} label "v{i}" ]\n' for i in range(n))
    gml = "".join(f"  edge [ source {u} target {v} weight {w}.5 ]\n" for u, v, w in arcs)
    xml = "".join(f'<edge source="n{u}" target="n{v}"><data key="w">{w}</data></edge>\n' for u, v, w in arcs)
    links = "".join(f"\t{u + 1}\t{v + 1}\t100\t{w}\t0.5\t;\n" for u, v, w in arcs)
    upper = "\n".join(" ".join(str(int(both[u, v])) for v in range(u + 1, n)) for u in range(n - 1))
    table = pl.DataFrame({"source": [u for u, _, _ in arcs], "target": [v for _, v, _ in arcs], "km": [1.5] * 90})
    sparse = scipy.sparse.coo_array(matrix)
    head = "DIMENSION: 30\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION"
    texts = {
        "made.gr": f"c made\np sp {n} {len(arcs)}\n" + "".join(f"a {row}\n" for row in from_one.splitlines()),
        "made-names.csv": "from,to,km\n" + "".join(f'"town {u}",T{v},{w}.25\n' for u, v, w in arcs),
        "made-zeros.csv": "".join(f"{u:05},{v:05},{w}\n" for u, v, w in arcs),
        "made-semicolon.csv": "from;to;km\n" + "".join(f"{u};{v};{w},25\n" for u, v, w in arcs),
        "made-counts.txt": f"{n} {len(arcs)}\n{rows}",
        "made-pairs.txt": f"# Nodes: {n} Edges: {len(arcs)}\n" + "".join(f"{u}\t{v}\n" for u, v, _ in arcs),
        "made.mtx": f"%%MatrixMarket matrix coordinate integer general\n{n} {n} {len(arcs)}\n{from_one}",
        "made-array.mtx": f"%%MatrixMarket matrix array real general\n{n} {n}\n"
        + "\n".join(str(x) for x in matrix.T.ravel()),
        "made.graph": f"{n} {edges} 1\n" + "\n".join(lists) + "\n",
        "made.gml": f'Creator "x"\ngraph [\n  directed 1\n{nodes}{gml}]\n',
        "made.graphml": '<?xml version="1.0" encoding="UTF-8"?>\n<graphml><key id="w" for="edge" attr.name="weight"/>'
        + '<graph edgedefault="undirected">\n'
        + "".join(f'<node id="n{i}"/>\n' for i in range(n))
        + f"{xml}</graph></graphml>\n",
        "made_net.tntp": f"<NUMBER OF NODES> {n}\n<NUMBER OF LINKS> {len(arcs)}\n<END OF METADATA>\n"
        + f"~\tinit_node\tterm_node\tcapacity\tlength\tfree_flow_time\t;\n{links}",
        "made.tsp": f"NAME: made\nTYPE: TSP\n{head}\n{upper}\nEOF\n",
        "made-algs4.txt": f"{n}\n{len(arcs)}\n{rows}",
        "made.sch": "2\t5\t0\t0\n0\t1\t2\t1\t2\t[0]\t[3]\n1\t1\t1\t3\t[4]\n2\t1\t1\t3\t[-5]\n3\t1\t0\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    return files | {
        "made.npy": _bytes(lambda out: np.save(out, matrix)),
        "made.npz": _bytes(lambda out: scipy.sparse.save_npz(out, sparse.tocsr())),
        "made-coo.npz": _bytes(lambda out: scipy.sparse.save_npz(out, sparse, compressed=False)),
        "made.parquet": _bytes(table.write_parquet),
        "made-utf16.csv": texts["made-names.csv"].encode("utf-16"),
        "made.gr.gz": gzip.compress(files["made.gr"]),
        "made.gml.zst": zstd.compress(files["made.gml"]),
    }


def real(folder: Path) -> dict[str, bytes]:
    """The graphs of a folder, the larger ones cut."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix not in (".md", ".json", ".py"):
            data = path.read_bytes()
            if path.suffix == ".gz" and len(data) > LONGEST:
                data = gzip.compress(_cut(gzip.decompress(data)))
            found[path.name] = data if path.suffix == ".gz" else _cut(data)
    return found


def _cut(data: bytes) -> bytes:
    return data if len(data) <= LONGEST else data[: data.rfind(b"\n", 0, LONGEST) + 1]


def mutate(name: str, data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """One to four random changes; of half of the compressed files to what they unpack to."""
    unpack, pack = {
        ".gz": (gzip.decompress, gzip.compress),
        ".zst": (zstd.decompress, zstd.compress),
    }.get(Path(name).suffix, (bytes, bytes))
    inside = draw.random() < 0.5
    if inside:
        data = unpack(data)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        data = draw.choice(_CHANGES)(data, others, draw)
    return pack(data) if inside else data


def _span(data: bytes, draw: random.Random, most: int) -> tuple[int, int]:
    at = draw.randrange(len(data) + 1)
    return at, min(len(data), at + draw.randrange(1, most))


def _flip(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(max(1, len(data)))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :] if data else data


def _drop(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    at, end = _span(data, draw, draw.choice([2, 10, 1000]))
    return data[:at] + data[end:]


def _repeat(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    at, end = _span(data, draw, draw.choice([2, 50, 1000]))
    return data[:end] + data[at:end] * draw.choice([1, 1, 3, 100]) + data[end:]


def _insert(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(WORDS) * draw.choice([1, 1, 1, 1, 1000]) + data[at:]


def _cut_off(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _another_word(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """A word, most of which are numbers, becomes another."""
    head = data[:500] if draw.random() < 0.3 else data
    words = list(re.finditer(rb"[^\s,;<>\[\]\"]+", head))
    if not words:
        return data
    word = draw.choice(words)
    return data[: word.start()] + draw.choice(WORDS) + data[word.end() :]


def _swap_lines(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def _splice(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """The beginning of this file and the end of another."""
    other = draw.choice(others)
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


_CHANGES = (
    _flip,
    _flip,
    _drop,
    _repeat,
    _insert,
    _insert,
    _cut_off,
    _another_word,
    _another_word,
    _swap_lines,
    _splice,
)
