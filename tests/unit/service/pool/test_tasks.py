"""What the reading process makes of a job request."""

from pathlib import Path

import pytest

from service.pool.tasks import job_options
from service.settings import Settings
from storage.errors import InvalidRequest, LimitExceeded
from tests.unit.service.support import small_graph


@pytest.mark.parametrize("field", ["sources", "targets"])
def test_vertices_become_indices_and_one_that_is_named_twice_counts_once(field: str):
    options = job_options(small_graph(), {field: [30, "10", "30", 10]}, Settings(data_dir=Path("d")))
    assert getattr(options, field) == (2, 0)
    with pytest.raises(InvalidRequest, match=f"{field}: no vertex '31'") as caught:
        job_options(small_graph(), {field: [31]}, Settings())
    assert caught.value.field == field
    with pytest.raises(LimitExceeded, match=f"5 {field} are named"):
        job_options(small_graph(), {field: [10] * 5}, Settings())


def test_budgets_are_no_larger_than_those_of_the_service():
    settings = Settings(memory=1000, threads=2)
    assert job_options(small_graph(), {"memory": 10, "threads": 8}, settings).memory == 10
    assert job_options(small_graph(), {"memory": 2000, "threads": 8}, settings).memory == 1000
    assert job_options(small_graph(), {"threads": 8}, settings).threads == 2
    assert job_options(small_graph(), {}, Settings()).memory is None


def test_workers_of_a_scheduler_are_asked_for_where_the_service_has_one():
    with pytest.raises(InvalidRequest, match="the service has no scheduler") as caught:
        job_options(small_graph(), {"executor": "dask"}, Settings())
    assert caught.value.field == "executor"
    settings = Settings(scheduler="tcp://node0:8786")
    assert job_options(small_graph(), {"executor": "dask"}, settings).scheduler == "tcp://node0:8786"
    assert job_options(small_graph(), {"executor": "local"}, settings).scheduler is None
