"""The database behind the job store: SQLite or PostgreSQL, selected by URL; transactions of three kinds; migrations.

``durable`` transactions, such as those that accept or end a job, are on the disk when they return. ``progress``
transactions may be lost in a power cut.  ``read`` transactions take no lock.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import time
import weakref
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from storage.errors import DatabaseFailed, InvalidRequest
from storage.jobs.schema import metadata

Kind = Literal["durable", "progress", "read"]

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
#: The newest migration; a database with this revision needs no migration.
HEAD: Final = max(path.stem[1:5] for path in (_MIGRATIONS / "versions").glob("v[0-9]*.py"))
#: The revision of databases that were made before migrations were introduced.
_FIRST: Final = "0001"
#: The advisory lock of PostgreSQL that a process holds while it migrates.
_MIGRATION_LOCK: Final = 0x61707370


class Database:
    """Connections to one database; safe to use from many threads, and from many processes at once.

    Args:
        where: path of an SQLite file, or a URL ``sqlite:///...`` or ``postgresql://user@host/name``.
        timeout: seconds to wait for a lock that another process holds.

    Raises:
        InvalidRequest: the URL has another form.
        DatabaseFailed: the database cannot be used.
    """

    def __init__(self, where: Path | str, *, timeout: float = 30.0) -> None:
        self.url = _url(where)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        if self.sqlite and self.url.database:
            Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(self.url, timeout)
        # closes the connections of a database that nobody closes; Python 3.13 and later warn of open ones of SQLite
        weakref.finalize(self, _close_own, self._engine, os.getpid()).atexit = False
        self._kinds: dict[str, Engine] = {
            kind: self._engine.execution_options(apsp_begin=kind) for kind in ("durable", "progress", "read")
        }
        migrate(self)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def ping(self) -> None:
        """Take and release the write lock, to check that the database can be written."""
        with self.transaction("progress") as connection:
            connection.execute(text("SELECT 1"))

    def transaction(self, kind: Kind) -> AbstractContextManager[Connection]:
        """Begin a transaction, as a context manager.  Errors of the database become DatabaseFailed, except violated
        constraints (IntegrityError).
        """
        return _Transaction(self._kinds[kind])

    def one_at_a_time(self, connection: Connection, name: str) -> None:
        """Hold a lock called ``name`` until this transaction ends; other transactions that ask for it wait."""
        if not self.sqlite:  # SQLite allows only one writer in any case
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def _close_own(engine: Engine, process: int) -> None:
    """Close all connections that ``process`` has made; a forked child leaves them open, as its parent uses them."""
    if os.getpid() == process:
        engine.dispose()


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction of the kind that the options of the connection name."""
    kind = _kind(connection)
    if kind == "read":
        connection.exec_driver_sql("BEGIN")
        return
    # Taking the write lock first avoids the deadlock of two transactions that read and then want to write.
    connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if kind == 'progress' else 'FULL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_postgres(connection: Connection) -> None:
    """Let a transaction about progress end before it is durable.  The driver of PostgreSQL has begun it already."""
    if _kind(connection) == "progress":
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def _kind(connection: Connection) -> str:
    return str(connection.get_execution_options().get("apsp_begin", "durable"))


def migrate(database: Database) -> None:
    """Create the tables, or migrate them from any old revision.  Several processes may call this at the same time."""
    with database.transaction("read") as connection:
        if _revision(connection) == HEAD:
            return
    with database.transaction("durable") as connection:
        if not database.sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        if _revision(connection) == HEAD:
            return
        if inspect(connection).has_table("jobs"):
            upgrade(connection)
        else:  # create the final tables directly: importing alembic takes long
            metadata.create_all(connection)
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
            connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def upgrade(connection: Connection) -> None:
    """Run the missing migrations.  Raises DatabaseFailed if the tables are newer than this program."""
    command, config = importlib.import_module("alembic.command"), importlib.import_module("alembic.config")
    script = config.Config()
    script.set_main_option("script_location", str(_MIGRATIONS))
    script.attributes["connection"] = connection
    try:
        if _revision(connection) is None and inspect(connection).has_table("jobs"):
            command.stamp(script, _FIRST)
        command.upgrade(script, "head")
    except importlib.import_module("alembic.util").CommandError as error:
        raise DatabaseFailed(f"the job database was made by a newer version of apsp ({error})") from error


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return found


def _url(where: Path | str) -> URL:
    if isinstance(where, Path):
        return URL.create("sqlite", database=str(where))
    try:
        url = make_url(where)
        name = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise InvalidRequest(f"the database URL cannot be understood: {error}", field="database_url") from error
    if name == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if name != "sqlite" or not url.database:
        message = f"the database must be sqlite:///FILE or postgresql://..., found {name}"
        raise InvalidRequest(message, field="database_url")
    return url


def _engine(url: URL, timeout: float) -> Engine:
    pool: dict[str, Any] = {"pool_size": 8, "max_overflow": 64, "pool_timeout": 30}
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": timeout}, **pool)
        event.listen(engine, "connect", partial(_on_connect, timeout))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    limits = f"-c lock_timeout={int(timeout * 1000)} -c idle_in_transaction_session_timeout=60000"
    arguments = {"connect_timeout": max(2, int(timeout)), "options": limits, "application_name": "apsp"}
    engine = create_engine(url, pool_pre_ping=True, connect_args=arguments, **pool)
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _on_connect(timeout: float, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # so that the driver does not execute BEGIN: _begin_sqlite does that
    connection.execute("PRAGMA foreign_keys=ON")
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # several processes may open a new database at once; SQLite does not wait for the lock in this statement
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


class _Transaction(AbstractContextManager[Connection]):
    def __init__(self, engine: Engine) -> None:
        self._begin = engine.begin()

    def __enter__(self) -> Connection:
        try:
            return self._begin.__enter__()
        except SQLAlchemyError as error:
            _translate(error)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        try:
            swallow = self._begin.__exit__(kind, error, trace)
        except SQLAlchemyError as failure:
            _translate(failure)
            raise
        if isinstance(error, SQLAlchemyError):
            _translate(error)
        return swallow


def _translate(error: SQLAlchemyError) -> None:
    """Raise DatabaseFailed for errors that a retry may overcome, and return for others."""
    ours = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    if not ours and not isinstance(error, IntegrityError):
        reason = getattr(error, "orig", None) or error
        raise DatabaseFailed(f"the job database cannot be used: {reason}".strip()) from error
