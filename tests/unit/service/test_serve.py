"""Starting and stopping; the rest needs real processes: tests/integration/test_service.py."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from service.serve import serve
from service.settings import Settings
from storage.errors import Conflict, InvalidRequest
from storage.locks import FileLock


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
