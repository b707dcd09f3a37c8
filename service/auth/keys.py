"""Finds the holder of a key in the database and caches it for some seconds; makes the first key of a new service."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from typing import Final

import anyio.to_thread

from service.auth.callers import Caller
from service.settings import Settings
from storage.errors import InvalidRequest
from storage.jobs.keys import KeyStore
from storage.jobs.store import JobStore

log = logging.getLogger(__name__)

#: seconds for which a key is cached; a revoked key is refused after this time at the latest
REMEMBERED_SECONDS: Final = 5.0
_MOST_REMEMBERED: Final = 10_000


class Keyring:
    """Finds the caller of an Authorization header.  Used on one event loop only; stores digests, never keys.

    One query of the database serves all requests that wait for the same key.  A key in use is looked up again in the
    background before its cache entry expires; otherwise all clients of a busy key would wait every few seconds.
    """

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[Caller | None]] = {}

    async def identify(self, header: str) -> Caller | None:
        """Return the caller; None if the header holds no valid key."""
        kind, _, key = header.partition(" ")
        if kind.lower() != "bearer":
            return None
        key = key.strip()
        digest = hashlib.sha256(key.encode(errors="replace")).digest()
        found = self._known.get(digest)
        age = REMEMBERED_SECONDS if found is None else time.monotonic() - found[1]
        if found is None or age >= REMEMBERED_SECONDS:
            # if this request is cancelled, the other requests for the same key still need the look-up
            return await asyncio.shield(self._ask(digest, key))
        if age >= REMEMBERED_SECONDS / 2:
            self._ask(digest, key)
        return found[0]

    def _ask(self, digest: bytes, key: str) -> asyncio.Task[Caller | None]:
        """Return the running look-up of this key, or start one."""
        task = self._asked.get(digest)
        if task is None:
            task = self._asked[digest] = asyncio.create_task(self._find(digest, key))
            task.add_done_callback(lambda done: self._forget(digest, done))
        return task

    def _forget(self, digest: bytes, done: asyncio.Task[Caller | None]) -> None:
        self._asked.pop(digest, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            # waiting requests get the error; a look-up in the background is repeated later
            log.debug("a key could not be looked up: %s", error)

    async def _find(self, digest: bytes, key: str) -> Caller | None:
        began = time.monotonic()
        record = await anyio.to_thread.run_sync(self._keys.find, key)
        if record is None:
            self._known.pop(digest, None)
            return None
        caller = Caller(record.id, frozenset(record.scopes))
        self._known[digest] = (caller, began)
        self._known.move_to_end(digest)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return caller


def first_key(settings: Settings) -> str | None:
    """Refuse an unprotected configuration; create and return the first key if there is none.

    Raises:
        InvalidRequest: other machines can reach the address, and either no key exists or none is required.
    """
    local = is_loopback(settings.host)
    if not settings.auth:
        if local:
            return None
        message = f"without keys (APSP_AUTH=false) the service listens on the loopback only, not on {settings.host}"
        raise InvalidRequest(message, field="auth")
    jobs = JobStore(settings.database)
    try:
        keys = KeyStore(jobs.database)
        if keys.any_valid():
            return None
        if not (local or settings.first_key):
            message = (
                f"there is no key yet: make one (apsp key create NAME) before listening on {settings.host}, "
                "or let the service make it (APSP_FIRST_KEY=true)"
            )
            raise InvalidRequest(message, field="host")
        return keys.create("first", ("admin",))[1]
    finally:
        jobs.close()


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
