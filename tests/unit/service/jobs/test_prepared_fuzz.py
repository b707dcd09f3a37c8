"""Random questions to a prepared result and to a matrix that SciPy has solved, over HTTP and on the command line.

Vertices have odd names, requests are often wrong, and the answers have to be the same: status, type, body.
``APSP_SEED=N`` repeats a run; ``APSP_FUZZ=N`` is the number of graphs (a fifth of it on the command line).
"""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.cli import main
from storage.graph.graph import Graph, build_graph
from tests.unit.service.support import Bench, InlinePool

SEED = int(os.environ.get("APSP_SEED", "0"))
MANY = int(os.environ.get("APSP_FUZZ", "150"))
NAMES = (
    "a,b", 'q"uote', " lead", "trail ", "é", "日本", "-5", "--x", "%2F", "a/b", "a b", "#", "00", "null", "1e3", "+",
    "a&b=c", "?", ";", "tab\there", "'", "\\", "..", "<b>", "🙂", "0x10", "True", "=1+1", "line\nbreak", "-",
)  # fmt: skip
OF_THEIR_OWN = ("job", "result", "request_id", "instance")


@pytest.fixture
def inline(client: TestClient) -> InlinePool:
    pool = client.app.state.service.answering.pool = InlinePool()
    return pool


def random_graph(rng: np.random.Generator) -> Graph:
    """A directed graph in several pieces, with parallel arcs, arcs of length 0 and odd names."""
    n = int(rng.integers(1, 24))
    kind = int(rng.integers(4))
    labels: Any = None
    if kind == 1:
        labels = sorted(rng.choice(np.arange(-50, 2**40, 2**33), n, replace=False).tolist())
    elif kind > 1:
        labels = sorted(rng.choice(NAMES, n, replace=False).tolist(), key=str)
    count = int(rng.integers(0, 3 * n))
    tails, heads = rng.integers(0, n, (2, count))
    graph: Graph = build_graph(tails, heads, rng.integers(0, 60, count), labels=labels, n=n, directed=True)[0]
    return graph


def odd(rng: random.Random, graph: Graph) -> str:
    """A name as a request has it: mostly that of a vertex."""
    wrong = ("nobody", "", "99999999999999999999", "1.0", "NaN", "\x00", "é" * 300)
    return rng.choice(wrong) if rng.random() < 0.08 else str(rng.choice(graph.labels.tolist()))


def listed(rng: random.Random, graph: Graph) -> str:
    """Some names with commas, quoted where they must be, and sometimes not."""
    found = []
    for name in (odd(rng, graph) for _ in range(rng.choice((1, 1, 2, 3, 20)))):
        quoted = '"' + name.replace('"', '""') + '"'
        found.append(quoted if rng.random() < 0.9 else name)
    return ",".join(found)


def question(rng: random.Random, graph: Graph) -> tuple[str, str, dict[str, Any]]:
    """A method, a path, and what a client is given for it."""
    pick = rng.choice
    number = pick(("0", "1", "2", "5", "100", "-1", "x", "1.5", "inf", "nan", "1e400", ""))
    form = pick(({}, {}, {"format": pick(("csv", "npy", "json", "parquet", "arrow", "xml", ""))}))
    ends = {"source": odd(rng, graph), "target": odd(rng, graph)}
    pairs = {"pairs": [[odd(rng, graph), odd(rng, graph)] for _ in range(pick((0, 1, 3, 11)))]}
    sides = {
        key: [odd(rng, graph) for _ in range(pick((1, 3)))] for key in ("sources", "targets") if rng.random() < 0.8
    }
    near: dict[str, Any] = {"source": ends["source"], **pick(({}, {"k": number}, {"within": number}))}
    shown = {key: pick(("0", "1", "7", "-1", "x")) for key in ("row", "rows", "column", "columns", "size")}
    sample = {key: value for key, value in shown.items() if rng.random() < 0.4}
    across = {} if rng.random() < 0.6 else {"targets": listed(rng, graph)}
    return pick(
        (
            ("GET", "summary", {}),
            ("GET", "distance", {"params": ends}),
            ("GET", "distance", {"params": ends}),
            ("GET", "path", {"params": ends}),
            ("GET", "nearest", {"params": near}),
            ("GET", "histogram", {"params": {"source": ends["source"], "bins": number}}),
            ("GET", "rows", {"params": {"sources": listed(rng, graph), **across, **form}}),
            ("GET", "columns", {"params": {"targets": listed(rng, graph), **form}}),
            ("GET", "sample", {"params": sample}),
            ("GET", "eccentricities", {"params": pick(({}, {"size": number}))}),
            ("POST", "distances", {"json": pairs}),
            ("POST", "paths", {"json": pairs}),
            ("POST", "submatrix", {"json": sides}),
            ("POST", "submatrix", {"json": pick(([], None, {"sources": 5}, {"pairs": []}, {"x": 1}))}),
        )
    )


def comparable(answer: Any) -> Any:
    """What must be equal of an answer."""
    kind = answer.headers.get("content-type", "")
    if "json" not in kind:
        return answer.status_code, kind, answer.content
    body = answer.json()
    if isinstance(body, dict):
        for name in OF_THEIR_OWN:
            body.pop(name, None)
    return answer.status_code, kind, body


