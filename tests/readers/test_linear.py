"""Time that grows with the length of what is sent and not with its square: patterns, and whole readers.

What a pattern does inside cannot be counted, so processor time is: where the work is linear it is a hundredth of the
bound, where it is quadratic many times the bound.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from storage.errors import ApspError
from storage.readers import FORMATS, ReadLimits, read_graph
from storage.readers.detect import detect
from storage.readers.source import Source

ROOT = Path(__file__).resolve().parents[2]

# ---------------------------------------------------------------- patterns

#: Length of the hostile text, and the processor seconds that it may take: a linear pattern takes some milliseconds at
#: most, a quadratic one, of 400 million steps, more than half a second.
LENGTH, SECONDS = 20_000, 0.1
METHODS = ("match", "search", "fullmatch", "sub", "split", "findall", "finditer")


def _patterns(path: Path) -> Iterator[tuple[str, str | bytes, str]]:
    """Place, pattern and the way it is applied, of all patterns of a module."""
    text = path.read_text()
    if re.search(r"\bre\.\w+\(", text) is None:  # parsing every module takes a second of each process that collects
        return
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
            continue
        pattern = _constant(node.args[0])
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        if pattern is None:
            continue
        if node.func.attr != "compile":
            yield place, pattern, node.func.attr
            continue
        name = re.search(r"(\w+)(: [\w\[\]]+)? = re\.compile", text.splitlines()[node.lineno - 1])
        used = {method for method in METHODS if name and re.search(rf"\b{name[1]}\.{method}\b", text)}
        for method in used or {"search"}:
            yield place, pattern, method


def _constant(node: ast.expr) -> str | bytes | None:
    """A literal pattern; what is put into it becomes an x."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        value = node.left.value
        return value.replace(b"%s", b"x") if isinstance(value, bytes) else None
    if isinstance(node, ast.IfExp):
        return _constant(node.body)
    return None


def _one(op: Any, value: Any, chars: str) -> str:
    """A character that a single item matches, from ``chars`` if one of them does."""
    if op is sre.LITERAL:
        return chr(value)
    for char in chars:
        pattern = _parser.SubPattern(_parser.State(), [(op, value)])
        if re._compiler.compile(pattern, re.DOTALL).match(char):  # type: ignore[attr-defined]
            return char
    return ""


def _sample(items: Any, chars: str) -> str:
    """Some text that the items match, repeats being as short as they may, but not empty."""
    out = ""
    for op, value in items:
        if op is sre.BRANCH:
            out += _sample(value[1][0], chars)
        elif op is sre.SUBPATTERN:
            out += _sample(value[-1], chars)
        elif op is sre.ATOMIC_GROUP:
            out += _sample(value, chars)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            out += _sample(value[2], chars) * max(1, value[0])
        elif op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            out += _one(op, value, chars)
    return out


def _pumps(items: Any, before: str, chars: str) -> Iterator[tuple[str, str]]:
    """For each repeat without an end: what leads there, and what may be repeated."""
    for op, value in items:
        if op is sre.BRANCH:
            for branch in value[1]:
                yield from _pumps(branch, before, chars)
        elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            yield from _pumps(value[-1] if op is sre.SUBPATTERN else value, before, chars)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if value[1] > 100:
                yield before, _sample(value[2], chars)
            yield from _pumps(value[2], before, chars)
        before += _sample([(op, value)], chars)


def _seconds(pattern: str | bytes, method: str) -> float:
    """The longest that the pattern takes for a hostile text made from itself; the first that is too long."""
    tree = _parser.parse(pattern if isinstance(pattern, str) else pattern.decode("latin-1"))
    run = getattr(re.compile(pattern), method)
    worst = 0.0
    for chars in (" \t\nax0,;_-[", "\n ax0", "0a \n", "a0"):
        for before, pump in {*_pumps(tree, "", chars), *(("", pump) for _, pump in _pumps(tree, "", chars))}:
            for end in ("\x00", "\x00\n", before):
                text = (before + pump * (LENGTH // max(1, len(pump))) + end).encode("latin-1", "replace")
                subject: Any = text if isinstance(pattern, bytes) else text.decode("latin-1")
                arguments = (subject[:0], subject) if method == "sub" else (subject,)
                worst = max(worst, min(_timed(lambda: run(*arguments)) for _ in range(2)))  # noqa: B023
                if worst > SECONDS:
                    return worst
    return worst


def _timed(call: Callable[[], object]) -> float:
    begin = time.process_time()
    out = call()
    if isinstance(out, Iterator):
        list(out)
    return time.process_time() - begin


FOUND = sorted(
    {found for part in ("storage", "service") for path in (ROOT / part).rglob("*.py") for found in _patterns(path)},
    key=str,
)


def test_all_patterns_are_found() -> None:
    calls = sum(
        len(re.findall(r"\bre\.(?:compile|match|search|fullmatch|sub|split|findall|finditer)\(", path.read_text()))
        for part in ("storage", "service")
        for path in (ROOT / part).rglob("*.py")
    )
    # One takes its pattern from a table of the same module, which the readers below meet.
    assert len({place for place, _, _ in FOUND}) >= calls - 1 > 20


@pytest.mark.parametrize(("place", "pattern", "method"), FOUND, ids=[f"{p}-{m}" for p, _, m in FOUND])
def test_patterns_are_linear(place: str, pattern: str | bytes, method: str) -> None:
    assert _seconds(pattern, method) < SECONDS


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (rb"(?m)^[ \t]*EDGE_WEIGHT_SECTION[ \t]*:?[ \t]*\n", "search"),
        (r"(?m)^\s*graph\s*(\[|$)|\bgraph\s*\[", "search"),
    ],
)
def test_quadratic_patterns_are_noticed(pattern: str | bytes, method: str) -> None:
    assert _seconds(pattern, method) > SECONDS


