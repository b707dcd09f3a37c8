"""Compares answers to generated file keys and Range headers with a simple reference; none may leave the store."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.unit.service.support import Bench, small_graph

SEED = 20261121


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str, Path]]:
    data = tmp_path_factory.mktemp("served")
    settings = Settings(data_dir=data, max_requests_per_second=10**9, auth=False, host="testserver")
    bench = Bench(settings)
    job_id, _ = bench.solved(small_graph(), "int32")
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, f"/v1/jobs/{job_id}/zarr", settings.store(job_id)
    bench.jobs.close()


def files(store: Path) -> dict[str, bytes]:
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def any_key(rng: random.Random, known: list[str]) -> str:
    """A key of the store, one that is nearly one, or a way out; percent-encoded in one of several ways."""
    parts = rng.choice(known).split("/")
    odd = ["..", ".", "", "c", "0", "00", "-1", "1e0", "zarr.json", ".zarray", "graph.json", "\0", "~", "C:", "\\", "é",
           "apsp.db", "matrix.zarr", "%2e%2e", "..;", " ", "x" * 300, "１", "+0", "0 "]  # fmt: skip
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        place = rng.randrange(len(parts) + 1)
        match rng.randrange(4):
            case 0:
                parts.insert(place, rng.choice(odd))
            case 1:
                parts[place % len(parts)] = rng.choice(odd)
            case 2:
                parts = ["..", *parts] * rng.choice([1, 1, 3])
            case _:
                parts.insert(place, "/".join([".."] * rng.randrange(1, 6)) + "/etc/passwd")
    key = rng.choice(["", "", "", "/", "./"]) + "/".join(parts)
    encoded = quote(key, safe=rng.choice(["/", "", "/%"]))
    return encoded.replace(".", rng.choice([".", ".", "%2e", "%2E"]))


def any_range(rng: random.Random, size: int) -> str:
    """A Range header: right, nearly right, or absurd."""

    def number() -> str:
        return str(rng.choice([0, 1, size // 2, size - 1, size, size + 1, 10**18, rng.randrange(size + 1)]))

    def item() -> str:
        first, last = rng.choice(["", number()]), rng.choice(["", number()])
        return rng.choice(
            [f"{first}-{last}"] * 8 + [f" {first}-{last} ", first, f"{first}--{last}", "x-y", "-", "1-2-3"]
        )

    unit = rng.choice(["bytes="] * 10 + ["Bytes=", "bytes =", "rows=", "bytes", "=", ""])
    return unit + ",".join(item() for _ in range(rng.choice([1, 1, 1, 2, 3, 7, 101])))


def reference(header: str, size: int) -> int | list[tuple[int, int]]:
    """What RFC 9110 makes of the header, byte by byte: a status (200, 400 or 416), or parts as (first, last)."""
    match = re.fullmatch(r"([^=]*)=(.*)", header)
    if header.split("=", maxsplit=1)[0].strip().lower() != "bytes":
        return 200
    if match is None:
        return 400
    wanted = [text.strip(" \t") for text in match[2].split(",")]
    if len(wanted) > 100 or not any(wanted):
        return 400
    parts = []
    for text in filter(None, wanted):
        if re.fullmatch("[0-9]{1,38}-[0-9]*", text):
            first, last = text.split("-")
            if last and int(last) < int(first):
                return 400
            inside = [byte for byte in (int(first), min(size - 1, int(last or size))) if byte < size]
            if len(inside) == 2:
                parts.append((inside[0], inside[1]))
        elif re.fullmatch("-[0-9]+", text):
            if int(text[1:]) and size:
                parts.append((size - min(size, int(text[1:])), size - 1))
        else:
            return 400
    if not parts:
        return 416
    return parts if len(parts) == 1 or sum(last - first + 1 for first, last in parts) <= size else 200


def multipart(body: bytes, content_type: str) -> list[tuple[str, bytes]]:
    """Content-Range and bytes of every part."""
    mark = content_type.partition("boundary=")[2].encode()
    pieces = body.split(b"\r\n--" + mark)
    assert (pieces[0], pieces[-1]) == (b"", b"--\r\n")
    found = []
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        ranges = re.search(rb"Content-Range: ([^\r]*)", head)
        assert ranges is not None
        found.append((ranges[1].decode(), content))
    return found


async def ask(app: Any, raw: str) -> tuple[int, bytes, str]:
    """Status, body and media type of a GET whose path goes to the application as it is: a client would tidy it up."""
    path, sent = unquote(raw), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path,
        "raw_path": raw.encode(), "root_path": "", "query_string": b"", "headers": [], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "scheme": "http", "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body, dict(sent[0]["headers"])[b"content-type"].decode()


async def check_keys(app: Any, base: str, keys: list[str], held: dict[str, bytes]) -> None:
    for key in keys:
        status, body, media_type = await ask(app, f"{base}/{key}")
        plain = unquote(key)
        if plain in held:
            assert (status, body) == (200, held[plain]), key
        else:
            assert (status, media_type) == (404, "application/problem+json"), (key, body)


def check_range(client: TestClient, url: str, header: str, content: bytes) -> None:
    response = client.get(url, headers={"range": header})
    expected = reference(header, len(content))
    if expected == 200:
        assert (response.status_code, response.content) == (200, content), header
    elif isinstance(expected, int):
        assert response.status_code == expected, header
        assert expected != 416 or response.headers["content-range"] == f"bytes */{len(content)}"
    else:
        assert response.status_code == 206, header
        names = [f"bytes {first}-{last}/{len(content)}" for first, last in expected]
        wanted = list(zip(names, [content[first : last + 1] for first, last in expected], strict=True))
        if len(wanted) == 1:
            assert (response.headers["content-range"], response.content) == wanted[0], header
        else:
            assert multipart(response.content, response.headers["content-type"]) == wanted, header
    assert int(response.headers["content-length"]) == len(response.content)


def run(served: tuple[TestClient, str, Path], count: int, seed: int) -> None:
    client, base, store = served
    held, rng = files(store), random.Random(seed)
    names = sorted(held)
    asyncio.run(check_keys(client.app, base, [any_key(rng, names) for _ in range(count)], held))
    for _ in range(count):
        name = rng.choice(names)
        check_range(client, f"{base}/{name}", any_range(rng, len(held[name])), held[name])


def test_keys_and_ranges(served: tuple[TestClient, str, Path]):
    run(served, 300, SEED)


@pytest.mark.slow
def test_more_keys_and_ranges(served: tuple[TestClient, str, Path]):
    run(served, 700, SEED + 2)


@pytest.mark.long
def test_ten_thousand_keys_and_ranges(served: tuple[TestClient, str, Path]):
    run(served, 10_000, SEED + 1)
