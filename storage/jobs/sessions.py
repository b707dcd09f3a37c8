"""Sessions of people who signed in on the page with a key: each has a random token, of which only the digest is kept.

A session has the scopes of its key.  It ends when the key is revoked, when it expires, or when its holder signs out.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from sqlalchemy import delete, insert, select

from storage.jobs.database import Database
from storage.jobs.keys import KeyRecord
from storage.jobs.schema import keys, sessions


class SessionStore:
    """The sessions in a database; safe to use from many threads.  All methods raise DatabaseFailed if that fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, key_id: str, seconds: float) -> str:
        """Open a session of a key, which lasts ``seconds``, and return its token; also delete expired sessions."""
        token, now = secrets.token_urlsafe(32), time.time()
        values = {"digest": _digest(token), "key": key_id, "created": now, "expires": now + seconds}
        with self._database.transaction("durable") as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= now))
            connection.execute(insert(sessions).values(**values))
        return token

    def find(self, token: str) -> KeyRecord | None:
        """Return the key of an open session, if the key is still valid; None for any other text."""
        wanted = (sessions.c.digest == _digest(token), sessions.c.expires > time.time(), keys.c.revoked.is_(None))
        query = select(keys).join(sessions, sessions.c.key == keys.c.id).where(*wanted)
        with self._database.transaction("read") as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else KeyRecord(row.id, row.name, tuple(row.scopes), row.created, row.revoked)

    def close(self, token: str) -> None:
        """End a session; safe to repeat."""
        with self._database.transaction("durable") as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == _digest(token)))


def _digest(token: str) -> str:
    # a token has 256 random bits and cannot be guessed, so no slow hash is needed
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