# ---------------------------------------------------------------- readers


def _binary(write: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


TSPLIB = b"TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION"
GRAPHML = b'<graphml><graph edgedefault="directed"><node id="a"/><node id="b"/><edge source="a" target="b"'
#: What leads a reader to the place where the hostile part begins; formats that are not here are met at their start.
BEGINNINGS: dict[str, list[bytes]] = {
    "dimacs": [b"c x\n", b"p sp 9 9\na 1 2 3", b"p sp 9 9\n"],
    "edges": [b"source,target,weight\na,b,1", b"1 2 3\n1 2", b'"a","b"\n"', b"# Nodes:"],
    "mtx": [b"%%MatrixMarket matrix coordinate real general\n", b"%%MatrixMarket matrix array real general\n3 3\n1"],
    "metis": [b"3 2\n2", b"% x\n"],
    "gml": [b"graph", b'graph [ node [ id 1 label "', b"graph [ node [ id 1 ] edge [ source 1 target 1 x"],
    "graphml": [b"<?xml", b"<graphml><!--", GRAPHML, GRAPHML + b"><data key='weight'>"],
    "tntp": [b"<NUMBER OF NODES> 3\n<", b"~ init_node term_node length ;\n1\t2\t3\t;"],
    "tsplib": [b"NAME: x\n", TSPLIB, TSPLIB + b"\n1"],
    "algs4": [b"3\n", b"3\n2\n1 2 3"],
    "rcpsp-max": [b"2 5 0\n", b"2 5 0\n0 1 1 1 [0]"],
    "gexf": [b"<gexf><graph><nodes><node id='a' label='", b"<gexf><graph><edges><edge source='a' target='b'>"],
    "pajek": [b"*Vertices 2\n1 ", b"*Vertices 2\n1 a\n2 b\n*Arcs\n1 2 "],
    "json": [b'{"nodes": [', b'{"nodes": [{"id": 1}], "links": [{"source": 1, "target": "', b"["],
    "sif": [b"a pp b ", b"a\tpp\tb\t"],
    "adjlist": [b"a b ", b"#"],
    "multiline-adjlist": [b"a 2\nb ", b"a 1\nb {"],
    "nx-edgelist": [b"a b {", b"a b {'weight': "],
    "matrix": [b",a,b\na,1,", b"0,1\n1,"],
    "npy": [_binary(lambda out: np.save(out, np.ones((3, 3))))],
    "npz": [_binary(lambda out: scipy.sparse.save_npz(out, scipy.sparse.csr_array(np.ones((3, 3)))))],
    "gpkg": [b"SQLite format 3\0", b"SQLite format 3\0\x10\0\1\1\0@  "],
    "parquet": [_binary(lambda out: pl.DataFrame({"u": [1], "v": [2]}).write_parquet(out))],
}
PUMPS = [
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b",",
    b'"',
    b"1 ",
    b"1,",
    b"0",
    b"#\n",
    b"a\n",
    b"<",
    b"<a>",
    b"[",
    b"{",
    b"(",
    b"\xa0",
]
SMALL = 1 << 14


@pytest.fixture
def _frozen() -> None:
    """Collections of garbage leave out what earlier tests of this process have made, which may take long to look at.

    It stays left out: tests/conftest.py has frozen all collected tests, and to look at these again takes every later
    full collection half a second.
    """
    gc.collect()
    gc.freeze()


def _read_seconds(path: Path, name: str | None) -> float:
    begin = time.process_time()
    with contextlib.suppress(ApspError):
        if name is None:
            detect(Source(path, ReadLimits()))
        else:
            mode = "walking" if name == "osm" else None
            read_graph(path, format=name, limits=ReadLimits(max_vertices=1 << 20), mode=mode)
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.usefixtures("_frozen")
@pytest.mark.parametrize("name", [*FORMATS, None], ids=[*FORMATS, "detection"])
def test_readers_are_linear(tmp_path: Path, name: str | None) -> None:
    """Eight times the text takes about eight times as long, where its square would take 64 times."""
    path = tmp_path / "g"
    # Detection looks at 64 KiB: half as much is sent to it.
    small = SMALL if name is not None else SMALL // 2
    firsts = [b"", *(some[0] for some in BEGINNINGS.values())]
    beginnings = firsts if name is None else BEGINNINGS.get(name, [b""])
    for begin in beginnings:
        for pump in PUMPS:
            seconds = []
            for factor in (1, 8):
                path.write_bytes(begin + pump * (factor * small // len(pump)) + b"\nx\n")
                seconds.append(min(_read_seconds(path, name) for _ in range(2)))
            most = 20 * max(seconds[0], 0.01)
            if seconds[1] > most:  # threads of this process may have done something else; a square stays one
                seconds[1] = min(_read_seconds(path, name) for _ in range(5))
            assert seconds[1] <= most, (name, begin, pump, seconds)
