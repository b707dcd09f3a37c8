"""What is SQLite's own about the job store, migrations of both databases, and database URLs."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, inspect, select, text

from storage.errors import DatabaseFailed, InvalidRequest, StorageFailed
from storage.jobs import database as database_module
from storage.jobs.database import HEAD, Database, upgrade
from storage.jobs.schema import graph_owners, graphs, metadata
from storage.jobs.store import GraphRecord, JobStore, Submission


@pytest.fixture
def jobs(tmp_path: Path):
    store = JobStore(tmp_path / "db" / "apsp.db")
    yield store
    store.close()


def test_promises_are_synchronous_and_progress_is_not(jobs: JobStore):
    found: dict[str, int] = {}
    for name, engine in (
        ("durable", jobs._database._kinds["durable"]),
        ("progress", jobs._database._kinds["progress"]),
    ):
        with engine.begin() as connection:
            found[name] = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    assert found == {"durable": 2, "progress": 1}
    with jobs._database._engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_no_job_starts_before_it_is_created(jobs: JobStore, monkeypatch: pytest.MonkeyPatch):
    """A claim waits for the lock of the database while a job that goes first is submitted."""
    jobs.add_graph(GraphRecord("g", "sha256:g", None, 2, 1, {}, {}, 1.0))
    jobs.create("g", {}, {})
    begin, clock = jobs.database.transaction, iter(range(100, 200))
    monkeypatch.setattr("time.time", lambda: float(next(clock)))

    def late(kind: str) -> object:
        if kind == "durable":
            monkeypatch.setattr(jobs.database, "transaction", begin)
            jobs.submit(Submission("g", {}, {}, priority=1))
        return begin(kind)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs.database, "transaction", late)
    claimed = jobs.claim("r")
    assert claimed is not None
    assert claimed.priority == 1
    assert claimed.started is not None
    assert claimed.created < claimed.started


def test_a_broken_database_is_a_storage_error(tmp_path: Path):
    path = tmp_path / "apsp.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StorageFailed, match="database"):
        JobStore(path)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "db" / "apsp.db" if request.param == "sqlite" else request.getfixturevalue("postgres").url()


def test_a_store_that_nobody_refers_to_closes_its_connections(where: Path | str):
    store = JobStore(where)
    engine = store.database._engine
    assert engine.pool.checkedin() > 0  # type: ignore[attr-defined]
    del store
    gc.collect()
    assert engine.pool.checkedin() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_a_forked_child_leaves_the_connections_of_its_parent_open(where: Path | str, monkeypatch: pytest.MonkeyPatch):
    store = JobStore(where)
    engine, own = store.database._engine, os.getpid()
    there = engine.pool.checkedin()  # type: ignore[attr-defined]
    monkeypatch.setattr("storage.jobs.database.os.getpid", lambda: own + 1)
    del store
    gc.collect()
    assert engine.pool.checkedin() == there > 0  # type: ignore[attr-defined]
    engine.dispose()


@pytest.mark.parametrize("by", ["migrations", "at once"])
def test_migrations_lead_to_the_tables_that_are_used(where: Path | str, by: str):
    database = Database(where)
    if by == "migrations":
        with database.transaction("durable") as connection:
            for table in reversed(inspect(connection).get_table_names()):
                suffix = "" if database.sqlite else " CASCADE"
                connection.execute(text(f"DROP TABLE {table}{suffix}"))
            upgrade(connection)
    with database.transaction("read") as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_who_uploaded_a_graph_first_keeps_its_receipt(where: Path | str):
    database = Database(where)
    with database.transaction("durable") as connection:
        row = {"id": "g", "digest": "sha256:g", "n": 1, "m": 0, "facts": {}, "receipt": {"format": "csv"}}
        connection.execute(insert(graphs).values(**row, created=1.5))
        for column in ("facts", "receipt"):
            connection.execute(text(f"ALTER TABLE graph_owners DROP COLUMN {column}"))
        connection.execute(text("DROP INDEX jobs_by_prediction"))
        for column in ("predicted_seconds", "predicted_memory"):
            connection.execute(text(f"ALTER TABLE jobs DROP COLUMN {column}"))
        for owner, created in (("ann", 1.5), ("bob", 2.5)):
            query = text("INSERT INTO graph_owners (owner, graph, created) VALUES (:owner, 'g', :created)")
            connection.execute(query, {"owner": owner, "created": created})
        connection.execute(text("UPDATE alembic_version SET version_num = '0005'"))
        upgrade(connection)
        found = connection.execute(select(graph_owners.c.owner, graph_owners.c.receipt)).all()
    assert {row.owner: row.receipt for row in found} == {"ann": {"format": "csv"}, "bob": None}
    database.close()


class _Busy:
    """A connection on which SQLite does not wait for the lock of another process by itself."""

    def __init__(self, refusals: int, code: int = sqlite3.SQLITE_BUSY) -> None:
        self.refusals, self.code, self.done = refusals, code, []
        self.isolation_level = "deferred"

    def execute(self, statement: str) -> None:
        if "WAL" in statement and self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error
        self.done.append(statement)


def test_a_connection_waits_for_a_database_that_others_open():
    busy = _Busy(3)
    database_module._on_connect(5.0, busy, None)
    assert busy.done[-1] == "PRAGMA journal_mode=WAL"
    for refusals, timeout, code in ((10**6, 0.05, sqlite3.SQLITE_BUSY), (1, 5.0, sqlite3.SQLITE_CORRUPT)):
        with pytest.raises(sqlite3.OperationalError):
            database_module._on_connect(timeout, _Busy(refusals, code), None)


def test_many_processes_may_start_on_an_empty_database(where: Path | str):
    failures: list[BaseException] = []

    def start() -> None:
        try:
            Database(where).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


#: the tables as the first versions made them
FIRST = """
CREATE TABLE graphs (id VARCHAR(40) NOT NULL PRIMARY KEY, digest VARCHAR(80) NOT NULL UNIQUE, name VARCHAR(200),
    n BIGINT NOT NULL, m BIGINT NOT NULL, facts JSON NOT NULL, receipt JSON NOT NULL, created FLOAT NOT NULL);
