"""Keys of callers in the job database, and the owners of graphs and jobs.

A key is ``apsp_ID_SECRET`` with 256 random bits as its secret.  Only the SHA-256 of the secret is stored.  Slow
password hashes protect secrets that people choose, which can be guessed.  A random secret would take about 2^255
guesses, so it needs no slow hash, which would delay every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, Select, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from storage.errors import Conflict, InvalidRequest, NotFound
from storage.jobs.database import Database
from storage.jobs.schema import OPEN, GraphRecord, graph_owners, graphs, jobs, keys

_KEY: Final = re.compile(r"apsp_([a-z2-7]{8})_([A-Za-z0-9_\-]{43})")
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
SCOPES: Final = ("read", "submit", "admin")


@dataclass(frozen=True)
class KeyRecord:
    """The record of a key; times are seconds since the epoch."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created: float
    revoked: float | None


class KeyStore:
    """The keys in a database; safe to use from many threads.  Methods raise DatabaseFailed if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> Database:
        """The database of the keys, for other stores that use the same database."""
        return self._database

    def create(self, name: str, scopes: Sequence[str]) -> tuple[KeyRecord, str]:
        """Make a key; return the record of the key, and the key itself, which is not stored.  Raises InvalidRequest for
        an unknown scope.
        """
        wrong = [scope for scope in scopes if scope not in SCOPES]
        if wrong or not scopes:
            message = f"a key has scopes among {', '.join(SCOPES)}, found {', '.join(wrong) or 'none'}"
            raise InvalidRequest(message, field="scope")
        if not 1 <= len(name) <= 200:
            raise InvalidRequest(f"the name of a key has 1 to 200 characters, found {len(name)}", field="name")
        record = KeyRecord(_new_id(), name, tuple(scope for scope in SCOPES if scope in scopes), time.time(), None)
        secret = secrets.token_urlsafe(32)
        values = {"id": record.id, "name": name, "digest": _digest(secret), "scopes": list(record.scopes)}
        with self._database.transaction("durable") as connection:
            connection.execute(insert(keys).values(**values, created=record.created))
        return record, f"apsp_{record.id}_{secret}"

    def find(self, key: str) -> KeyRecord | None:
        """Return the record of a valid key; None for any other text."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        with self._database.transaction("read") as connection:
            row = connection.execute(select(keys).where(keys.c.id == match[1])).one_or_none()
        known = row is not None and row.revoked is None
        expected = row.digest if row is not None else "0" * 64
        return _record(row) if hmac.compare_digest(expected, _digest(match[2])) and known else None

    def list(self) -> list[KeyRecord]:
        """Return all keys, the oldest first."""
        with self._database.transaction("read") as connection:
            return [_record(row) for row in connection.execute(select(keys).order_by(keys.c.created, keys.c.id))]

    def any_valid(self) -> bool:
        """Return whether there is a key that was not revoked."""
        with self._database.transaction("read") as connection:
            return connection.execute(select(keys.c.id).where(keys.c.revoked.is_(None)).limit(1)).first() is not None

    def revoke(self, key_id: str) -> KeyRecord:
        """Make a key invalid, permanently; safe to repeat.  Raises NotFound if there is no such key."""
        with self._database.transaction("durable") as connection:
            change = update(keys).where(keys.c.id == key_id).values(revoked=func.coalesce(keys.c.revoked, time.time()))
            row = connection.execute(change.returning(keys)).one_or_none()
        if row is None:
            raise NotFound(f"there is no key {key_id!r}")
        return _record(row)

    # Owners

    def job_owner(self, job_id: str) -> str | None:
        """Return the owner of a job, even of a removed job; None if the job has no owner or does not exist."""
        with self._database.transaction("read") as connection:
            found: str | None = connection.execute(select(jobs.c.owner).where(jobs.c.id == job_id)).scalar_one_or_none()
        return found

    def own_graph(self, owner: str, record: GraphRecord) -> bool:
        """Record that ``owner`` uploaded a graph, with facts and receipt of this upload.  Return False, and change
        nothing, if an upload of this graph by ``owner`` is recorded already.
        """
        values = {"owner": owner, "graph": record.id, "name": record.name, "created": record.created}
        told = {"facts": record.facts, "receipt": record.receipt}
        try:
            with self._database.transaction("durable") as connection:
                connection.execute(insert(graph_owners).values(**values, **told))
        except IntegrityError:
            return False
        return True

    def rename_graph(self, owner: str, graph_id: str, name: str) -> None:
        """Change the name that a graph has for ``owner``."""
        mine = (graph_owners.c.owner == owner, graph_owners.c.graph == graph_id)
        with self._database.transaction("durable") as connection:
            connection.execute(update(graph_owners).where(*mine).values(name=name))

    def owned_graph(self, owner: str, graph_id: str) -> GraphRecord | None:
        """Return a graph with the name and the receipt of the owner's upload, even if the graph was removed; None if
        no upload of the graph by ``owner`` is recorded.
        """
        with self._database.transaction("read") as connection:
            row = connection.execute(_owned(owner).where(graphs.c.id == graph_id)).one_or_none()
            return None if row is None else _as_uploaded(row)

    def disown_graph(self, owner: str, graph_id: str) -> bool:
        """Delete the record that ``owner`` uploaded a graph.  Return True if the graph has no owner any more.

        Raises Conflict, and changes nothing, if the graph would have no owner any more although open jobs need it.
        Administrators may have such jobs: they can solve graphs that other callers uploaded.
        """
        mine = (graph_owners.c.owner == owner, graph_owners.c.graph == graph_id)
        with self._database.transaction("durable") as connection:
            connection.execute(delete(graph_owners).where(*mine))
            left = select(graph_owners.c.owner).where(graph_owners.c.graph == graph_id).limit(1)
            if connection.execute(left).first() is not None:
                return False
            busy = select(jobs.c.id).where(jobs.c.graph == graph_id, jobs.c.state.in_(OPEN)).limit(1)
            if connection.execute(busy).first() is not None:
                raise Conflict(f"graph {graph_id} is needed by open jobs")
            return True

    def list_graphs(
        self, limit: int, owner: str | None, after: tuple[float, str] | None = None
    ) -> Sequence[GraphRecord]:
        """List graphs, newest first.

        Args:
            limit: largest number of graphs to return.
            owner: owner of the graphs, which are returned with the facts of this owner's upload; None for all graphs,
                with the facts of their first upload.
            after: time of creation and id of the last graph seen, to continue a list.
        """
        query = (select(graphs) if owner is None else _owned(owner)).where(graphs.c.removed.is_(None))
        created = graphs.c.created if owner is None else graph_owners.c.created
        if after is not None:
            query = query.where(or_(created < after[0], (created == after[0]) & (graphs.c.id < after[1])))
        with self._database.transaction("read") as connection:
            rows = connection.execute(query.order_by(created.desc(), graphs.c.id.desc()).limit(limit))
            return [GraphRecord(**row._mapping) if owner is None else _as_uploaded(row) for row in rows]


