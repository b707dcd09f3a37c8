"""The bodies of one caller that are in memory at the same time are limited in sum, over all of its connections."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.problems import HTTPProblem
from service.auth.callers import ANYBODY, Caller
from service.http.gate import BodyLimit
from service.settings import Settings

SIZE = 1000


class Waits:
    """An application that reads a body and answers when it is told to."""

    def __init__(self) -> None:
        self.answers, self.read = asyncio.Event(), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        self.read += 1
        await self.answers.wait()


def body(announced: bool, pieces: int = 2) -> tuple[list[tuple[bytes, bytes]], Any]:
    """Headers and messages of a body of SIZE bytes."""
    left = [SIZE // pieces] * pieces

    async def receive() -> dict[str, Any]:
        size = left.pop()
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

    return [(b"content-length", str(SIZE).encode())] if announced else [], receive


def ask(limit: BodyLimit, who: str, *, announced: bool, path: str = "/v1/estimates") -> asyncio.Task[None]:
    headers, receive = body(announced)
    caller = Caller(owner=who, scopes=ANYBODY.scopes) if who.startswith("key") else ANYBODY
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": (who, 1),
             "state": {"caller": caller}}  # fmt: skip
    return asyncio.create_task(limit(scope, receive, lambda _: asyncio.sleep(0)))


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("who", ["key1", "192.0.2.7"])
def test_bodies_of_one_caller_at_the_same_time_are_limited(tmp_path: Path, announced: bool, who: str) -> None:
    settings = Settings(data_dir=tmp_path, max_body_bytes=SIZE, max_bodies_bytes=3 * SIZE)

    async def run() -> None:
        app = Waits()
        limit = BodyLimit(app, settings)
        running = [ask(limit, who, announced=announced) for _ in range(3)]
        while app.read < 3:
            await asyncio.sleep(0)
        with pytest.raises(HTTPProblem) as refused:
            await ask(limit, who, announced=announced)
        assert refused.value.fault.code == "too-many-at-once"
        assert refused.value.fault.details["setting"] == "APSP_MAX_BODIES_BYTES"
        assert refused.value.headers["Retry-After"]
        running += [ask(limit, "key2", announced=announced), ask(limit, who, announced=announced, path="/v1/graphs")]
        app.answers.set()
        await asyncio.gather(*running)
        await ask(limit, who, announced=announced)
        assert not limit._held, "what was answered counts no more"

    asyncio.run(run())


def test_a_body_of_the_full_size_is_always_read(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, max_body_bytes=SIZE, max_bodies_bytes=1)

    async def run() -> None:
        app = Waits()
        app.answers.set()
        limit = BodyLimit(app, settings)
        await ask(limit, "key1", announced=False)
        await ask(limit, "key1", announced=True)
        assert app.read == 2

    asyncio.run(run())


def test_a_refusal_is_an_answer(client: TestClient, settings: Settings) -> None:
    """The stack of the real application turns it into a problem document, and goes on."""
    limits = [layer for layer in _layers(client.app) if isinstance(layer, BodyLimit)]
    limits[0]._held["testclient"] = 64 << 20
    refused = client.post("/v1/estimates", json={"graph": "g"})
    assert refused.status_code == 429
    assert refused.json()["code"] == "too-many-at-once"
    assert int(refused.headers["retry-after"]) > 0
    limits[0]._held.clear()
    assert client.post("/v1/estimates", json={"graph": "g"}).status_code == 404


def _layers(app: Any) -> list[Any]:
    found, layer = [], app.build_middleware_stack() if app.middleware_stack is None else app.middleware_stack
    if app.middleware_stack is None:
        app.middleware_stack = layer
    while layer is not None:
        found.append(layer)
        layer = getattr(layer, "app", None) or getattr(layer, "_app", None)
    return found