def check_http(client: TestClient, graph: Graph, places: tuple[str, str], rng: random.Random) -> int:
    """Ask both something, also as HEAD and with tags and ranges; return the status."""
    method, path, given = question(rng, graph)
    want, found = (client.request(method, f"{place}/{path}", **given) for place in places)
    assert comparable(found) == comparable(want), (method, path, given)
    assert want.status_code < 500, (method, path, given, want.text)
    if method == "GET" and want.status_code == 200:
        for answer in (want, found):
            url = answer.request.url
            head = client.head(url)
            assert (head.status_code, head.content) == (200, b""), url
            assert head.headers["etag"] == answer.headers["etag"], url
            same = client.get(url, headers={"if-none-match": f'"x", W/{answer.headers["etag"]}'})
            assert (same.status_code, same.content) == (304, b""), url
    return want.status_code


def check_chunk(client: TestClient, places: tuple[str, str], rng: random.Random) -> int:
    """Ask both for a key of the store, with an odd range."""
    keys = ("zarr.json", "distances/zarr.json", "distances/c/0/0", "distances/c/0/1", "distances/c/-1/0", "distances",
            "distances/c/0", "distances/c/0/0/0", "distances/c/0x0/0", "source/c/0", "target/c/0", "vertex/zarr.json",
            "../zarr.json", "%2e%2e/zarr.json", "")  # fmt: skip
    key, first, last = rng.choice(keys), rng.randrange(300), rng.randrange(20_000)
    spans = (f"bytes={first}-{last}", f"bytes={first}-", f"bytes=-{first}", f"bytes={last}-{first}", "bytes=0-0,9-9",
             "bytes=", "lines=1-2", "bytes=a-b", f"bytes={10**30}-", "bytes=-0")  # fmt: skip
    headers = {} if rng.random() < 0.4 else {"range": rng.choice(spans)}
    method = rng.choice(("GET", "GET", "HEAD"))
    want, found = (client.request(method, f"{place}/zarr/{key}", headers=headers) for place in places)
    where = (method, key, headers)
    assert found.status_code == want.status_code, where
    if want.status_code in (200, 206) and "zarr.json" not in key:
        if not headers.get("range", "").count(","):  # the boundary between parts is random
            assert found.content == want.content, where
        for name in ("content-length", "content-range", "accept-ranges"):
            assert headers.get("range", "").count(",") or found.headers.get(name) == want.headers.get(name), where
    return want.status_code


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [2, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def test_random_requests_have_the_answers_of_a_matrix(client: TestClient, bench: Bench, inline: InlinePool, count: int):
    seen = set()
    for seed in range(SEED, SEED + count):
        rng, drawn = random.Random(seed), np.random.default_rng(seed)
        graph = random_graph(drawn)
        dtype = str(drawn.choice(["uint16", "int32", "float32", "float64"]))
        places = tuple(f"/v1/jobs/{make(graph, dtype)[0]}" for make in (bench.solved, bench.prepared))
        assert len(places) == 2
        for _ in range(50):
            seen.add(check_http(client, graph, places, rng))
            seen.add(check_chunk(client, places, rng))
        inline.stop()
    assert {200, 206, 404, 422} <= seen


def asked(rng: random.Random, graph: Graph) -> list[str]:
    """The words of a query on the command line."""
    u, v = odd(rng, graph), odd(rng, graph)
    number = rng.choice(("1", "3", "0", "-1", "x", "inf", "1e3", "2.5"))
    words = rng.choice((["distance", u, v], ["path", u, v], ["row", u], ["nearest", u, number], ["within", u, number],
                        ["within", u, "20"], ["distance", u], ["row"], ["nobody", u], []))  # fmt: skip
    return [word.replace("\x00", "?") for word in words] + (["--json"] if rng.random() < 0.5 else [])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [1, pytest.param(MANY // 5, marks=pytest.mark.long)], ids=["few", "many"])
def test_random_queries_print_what_a_matrix_prints(bench: Bench, tmp_path: Path, capsys, monkeypatch, count: int):
    seen, threads = set(), threading.active_count()
    for seed in range(SEED, SEED + count):
        rng, drawn = random.Random(seed), np.random.default_rng(seed)
        graph = random_graph(drawn)
        stored, made = (bench.settings.store(make(graph, "int32")[0]) for make in (bench.solved, bench.prepared))
        for number in range(20):
            monkeypatch.setenv("COLUMNS", rng.choice(("1", "20", "80", "100000", "x")))
            words, printed = asked(rng, graph), []
            for place in (stored, made):
                code = main.run(["query", str(place), *words])
                told = capsys.readouterr()
                assert "Traceback" not in told.err, words
                assert "\x1b" not in told.out, "no colour where no terminal reads"
                printed.append((code, told.out.replace(str(place), "X"), told.err.replace(str(place), "X")))
            assert printed[0] == printed[1], words
            if printed[0][0] == 0 and "--json" in words:
                json.loads(printed[0][1])
            seen.add(printed[0][0])
            if number % 10 == 0:
                check_export(rng, graph, (stored, made), tmp_path, capsys)
    assert threading.active_count() <= threads + 8, "results are closed, and with them their threads"
    assert seen <= {0, 2}
    assert 0 in seen


def check_export(rng: random.Random, graph: Graph, places: tuple[Path, Path], folder: Path, capsys) -> None:
    """Write the same part of both into files, which are equal."""
    ending = rng.choice((".csv", ".npy", ".parquet"))
    words = [[], ["--wide"], ["--nearest", "2"], ["--within", "30"], ["--sources", listed(rng, graph)]][
        rng.randrange(5)
    ]
    found = []
    for number, place in enumerate(places):
        out = folder / f"{number}{ending}"
        out.unlink(missing_ok=True)
        code = main.run(["export", str(place), "-o", str(out), *words])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        found.append((code, out.read_bytes() if out.exists() else None))
    assert found[0] == found[1], (ending, words)
