"""The errors of tasks, as the run that has submitted them raises them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.distributed import driver, sessions
from engine.distributed.dask_cluster import TaskEnded, Ticket
from engine.distributed.messages import TaskFailure
from engine.model.stripe_device import BelowZero
from storage.errors import ApspError, DatabaseFailed, DiskFull, SolveFailed, StorageFailed


def subclasses(kind: type[ApspError]) -> list[type[ApspError]]:
    """Return a class and all classes below it, of the packages."""
    return [kind, *(below for one in kind.__subclasses__() for below in subclasses(one))]


@pytest.mark.parametrize("kind", [*subclasses(StorageFailed), BelowZero, SolveFailed])
def test_an_error_of_a_task_is_raised_as_what_it_is(
    kind: type[ApspError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk of a worker is a full disk of the solve: the exit status and the advice follow from the class."""
    assert {DiskFull, DatabaseFailed} <= set(subclasses(StorageFailed))

    def fails(job: object) -> None:
        raise kind("no space left")

    monkeypatch.setattr(sessions, "code_digest", lambda: "here")
    monkeypatch.setattr(sessions, "_session_of", fails)
    job = type("Job", (), {"code": "here"})()
    failure = sessions.run_task(job, "extend", None)  # type: ignore[arg-type]
    assert isinstance(failure, TaskFailure)
    with pytest.raises(ApspError, match="no space left") as caught:
        driver.result_of(TaskEnded(Ticket("a worker", None), failure, None))
    assert type(caught.value) is kind