CREATE TABLE jobs (id VARCHAR(40) NOT NULL PRIMARY KEY, graph VARCHAR(40) NOT NULL REFERENCES graphs (id),
    name VARCHAR(200), state VARCHAR(12) NOT NULL, phase VARCHAR(60) NOT NULL, options JSON NOT NULL,
    plan JSON NOT NULL, attempt INTEGER NOT NULL, fence BIGINT NOT NULL, runner VARCHAR(120),
    heartbeat FLOAT, cancel BOOLEAN NOT NULL, progress JSON NOT NULL,
    error JSON, history JSON NOT NULL, seconds JSON, summary JSON, created FLOAT NOT NULL,
    started FLOAT, finished FLOAT, updated FLOAT NOT NULL);
CREATE INDEX jobs_by_state ON jobs (state, created);
INSERT INTO graphs VALUES ('g1', 'sha256:g1', 'roads', 3, 2, '{"directed": true}', '{}', 1.5);
INSERT INTO jobs VALUES ('j1', 'g1', NULL, 'accepted', 'queued', '{}', '{}', 0, 0, NULL, NULL, 0,
    '{"fraction": 0.0, "rate": null, "unit": null, "eta": null}', 'null', '[]', 'null', 'null', 2.5, NULL, NULL, 2.5);
"""


def test_a_database_of_the_first_version_is_brought_up_to_date(tmp_path: Path):
    path = tmp_path / "apsp.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(FIRST)
    connection.close()
    store = JobStore(path)
    record = store.claim("r")
    assert record is not None
    assert (record.id, record.priority, record.owner, record.created) == ("j1", 0, None, 2.5)
    assert store.succeed(record, {"pairs": 6}, {})
    assert store.graph("g1") == GraphRecord("g1", "sha256:g1", "roads", 3, 2, {"directed": True}, {}, 1.5)
    store.close()


@pytest.mark.slow
def test_processes_that_start_together_bring_an_old_database_up_to_date_once(tmp_path: Path, where: Path | str):
    tables = [part for part in FIRST.split(";\n") if part.startswith(("\nCREATE", "CREATE"))]
    database = Database(where)
    with database.transaction("durable") as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        for table in tables:
            connection.execute(text(table))
    begun = tmp_path / "begin"
    code = """
import sys, time
from pathlib import Path
from storage.jobs.database import Database
where = Path(sys.argv[1]) if "://" not in sys.argv[1] else sys.argv[1]
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
Database(where).close()
"""
    command = [sys.executable, "-c", code, str(where), str(begun)]
    root = Path(__file__).parents[4]
    processes = [subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    time.sleep(1)
    begun.touch()
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in processes]
    assert [code for _, code in ends] == [0] * 4, ends
    with database.transaction("read") as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [HEAD]
        found = inspect(connection)
        for table in metadata.sorted_tables:
            assert {column["name"] for column in found.get_columns(table.name)} == {c.name for c in table.columns}
    database.close()


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path):
    path = tmp_path / "apsp.db"
    Database(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(DatabaseFailed, match="newer version"):
        Database(path)
    assert HEAD < "9999"


def test_a_locked_database_fails_in_time_and_recovers(tmp_path: Path):
    store = JobStore(tmp_path / "apsp.db", timeout=0.3)
    other = sqlite3.connect(tmp_path / "apsp.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(DatabaseFailed, match="locked"):
        store.ping()
    assert 0.2 < time.monotonic() - began < 5
    assert store.list_jobs(1) == [], "reading goes on"
    other.rollback()
    other.close()
    store.ping()
    store.close()


@pytest.mark.parametrize("url", ["mysql://host/name", "sqlite://", "no url at all", "postgresql://host:port/name"])
def test_other_databases_are_refused(url: str):
    with pytest.raises(InvalidRequest, match="database"):
        Database(url)
