"""A service over a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.unit.service.support import Bench


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        max_cells=64,
        max_pairs=10,
        max_body_bytes=4096,
        max_upload_bytes=8192,
        auth=False,
        host="testserver",  # the name that the test client asks for
    )


@pytest.fixture
def bench(settings: Settings) -> Iterator[Bench]:
    bench = Bench(settings)
    yield bench
    bench.jobs.close()


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """The application without its reading process: only a test that enters the lifespan starts that."""
    app = create_app(settings)
    client = TestClient(app, raise_server_exceptions=False)
    yield client
    client.close()
    app.state.service.stop_workers()
    app.state.service.jobs.close()
