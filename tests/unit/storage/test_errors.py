"""What an error keeps in memory once nothing refers to it any more."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from storage.errors import DatabaseFailed, NotFound, raised
from storage.jobs.database import Database
from tests.cycles import keepers, no_collection


class Matrix:
    """Something large that a frame refers to."""


def test_a_raised_error_is_not_kept_by_the_function_that_raised_it() -> None:
    def refused(matrix: Matrix) -> None:
        raised(None)
        raised(NotFound("no such result"))

    matrix = Matrix()
    gone = weakref.ref(matrix)
    with no_collection():
        with pytest.raises(NotFound):
            refused(matrix)
        del matrix
        assert gone() is None, keepers(gone())


def test_a_failed_transaction_keeps_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "jobs.sqlite")

    def work(matrix: Matrix) -> None:
        with database.transaction("durable"):
            raise OperationalError("SELECT", {}, Exception("the database is locked"))

    matrix = Matrix()
    gone = weakref.ref(matrix)
    with no_collection():
        with pytest.raises(DatabaseFailed, match="locked"):
            work(matrix)
        del matrix
        assert gone() is None, keepers(gone())
    database.close()
