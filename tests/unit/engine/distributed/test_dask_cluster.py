"""A scheduler that does not answer: how long it is waited for, and what stays in memory afterwards."""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from engine.distributed import dask_cluster
from engine.distributed.dask_cluster import Cluster
from storage.errors import InvalidRequest
from tests.cycles import keepers, no_collection
from tests.ports import free_port

pytest.importorskip("distributed", reason="apsp[dask] is not installed")


class Roads:
    """Something large that a frame refers to."""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a program that accepts connections and sends nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("listens", [False, True])
def test_a_scheduler_that_does_not_answer_is_refused_and_keeps_nothing(
    silent: str, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "REACH", 1.0)
    address = silent if listens else f"tcp://127.0.0.1:{free_port()}"

    def solve(_roads: Roads) -> None:
        Cluster(address)

    roads, threads = Roads(), set(threading.enumerate())
    gone, began = weakref.ref(roads), time.monotonic()
    with no_collection():
        with pytest.raises(InvalidRequest, match=rf"no Dask scheduler answers at {address} \(.+\)"):
            solve(roads)
        del roads
        assert gone() is None, keepers(gone())
    assert time.monotonic() - began < 60  # Dask itself would wait for ever
    assert set(threading.enumerate()) <= threads
