"""Tests a real service with few file descriptors: silent connections keep nobody out, and its folder is private."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.service_process import ROOT, LiveService

pytestmark = pytest.mark.beside

FILES = 256


class Narrow(LiveService):
    """A service that may open few files, under the usual umask."""

    before = f"""
import os, resource
os.umask(0o022)
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
"""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let the client open more than the service."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_silent_connections_keep_nobody_out(tmp_path: Path, many_files: None):
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(Narrow(tmp_path / "data", APSP_RUNNERS="none"))
        parts = urlsplit(str(service.http.base_url))
        address = (parts.hostname, parts.port)
        for _ in range(3 * FILES):
            connection = socket.socket()
            connection.setblocking(False)
            stack.callback(connection.close)
            connection.connect_ex(address)
        for _ in range(3):
            connection = stack.enter_context(socket.create_connection(address, timeout=30))
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        files = len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))
        assert files < FILES, "some are left for answers"
        graph = service.upload(b"1 2 3\n2 3 4\n")
        assert service.http.get(f"/v1/graphs/{graph['id']}").status_code == 200
    log = (tmp_path / "data.log").read_text()
    assert len(log) < 20_000, "what strangers do does not fill the disk"
    assert log.count("Too many open files") <= 5


def test_the_folder_is_for_its_owner_alone(tmp_path: Path):
    with Narrow(tmp_path / "data", APSP_RUNNERS="none") as service:
        service.upload(b"1 2 3\n2 3 4\n")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    paths = list((tmp_path / "data").rglob("*"))
    assert {"apsp.db", "graphs"} <= {path.name for path in paths}
    assert [path for path in paths if path.stat().st_mode & 0o027 and not path.is_symlink()] == []
    assert "every account of this machine can read" not in (tmp_path / "data.log").read_text()


@pytest.mark.parametrize(("mode", "told"), [(0o755, True), (0o750, False), (0o2770, False)])
def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path, mode: int, told: bool):
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    code = "import os; os.umask(0o022); from service.cli.main import main; main()"
    made = subprocess.run(
        [sys.executable, "-c", code, "key", "create", "ann", "--data-dir", str(folder)],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=120,
        env={k: v for k, v in os.environ.items() if not k.startswith("APSP_")},
    )  # fmt: skip
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert ("chmod o-rwx" in made.stderr) == told
    assert stat.S_IMODE((folder / "apsp.db").stat().st_mode) == 0o640, "a group that was let in reads on"
