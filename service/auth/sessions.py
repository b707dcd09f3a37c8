"""Sessions of the dashboard: a cookie stands for a key; a ticket in a printed link opens a session once."""

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
#: seconds after which a session ends
SESSION_SECONDS: Final = 12 * 3600.0
#: seconds for which a printed link is valid; only its first use opens a session
TICKET_SECONDS: Final = 600.0
_MOST_REMEMBERED: Final = 10_000


#: the most session cookies of one request that are examined; a browser sends one for each host and path that set one
_MOST_COOKIES: Final = 4


def tokens_of(cookies: str) -> list[str]:
    """Return the first ``_MOST_COOKIES`` different session tokens of a Cookie header.

    There may be several tokens, because a neighbouring host may have set a cookie of the same name.  The header is
    parsed here because ``SimpleCookie`` stops at the first malformed cookie, and other programs on the same host set
    such cookies.
    """
    parts = (part.partition("=") for part in cookies.split(";"))
    found = dict.fromkeys(value.strip() for name, _, value in parts if name.strip() == COOKIE and value.strip())
    return list(found)[:_MOST_COOKIES]


class Sessions:
    """Finds the caller of a session.  Results are cached for ``REMEMBERED_SECONDS``, as in ``Keyring``.

    No keys are stored.
    """

    def __init__(self, keys: KeyStore) -> None:
        self._keys, self._sessions = keys, SessionStore(keys.database)
        self._known: OrderedDict[str, tuple[KeyRecord, float]] = OrderedDict()
        self._tickets: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    async def identify(self, cookies: str) -> Caller | None:
        """Return the caller of a Cookie header; None if the header holds no valid session."""
        found = await self.key(cookies)
        return None if found is None else Caller(found.id, frozenset(found.scopes))

    async def key(self, cookies: str) -> KeyRecord | None:
        """Return the key behind the first valid session in a Cookie header."""
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
        """Open a session for a key and return its token; None if the key is not valid."""
        record = self._keys.find(key.strip())
        return None if record is None else self._sessions.open(record.id, SESSION_SECONDS)

    def leave(self, cookies: str) -> None:
        """End the sessions in a Cookie header."""
        for token in tokens_of(cookies):
            self._sessions.close(token)
            self._known.pop(token, None)

    def ticket(self) -> str | None:
        """Make a ticket that opens one session with the oldest admin key; None if there is no such key.

        The ticket is for the user who started the service on this machine, who can make keys anyway.
        """
        admin = next((key for key in self._keys.list() if key.revoked is None and "admin" in key.scopes), None)
        if admin is None:
            return None
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._tickets[ticket] = (admin.id, time.monotonic() + TICKET_SECONDS)
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """Use up a ticket and return the token of a new session; None if the ticket is invalid, used or expired."""
        with self._lock:
            found = self._tickets.pop(ticket, None)
        if found is None or found[1] < time.monotonic():
            return None
        return self._sessions.open(found[0], SESSION_SECONDS)
