"""Starting and stopping; the rest needs real processes: tests/integration/test_service.py."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.serve import _config, serve
from service.settings import Settings
from storage.errors import Conflict, InvalidRequest
from storage.files.locks import FileLock

ROOT = Path(__file__).resolve().parents[3]


def test_a_taken_port_is_named(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=str(port)):
            serve(Settings(data_dir=tmp_path, port=port))


def test_a_taken_data_directory_is_named(tmp_path: Path):
    lock = FileLock(tmp_path / "serve.lock")
    lock.acquire()
    with pytest.raises(Conflict, match="locked by process"):
        serve(Settings(data_dir=tmp_path, port=0))
    lock.release()


@pytest.mark.parametrize(
    ("proxies", "address", "told"),
    [
        ("127.0.0.1", "127.0.0.1", ("192.0.2.7", "https")),
        ("127.0.0.1", "172.18.0.1", ("172.18.0.1", "http")),
        ("127.0.0.1, 172.16.0.0/12", "172.18.0.1", ("192.0.2.7", "https")),
        ("::1, 172.16.0.0/12", "192.0.2.9", ("192.0.2.9", "http")),
        ("*", "198.51.100.1", ("192.0.2.7", "https")),
    ],
)
def test_proxies_that_are_named_say_who_asks_and_how(tmp_path: Path, proxies: str, address: str, told: tuple[str, str]):
    seen = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = _config(Settings(data_dir=tmp_path, proxies=proxies), app)
    config.load()
    client = TestClient(config.loaded_app, client=(address, 1))
    client.get("/", headers={"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"})
    assert seen == [told]


def test_the_service_is_not_the_first_to_close_a_connection(tmp_path: Path):
    """It closed after five seconds, and nginx kept connections for sixty: a request in between was answered 502."""
    config = _config(Settings(data_dir=tmp_path), FastAPI())
    upstream = (ROOT / "deploy" / "nginx" / "apsp.conf").read_text().partition("upstream apsp {")[2].partition("}")[0]
    kept = re.search(r"^\s*keepalive_timeout (\d+)s;$", upstream, re.MULTILINE)
    assert kept is not None
    ours = httpx2.Limits().keepalive_expiry
    assert ours is not None
    assert config.timeout_keep_alive > max(int(kept[1]), ours) + 10
