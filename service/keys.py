"""Who holds a key: looked up in the database, remembered for some seconds; and the first key of a new service."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from typing import Final

import anyio.to_thread

from service.callers import Caller
from service.settings import Settings
from storage.errors import InvalidRequest
from storage.jobs import JobStore
from storage.keys import KeyStore

#: a revoked key is refused after so many seconds at the latest
REMEMBERED_SECONDS: Final = 5.0
_MOST_REMEMBERED: Final = 10_000


class Keyring:
    """Finds the caller of an Authorization header.  Belongs to one event loop; holds digests, never keys."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def identify(self, header: str) -> Caller | None:
        """The caller; None if the header holds no valid key."""
        kind, _, key = header.partition(" ")
        if kind.lower() != "bearer":
            return None
        digest = hashlib.sha256(key.strip().encode(errors="replace")).digest()
        found = self._known.get(digest)
        if found is not None and found[1] > time.monotonic():
            return found[0]
        record = await anyio.to_thread.run_sync(self._keys.find, key.strip())
        if record is None:
            self._known.pop(digest, None)
            return None
        caller = Caller(record.id, frozenset(record.scopes))
        self._known[digest] = (caller, time.monotonic() + REMEMBERED_SECONDS)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return caller


def first_key(settings: Settings) -> str | None:
    """Make sure that nobody gets in by accident; returns a key to show once, where there was none.

    Raises:
        InvalidRequest: others could reach the address, and there is no key, or keys are not asked for.
    """
    local = _is_loopback(settings.host)
    if not settings.auth:
        if local:
            return None
        message = f"without keys (APSP_AUTH=false) only the loopback is listened on, not {settings.host}"
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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
