"""Sessions of people who have shown a key on the page: a random token each, of which only the digest is kept.

A session is worth what its key is worth: it ends with the key, with its time, or when its holder leaves.
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
    """The sessions in a database; safe to use from many threads.  All methods raise DatabaseFailed when it fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, key_id: str, seconds: float) -> str:
        """A new session of a key, for so many seconds; returns its token, for this once.  Forgets those that ended."""
        token, now = secrets.token_urlsafe(32), time.time()
        values = {"digest": _digest(token), "key": key_id, "created": now, "expires": now + seconds}
        with self._database.transaction("durable") as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= now))
            connection.execute(insert(sessions).values(**values))
        return token

    def find(self, token: str) -> KeyRecord | None:
        """The key of a session that is not over, if the key is still valid; None for any other text."""
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
    # 256 random bits: nothing short of guessing them all finds a token, so no slow hash is needed
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
