"""People on the page: a cookie that stands for a key, and tickets that let the owner of the terminal in."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from typing import Final

import anyio.to_thread

from service.auth.callers import Caller
from service.auth.keys import REMEMBERED_SECONDS
from storage.jobs.keys import KeyRecord, KeyStore
from storage.jobs.sessions import SessionStore

COOKIE: Final = "apsp_session"
#: a session ends after so long
SESSION_SECONDS: Final = 12 * 3600.0
#: a link that was printed lets in once, and for so long
TICKET_SECONDS: Final = 600.0
_MOST_REMEMBERED: Final = 10_000


#: sessions of one request that are looked at; a browser sends one for each host and path that set one
_MOST_COOKIES: Final = 4


def tokens_of(cookies: str) -> list[str]:
    """The tokens of sessions in a Cookie header, each once, the first few.

    There may be several: a neighbouring host may have set a cookie of this name, too, which is then no session of ours.
    Taken apart by hand: ``SimpleCookie`` gives up at the first cookie that it finds odd, and other programs on the same
    host set those.
    """
    parts = (part.partition("=") for part in cookies.split(";"))
    found = dict.fromkeys(value.strip() for name, _, value in parts if name.strip() == COOKIE and value.strip())
    return list(found)[:_MOST_COOKIES]


class Sessions:
    """Finds the caller of a session.  What was found is remembered as long as with keys; holds no keys."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys, self._sessions = keys, SessionStore(keys.database)
        self._known: OrderedDict[str, tuple[KeyRecord, float]] = OrderedDict()
        self._tickets: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    async def identify(self, cookies: str) -> Caller | None:
        """The caller of a Cookie header; None if it holds no valid session."""
        found = await self.key(cookies)
        return None if found is None else Caller(found.id, frozenset(found.scopes))

    async def key(self, cookies: str) -> KeyRecord | None:
        """The key behind the first valid session in a Cookie header."""
        for token in tokens_of(cookies):
            found = await self._key(token)
            if found is not None:
                return found
        return None

    async def _key(self, token: str) -> KeyRecord | None:
        known = self._known.get(token)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        record = await anyio.to_thread.run_sync(self._sessions.find, token)
        if record is None:
            self._known.pop(token, None)
            return None
        self._known[token] = (record, time.monotonic() + REMEMBERED_SECONDS)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return record

    def enter(self, key: str) -> str | None:
        """The token of a new session of whoever holds this key; None if it is no valid key."""
        record = self._keys.find(key.strip())
        return None if record is None else self._sessions.open(record.id, SESSION_SECONDS)

    def leave(self, cookies: str) -> None:
        """End the sessions in a Cookie header."""
        for token in tokens_of(cookies):
            self._sessions.close(token)
            self._known.pop(token, None)

    def ticket(self) -> str | None:
        """A ticket that lets in once, with the oldest key that may do everything; None if there is no such key.

        For whoever started the service on this machine, who can make keys anyway.
        """
        admin = next((key for key in self._keys.list() if key.revoked is None and "admin" in key.scopes), None)
        if admin is None:
            return None
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._tickets[ticket] = (admin.id, time.monotonic() + TICKET_SECONDS)
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """The token of a new session for a ticket, which is used up; None if it is none, or was."""
        with self._lock:
            found = self._tickets.pop(ticket, None)
        if found is None or found[1] < time.monotonic():
            return None
        return self._sessions.open(found[0], SESSION_SECONDS)
