"""Sessions of people who logged in on the dashboard with a key.  Only the digest of a session's random token is stored.

A session has the scopes of its key.  It ends when the key is revoked, when it expires, or when its holder logs out.
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
    """Sessions in a database; safe to use from many threads.  Methods raise DatabaseFailed if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, key_id: str, seconds: float) -> str:
        """Open a session that lasts ``seconds``, and return the token of the session.  Also delete expired sessions."""
        token, now = secrets.token_urlsafe(32), time.time()
        values = {"digest": _digest(token), "key": key_id, "created": now, "expires": now + seconds}
        with self._database.transaction("durable") as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= now))
            connection.execute(insert(sessions).values(**values))
        return token

    def find(self, token: str) -> KeyRecord | None:
        """Return the key of the session with this token; None if there is no open session or the key was revoked."""
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