_OWN: Final = ("name", "created", "facts", "receipt")
#: Facts about the uploaded file, not about the graph in it.
_OF_A_FILE: Final = ("format", "compression", "entries", "dropped", "notes")


def _owned(owner: str) -> Select[Any]:
    own = [graph_owners.c[name].label(f"own_{name}") for name in _OWN]
    query = select(graphs, *own).join(graph_owners, graph_owners.c.graph == graphs.c.id)
    return query.where(graph_owners.c.owner == owner)


def _as_uploaded(row: Row[Any]) -> GraphRecord:
    """Return the record of a graph, with name, time, facts and receipt of the owner's upload, not of the first one."""
    values = dict(row._mapping)
    own = {name: values.pop(f"own_{name}") for name in _OWN}
    if own["receipt"] is None:  # an old version of the program stored the receipt of the first upload only
        facts = {name: value for name, value in values["facts"].items() if name not in _OF_A_FILE}
        if "weights" in facts:
            told = ("column", "length_of")
            facts["weights"] = {name: None if name in told else value for name, value in facts["weights"].items()}
        own |= {"facts": facts, "receipt": {}}
    return GraphRecord(**{**values, **own})


def _new_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record(row: Any) -> KeyRecord:
    return KeyRecord(row.id, row.name, tuple(row.scopes), row.created, row.revoked)
