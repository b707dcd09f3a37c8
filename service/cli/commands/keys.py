"""``apsp key``: make, list and revoke keys of a service, in its database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from service.cli.commands.output import emit, emit_json
from service.jobs.folders import keep_private
from service.settings import Settings
from storage.jobs.keys import KeyRecord, KeyStore
from storage.jobs.store import JobStore


def create(name: str, scopes: Sequence[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Make a key and print it on a line of its own; it cannot be shown again.

    Args:
        name: whose key it is, or what it is for.
        scopes: what the key allows: read, submit, admin.
        data_dir: the service's folder; from the environment if None.
        as_json: whether to print one JSON object instead of text.
    """
    with _keys(data_dir) as keys:
        record, key = keys.create(name, scopes)
    emit_json({**_plain(record), "key": key}) if as_json else emit(key)


def list_keys(*, data_dir: Path | None, as_json: bool) -> None:
    """Print the record of every key; the keys themselves are not stored."""
    with _keys(data_dir) as keys:
        records = keys.list()
    if as_json:
        emit_json({"keys": [_plain(record) for record in records]})
        return
    emit([_line(record) for record in records] or "there is no key")


def revoke(key_id: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Make a key invalid; running services notice within seconds.

    Args:
        key_id: id of the key.
        data_dir: the service's folder; from the environment if None.
        as_json: whether to print one JSON object instead of text.
    """
    with _keys(data_dir) as keys:
        record = keys.revoke(key_id)
    emit_json(_plain(record)) if as_json else emit(f"{record.id} ({record.name}) is revoked")


@contextmanager
def _keys(data_dir: Path | None) -> Iterator[KeyStore]:
    settings = Settings.load(data_dir=data_dir)
    if settings.database_url is None:  # the database is then a file in data_dir
        keep_private(settings.data_dir)
    jobs = JobStore(settings.database)
    try:
        yield KeyStore(jobs.database)
    finally:
        jobs.close()


def _line(record: KeyRecord) -> str:
    state = "valid" if record.revoked is None else f"revoked {_time(record.revoked)}"
    return f"{record.id}  {'+'.join(record.scopes):<18} {_time(record.created)}  {state}  {record.name}"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _plain(record: KeyRecord) -> dict[str, object]:
    return {**asdict(record), "created": _time(record.created), "revoked": _time(record.revoked)}
