"""Objects of a server: conditions of puts are tried before anything depends on them."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from storage.errors import Conflict, StorageFailed
from storage.remote.objects import Objects
from tests.s3 import S3Server


class Deaf:
    """A client whose server does not listen to one kind of condition."""

    def __init__(self, store: Any, kind: type) -> None:
        self._store, self._kind = store, kind

    def put(self, name: str, data: bytes, **options: Any) -> Any:
        if isinstance(options.get("mode"), self._kind):
            options.pop("mode")
        return self._store.put(name, data, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_server_that_takes_conditions_is_left_as_it_was(s3: S3Server):
    objects = Objects(f"{s3.address}/{secrets.token_hex(4)}")
    objects.write("there", b"1")
    objects.check_conditions()
    assert list(objects.names()) == ["there"]


@pytest.mark.parametrize(("kind", "header"), [(str, "If-None-Match"), (dict, "If-Match")])
def test_a_server_that_ignores_conditions_is_refused(s3: S3Server, kind: type, header: str):
    objects = Objects(f"{s3.address}/{secrets.token_hex(4)}")
    objects._store = Deaf(objects._store, kind)  # type: ignore[assignment]
    with pytest.raises(StorageFailed, match=f"ignores {header} of a put"):
        objects.check_conditions()
    assert list(objects.names()) == []


@pytest.mark.skipif("APSP_WEED" not in os.environ, reason="moto promises nothing about two puts at the same moment")
def test_of_conditional_puts_at_the_same_moment_one_succeeds(s3: S3Server):
    objects = Objects(f"{s3.address}/{secrets.token_hex(4)}")
    crowd = 8
    together = threading.Barrier(crowd)

    def one(put: Callable[[], None]) -> bool:
        together.wait()
        try:
            put()
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(crowd) as pool:
        for turn in range(25):
            name = f"seal-{turn}"
            puts = [partial(objects.create, name, b"%d" % k) for k in range(crowd)]
            assert sum(pool.map(one, puts)) == 1
            found = objects.stat(name)
            assert found is not None
            assert found.tag is not None
            again = [partial(objects.replace, name, b"again %d" % k, found.tag) for k in range(crowd)]
            assert sum(pool.map(one, again)) == 1
